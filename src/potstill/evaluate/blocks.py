"""Passes over a log: rows are checked, numbered, and cut into blocks of one size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from potstill.errors import InvalidLog
from potstill.evaluate.log import Block, Log, check
from potstill.problem import Problem
from potstill.spaces import Allowed, LoggedSupport, OffPolicy, off_policy

#: Rows of a block as estimators see them. Fixed, so that sums are equal to the bit however a log was cut.
BLOCK = 65_536
#: Upper bound on the numbers in one array over the rows of a block: wide problems have shorter blocks.
_NUMBERS = 1 << 23


def numbered(log: Log) -> Iterator[tuple[int, Block]]:
    """The rows of a log, checked, in blocks of one size, each with the number of its first row."""
    first, ope = 0, off_policy(log.problem.actions)
    for block in _resized(_checked(log), rows_per_block(log.problem), ope):
        yield first, block
        first += len(block)
    if not first:
        raise InvalidLog(f"the log of {log.problem.name!r} is empty; choose a range with decisions in it")


def rows_per_block(problem: Problem) -> int:
    """Number of rows of a problem's log that are processed at once."""
    return max(1, min(BLOCK, _NUMBERS // off_policy(problem.actions).columns(problem.width)))


class LogWithSupport:
    """A log that records which actions it holds while it is read.

    Args:
        log: The log.
    """

    def __init__(self, log: Log) -> None:
        self.problem = log.problem
        self._log = log
        self._support: LoggedSupport | None = None

    def blocks(self) -> Iterator[Block]:
        """The blocks of the log."""
        support = off_policy(self.problem.actions).support()
        for block in self._log.blocks():
            yield block  # the reader has checked it by the time it asks for the next one
            support.add(block.actions)
        self._support = support

    def support(self) -> LoggedSupport:
        """Which actions were logged; reads the log, unless it was read to the end before."""
        if self._support is None:
            for _ in numbered(self):
                pass
        assert self._support is not None
        return self._support


def _checked(log: Log) -> Iterator[Block]:
    """The rows of a log, checked; their rewards are what is maximised, the objective if the problem has one."""
    first, objective = 0, log.problem.objective
    for block in log.blocks():
        check(log.problem, block, first)
        yield block if objective is None else replace(block, rewards=objective.values(block.actions, block.rewards))
        first += len(block)


def _resized(blocks: Iterator[Block], rows: int, ope: OffPolicy) -> Iterator[Block]:
    """The same rows in blocks of one size, the last one shorter."""
    waiting: list[Block] = []
    count = 0
    for block in blocks:
        waiting.append(block)
        count += len(block)
        if count >= rows:
            joined = _joined(waiting, ope)
            cut = count - count % rows
            yield from (joined[first : first + rows] for first in range(0, cut, rows))
            waiting, count = [joined[cut:]], count - cut
    if count:
        yield _joined(waiting, ope)


def _joined(blocks: list[Block], ope: OffPolicy) -> Block:
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
        _joined_eligible(filled, ope),
        None if times is None else np.concatenate([block.times for block in filled if block.times is not None]),
        {name: np.concatenate([block.groups[name] for block in filled]) for name in names},
    )


def _joined_eligible(blocks: list[Block], ope: OffPolicy) -> Allowed | None:
    if all(block.eligible is None for block in blocks):
        return None
    parts: list[Any] = [ope.unrestricted(len(block)) if block.eligible is None else block.eligible for block in blocks]
    return np.concatenate(parts)
