"""Decisions by their ids, from the segments that are still on this machine's disk: for requests that are repeated."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from potstill.events.records import DecisionRow
from potstill.events.wal.segment import CLOSED, OPEN, Header, UnreadableSegment, newest_first
from potstill.events.wal.spool import DONE, Spool

#: Number of ids up to which a segment is searched for their bytes before it is decoded: 100 times faster.
FEW = 16
_SUFFIXES = (OPEN, CLOSED, DONE)


#: Whether the decisions of a segment are wanted, by its header.
Fits = Callable[[Header], bool]


def last_decisions(spool: Spool, fits: Fits, count: int) -> dict[str, DecisionRow]:
    """The last decisions of all logs of a spool: `count`, if there are so many.

    Of several with one id it is the earliest, which the join counts too.
    """
    found: dict[str, DecisionRow] = {}
    for path in spool.recent():
        for row in _decisions(path, fits):
            _keep_earliest(found, row)
            if len(found) >= count:
                return found
    return found


def find_decisions(spool: Spool, fits: Fits, ids: Collection[str]) -> dict[str, DecisionRow]:
    """Decisions with some ids, as far as they are on disk; of several with one id the earliest in its segment."""
    found: dict[str, DecisionRow] = {}
    for path in spool.recent():
        missing = {name for name in ids if name not in found}
        if not missing:
            break
        if len(missing) > FEW or _mentions(path, missing):
            for row in _decisions(path, fits):
                if row.id in missing:
                    _keep_earliest(found, row)
    return found


def _keep_earliest(found: dict[str, DecisionRow], row: DecisionRow) -> None:
    other = found.get(row.id)
    if other is None or row.time < other.time:
        found[row.id] = row


def _decisions(path: Path, fits: Fits) -> Iterator[DecisionRow]:
    """Decisions of a segment that is wanted, last first; none if it cannot be read."""
    for name in _names(path):
        with contextlib.suppress(FileNotFoundError):
            try:
                header, rows = newest_first(name)
            except UnreadableSegment:
                return
            if fits(header):
                yield from (row for row in rows if isinstance(row, DecisionRow))
            return


def _mentions(path: Path, ids: Collection[str]) -> bool:
    """Whether the bytes of one of some ids are in a file."""
    for name in _names(path):
        with contextlib.suppress(FileNotFoundError):
            data = name.read_bytes()
            return any(one.encode() in data for one in ids)
    return False


def _names(path: Path) -> list[Path]:
    """Names that a segment may have by now: it is renamed when it is closed, and when it is in the lake."""
    return [path.with_suffix(suffix) for suffix in _SUFFIXES[_SUFFIXES.index(path.suffix) :]]
