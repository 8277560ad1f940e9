"""The write-ahead log: events are on disk before they are acknowledged."""

from potstill.events.wal.group_commit import Commit, LogUnavailable
from potstill.events.wal.log import EventLog, frames
from potstill.events.wal.recall import find_decisions, last_decisions
from potstill.events.wal.segment import Damage, Header, LaterFormat, UnreadableSegment, newest_first, read, read_header
from potstill.events.wal.spool import QUARANTINE, Pending, Spool

__all__ = [
    "QUARANTINE",
    "Commit",
    "Damage",
    "EventLog",
    "Header",
    "LaterFormat",
    "LogUnavailable",
    "Pending",
    "Spool",
    "UnreadableSegment",
    "find_decisions",
    "frames",
    "last_decisions",
    "newest_first",
    "read",
    "read_header",
]
