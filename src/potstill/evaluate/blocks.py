"""A log read through: its rows checked, numbered, and cut into blocks of one size."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidLog
from potstill.evaluate.log import Block, Log, check
from potstill.problem import Problem

#: Rows in a block as estimates see them. Fixed, so that sums are the same to the bit however a log was cut.
BLOCK = 65_536
#: Problems with many features or actions have fewer: an array over rows and one of these holds so many numbers at most.
_NUMBERS = 1 << 23


def numbered(log: Log) -> Iterator[tuple[int, Block]]:
    """The rows of a log, checked, in blocks of one size, each with the number of its first row."""
    first = 0
    for block in _even(_checked(log), rows_per_block(log.problem)):
        yield first, block
        first += len(block)
    if not first:
        raise InvalidLog(f"the log of {log.problem.name!r} is empty; choose a range with decisions in it")


def rows_per_block(problem: Problem) -> int:
    """How many rows of a problem's log are worked on at once."""
    return max(1, min(BLOCK, _NUMBERS // max(problem.width, len(problem.actions))))


class Witnessed:
    """A log that notes which actions it holds while it is read.

    Args:
        log: the log.
    """

    def __init__(self, log: Log) -> None:
        self.problem = log.problem
        self._log = log
        self._seen: NDArray[np.bool_] | None = None

    def blocks(self) -> Iterator[Block]:
        """Those of the log."""
        seen = np.zeros(len(self.problem.actions), bool)
        for block in self._log.blocks():
            yield block  # whoever reads it has checked it when the next one is asked for
            seen[block.actions] = True
        self._seen = seen

    def seen(self) -> NDArray[np.bool_]:
        """Which actions were ever taken, bool[K]; the log is read for it, unless it was read before."""
        if self._seen is None:
            for _ in numbered(self):
                pass
        assert self._seen is not None
        return self._seen


def _checked(log: Log) -> Iterator[Block]:
    first = 0
    for block in log.blocks():
        check(log.problem, block, first)
        yield block
        first += len(block)


def _even(blocks: Iterator[Block], rows: int) -> Iterator[Block]:
    """The same rows in blocks of one size, the last one shorter."""
    waiting: list[Block] = []
    count = 0
    for block in blocks:
        waiting.append(block)
        count += len(block)
        if count >= rows:
            whole = _joined(waiting)
            cut = count - count % rows
            yield from (whole[first : first + rows] for first in range(0, cut, rows))
            waiting, count = [whole[cut:]], count - cut
    if count:
        yield _joined(waiting)


def _joined(blocks: list[Block]) -> Block:
    filled = [block for block in blocks if len(block)]
    if len(filled) == 1:
        return filled[0]
    times, names = filled[0].times, filled[0].groups.keys()
    for block in filled:
        if (block.times is None) != (times is None) or block.groups.keys() != names:
            raise InvalidLog("the blocks of a log must all have times and the same groups, or none of them")
    return Block(
        np.concatenate([block.contexts for block in filled]),
        np.concatenate([block.actions for block in filled]),
        np.concatenate([block.rewards for block in filled]),
        np.concatenate([block.propensities for block in filled]),
        _masks(filled),
        None if times is None else np.concatenate([block.times for block in filled if block.times is not None]),
        {name: np.concatenate([block.groups[name] for block in filled]) for name in names},
    )


def _masks(blocks: list[Block]) -> NDArray[np.bool_] | None:
    masks = [block.eligible for block in blocks]
    actions = next((mask.shape[1] for mask in masks if mask is not None), None)
    if actions is None:
        return None
    return np.concatenate(
        [np.ones((len(b), actions), bool) if mask is None else mask for b, mask in zip(blocks, masks, strict=True)]
    )
