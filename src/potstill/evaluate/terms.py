"""A log, targets and a reward model as columns of numbers: all that estimators need to know of the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidLog, InvalidTarget
from potstill.evaluate.blocks import LogWithSupport, numbered
from potstill.evaluate.log import Block, Log
from potstill.evaluate.models import FittedModel, predict
from potstill.evaluate.targets import ArrayTarget, LoggedTarget, Target
from potstill.spaces import LoggedSupport, OffPolicy, RewardPredictions, off_policy

Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Terms:
    """One number per logged row for each ingredient of an estimate.

    Probabilities are densities where the action space has measure ``"lebesgue"``.

    Attributes:
        weight: Importance weight: the target's probability of the logged action over its propensity, float64[N].
        reward: Reward of the row, float64[N].
        predicted: Reward model at the logged action, float64[N].
        expected: Expectation of the reward model under the target, float64[N].
        probability: The target's probability of the logged action, float64[N].
        propensity: Probability with which the action was taken, float64[N].
        matched: Whether the action that the target draws for the row is the logged one, bool[N].
        missing: The target's probability of eligible actions that the log never took, float64[N].
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
class LogTerms:
    """Terms of all targets on a log.

    Attributes:
        terms: Terms of each target, in their order.
        times: Microseconds since 1970, int64[N]; None if the log has none.
        groups: Values of features, to evaluate segments by.
        uniform: Whether every row was drawn uniformly from its eligible actions.
    """

    terms: tuple[Terms, ...]
    times: NDArray[np.int64] | None
    groups: Mapping[str, NDArray[Any]]
    uniform: bool


def compute_terms(
    log: Log, targets: Sequence[Target], model: FittedModel, *, by: Sequence[str] = (), seed: int = 0
) -> LogTerms:
    """The terms of targets on a log, in one pass that keeps a few dozen bytes of each row.

    Another pass precedes it to find which actions the log holds, unless a `LogWithSupport` was read already.

    Args:
        log: The log.
        targets: What to evaluate.
        model: A fitted reward model.
        by: Names of groups whose values to keep.
        seed: Seed of the draws that say whether a target takes the logged action.
    """
    supported = log if isinstance(log, LogWithSupport) else LogWithSupport(log)
    space = log.problem.actions
    ope, support, draws = off_policy(space), supported.support(), space.head().draws
    shared, own = _SharedColumns(ope, by), [_TargetColumns(target, ope, support) for target in targets]
    for first_row, block in numbered(supported):
        predictions = predict(model, log.problem, block, first_row)
        shared.add(block, predictions)
        u = uniforms(first_row, len(block), seed, draws)
        for each in own:
            each.add(block, first_row, predictions, u)
    return shared.log_terms([each.terms(shared) for each in own])


def uniforms(first_row: int, rows: int, seed: int, draws: int = 1) -> Float64:
    """Numbers in [0, 1) for each row, float64[n, draws], by its number and a seed: SplitMix64 (Steele et al. 2014)."""
    return np.stack([_uniforms(first_row, rows, seed if not draw else (seed, draw)) for draw in range(draws)], axis=1)


def _uniforms(first_row: int, rows: int, entropy: int | tuple[int, int]) -> Float64:
    z = np.arange(first_row + 1, first_row + 1 + rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += np.random.SeedSequence(entropy).generate_state(1, np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53


class _SharedColumns:
    """Columns that are the same for all targets, block by block."""

    def __init__(self, ope: OffPolicy, by: Sequence[str]) -> None:
        self.ope = ope
        self.blocks: list[tuple[Float64, Float64, Float64]] = []
        self.times: list[NDArray[np.int64]] = []
        self.groups: dict[str, list[NDArray[Any]]] = {name: [] for name in by}
        self.uniform = True

    def add(self, block: Block, predictions: RewardPredictions) -> None:
        self.blocks.append((block.rewards, block.propensities, predictions.at(block.actions)))
        if block.times is not None:
            self.times.append(block.times)
        for name, values in self.groups.items():
            values.append(_group(block, name))
        self.uniform = self.uniform and self.ope.is_uniform(block.actions, block.propensities, block.eligible)

    @cached_property
    def columns(self) -> tuple[Float64, Float64, Float64]:
        """Rewards, propensities and predictions of all rows."""
        rewards, propensities, predicted = map(np.concatenate, zip(*self.blocks, strict=True))
        return rewards, propensities, predicted

    def log_terms(self, terms: Sequence[Terms]) -> LogTerms:
        times = np.concatenate(self.times) if self.times else None
        return LogTerms(tuple(terms), times, {k: np.concatenate(v) for k, v in self.groups.items()}, self.uniform)


class _TargetColumns:
    """Columns of one target, block by block."""

    def __init__(self, target: Target, ope: OffPolicy, support: LoggedSupport) -> None:
        self.target, self.ope, self.support = target, ope, support
        self.blocks: list[tuple[Float64, Float64, NDArray[np.bool_], Float64]] = []

    def add(self, block: Block, first_row: int, predictions: RewardPredictions, u: Float64) -> None:
        if isinstance(self.target, LoggedTarget):
            return
        distribution = self.target.distribution(block, first_row)
        probability = np.asarray(distribution.propensity(block.actions), np.float64)
        _check_probability(probability, self.target.name, first_row)
        matched = self.ope.matched(distribution, u, block.actions)
        missing = self.support.missing(distribution, len(block))
        self.blocks.append((probability, predictions.expected(distribution), matched, missing))

    def terms(self, shared: _SharedColumns) -> Terms:
        reward, propensity, predicted = shared.columns
        if isinstance(self.target, LoggedTarget):
            return _as_logged(reward, propensity)
        if isinstance(self.target, ArrayTarget) and len(self.target) != len(reward):
            raise InvalidTarget(f"{self.target.name} have {len(self.target)} rows, but the log has {len(reward)}")
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


def _check_probability(probability: Float64, name: str, first_row: int) -> None:
    bad = np.flatnonzero(~(probability >= 0) | np.isinf(probability))
    if bad.size:
        raise InvalidTarget(
            f"{name}, row {first_row + bad[0]}: the propensity of the logged action must be a finite number of at "
            f"least 0, got {probability[bad[0]]}"
        )


def _as_logged(reward: Float64, propensity: Float64) -> Terms:
    """Terms under which every estimator gives the plain mean of rewards."""
    rows = len(reward)
    return Terms(np.ones(rows), reward, reward, reward, propensity, propensity, np.ones(rows, bool), np.zeros(rows))


def _group(block: Block, name: str) -> NDArray[Any]:
    try:
        return block.groups[name]
    except KeyError:
        there = ", ".join(block.groups) or "none"
        raise InvalidLog(f"the log has no values of {name!r} to make segments of; it has {there}") from None
