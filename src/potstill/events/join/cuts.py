"""Cuts: one small file for each join or import, written before its observations.

A cut is complete when the table of observations has its number as a transaction of the writer ``cuts``. Each cut names
the complete one before it, so that the numbers of cuts that never completed are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Literal

import msgspec

from potstill.errors import PotstillError
from potstill.storage import AlreadyThere, Storage, child

if TYPE_CHECKING:
    from potstill.events.lake import Lake

WRITER = "cuts"
Aggregate = Literal["first", "last", "sum", "max", "mean"]
#: The tables that are joined.
Events = Literal["decisions", "rewards"]


class CutConflict(PotstillError, RuntimeError):
    """Another process made a cut at the same time; nothing was written."""


class CorruptCut(PotstillError, ValueError):
    """The file of a cut is not what was written."""


class AlreadyImported(PotstillError, ValueError):
    """The same file was imported before."""


class ImportedFile(msgspec.Struct, frozen=True, kw_only=True):
    """File that observations were imported from.

    Attributes:
        name: Name of the file, as the user gave it.
        sha256: SHA-256 of its bytes; the same file is not imported twice.
        rows: Number of rows.
    """

    name: str
    sha256: str
    rows: int


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """One cut: which events were turned into observations, and by which rules.

    An import has no rules; its `until`, `decisions` and `rewards` repeat those of the cut before it, for the next join.

    Attributes:
        number: Number of the cut, from 1; numbers rise and may have gaps.
        kind: ``"join"`` for events from the log, ``"import"`` for historical ones.
        made: Time at which the cut was made, in microseconds since 1970, UTC.
        after: The complete cut before this one; 0 if it is the first.
        until: Decisions up to this time have been joined; microseconds since 1970, UTC.
        decisions: The version of the table of decisions that was read; None if there was no table.
        rewards: The version of the table of rewards.
        problem: The hash of the problem.
        aggregate: How several rewards of one decision are combined.
        window: Seconds after a decision in which a reward counts.
        settle: Seconds that rewards were given to arrive after that.
        default: The reward of a decision without one.
        source: Imported file; None for a join.
    """

    number: int
    kind: Literal["join", "import"]
    made: int
    after: int
    until: int = -1
    decisions: int | None = None
    rewards: int | None = None
    problem: str
    aggregate: Aggregate = "last"
    window: int = 0
    settle: int = 0
    default: float = 0.0
    source: ImportedFile | None = None

    def version(self, table: Events) -> int | None:
        """Version of a table that was read; None if there was no table."""
        return self.decisions if table == "decisions" else self.rewards


def last_cut(lake: Lake) -> int:
    """Number of the last complete cut; 0 if there is none."""
    return lake.transaction("observations", WRITER) or 0


def read_cut(cuts: Storage, number: int) -> Cut:
    """A cut by its number; `FileNotFoundError` if it has no file."""
    name = _name(number)
    try:
        return msgspec.json.decode(cuts.read(name), type=Cut)
    except FileNotFoundError:
        raise FileNotFoundError(f"{child(cuts.url, name)} is missing: cut {number} cannot be read") from None
    except msgspec.DecodeError as error:
        raise CorruptCut(f"{child(cuts.url, name)} is not a cut: {error}; restore the file from a backup") from error


def complete_cuts(lake: Lake, cuts: Storage) -> Iterator[Cut]:
    """Complete cuts, newest first."""
    number = last_cut(lake)
    while number:
        cut = read_cut(cuts, number)
        yield cut
        number = cut.after


def is_complete(lake: Lake, cuts: Storage, number: int) -> bool:
    """Whether the cut with a number is complete."""
    later = takewhile(lambda cut: cut.number >= number, complete_cuts(lake, cuts))
    return any(cut.number == number for cut in later)


def previous_cut(cuts: Storage, number: int) -> Cut | None:
    """The complete cut with a number; None for 0."""
    return read_cut(cuts, number) if number else None


def newest_cut(cuts: Storage, last: int) -> Cut | None:
    """The newest recorded cut after the last complete one: interrupted, or in progress."""
    found = None
    for number in range(last + 1, 2**63):  # numbers have no gaps here, and an object store lists slowly
        try:
            found = read_cut(cuts, number)
        except FileNotFoundError:
            break
    return found


def write_cut(cuts: Storage, cut: Cut) -> None:
    """Record a new cut; `CutConflict` if its number is taken."""
    try:
        cuts.create(_name(cut.number), msgspec.json.format(msgspec.json.encode(cut), indent=2) + b"\n")
    except AlreadyThere:
        raise CutConflict(f"cut {cut.number} was made by another process meanwhile; run it again") from None


def _name(number: int) -> str:
    return f"{number:010}.json"
