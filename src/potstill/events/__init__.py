"""Events: decisions and rewards, and the crash-safe log that stores them.

The lake (`potstill.events.lake`) and the join (`potstill.events.join`) need more libraries, and are imported apart.
"""

from potstill.events.backfill import add, refuse_again
from potstill.events.records import (
    DecisionBlock,
    DecisionRow,
    Event,
    LoggedDecision,
    LoggedObservation,
    LoggedReward,
    Row,
    microseconds,
    now,
)
from potstill.events.validate import ID_BYTES, InvalidEvent, context_type, text
from potstill.events.wal import Commit, EventLog, LogUnavailable

__all__ = [
    "ID_BYTES",
    "Commit",
    "DecisionBlock",
    "DecisionRow",
    "Event",
    "EventLog",
    "InvalidEvent",
    "LogUnavailable",
    "LoggedDecision",
    "LoggedObservation",
    "LoggedReward",
    "Row",
    "add",
    "context_type",
    "microseconds",
    "now",
    "refuse_again",
    "text",
]
