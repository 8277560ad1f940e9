"""Watermarks: how far each log is in the lake, kept beside the lake.

A log is the spool of one machine. It is registered before its processes acknowledge an event, and its flusher publishes
a watermark: the time up to which everything that the log has acknowledged is in the lake. A cut takes only what all
live logs have passed, so that a reward that was acknowledged in time is in the lake when its decision is joined,
however long a machine could not reach the store.

A log that is drained and has no process left closes itself. One whose machine is gone for good is passed after a lease,
or at once when somebody declares it gone.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from potstill.clock import CLOCK, SECOND, TOLERANCE, Reading, boot_id
from potstill.errors import PotstillError
from potstill.events.wal import Spool
from potstill.files import hold, make_folder, write_atomically
from potstill.storage import Storage, StorageUnavailable, child

T = TypeVar("T")
#: Seconds after which a watermark is published again, or by which it has moved.
REFRESH = 5.0
#: Lag that needs no mention: segments are closed and flushed every few seconds.
USUAL = 60 * SECOND
#: Watermarks that are read concurrently: an object store has high latency.
READERS = 16
#: Seconds between two comparisons of this machine's clock with the store's.
COMPARE = 60.0
MIRROR, LOCK = "log.json", "log.lock"
_PROBE = "clock.probe"
_logger = logging.getLogger(__name__)


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
                f"events of this machine since {_moment(self.time)} ({in_words(now - self.time)} ago) are not all in "
                "the lake, and updates wait for them; the flusher's messages say why"
            )
        if self.step:
            found.append(
                f"this machine's clock is {_differs(self.step)} that of its log, which events keep: it was set since "
                "the log was opened, or differs from the store's. Set the clock right; or, if it is right now, run "
                "potstill update --trust-clock and restart the service"
            )
        if abs(self.offset) > TOLERANCE:
            found.append(
                f"this machine's clock is {_differs(-self.offset)} that of the store, and updates wait; set it right "
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
                f"log {held.name} holds the cut back: its events since {_moment(held.time)} "
                f"({in_words(now - held.time)} ago) are not all in the lake. Start its service or flush it there "
                f"(potstill events flush); if the machine is gone for good: potstill events logs DIR --gone {held.log}"
            )
        found += [
            f"log {one.name} has not reported since {_moment(one.written)}, longer than log.lease: cuts have passed "
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
                f"this machine's clock is {_differs(ahead)} that of {self.storage.url}: nothing was joined, since "
                "decisions would become final at the wrong time; set the clock right, and run it again"
            )
        for mark in self.all():
            if mark.open and mark.gone is None and abs(mark.offset) > TOLERANCE:
                raise ImplausibleClock(
                    f"the clock of log {mark.name} is {_differs(-mark.offset)} that of {self.storage.url}: nothing was "
                    "joined; set the clock of that machine right and restart its service, or declare the log gone "
                    f"with potstill events logs DIR --gone {mark.log}"
                )


class LogWatermark:
    """The watermark of this machine's log.

    Args:
        spool: The spool.
        storage: Folder of all watermarks.
    """

    def __init__(self, spool: Path, storage: Storage) -> None:
        self._spool, self._all = Spool(spool), Watermarks(storage)
        self._published: tuple[Watermark, float] | None = None  # by this process, and when
        self._compare = 0.0  # when to compare clocks next, on the monotonic clock

    def mirror(self) -> Watermark | None:
        """The last watermark of this log, from the spool; None if there is none."""
        try:
            return msgspec.json.decode((self._spool.path / MIRROR).read_bytes(), type=Watermark)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def register(self, start: Callable[[], T]) -> T:
        """Register the log, and then start a process that acknowledges events.

        Args:
            start: Opens the log. No flusher takes it for closed before that: they wait for the same lock.

        Raises:
            StorageUnavailable: The log is not registered, and the store cannot be reached.
        """
        with self._locked():
            known = self.keep_clock()
            try:
                mark = self._all.read(known.log) if known else None
                booted = known is None or known.boot != boot_id()  # its clock was not compared with the store's yet
                if mark is None or not mark.open or mark.gone is not None or (booted and self._all.storage.own_clock):
                    opened = msgspec.structs.replace(self._mark(CLOCK.now(), known), open=True)
                    self._publish(opened, gone=mark.gone if mark else None)
            except StorageUnavailable:
                if known is None or not known.open:
                    raise
            return start()

    def publish(self, moment: int, aside: Collection[Path] = ()) -> int:
        """Publish what is in the lake; call it after a flush.

        Args:
            moment: When the flush began: what was acknowledged before and is not in the spool is in the lake.
            aside: Segments that cuts need not wait for: their rewards are in the lake, and their decisions cannot be.

        Returns:
            The watermark's time.
        """
        with self._locked():
            known = self.keep_clock()
            mark = self._mark(moment, known, aside)
            if self._is_due(mark):
                before = self._all.read(mark.log) if known else None
                self._publish(mark, gone=before.gone if before else None)
            return mark.time

    def keep_clock(self) -> Watermark | None:
        """Continue the clock of this log where the machine's clock was set since; returns the last watermark."""
        known = self.mirror()
        if known is not None:
            CLOCK.keep(Reading(known.written, known.boot, known.uptime))
        return known

    def check_clock(self) -> None:
        """Raise `ImplausibleClock` if this machine's clock was set since its log was last written."""
        known = self.mirror()
        step = CLOCK.keep(Reading(known.written, known.boot, known.uptime)) if known else 0
        if known is not None and step:
            raise ImplausibleClock(
                f"this machine's clock is {_differs(step)} what it should be: its log was last written at "
                f"{_moment(known.written)}, {in_words(CLOCK.now() - known.written)} ago by the time since boot. "
                "Nothing was joined, since decisions would become final at the wrong time. Set the clock right; or, "
                "if it is right now, accept it with potstill update --trust-clock and restart the service"
            )

    def trust_clock(self) -> None:
        """Accept this machine's clock, whatever was written before."""
        with self._locked():
            known = self.mirror()
            if known is not None:
                self._write_mirror(msgspec.json.encode(msgspec.structs.replace(known, boot="")))
            CLOCK.reset()

    def _mark(self, moment: int, known: Watermark | None, aside: Collection[Path] = ()) -> Watermark:
        pending, reading, step = self._spool.pending(aside), CLOCK.read(), CLOCK.follow()
        return Watermark(
            log=known.log if known else uuid.uuid4().hex,
            host=socket.gethostname(),
            time=moment if pending.oldest is None else min(moment, pending.oldest),
            open=bool(pending.segments) or any(map(self._spool.is_alive, self._spool.writers())),
            written=reading.time,
            boot=reading.boot,
            uptime=reading.uptime,
            step=round(step, -6),  # whole seconds: a change is published at once
            offset=known.offset if known else 0,
        )

    def _is_due(self, mark: Watermark) -> bool:
        if self._published is None:
            return True
        last, when = self._published
        if (mark.open, mark.step) != (last.open, last.step):
            return True
        return time.monotonic() - when >= REFRESH or abs(mark.time - last.time) >= REFRESH * SECOND

    def _publish(self, mark: Watermark, gone: Gone | None) -> None:
        if self.mirror() is None:  # keep the id first: nobody would close a log whose id was lost
            self._write_mirror(msgspec.json.encode(msgspec.structs.replace(mark, open=False)))
        data = self._all.write(mark)
        if self._all.storage.own_clock and time.monotonic() >= self._compare:
            self._compare = time.monotonic() + COMPARE
            compared = self._compared(mark)
            if compared != mark:
                mark, data = compared, self._all.write(compared)
        self._write_mirror(data)
        self._published = (mark, time.monotonic())
        if gone is not None:
            _logger.warning(
                "%s: log %s was declared gone by %s at %s and is back: rewards that it acknowledged since may come "
                "too late for decisions that were joined meanwhile",
                child(self._all.storage.url, f"{mark.log}.json"),
                mark.name,
                gone.by or "somebody",
                _moment(gone.time),
            )

    def _compared(self, mark: Watermark) -> Watermark:
        """A watermark that was just written, with the clocks compared; the log's is set to the store's if it is off."""
        offset = self._all.storage.times("")[f"{mark.log}.json"] - mark.written
        if abs(offset) <= TOLERANCE:
            known = abs(offset - mark.offset) <= 2 * SECOND  # stores tell times to the second
            return mark if known else msgspec.structs.replace(mark, offset=offset)
        CLOCK.shift(offset)
        reading = CLOCK.read()
        _logger.warning("the clock of log %s was %s that of the store, and is set to it", mark.name, _differs(-offset))
        # Segments from before may have times of either clock.
        moment = min(mark.time, mark.time + offset)
        changed = {"time": moment, "written": reading.time, "uptime": reading.uptime, "offset": 0}
        return msgspec.structs.replace(mark, step=round(CLOCK.follow(), -6), **changed)

    def _write_mirror(self, data: bytes) -> None:
        write_atomically(self._spool.path / MIRROR, data)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        make_folder(self._spool.path)
        lock = hold(self._spool.path / LOCK, wait=True)
        assert lock is not None
        try:
            yield
        finally:
            os.close(lock)


def in_words(microseconds: float) -> str:
    """A duration in its two largest units, such as ``2 d 3 h``."""
    seconds = round(abs(microseconds) / SECOND)
    units = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
    parts: list[str] = []
    for unit, size in units:
        count, seconds = divmod(seconds, size)
        if count or (unit == "s" and not parts):
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2])


def _differs(ahead: int) -> str:
    return f"{in_words(ahead)} {'ahead of' if ahead > 0 else 'behind'}"


def _moment(time: int) -> str:
    return datetime.fromtimestamp(time / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
