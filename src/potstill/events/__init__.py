"""Events: decisions and rewards, and the crash-safe log that stores them.

The lake (`potstill.events.lake`) and the join (`potstill.events.join`) need more libraries, and are imported apart.
"""

from typing import TYPE_CHECKING

from potstill.clock import now
from potstill.events.damage import ScrubState, read_scrub
from potstill.events.log_watermark import LogWatermark
from potstill.events.records import (
    DecisionBlock,
    DecisionRow,
    Event,
    LoggedDecision,
    LoggedObservation,
    LoggedReward,
    Row,
    microseconds,
)
from potstill.events.totals import RewardTotals, add_totals, read_totals
from potstill.events.validate import ID_BYTES, TIME_PATTERN, InvalidEvent, context_type, text
from potstill.events.wal import Commit, EventLog, LogUnavailable, frames
from potstill.events.watermarks import (
    Horizon,
    ImplausibleClock,
    UnknownLog,
    Watermark,
    Watermarks,
    in_words,
)
from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.events.backfill import add_history as add_history
    from potstill.events.backfill import refuse_repeat as refuse_repeat

__all__ = [
    "ID_BYTES",
    "TIME_PATTERN",
    "Commit",
    "DecisionBlock",
    "DecisionRow",
    "Event",
    "EventLog",
    "Horizon",
    "ImplausibleClock",
    "InvalidEvent",
    "LogUnavailable",
    "LogWatermark",
    "LoggedDecision",
    "LoggedObservation",
    "LoggedReward",
    "RewardTotals",
    "Row",
    "ScrubState",
    "UnknownLog",
    "Watermark",
    "Watermarks",
    "add_totals",
    "context_type",
    "frames",
    "in_words",
    "microseconds",
    "now",
    "read_scrub",
    "read_totals",
    "text",
]

__getattr__ = lazy(__name__, {"backfill": ("add_history", "refuse_repeat")})
