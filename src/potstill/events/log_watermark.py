"""The watermark of this machine's log: registered before events are acknowledged, published after each flush."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from potstill.clock import CLOCK, SECOND, TOLERANCE, Reading, boot_id
from potstill.events.wal import Spool
from potstill.events.watermarks import (
    Gone,
    ImplausibleClock,
    Watermark,
    Watermarks,
    differs,
    in_words,
    utc,
)
from potstill.files import hold, make_folder, write_atomically
from potstill.storage import Storage, StorageUnavailable, child

T = TypeVar("T")
#: Seconds after which a watermark is published again, or by which it has moved.
REFRESH = 5.0
#: Seconds between two comparisons of this machine's clock with the store's.
COMPARE = 60.0
MIRROR, LOCK = "log.json", "log.lock"
_logger = logging.getLogger(__name__)


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
                f"this machine's clock is {differs(step)} what it should be: its log was last written at "
                f"{utc(known.written)}, {in_words(CLOCK.now() - known.written)} ago by the time since boot. "
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
                utc(gone.time),
            )

    def _compared(self, mark: Watermark) -> Watermark:
        """A watermark that was just written, with the clocks compared; the log's is set to the store's if it is off."""
        offset = self._all.storage.times("")[f"{mark.log}.json"] - mark.written
        if abs(offset) <= TOLERANCE:
            known = abs(offset - mark.offset) <= 2 * SECOND  # stores tell times to the second
            return mark if known else msgspec.structs.replace(mark, offset=offset)
        CLOCK.shift(offset)
        reading = CLOCK.read()
        _logger.warning("the clock of log %s was %s that of the store, and is set to it", mark.name, differs(-offset))
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
