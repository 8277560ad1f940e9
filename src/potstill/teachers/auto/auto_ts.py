"""Auto-TS: Thompson sampling from a stacked posterior, so that no model has to be chosen in advance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.decode import unknown_name
from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import memory as memories
from potstill.teachers.auto.stacking import Errors
from potstill.teachers.contract import EXACT, Bool, Exactness, Float32, Float64, NeedsFiniteActions
from potstill.teachers.forest import ForestTS
from potstill.teachers.linear import EmpiricalLinearTS, Marginals, nig
from potstill.teachers.memory import Memory
from potstill.teachers.neural import NeuralLinearTS
from potstill.teachers.probability_best import probability_best
from potstill.teachers.propensities import part_of


class Candidate(Protocol):
    """A teacher whose posterior of an action's reward has a mean and a scale in each context."""

    def init(self, problem: Problem) -> Any:
        """The prior."""

    def update(self, state: Any, observations: Observations, key: Key) -> Any:
        """The posterior after more observations."""

    def marginals(self, state: Any, contexts: Float32) -> Marginals:
        """The posterior of each action's mean reward in each context."""

    def mean_rewards(self, state: Any, contexts: Float32) -> Float64:
        """The posterior mean reward of each action, float64[N, K]."""


#: Latest observations that networks and forests learn from: bounds memory and time at a million observations.
WINDOW = 200_000
#: The candidates by name. Those with a memory take that of `AutoState`.
CANDIDATES: dict[str, Candidate] = {
    "linear": EmpiricalLinearTS(),
    "neural-linear": NeuralLinearTS(window=WINDOW),
    "forest": ForestTS(window=WINDOW),
}
#: Candidates with a smaller weight do not decide.
_LEAST_WEIGHT = 0.01
#: Parts that the first batch is divided into, each of which is predicted from the others.
_FOLDS = 5
#: Beyond this many observations in the first batch only one part is predicted: it tells enough.
_ALL_FOLDS = 2_000
#: Contexts whose marginals are computed at once.
_CHUNK = 16_384
#: Smallest scale of a draw, relative to the largest mean reward: two equal rewards without doubt still tie.
_LEAST_SCALE = 1e-9


class AutoState(NamedTuple):
    """The states of all candidates, the observations that they learn from, and their errors.

    Attributes:
        states: State of each candidate, in the order of the option `candidates`; without its memory.
        memory: The latest observations, which candidates share.
        seen: Number of observations so far, int64[].
        learnt: Number of observations when each candidate learnt last, int64[C].
        errors: Errors of predictions of rewards that a candidate had not learnt from.
    """

    states: tuple[Any, ...]
    memory: Memory
    seen: NDArray[np.int64]
    learnt: NDArray[np.int64]
    errors: Errors


