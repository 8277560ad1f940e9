"""Which rows of labelled shards are held out, and in which order the others are trained on.

Several shards are shuffled together, so that a table sorted by time does not teach one day after the other. Memory
does not depend on the number of shards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from potstill.distill.imitate import HELD_OUT_AT_MOST, Rows, checked
from potstill.distill.network import Float32
from potstill.distill.student import Student
from potstill.keys import Key
from potstill.spaces import Learning

#: Rows of a block: large enough that starting a program costs nothing, small enough that several are no burden.
BLOCK_ROWS = 65_536
#: A short run has smaller blocks, so that held-out rows are looked at this often at least.
FEWEST_BLOCKS = 16
#: Shards that are shuffled together.
MIXED = 4
#: Shards, evenly spaced, that rows are held out from.
SPREAD = 32


class Labels(Protocol):
    """Labelled contexts, in shards."""

    @property
    def rows(self) -> Sequence[int]:
        """Number of rows of each shard, none of which is empty."""

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean context, float64[d]."""

    def read(self, shard: int) -> tuple[Float32, Float32]:
        """The contexts float32[n, d] and labels float32[n, L] of a shard, always in the same order."""


class Labelled(NamedTuple):
    """Some contexts float32[n, d] and their labels float32[n, L]."""

    contexts: Float32
    labels: Float32


class ShardOrder(NamedTuple):
    """Which rows are held out, how many steps there are, and the order of everything.

    Attributes:
        rows: Number of rows of each shard.
        spared: Number of rows of each shard that are held out.
        steps: Number of steps of the whole run.
        batch: Rows of a step.
        block_steps: Steps of a block.
        key: Decides all that is random.
        learning: Imitation on the action space, which checks labels.
    """

    rows: Sequence[int]
    spared: NDArray[np.int64]
    steps: int
    batch: int
    block_steps: int
    key: Key
    learning: Learning

    @classmethod
    def of(cls, rows: Sequence[int], student: Student, learning: Learning, key: Key) -> ShardOrder:
        """For shards of these sizes."""
        total = sum(rows)
        if not total:
            raise ValueError("there are no labels to imitate")
        wanted = min(int(student.held_out * total), HELD_OUT_AT_MOST)
        spared = _spread(rows, wanted) if wanted >= 2 else np.zeros(len(rows), np.int64)
        batch = min(student.batch, total)
        steps = max(student.steps, -(-(total - int(spared.sum())) // batch))
        # Powers of two, so that runs of similar length share a program.
        per_block = _power_of_two_below(min(BLOCK_ROWS // batch, steps // FEWEST_BLOCKS))
        return cls(rows, spared, -(-steps // per_block) * per_block, batch, per_block, key, learning)

    @property
    def block_rows(self) -> int:
        """Rows of a block."""
        return self.block_steps * self.batch

    def first_look(self, labels: Labels) -> tuple[Labelled, Labelled]:
        """A sample of the rows to train on, and those that are held out; the sample as well, if none were spared."""
        looked_at = np.flatnonzero(self.spared) if self.spared.any() else _evenly(len(self.rows), SPREAD)
        sampled, held_out = [], []
        for shard in looked_at.tolist():
            contexts, targets = checked(*labels.read(shard), self.learning)
            order, spared = self._order(shard), int(self.spared[shard])
            held_out.append(Labelled(contexts[order[:spared]], targets[order[:spared]]))
            some = order[spared:][: -(-HELD_OUT_AT_MOST // len(looked_at))]
            sampled.append(Labelled(contexts[some], targets[some]))
        sample = _together(sampled)
        return sample, _together(held_out) if self.spared.any() else sample

    def blocks(self, labels: Labels) -> Iterator[Labelled]:
        """Rows to train on, without end, in blocks of one shape: pass after pass, each in an order of its own."""
        left: list[Labelled] = []
        for number in count():
            key = self.key.child("pass", number)
            shards = key.generator().permutation(len(self.rows)).tolist()
            for at in range(0, len(shards), MIXED):
                left.append(self._mixed(labels, shards[at : at + MIXED], key.child(at)))
                if sum(len(part.labels) for part in left) < self.block_rows:
                    continue
                mixture = _together(left)
                whole = len(mixture.labels) // self.block_rows * self.block_rows
                for first in range(0, whole, self.block_rows):
                    yield Labelled(*(array[first : first + self.block_rows] for array in mixture))
                left = [Labelled(*(array[whole:].copy() for array in mixture))]

    def _mixed(self, labels: Labels, shards: list[int], key: Key) -> Labelled:
        """The rows to train on of some shards, shuffled."""
        parts = []
        for shard in shards:
            contexts, targets = checked(*labels.read(shard), self.learning)
            kept = self.to_train_on(shard)
            parts.append(
                Labelled(contexts, targets) if len(kept) == len(targets) else Labelled(contexts[kept], targets[kept])
            )
        together = _together(parts)
        order = key.generator().permutation(len(together.labels))
        return Labelled(together.contexts[order], together.labels[order])

    def to_train_on(self, shard: int) -> Rows:
        """The rows of a shard that are not held out, in order."""
        return np.sort(self._order(shard)[int(self.spared[shard]) :])

    def _order(self, shard: int) -> Rows:
        """The order in which a shard's rows are held out, sampled and left to train on."""
        order: Rows = self.key.child("rows", shard).generator().permutation(self.rows[shard])
        return order


def _together(parts: Sequence[Labelled]) -> Labelled:
    if len(parts) == 1:
        return parts[0]
    return Labelled(np.concatenate([part.contexts for part in parts]), np.concatenate([part.labels for part in parts]))


def _power_of_two_below(n: int) -> int:
    return 1 << max(n.bit_length() - 1, 0)


def _evenly(n: int, most: int) -> NDArray[np.int64]:
    """Up to `most` of n places, evenly spaced."""
    return np.unique(np.linspace(0, n - 1, min(n, most)).round().astype(np.int64))


def _spread(rows: Sequence[int], wanted: int) -> NDArray[np.int64]:
    """How many rows to hold out of each shard: equally many of shards that are evenly spaced, never all of one."""
    spared = np.zeros(len(rows), np.int64)
    chosen = _evenly(len(rows), min(SPREAD, wanted))
    spared[chosen] = np.minimum(-(-wanted // len(chosen)), np.asarray(rows)[chosen] // 2)
    return spared
