"""What was compared with what, on whom, and when: what a reader of a report must know to judge it."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from potstill.experiments.analysis.units import Units
from potstill.experiments.config import ExperimentConfig

_DAY = 86_400_000_000


class About(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment as it was set up.

    Attributes:
        control: what control does, in words; None if the configuration no longer says.
        start: as the configuration says; None if it does not.
        unit: that was randomised: ``unit``, as requests state it, or a feature.
        first, last: when the first and the last decision that counts was taken; None without any.
        days: UTC days from the first to the last.
        workspace: where it was logged.
        made: when the report was.
    """

    control: str | None
    start: datetime | None
    unit: str
    first: datetime | None
    last: datetime | None
    days: int
    workspace: str
    made: datetime

    @classmethod
    def of(cls, config: ExperimentConfig | None, units: Units, *, unit: str, workspace: str, made: int) -> About:
        """What is known; `made` in microseconds since 1970."""
        first, last = units.period or (None, None)
        return cls(
            control=config.control.in_words if config else None,
            start=config.start if config else None,
            unit=unit,
            first=_time(first),
            last=_time(last),
            days=0 if first is None or last is None else last // _DAY - first // _DAY + 1,
            workspace=workspace,
            made=datetime.fromtimestamp(made / 1e6, UTC),
        )

    @property
    def period(self) -> str:
        """Such as ``2026-11-16 to 2026-11-22 (7 days)``; empty without decisions."""
        if self.first is None or self.last is None:
            return ""
        days = "1 day" if self.days == 1 else f"{self.days:,} days"
        return f"{self.first:%Y-%m-%d} to {self.last:%Y-%m-%d} ({days})"


def moment(time: datetime) -> str:
    """A time as people read it."""
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def _time(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else datetime.fromtimestamp(microseconds / 1e6, UTC)
