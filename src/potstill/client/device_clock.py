"""Times of a device's rows, corrected by the service's clock when they are sent.

A device's clock may be wrong when a decision is taken, and right when its reward comes. Rows therefore keep the time
since boot beside the device's time. When they are sent, the service's clock says when that was.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import msgspec

from potstill.clock import CLOCK, TOLERANCE, boot_id, since_boot, wall

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Uptime(NamedTuple):
    """Time since boot: the id of the boot, empty where there is none, and microseconds."""

    boot: str
    microseconds: int


class _Timed(msgspec.Struct):
    time: datetime


def uptime() -> Uptime:
    """The present time since boot."""
    elapsed = since_boot()
    return Uptime("", 0) if elapsed is None else Uptime(boot_id(), elapsed)


class DeviceClock:
    """The service's clock, as far as the device has heard of it."""

    def __init__(self) -> None:
        self._offset: int | None = None  # of the service's clock to this process's

    @property
    def is_known(self) -> bool:
        """Whether the service has told its time."""
        return self._offset is not None

    def hear(self, stated: str | None) -> None:
        """Note the service's time from the header ``X-Potstill-Time`` of a reply: seconds since 1970."""
        with suppress(TypeError, ValueError, OverflowError):
            self._offset = round(float(stated or "") * 1e6) - CLOCK.now()

    def corrected(self, body: bytes, taken: Uptime | None) -> bytes:
        """A row's JSON with its time by the service's clock, if the two differ by more than a minute.

        Args:
            body: The row, with its time by the device's clock.
            taken: When it was written; None if its time was stated by the caller, and is kept.
        """
        if taken is None:
            return body
        stated = _microseconds(msgspec.json.decode(body, type=_Timed).time)
        present, now = (wall() if self._offset is None else CLOCK.now() + self._offset), uptime()
        if now.boot and now.boot == taken.boot:
            right = present - (now.microseconds - taken.microseconds)
        else:
            right = stated + present - wall()  # assume that the clock was as wrong then as it is now
        if abs(right - stated) <= TOLERANCE:
            return body
        row = msgspec.json.decode(body)
        return msgspec.json.encode({**row, "time": _EPOCH + right * _MICROSECOND})


def _microseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // _MICROSECOND
