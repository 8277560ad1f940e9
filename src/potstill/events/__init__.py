"""Events: decisions and rewards, and the crash-safe log that stores them.

The lake (`potstill.events.lake`) and the join (`potstill.events.join`) need more libraries, and are imported apart.
"""

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
from potstill.events.validate import InvalidEvent
from potstill.events.wal import Commit, EventLog, LogUnavailable

__all__ = [
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
    "microseconds",
    "now",
]
