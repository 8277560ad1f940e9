"""A log, targets and a reward model as columns of numbers: all that estimates need to know of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidLog
from potstill.evaluate.blocks import Witnessed, numbered
from potstill.evaluate.log import Block, Log
from potstill.evaluate.models import FittedModel, predictions
from potstill.evaluate.targets import InvalidTarget, Logged, Matrix, Target

#: How far a propensity may be from one over the number of actions, relatively, to count as that.
_UNIFORM = 1e-6

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Terms:
    """One number per logged row for each ingredient of an estimate.

    Attributes:
        weight: the target's probability of the logged action over its propensity, float64[N].
        reward: what the row earned, float64[N].
        predicted: the reward model at the logged action, float64[N].
        expected: the reward model under the target, float64[N].
        probability: the target's probability of the logged action, float64[N].
        propensity: the probability with which it was taken, float64[N].
        matched: whether the action that the target draws for the row is the logged one, bool[N].
        missing: the target's probability on eligible actions that the whole log never took, float64[N].
    """

    weight: Float64
    reward: Float64
    predicted: Float64
    expected: Float64
    probability: Float64
    propensity: Float64
    matched: NDArray[np.bool_]
    missing: Float64

    def __len__(self) -> int:
        return len(self.reward)

    def where(self, rows: NDArray[np.bool_]) -> Terms:
        """The terms of some rows, by mask."""
        return Terms(*(getattr(self, column.name)[rows] for column in fields(self)))


@dataclass(frozen=True, eq=False)
class Gathered:
    """What one pass over a log gives.

    Attributes:
        terms: of each target, in their order.
        times: microseconds since 1970, int64[N]; None if the log has none.
        groups: values of features, to evaluate segments by.
        uniform: whether every action was taken with the same probability as all others that were eligible.
    """

    terms: tuple[Terms, ...]
    times: NDArray[np.int64] | None
    groups: Mapping[str, NDArray[Any]]
    uniform: bool


def gather(
    log: Log, targets: Sequence[Target], model: FittedModel, *, by: Sequence[str] = (), seed: int = 0
) -> Gathered:
    """The terms of targets on a log, in one pass that keeps a few dozen bytes of each row.

    Another one goes before it to see which actions the log holds, unless a `Witnessed` log was read already.

    Args:
        log: the log.
        targets: whatever could have decided.
        model: a reward model that has learnt.
        by: groups whose values to keep.
        seed: of the draws that say whether a target takes the logged action.
    """
    witnessed = log if isinstance(log, Witnessed) else Witnessed(log)
    never = ~witnessed.seen()
    shared, own = _Shared(len(never), by), [_Own(target, never) for target in targets]
    for first_row, block in numbered(witnessed):
        predicted = predictions(model, log.problem, block, first_row)
        shared.add(block, _taken(predicted, block))
        draws = uniforms(first_row, len(block), seed)
        for each in own:
            each.add(block, first_row, predicted, draws)
    return shared.gathered([each.terms(shared) for each in own])


def uniforms(first_row: int, rows: int, seed: int) -> Float64:
    """A number in [0, 1) for each row by its number and a seed alone: SplitMix64 (Steele, Lea & Flood 2014)."""
    z = np.arange(first_row + 1, first_row + 1 + rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += np.random.SeedSequence(seed).generate_state(1, np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class _Shared:
    """Columns that are the same for all targets, block by block."""

    def __init__(self, actions: int, by: Sequence[str]) -> None:
        self.actions = actions
        self.blocks: list[tuple[Float64, Float64, Float64]] = []
        self.times: list[NDArray[np.int64]] = []
        self.groups: dict[str, list[NDArray[Any]]] = {name: [] for name in by}
        self.uniform = True

    def add(self, block: Block, predicted: Float64) -> None:
        self.blocks.append((block.rewards, block.propensities, predicted))
        if block.times is not None:
            self.times.append(block.times)
        for name, values in self.groups.items():
            values.append(_group(block, name))
        self.uniform = self.uniform and _is_uniform(block, self.actions)

    @cached_property
    def columns(self) -> tuple[Float64, Float64, Float64]:
        """Rewards, propensities and predictions of all rows."""
        rewards, propensities, predicted = map(np.concatenate, zip(*self.blocks, strict=True))
        return rewards, propensities, predicted

    def gathered(self, terms: Sequence[Terms]) -> Gathered:
        times = np.concatenate(self.times) if self.times else None
        return Gathered(tuple(terms), times, {k: np.concatenate(v) for k, v in self.groups.items()}, self.uniform)


class _Own:
    """Columns of one target, block by block."""

    def __init__(self, target: Target, never: NDArray[np.bool_]) -> None:
        self.target, self.never = target, never
        self.blocks: list[tuple[Float64, Float64, NDArray[np.bool_], Float64]] = []

    def add(self, block: Block, first_row: int, predicted: Float64, draws: Float64) -> None:
        if isinstance(self.target, Logged):
            return
        p = self.target.probabilities(block, first_row)
        expected = np.einsum("nk,nk->n", p, predicted)
        missing = p[:, self.never].sum(axis=1)
        self.blocks.append((_taken(p, block), expected, _matched(p, block, draws), missing))

    def terms(self, shared: _Shared) -> Terms:
        reward, propensity, predicted = shared.columns
        if isinstance(self.target, Logged):
            return _as_logged(reward, propensity)
        if isinstance(self.target, Matrix) and len(self.target) != len(reward):
            raise InvalidTarget(f"probabilities have {len(self.target)} rows, but the log has {len(reward)}")
        probability, expected, matched, missing = map(np.concatenate, zip(*self.blocks, strict=True))
        return Terms(
            weight=probability / propensity,
            reward=reward,
            predicted=predicted,
            expected=expected,
            probability=probability,
            propensity=propensity,
            matched=matched,
            missing=missing,
        )


def _as_logged(reward: Float64, propensity: Float64) -> Terms:
    """Terms under which every estimator gives the plain mean of rewards."""
    rows = len(reward)
    return Terms(np.ones(rows), reward, reward, reward, propensity, propensity, np.ones(rows, bool), np.zeros(rows))


def _taken(values: Float64, block: Block) -> Float64:
    """Values [n, K] at the logged actions."""
    taken: Float64 = np.take_along_axis(values, block.actions[:, None], axis=1)[:, 0]
    return taken


def _matched(p: Float64, block: Block, draws: Float64) -> NDArray[np.bool_]:
    """Whether the action drawn from probabilities [n, K] by inverse CDF is the logged one."""
    below = np.cumsum(p, axis=1)
    chosen = (below <= (draws * below[:, -1])[:, None]).sum(axis=1)
    matched: NDArray[np.bool_] = chosen == block.actions
    return matched


def _is_uniform(block: Block, actions: int) -> bool:
    allowed = actions if block.eligible is None else block.eligible.sum(axis=1)
    return bool((np.abs(block.propensities * allowed - 1) <= _UNIFORM).all())


def _group(block: Block, name: str) -> NDArray[Any]:
    try:
        return block.groups[name]
    except KeyError:
        there = ", ".join(block.groups) or "none"
        raise InvalidLog(f"the log has no values of {name!r} to make segments of; it has {there}") from None
