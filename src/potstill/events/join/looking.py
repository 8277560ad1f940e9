"""Looking over what a cut takes up, before it is made: what can be said only of all rows of one id together.

Ids are looked at in partitions of their hashes, each of which fits in memory and needs no other. Each reads all ids
again and keeps its own, which takes a core 1 s for 10 million rows; nothing has to be moved from one to another.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.events.join.changes import BEGINNING, END
from potstill.events.join.dedup import Copies, find_copies
from potstill.events.join.ids import Index, Partition, partitions
from potstill.events.join.report import JoinCounts
from potstill.events.join.sources import Sources
from potstill.events.join.strays import count_strays
from potstill.mapping import Map

#: Decisions and rewards that are looked at together; each needs 50 bytes of memory.
PARTITION = 10_000_000
#: How many marks there are for each slice: every partition can put its ends wrong by one of them.
MARKS = 100


class Overview(NamedTuple):
    """What is known of the rows of a cut before it is made.

    Attributes:
        copies: the ids that stand more than once.
        counts: copies, and rewards that count for no observation.
        slices: pieces of time ``(after, to]`` with about as many decisions each, which are all of them.
    """

    copies: Copies
    counts: JoinCounts
    slices: list[tuple[int, int]]


class Looked(NamedTuple):
    """What was found in a partition; `marks` are the times of every so-manyth of its decisions."""

    copies: Copies
    counts: JoinCounts
    marks: NDArray[np.int64]


def overview(sources: Sources, decisions: int, slice_rows: int, each: Map) -> Overview:
    """Look over the rows of a cut.

    Args:
        sources: the rows.
        decisions: how many it takes up.
        slice_rows: how many of them make a slice.
        each: maps over partitions.
    """
    count = 1 + (decisions + sources.taken_rewards.count()) // PARTITION
    every = max(slice_rows // MARKS, 1)
    found: list[Looked] = list(each(look, partitions(count), sources, every))
    return Overview(
        Copies.all(part.copies for part in found),
        sum((part.counts for part in found), JoinCounts()),
        _slices(np.sort(np.concatenate([part.marks for part in found])), slice_rows // every),
    )


def look(partition: Partition, sources: Sources, every: int) -> Looked:
    """Look over a partition of the ids."""
    partition.check()
    index = Index.of(partition.rows(sources.decisions.scan()))
    strays = count_strays(sources, partition, index)
    copies = find_copies(sources, partition, index)
    counts = JoinCounts(duplicates=copies.duplicates, conflicting=copies.conflicting, rewards=strays)
    return Looked(copies, counts, index.every(every))


def _slices(marks: NDArray[np.int64], of: int) -> list[tuple[int, int]]:
    """The time in pieces with so many marks each; rows of equal time stay together."""
    ends = np.unique(marks[of - 1 : -1 : of]).tolist()
    return list(pairwise([BEGINNING, *ends, END]))