class AutoTS(msgspec.Struct, NeedsFiniteActions, frozen=True, kw_only=True, tag_field="type", tag="auto-ts"):
    """Thompson sampling from several models at once, weighted by how well they predict.

    Before it learns from a batch, each candidate predicts its rewards; of the first batch, one part from the others.
    The weights are those of the weighted prediction with the smallest squared error (stacking). A posterior draw of an
    action's reward is the weighted mean of one independent draw from each candidate, with the candidates' means and
    variances, and taken as normal. Given that, propensities are exact.

    This is Thompson sampling where one candidate has all the weight. A mean of several draws varies less than each of
    them: the stacked posterior explores less than its candidates, as its predictions err less than theirs.

    A candidate whose weight is below 1 % does not decide. It learns again when the data have grown by `revisit`, so
    that one that needs more data may come back, and costs little until then. The linear candidate, which costs nearly
    nothing, always learns. Networks and forests learn from the latest 200,000 observations.

    Args:
        candidates: Names of the candidates, from `CANDIDATES`.
        revisit: Growth factor of the number of observations after which a candidate that does not decide learns again.
        window: Learn only from the latest `window` observations, for drifting rewards; at most 200,000.
    """

    candidates: tuple[str, ...] = tuple(CANDIDATES)
    revisit: float = 1.5
    window: int | None = None

    def __post_init__(self) -> None:
        for name in self.candidates:
            if name not in CANDIDATES:
                raise InvalidOption(f"AutoTS: {unknown_name('candidate', name, list(CANDIDATES))}")
        if not self.candidates or len(set(self.candidates)) < len(self.candidates):
            raise InvalidOption(f"AutoTS: candidates must be one or more different names, got {self.candidates!r}")
        if not 1 <= self.revisit < np.inf:
            raise InvalidOption(f"AutoTS: revisit must be 1 or more, got {self.revisit!r}")
        if self.window is not None and not 1 <= self.window <= WINDOW:
            raise InvalidOption(f"AutoTS: window must be from 1 to {WINDOW:,}, or None, got {self.window!r}")

    @property
    def exactness(self) -> Exactness:
        """Exact for normal draws, by quadrature."""
        return EXACT

    @property
    def sharp(self) -> bool:
        """Whether labels can have steps: those of a forest have."""
        return "forest" in self.candidates

    @property
    def _teachers(self) -> Sequence[Candidate]:
        return [CANDIDATES[name] for name in self.candidates]

    def init(self, problem: Problem) -> AutoState:
        """The prior."""
        count = len(self.candidates)
        return AutoState(
            tuple(teacher.init(problem) for teacher in self._teachers),
            memories.empty(problem.width),
            np.array(0),
            np.zeros(count, np.int64),
            Errors.none(count, self.count(problem.actions)),
        )

    def update(self, state: AutoState, observations: Observations, key: Key) -> AutoState:
        """The posterior after more observations: measure all candidates, then let those learn that are due."""
        if not len(observations):
            return state
        errors = self._errors(state, observations, key)
        memory = state.memory.append(observations, self.window or WINDOW, np.ones(len(observations)))
        seen = int(state.seen) + len(observations)
        due = self._due(errors, state.learnt, seen)
        states = tuple(
            self._learnt(i, state, memory, observations, key.child("learn", i)) if due[i] else state.states[i]
            for i in range(len(due))
        )
        return AutoState(states, memory, np.array(seen), np.where(due, seen, state.learnt), errors)

    def propensities(
        self,
        state: AutoState,
        contexts: Float32,
        key: Key,  # noqa: ARG002
        eligible: Bool | None = None,
    ) -> Float32:
        """The probability that each action is best, float32[N, K]."""
        parts = [
            probability_best(*self.marginals(state, contexts[rows]), part_of(eligible, rows))
            for rows in _chunks(len(contexts))
        ]
        return np.concatenate([np.zeros((0, len(state.errors.n)), np.float32), *parts])

    def sample_actions(self, state: AutoState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson-sampled actions, int64[N, n]."""
        return nig.sample_best(self.marginals(state, contexts), n, key)

    def mean_rewards(self, state: AutoState, contexts: Float32) -> Float64:
        """The posterior mean reward of each action, float64[N, K]."""
        parts = [self.marginals(state, contexts[rows]).location for rows in _chunks(len(contexts))]
        return np.concatenate([np.zeros((0, len(state.errors.n))), *parts])

    def marginals(self, state: AutoState, contexts: Float32) -> Marginals:
        """The posterior of each action's mean reward in each context: normal, so with infinite degrees of freedom."""
        weights, k = self.weights(state), len(state.errors.n)
        mean, variance = np.zeros((len(contexts), k)), np.zeros((len(contexts), k))
        for i in np.flatnonzero(weights).tolist():
            location, scale, dof = self._teachers[i].marginals(state.states[i], contexts)
            mean += weights[i] * location
            variance += (weights[i] * scale) ** 2 * _variance_factor(dof)
        least = _LEAST_SCALE * max(1.0, float(np.abs(mean).max(initial=0.0)))
        return Marginals(mean, np.maximum(np.sqrt(variance), least), np.full(k, np.inf))

    def weights(self, state: AutoState) -> Float64:
        """The weight of each candidate, float64[C]; equal before any prediction."""
        return state.errors.weights(_LEAST_WEIGHT)

    def selection(self, state: AutoState) -> dict[str, dict[str, float]]:
        """The weight of each candidate, the root of its mean squared error, and when it learnt last, by name."""
        found = zip(self.candidates, self.weights(state), state.errors.rmse(), state.learnt, strict=True)
        return {
            name: {"weight": float(weight), "rmse": float(rmse), "observations": float(learnt)}
            for name, weight, rmse, learnt in found
        }

    def _errors(self, state: AutoState, new: Observations, key: Key) -> Errors:
        """Errors so far, with those of new observations.

        Earlier sums are scaled by the growth of the data. An error's weight is then proportional to the number of
        observations at that time: a candidate that needs more data than others may overtake them.
        """
        if not state.seen:
            return self._first_errors(state, new, key.child("folds"))
        before = float(len(state.memory.actions) if self.window else state.seen)
        return state.errors.faded(before / (before + len(new))) + self._predicted(state.states, new)

    def _first_errors(self, state: AutoState, new: Observations, key: Key) -> Errors:
        """Errors on the first batch: each part is predicted from the others."""
        folds, errors = key.generator().permutation(len(new)) % _FOLDS, state.errors
        if len(new) < _FOLDS:
            return errors
        for fold in range(_FOLDS if len(new) <= _ALL_FOLDS else 1):
            known, unknown = new[np.flatnonzero(folds != fold)], new[np.flatnonzero(folds == fold)]
            states = [
                teacher.update(prior, known, key.child(fold, i))
                for i, (teacher, prior) in enumerate(zip(self._teachers, state.states, strict=True))
            ]
            errors += self._predicted(states, unknown)
        return errors

    def _predicted(self, states: Sequence[Any], new: Observations) -> Errors:
        """Errors of the candidates' predictions of rewards."""
        rows = np.arange(len(new))
        predicted = [
            teacher.mean_rewards(state, new.contexts)[rows, new.actions]
            for teacher, state in zip(self._teachers, states, strict=True)
        ]
        return Errors.of(new.rewards - np.stack(predicted), new.actions, self.count(new.problem.actions))

    def _due(self, errors: Errors, learnt: NDArray[np.int64], seen: int) -> NDArray[np.bool_]:
        """Candidates that learn now, bool[C]."""
        always = [name == "linear" for name in self.candidates]
        due: NDArray[np.bool_] = (errors.weights(_LEAST_WEIGHT) > 0) | (seen >= self.revisit * learnt) | always
        return due

    def _learnt(self, i: int, state: AutoState, memory: Memory, new: Observations, key: Key) -> Any:
        """The state of a candidate after the observations that it has not learnt from."""
        own, teacher = state.states[i], self._teachers[i]
        if "memory" not in own._fields:
            return self._learnt_from_all(teacher, own, memory, new, key)
        fresh = min(int(state.seen) + len(new) - int(state.learnt[i]), len(memory.actions))
        known = memory.rows(slice(len(memory.actions) - fresh))
        remembering = own._replace(memory=known)
        if "learnt" in own._fields:
            remembering = remembering._replace(learnt=np.array(len(known.actions)))
        rows = _as_observations(new.problem, memory.rows(slice(len(memory.actions) - fresh, None)))
        return teacher.update(remembering, rows, key)._replace(memory=memories.empty(known.contexts.shape[1]))

    def _learnt_from_all(self, teacher: Candidate, own: Any, memory: Memory, new: Observations, key: Key) -> Any:
        """The state of a candidate that keeps no observations; with a window it starts afresh, to forget."""
        if self.window is None:
            return teacher.update(own, new, key)
        return teacher.update(teacher.init(new.problem), _as_observations(new.problem, memory), key)


def _as_observations(problem: Problem, rows: Memory) -> Observations:
    """Rows of a memory as observations; no candidate looks at propensities."""
    return Observations(problem, rows.contexts, rows.actions, rows.rewards, np.ones(len(rows.actions), np.float32))


def _variance_factor(dof: Float64) -> Float64:
    """Variance of a Student-t variable of scale 1; that of 3 degrees of freedom where there are fewer, or none."""
    freedom = np.maximum(dof, 3.0)
    return np.where(np.isinf(freedom), 1.0, freedom / np.where(np.isinf(freedom), 1.0, freedom - 2))


def _chunks(n: int) -> Iterator[slice]:
    return (slice(first, first + _CHUNK) for first in range(0, n, _CHUNK))
