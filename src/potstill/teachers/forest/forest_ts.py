"""Forest-TS: Thompson sampling on bootstrapped regression trees, with exact propensities."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import memory as memories
from potstill.teachers.contract import EXACT, Bool, Exactness, Float32, Float64, NeedsFiniteActions
from potstill.teachers.forest import trees as forests
from potstill.teachers.forest.fit import Growing, grow
from potstill.teachers.forest.trees import Trees
from potstill.teachers.forest.votes import vote_shares
from potstill.teachers.linear import Marginals
from potstill.teachers.memory import Memory, Weighting, Weights, weights
from potstill.teachers.propensities import part_of, sample_rows

#: Predictions of single trees per chunk of contexts: 32 MB.
_CHUNK = 4_000_000
#: Power of two within which predictions are as they are in float32: up to 1e30, and from 1e-30.
_LARGEST_EXPONENT = 100


class ForestState(NamedTuple):
    """Observations and trees.

    Attributes:
        memory: The observations.
        seen: Number of observations of each action so far, int64[K].
        fitted: Value of `seen` when the trees of each action were grown, int64[K].
        trees: T trees for each action.
    """

    memory: Memory
    seen: NDArray[np.int64]
    fitted: NDArray[np.int64]
    trees: Trees


class ForestTS(
    msgspec.Struct, NeedsFiniteActions, Weights, frozen=True, kw_only=True, tag_field="type", tag="forest-ts"
):
    """An ensemble of regression trees for each action, each grown on a bootstrap sample of the action's observations.

    A posterior draw of an action's reward is the mean prediction of `group` of its trees, out of as many groups as
    there are trees; draws of different actions are independent. Given the trees, propensities are exact: the
    probability that an action's draw is the largest, over all combinations of draws, with ties split evenly. The
    posterior itself is that of the bootstrap, which is an approximation.

    Args:
        trees: Number of trees for each action, and of groups.
        group: Number of trees whose mean is one draw. More exploit more: the spread of draws falls with its root.
        splitter: ``best`` tries all thresholds of a column (CART), ``random`` one (extremely randomised trees), which
            is as accurate, faster, and easier for a student to follow.
        features: Share of the columns that are tried for each split, above 0 and at most 1.
        leaf: Least number of distinct observations in a leaf.
        pseudo: Weight of the prior in each leaf, in observations. It is one reward drawn at random from those of all
            actions, so that leaves of few or equal rewards still differ between trees.
        refit: Growth factor of an action's observations that triggers new trees for it.
        sample: Largest size of the bootstrap sample of a tree. It bounds the time of an update.
        window: Learn only from the latest `window` observations, for drifting rewards.
        weighting: Weighting of observations.
    """

    trees: int = 50
    group: int = 25
    splitter: Literal["best", "random"] = "random"
    features: float = 1.0
    leaf: int = 1
    pseudo: float = 1.0
    refit: float = 1.1
    sample: int = 10_000
    window: int | None = None
    weighting: Weighting = "equal"

    def __post_init__(self) -> None:
        for field in ("trees", "group", "leaf", "sample"):
            if getattr(self, field) < 1:
                self._refuse(field, "1 or more")
        if self.group > self.trees:
            self._refuse("group", f"at most the number of trees, {self.trees}")
        if not 0 < self.features <= 1:
            self._refuse("features", "above 0 and at most 1")
        if not 0 < self.pseudo < np.inf:
            self._refuse("pseudo", "a positive number")
        if not 1 <= self.refit < np.inf:
            self._refuse("refit", "1 or more")
        if self.window is not None and self.window < 1:
            self._refuse("window", "1 or more, or None")

    def _refuse(self, field: str, expected: str) -> None:
        raise InvalidOption(f"{type(self).__name__}: {field} must be {expected}, got {getattr(self, field)!r}")

    @property
    def exactness(self) -> Exactness:
        """Exact given the trees: all combinations of draws are counted."""
        return EXACT

    @property
    def sharp(self) -> bool:
        """Labels have steps."""
        return True

    def init(self, problem: Problem) -> ForestState:
        """Trees that predict 0 everywhere, so that all actions tie."""
        k = self.count(problem.actions)
        nothing, blank = np.zeros(k, np.int64), forests.stumps(np.zeros(self.trees))
        return ForestState(memories.empty(problem.width), nothing, nothing, forests.join([blank] * k))

    def update(self, state: ForestState, observations: Observations, key: Key) -> ForestState:
        """The ensemble after more observations. Actions that have few new ones keep their trees."""
        if not len(observations):
            return state
        memory = state.memory.append(observations, self.window, weights(observations, self.weighting))
        seen = state.seen + np.bincount(observations.actions, minlength=len(state.seen))
        due = self._due(seen, state.fitted, memory.actions)
        training = memory.normalised()
        trees = [
            grow(training, a, self._growing, key.child("trees", a)) if due[a] else state.trees.of_action(a)
            for a in range(len(seen))
        ]
        return ForestState(memory, seen, np.where(due, seen, state.fitted), forests.join(trees))

    def propensities(
        self,
        state: ForestState,
        contexts: Float32,
        key: Key,  # noqa: ARG002
        eligible: Bool | None = None,
    ) -> Float32:
        """The probability that each action is best, float32[N, K]."""
        parts = [
            vote_shares(self.draws(state, contexts[rows]), part_of(eligible, rows))
            for rows in self._chunks(state, len(contexts))
        ]
        return np.concatenate([np.zeros((0, len(state.seen)), np.float32), *parts])

    def sample_actions(self, state: ForestState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson-sampled actions, int64[N, n]."""
        return sample_rows(self.propensities(state, contexts, key), n, key)

    def draws(self, state: ForestState, contexts: Float32) -> Float32:
        """The equally likely posterior draws of each action's reward, float32[N, K, trees], over 2 ** `_exponent`.

        Rounded to float32, so that sums of equal numbers in another order still tie.
        """
        drawn = _predicted(state, contexts) @ _groups(self.trees, self.group)
        scaled: Float32 = np.ldexp(drawn, -_exponent(state)).astype(np.float32)
        return scaled

    def marginals(self, state: ForestState, contexts: Float32) -> Marginals:
        """Mean and standard deviation of the draws of each action, without degrees of freedom."""
        parts = [self.draws(state, contexts[rows]) for rows in self._chunks(state, len(contexts))]
        nothing, exponent = np.zeros((0, len(state.seen))), _exponent(state)
        means = np.concatenate([nothing, *(part.mean(axis=2, dtype=np.float64) for part in parts)])
        scales = np.concatenate([nothing, *(part.std(axis=2, dtype=np.float64) for part in parts)])
        return Marginals(np.ldexp(means, exponent), np.ldexp(scales, exponent), np.full(len(state.seen), np.inf))

    def mean_rewards(self, state: ForestState, contexts: Float32) -> Float64:
        """The mean prediction of all trees of each action, float64[N, K]. It is within the range of rewards."""
        parts = [_predicted(state, contexts[rows]).mean(axis=2) for rows in self._chunks(state, len(contexts))]
        return np.concatenate([np.zeros((0, len(state.seen))), *parts])

    def _due(self, seen: NDArray[np.int64], fitted: NDArray[np.int64], kept: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Actions that need new trees, bool[K]; those without observations take the latest prior."""
        at_hand = np.bincount(kept, minlength=len(seen))  # fewer than `fitted` with a window
        grown = (seen > fitted) & (seen - fitted >= (self.refit - 1) * np.minimum(fitted, at_hand))
        due: NDArray[np.bool_] = grown | (at_hand == 0)
        return due

    @property
    def _growing(self) -> Growing:
        return Growing(self.trees, self.splitter, self.features, self.leaf, self.pseudo, self.sample)

    def _chunks(self, state: ForestState, n: int) -> Iterator[slice]:
        rows = max(1, _CHUNK // state.trees.roots.size)
        return (slice(first, first + rows) for first in range(0, n, rows))


def _exponent(state: ForestState) -> int:
    """Power of two that predictions are divided by, to be float32; 0 for all but astronomic and minute rewards."""
    exponent = int(np.frexp(np.abs(state.trees.mean).max(initial=0.0))[1])
    return exponent if abs(exponent) > _LARGEST_EXPONENT else 0


def _predicted(state: ForestState, contexts: Float32) -> Float64:
    """The prediction of each tree, float64[N, K, T]."""
    predicted: Float64 = state.trees.mean[state.trees.leaves(contexts)]
    return predicted


def _groups(trees: int, group: int) -> Float64:
    """Weights of trees in groups, float64[trees, groups]: each column averages `group` trees, each tree is as often.

    Groups are shifts of one random pattern: two of them share few trees, where neighbours in a row would share nearly
    all.
    """
    pattern = np.random.default_rng(20261118).permutation(trees)[:group]
    chosen = np.zeros((trees, trees))
    for shift in range(trees):
        chosen[(pattern + shift) % trees, shift] = 1 / group
    return chosen
