"""Summaries of a workspace: small files that every view reads, kept up to date by the flusher and by updates.

`potstill.summaries.build` makes them from the lake, needs Polars, and is imported apart.
"""

from potstill.summaries.cells import DecisionCell, ObservationCell, RewardCell
from potstill.summaries.change import Change, find_change
from potstill.summaries.compare import Line
from potstill.summaries.findings import Finding
from potstill.summaries.health import Health, health, relative_entropy
from potstill.summaries.overview import HOURS, Inputs, Overview, Service, overview
from potstill.summaries.points import Point
from potstill.summaries.reports import (
    ActionRatio,
    AgreementSegment,
    ApprenticeReport,
    FeatureReport,
    FeatureRow,
    HealthReport,
    Ready,
    Report,
    VersionHealth,
    mask_notices,
    read_report,
    write_report,
)
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
from potstill.summaries.store import TABLES, newest_name, read_summary, write_summary
from potstill.summaries.sums import Estimate, Sums, Weighted, against, difference, mean_of, off_policy
from potstill.summaries.updates import UpdateHistory, UpdateRun, read_updates, record_update

__all__ = [
    "DAY",
    "HOUR",
    "HOURS",
    "MINUTE",
    "TABLES",
    "ActionRatio",
    "AgreementSegment",
    "ApprenticeReport",
    "Change",
    "DecisionCell",
    "DecisionSummary",
    "Estimate",
    "FeatureReport",
    "FeatureRow",
    "Finding",
    "Health",
    "HealthReport",
    "Inputs",
    "Line",
    "ObservationCell",
    "ObservationSummary",
    "Overview",
    "Point",
    "Ready",
    "Report",
    "RewardCell",
    "RewardSummary",
    "Service",
    "Summary",
    "Sums",
    "UpdateHistory",
    "UpdateRun",
    "VersionHealth",
    "VersionTotal",
    "Weighted",
    "against",
    "difference",
    "find_change",
    "health",
    "mask_notices",
    "mean_of",
    "newest_name",
    "off_policy",
    "overview",
    "read_report",
    "read_summary",
    "read_updates",
    "record_update",
    "relative_entropy",
    "write_report",
    "write_summary",
]
