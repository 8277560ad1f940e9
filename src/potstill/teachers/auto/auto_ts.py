"""Auto-TS: a mixture of posteriors, weighted by their prequential scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.decode import unknown_name
from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers.auto.score import Scores
from potstill.teachers.contract import EXACT, Exactness, FiniteTeacher, Float32, Float64, NeedsFiniteActions
from potstill.teachers.forest import ForestTS
from potstill.teachers.linear import EmpiricalLinearTS
from potstill.teachers.neural import NeuralLinearTS


class Candidate(FiniteTeacher[Any], Protocol):
    """A teacher with exact propensities that also predicts rewards."""

    def mean_rewards(self, state: Any, contexts: Float32) -> Float64:
        """The posterior mean reward of each action, float64[N, K]."""


#: Latest observations that networks and forests keep and learn from: bounds memory and time at a million observations.
_WINDOW = 200_000
#: The candidates by name. All have exact propensities, so that their mixture has.
CANDIDATES: dict[str, Candidate] = {
    "linear": EmpiricalLinearTS(),
    "neural-linear": NeuralLinearTS(window=_WINDOW),
    "forest": ForestTS(window=_WINDOW),
}
#: Candidates with a smaller weight do not decide.
_LEAST_WEIGHT = 0.01


class Backlog(NamedTuple):
    """Observations that some candidate has yet to learn from, oldest first."""

    contexts: Float32
    actions: NDArray[np.int32]
    rewards: Float64
    propensities: Float32

    @classmethod
    def empty(cls, width: int) -> Backlog:
        """No observations."""
        return cls(np.zeros((0, width), np.float32), np.zeros(0, np.int32), np.zeros(0), np.zeros(0, np.float32))

    def then(self, new: Observations) -> Backlog:
        """These observations followed by new ones."""
        return Backlog(
            np.concatenate([self.contexts, new.contexts]),
            np.concatenate([self.actions, new.actions]),
            np.concatenate([self.rewards, new.rewards]),
            np.concatenate([self.propensities, new.propensities]),
        )

    def since(self, first: int) -> Backlog:
        """Without the first observations."""
        return Backlog(self.contexts[first:], self.actions[first:], self.rewards[first:], self.propensities[first:])


class AutoState(NamedTuple):
    """The states of all candidates and their scores.

    Attributes:
        states: State of each candidate, in the order of the option `candidates`.
        learnt: Number of observations that each candidate has learnt from, int64[C].
        backlog: Observations that some candidate has not learnt from yet.
        scores: Prequential scores.
    """

    states: tuple[Any, ...]
    learnt: NDArray[np.int64]
    backlog: Backlog
    scores: Scores


class AutoTS(msgspec.Struct, NeedsFiniteActions, frozen=True, kw_only=True, tag_field="type", tag="auto-ts"):
    """Thompson sampling from a mixture of posteriors: no model has to be chosen in advance.

    Before it learns from a batch, each candidate predicts its rewards. Weights follow from the log scores of these
    predictions, as posterior weights of models do. A Thompson action draws a candidate by its weight, and then a reward
    function from that candidate's posterior, so that propensities are the weighted means of the candidates'
    propensities, and exact.

    A candidate whose weight is below 1 % does not decide. It learns again when the data have grown by `revisit`, so
    that one that needs more data may come back, and costs little until then.

    Args:
        candidates: Names of the candidates, from `CANDIDATES`.
        revisit: Growth factor of the number of observations after which a candidate that does not decide learns again.
    """

    candidates: tuple[str, ...] = tuple(CANDIDATES)
    revisit: float = 1.5

    def __post_init__(self) -> None:
        for name in self.candidates:
            if name not in CANDIDATES:
                raise InvalidOption(f"AutoTS: {unknown_name('candidate', name, list(CANDIDATES))}")
        if not self.candidates or len(set(self.candidates)) < len(self.candidates):
            raise InvalidOption(f"AutoTS: candidates must be one or more different names, got {self.candidates!r}")
        if not 1 <= self.revisit < np.inf:
            raise InvalidOption(f"AutoTS: revisit must be 1 or more, got {self.revisit!r}")

    @property
    def exactness(self) -> Exactness:
        """Exact: a weighted mean of exact propensities."""
        return EXACT

    @property
    def _teachers(self) -> Sequence[Candidate]:
        return [CANDIDATES[name] for name in self.candidates]

    def init(self, problem: Problem) -> AutoState:
        """The prior."""
        count = len(self.candidates)
        return AutoState(
            tuple(teacher.init(problem) for teacher in self._teachers),
            np.zeros(count, np.int64),
            Backlog.empty(problem.width),
            Scores.nothing(count, self.count(problem.actions)),
        )

    def update(self, state: AutoState, observations: Observations, key: Key) -> AutoState:
        """The posterior after more observations: score all candidates, then let those learn that are due."""
        if not len(observations):
            return state
        scores = self._scored(state, observations)
        backlog, seen = state.backlog.then(observations), int(scores.seen)
        deciding = scores.weights(_LEAST_WEIGHT) > 0
        due = deciding | (seen >= self.revisit * state.learnt)
        first = seen - len(backlog.actions)
        states = tuple(
            self._learn(i, state, backlog.since(int(state.learnt[i]) - first), observations.problem, key)
            if due[i]
            else state.states[i]
            for i in range(len(due))
        )
        learnt = np.where(due, seen, state.learnt)
        return AutoState(states, learnt, backlog.since(int(learnt.min()) - first), scores)

    def propensities(self, state: AutoState, contexts: Float32, key: Key) -> Float32:
        """The probability that each action is best, float32[N, K]."""
        weights, total = self.weights(state), np.zeros((len(contexts), len(state.scores.n)))
        for i in np.flatnonzero(weights).tolist():
            total += weights[i] * self._teachers[i].propensities(state.states[i], contexts, key.child("labels", i))
        total /= total.sum(axis=1, keepdims=True)
        return total.astype(np.float32)

    def sample_actions(self, state: AutoState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson-sampled actions, int64[N, n]."""
        weights = self.weights(state)
        drawn = key.child("candidates").generator().choice(len(weights), size=(len(contexts), n), p=weights)
        actions = np.zeros((len(contexts), n), np.int64)
        for i in np.unique(drawn).tolist():
            of_candidate = self._teachers[i].sample_actions(state.states[i], contexts, n, key.child("draws", i))
            actions = np.where(drawn == i, of_candidate, actions)
        return actions

    def mean_rewards(self, state: AutoState, contexts: Float32) -> Float64:
        """The posterior mean reward of each action, float64[N, K]."""
        weights = self.weights(state)
        means = (
            weights[i] * self._teachers[i].mean_rewards(state.states[i], contexts)
            for i in np.flatnonzero(weights).tolist()
        )
        return np.asarray(sum(means))

    def weights(self, state: AutoState) -> Float64:
        """The weight of each candidate, float64[C]; equal before any prediction."""
        return state.scores.weights(_LEAST_WEIGHT)

    def selection(self, state: AutoState) -> dict[str, dict[str, float]]:
        """The weight and the log score of each candidate, by name; scores are relative to the best."""
        scores = state.scores.log_scores()
        found = zip(self.candidates, self.weights(state), scores - scores.max(), state.learnt, strict=True)
        return {
            name: {"weight": float(weight), "log_score": float(score), "observations": int(learnt)}
            for name, weight, score, learnt in found
        }

    def _scored(self, state: AutoState, new: Observations) -> Scores:
        """The scores after the predictions of a batch. The first batch is not scored: nobody has learnt yet."""
        if not state.learnt.any():
            return state.scores._replace(seen=state.scores.seen + len(new))
        rows = np.arange(len(new))
        predicted = [
            teacher.mean_rewards(own, new.contexts)[rows, new.actions]
            for teacher, own in zip(self._teachers, state.states, strict=True)
        ]
        return state.scores.after(new.rewards - np.stack(predicted), new.actions)

    def _learn(self, i: int, state: AutoState, rows: Backlog, problem: Problem, key: Key) -> Any:
        """The state of a candidate after the observations that it has not learnt from."""
        return self._teachers[i].update(state.states[i], Observations(problem, *rows), key.child("learn", i))
