"""Decisions and rewards: what is logged, and the crash-safe log that it goes to.

The lake that the log is emptied into, and the join, are in modules of their own, which need more libraries.
"""

from potstill.events.records import Event, LoggedDecision, LoggedObservation, LoggedReward, microseconds, now
from potstill.events.validate import InvalidEvent
from potstill.events.wal.group_commit import Commit, LogUnavailable
from potstill.events.wal.log import EventLog

__all__ = [
    "Commit",
    "Event",
    "EventLog",
    "InvalidEvent",
    "LogUnavailable",
    "LoggedDecision",
    "LoggedObservation",
    "LoggedReward",
    "microseconds",
    "now",
]
