"""Summaries of a workspace: small files that every view reads, kept up to date by the flusher and by updates.

`potstill.summaries.build` makes them from the lake, needs Polars, and is imported apart.
"""

from potstill.summaries.cells import DecisionCell, ObservationCell, RewardCell
from potstill.summaries.series import (
    DAY,
    HOUR,
    MINUTE,
    DecisionSummary,
    ObservationSummary,
    RewardSummary,
    Summary,
    VersionTotal,
)
from potstill.summaries.store import newest_name, read_summary, write_summary
from potstill.summaries.sums import Estimate, Sums, Weighted, against, difference, mean_of, off_policy
from potstill.summaries.updates import UpdateHistory, UpdateRun, read_updates, record_update

__all__ = [
    "DAY",
    "HOUR",
    "MINUTE",
    "DecisionCell",
    "DecisionSummary",
    "Estimate",
    "ObservationCell",
    "ObservationSummary",
    "RewardCell",
    "RewardSummary",
    "Summary",
    "Sums",
    "UpdateHistory",
    "UpdateRun",
    "VersionTotal",
    "Weighted",
    "against",
    "difference",
    "mean_of",
    "newest_name",
    "off_policy",
    "read_summary",
    "read_updates",
    "record_update",
    "write_summary",
]
