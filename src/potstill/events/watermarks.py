"""Watermarks: how far each log is in the lake, kept beside the lake.

A log is the spool of one machine. It is registered before its processes acknowledge an event, and its flusher publishes
a watermark: the time up to which everything that the log has acknowledged is in the lake. A cut takes only what all
live logs have passed, so that a reward that was acknowledged in time is in the lake when its decision is joined,
however long a machine could not reach the store.

A log that is drained and has no process left closes itself. One whose machine is gone for good is passed after a lease,
or at once when somebody declares it gone.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from potstill.clock import CLOCK, SECOND, TOLERANCE
from potstill.errors import PotstillError
from potstill.storage import Storage

#: Lag that needs no mention: segments are closed and flushed every few seconds.
USUAL = 60 * SECOND
#: Watermarks that are read concurrently: an object store has high latency.
READERS = 16
_PROBE = "clock.probe"


class ImplausibleClock(PotstillError, RuntimeError):
    """A clock is wrong, so that decisions might be joined before their rewards have come; nothing was joined."""


class UnknownLog(PotstillError, LookupError):
    """No log has this id."""


class Gone(msgspec.Struct, frozen=True, kw_only=True):
    """Declaration that a log is gone for good: by whom, why and when (microseconds since 1970, UTC)."""

    by: str
    reason: str
    time: int


class Watermark(msgspec.Struct, frozen=True, kw_only=True):
    """The watermark of a log. Times are microseconds since 1970, UTC, by the log's clock.

    Attributes:
        log: Id of the log, 32 hex digits.
        host: Name of its machine.
        time: Everything that the log acknowledged before this time is in the lake.
        open: Whether the log can acknowledge events, or has some that are not in the lake.
        written: When the watermark was written.
        boot: Id of the machine's boot then; empty if unknown.
        uptime: Microseconds since that boot.
        step: Microseconds that the machine's clock was set ahead since that boot; the log's clock does not follow.
        offset: Microseconds that the store's clock is ahead of the log's; 0 for a folder.
        gone: Who declared the log gone; None if nobody did.
    """

    log: str
    host: str
    time: int
    open: bool
    written: int
    boot: str = ""
    uptime: int = 0
    step: int = 0
    offset: int = 0
    gone: Gone | None = None

    @property
    def name(self) -> str:
        """Short name, such as ``3f2a91c0 on web-1``."""
        return f"{self.log[:8]} on {self.host}"

    def notices(self, now: int) -> list[str]:
        """What an operator of this machine should know."""
        found: list[str] = []
        if self.open and now - self.time > USUAL:
            found.append(
                f"events of this machine since {utc(self.time)} ({in_words(now - self.time)} ago) are not all in "
                "the lake, and updates wait for them; the flusher's messages say why"
            )
        if self.step:
            found.append(
                f"this machine's clock is {differs(self.step)} that of its log, which events keep: it was set since "
                "the log was opened, or differs from the store's. Set the clock right; or, if it is right now, run "
                "potstill update --trust-clock and restart the service"
            )
        if abs(self.offset) > TOLERANCE:
            found.append(
                f"this machine's clock is {differs(-self.offset)} that of the store, and updates wait; set it right "
                "and restart the service"
            )
        return found


class Horizon(NamedTuple):
    """How far a cut may reach.

    Attributes:
        time: Everything that live logs acknowledged before this time is in the lake.
        held_by: The log that holds the cut back; None if none does by more than usual.
        expired: Open logs that were passed because their lease is over.
    """

    time: int
    held_by: Watermark | None = None
    expired: tuple[Watermark, ...] = ()

    def words(self, now: int) -> list[str]:
        """What an operator should know about it."""
        found: list[str] = []
        if (held := self.held_by) is not None:
            found.append(
                f"log {held.name} holds the cut back: its events since {utc(held.time)} "
                f"({in_words(now - held.time)} ago) are not all in the lake. Start its service or flush it there "
                f"(potstill events flush); if the machine is gone for good: potstill events logs DIR --gone {held.log}"
            )
        found += [
            f"log {one.name} has not reported since {utc(one.written)}, longer than log.lease: cuts have passed "
            "it, and rewards that only it has will come too late"
            for one in self.expired
        ]
        return found


class Watermarks:
    """Watermarks of all logs of a workspace.

    Args:
        storage: Their folder, beside the lake.
    """

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def all(self) -> list[Watermark]:
        """The watermarks of all logs."""
        logs = [name.removesuffix(".json") for name in self.storage.names("") if name.endswith(".json")]
        with ThreadPoolExecutor(READERS) as pool:
            return [mark for mark in pool.map(self.read, logs) if mark is not None]

    def read(self, log: str) -> Watermark | None:
        """The watermark of a log; None if it has none."""
        try:
            return msgspec.json.decode(self.storage.read(f"{log}.json"), type=Watermark)
        except FileNotFoundError:
            return None

    def write(self, mark: Watermark) -> bytes:
        """Publish a watermark; returns its bytes."""
        data = msgspec.json.encode(mark)
        self.storage.replace(f"{mark.log}.json", data)
        return data

    def declare_gone(self, log: str, by: str, reason: str) -> Watermark:
        """Declare a log gone for good: cuts do not wait for it. It is live again when it next flushes.

        Args:
            log: Its id, or the beginning of it.
            by: Who declares it.
            reason: Why.
        """
        matches = [mark for mark in self.all() if log and mark.log.startswith(log)]
        if len(matches) != 1:
            known = ", ".join(mark.name for mark in self.all()) or "none"
            raise UnknownLog(f"{log!r} names {len(matches)} logs of {self.storage.url}; known: {known}")
        mark = msgspec.structs.replace(matches[0], gone=Gone(by=by, reason=reason, time=CLOCK.now()))
        self.write(mark)
        return mark

    def horizon(self, now: int, lease: int) -> Horizon:
        """How far a cut may reach. Read it before the versions of the tables that the cut reads.

        Args:
            now: Microseconds since 1970, UTC.
            lease: Seconds after which an open log that does not report is passed; 0 for never.
        """
        marks = [mark for mark in self.all() if mark.open and mark.gone is None]
        expired = [mark for mark in marks if 0 < lease * SECOND < now - mark.written]
        live = [mark for mark in marks if mark not in expired]
        first = min(live, key=lambda mark: mark.time, default=None)
        if first is None or first.time >= now:
            return Horizon(now, None, tuple(expired))
        return Horizon(first.time, first if now - first.time > USUAL else None, tuple(expired))

    def check_clocks(self) -> None:
        """Compare clocks with the store's own; for a folder, which has none, there is nothing to compare.

        Raises:
            ImplausibleClock: The clock of this machine, or that of an open log, differs by more than a minute.
        """
        if not self.storage.own_clock:
            return
        before = CLOCK.now()
        self.storage.replace(_PROBE, b"")
        after = CLOCK.now()
        ahead = (before + after) // 2 - self.storage.times("")[_PROBE]
        if abs(ahead) > TOLERANCE + (after - before) // 2:
            raise ImplausibleClock(
                f"this machine's clock is {differs(ahead)} that of {self.storage.url}: nothing was joined, since "
                "decisions would become final at the wrong time; set the clock right, and run it again"
            )
        for mark in self.all():
            if mark.open and mark.gone is None and abs(mark.offset) > TOLERANCE:
                raise ImplausibleClock(
                    f"the clock of log {mark.name} is {differs(-mark.offset)} that of {self.storage.url}: nothing was "
                    "joined; set the clock of that machine right and restart its service, or declare the log gone "
                    f"with potstill events logs DIR --gone {mark.log}"
                )


def in_words(microseconds: float) -> str:
    """A duration in its largest unit and the next one, such as ``2 d 3 h``."""
    seconds = round(abs(microseconds) / SECOND)
    counts: list[tuple[int, str]] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count or counts or unit == "s":
            counts.append((count, unit))
    first, *others = counts
    return " ".join(f"{count} {unit}" for count, unit in (first, *others[:1]) if count or unit == first[1])


def differs(ahead: int) -> str:
    """How a clock differs, such as ``2 d behind``."""
    return f"{in_words(ahead)} {'ahead of' if ahead > 0 else 'behind'}"


def utc(time: int) -> str:
    """A moment, such as ``2026-11-16 03:50:07 UTC``."""
    return datetime.fromtimestamp(time / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
