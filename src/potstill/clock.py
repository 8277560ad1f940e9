"""The clock of events: microseconds since 1970, without the steps of the machine's clock.

A decision and its reward must be timestamped by the same clock. The machine's clock may be set right, or wrong, between
them. This clock counts elapsed time, which cannot be set, and follows only small corrections.
"""

from __future__ import annotations

import os
import time
from functools import cache
from pathlib import Path
from typing import NamedTuple

SECOND = 1_000_000
#: Clocks that differ by more than this are not both right: µs.
TOLERANCE = 60 * SECOND
#: Corrections that a time server may have made meanwhile, as a share of the elapsed time.
_SLEW = 0.001


class Reading(NamedTuple):
    """This clock beside the time since boot, which cannot be set.

    Attributes:
        time: This clock, in microseconds since 1970, UTC.
        boot: Id of the machine's present boot; empty where there is none.
        uptime: Microseconds since that boot.
    """

    time: int
    boot: str
    uptime: int


class Clock:
    """Microseconds since 1970, UTC, by the monotonic clock."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Take the machine's clock as it is."""
        self._set(wall())

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        return self._base + time.monotonic_ns() // 1000

    def follow(self) -> int:
        """Adopt small corrections of the machine's clock; a step is not adopted.

        Returns:
            The step: microseconds that the machine's clock is ahead; 0 if there is none.
        """
        mine, theirs = self.now() + self._asleep(), wall()
        if abs(theirs - mine) > TOLERANCE + _SLEW * (mine - self._followed):
            self._set(mine)
            return theirs - mine
        self._set(theirs)
        return 0

    def keep(self, earlier: Reading) -> int:
        """Continue an earlier reading of the same boot where the machine's clock has been set since.

        Returns:
            The step: microseconds that the machine's clock is ahead; 0 if there is none.
        """
        uptime = since_boot()
        if not earlier.boot or uptime is None or boot_id() != earlier.boot:
            return 0
        elapsed = uptime - earlier.uptime
        step = wall() - (earlier.time + elapsed)
        if abs(step) <= TOLERANCE + _SLEW * elapsed:
            return 0
        self._set(earlier.time + elapsed)
        return step

    def shift(self, offset: int) -> None:
        """Set this clock ahead by some microseconds: to the clock of a store, which is right."""
        self._set(self.now() + offset)

    def read(self) -> Reading:
        """This clock beside the time since boot."""
        return Reading(self.now(), boot_id(), since_boot() or 0)

    def _set(self, moment: int) -> None:
        self._followed, self._uptime = moment, since_boot()
        self._base = moment - time.monotonic_ns() // 1000

    def _asleep(self) -> int:
        """Microseconds that the machine was suspended, in which the monotonic clock stands still."""
        uptime = since_boot()
        if uptime is None or self._uptime is None:
            return 0
        asleep = (uptime - self._uptime) - (self.now() - self._followed)
        return asleep if asleep > SECOND else 0


def wall() -> int:
    """The machine's clock: microseconds since 1970, UTC."""
    return time.time_ns() // 1000


def since_boot() -> int | None:
    """Microseconds since boot, as the kernel's file says; None where there is none."""
    try:
        # Keep the file open and read it from its start: opening it takes three times as long.
        return int(float(os.pread(_uptime_file(), 64, 0).split()[0]) * SECOND)
    except (OSError, ValueError):
        return None


@cache
def _uptime_file() -> int:
    return os.open("/proc/uptime", os.O_RDONLY | os.O_CLOEXEC)


@cache
def boot_id() -> str:
    """Id of the machine's present boot; empty where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


#: The clock of this process.
CLOCK = Clock()


def now() -> int:
    """Microseconds since 1970, UTC, by the clock of this process."""
    return CLOCK.now()
