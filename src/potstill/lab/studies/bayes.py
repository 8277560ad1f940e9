"""Bayes regret: the mean over problems drawn from the teacher's prior, and the terms that the paper bounds it by.

Lemma "imitation controls decomposition". With f the reward function, A* the best action, Ā a draw of batch off-policy
Thompson sampling π̄, A one of the policy π that decides, and U upper confidence bounds from the same history, the regret
of a decision is the sum of

    optimism  f(A*) - U(A*)          matching  U(A*) - E U(Ā)
    width     E[U(Ā) - f(Ā)]         gap       E f(Ā) - E f(A)

Given the history, A* and Ā have one distribution, so that matching has mean 0 over the prior, and so has the difference
of any other function of the history. Calibration is that of π̄ itself, π̄(A*) - E π̄(Ā): below 0, Thompson sampling is
surer than it should be. Optimism and width together are the lemma's term (a), the same for every U, and the gap is at
most its term (b), L·√(½ KL(π̄ ‖ π)). L is the root mean square of the range of f over actions, for which Pinsker's
inequality has this constant.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast

import msgspec
import numpy as np
from scipy.special import rel_entr

from potstill.distill import Student
from potstill.errors import LabError
from potstill.keys import Key
from potstill.lab.problems import Float32, Float64, GaussianProcessPrior, LinearPrior
from potstill.lab.runs import Agent, Distilled, Undistilled
from potstill.parallel import advance
from potstill.policy import Policy
from potstill.problem import Observations
from potstill.teachers import GaussianProcessUCB, LinUCB

Prior = Literal["linear", "gp"]
PRIORS: tuple[Prior, ...] = ("linear", "gp")
Method = Literal["ts", "ts-il", "ucb", "ucb-1", "uniform"]
METHODS: tuple[Method, ...] = ("ts", "ts-il", "ucb", "ucb-1", "uniform")
TERMS = ("regret", "optimism", "width", "matching", "gap")
#: Contexts without rewards to imitate on, where contexts are continuous.
UNLABELLED = 2_000


class Bayes(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the study. Equal settings give equal results.

    Args:
        prior: Prior that reward functions are drawn from: that of Linear-TS or that of a Gaussian process.
        trials: Number of reward functions.
        batches: Number of batches; the first is decided by the prior.
        batch: Decisions of a batch.
        width: Number of features.
        actions: Number of actions.
        seed: Seed of all randomness.
    """

    prior: Prior = "linear"
    trials: int = 40
    batches: int = 10
    batch: int = 100
    width: int = 5
    actions: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        for field, least in (("trials", 2), ("batches", 1), ("batch", 1), ("width", 1), ("actions", 2), ("seed", 0)):
            if getattr(self, field) < least:
                raise LabError(f"{field} must be {least} or more, got {getattr(self, field)}")

    @property
    def decisions(self) -> int:
        """Decisions of a trial."""
        return self.batches * self.batch

    @property
    def steps(self) -> int:
        """Batches of the whole study."""
        return self.trials * self.batches * len(METHODS)

    def environment(self, trial: int) -> LinearPrior | GaussianProcessPrior:
        """The problem of a trial."""
        kind = LinearPrior if self.prior == "linear" else GaussianProcessPrior
        made: LinearPrior | GaussianProcessPrior = kind(width=self.width, actions=self.actions)
        drawn: LinearPrior | GaussianProcessPrior = made.drawn(Key(self.seed).child("trial", trial))
        return drawn


class BatchTerms(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over one batch of one trial, in expectation over the policy's draws.

    Attributes:
        regret: Regret of the policy that decides.
        optimism, width, matching, gap: Terms of the decomposition, which add up to the regret.
        calibration: π̄(A*) - Σ π̄², whose mean over the prior is 0 if π̄ is the posterior's.
        kl: KL(π̄ ‖ π) in nats, the mean over the batch.
        squared_range: Square of the range of f over actions, the mean over the batch.
    """

    regret: float
    optimism: float = 0.0
    width: float = 0.0
    matching: float = 0.0
    gap: float = 0.0
    calibration: float = 0.0
    kl: float = 0.0
    squared_range: float = 0.0


#: Batches of one trial, by method.
TrialTerms = dict[str, list[BatchTerms]]


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A mean over trials, with its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Sequence[float] | Float64) -> Estimate:
        """From one value for each trial."""
        found = np.asarray(values, np.float64)
        return cls(mean=float(found.mean()), error=float(found.std(ddof=1)) / math.sqrt(len(found)))


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """Results of the study.

    Attributes:
        bayes: Settings.
        trials: Terms of each trial.
        regret: Bayes regret of each method.
        against_ts: Bayes regret less that of Thompson sampling, paired by trial.
        terms: Terms of the decomposition for Thompson sampling and its distilled policy.
        calibration: π̄(A*) - Σ π̄² per decision, for the same two.
        bound: Term (b) of the lemma for the distilled policy: L·Σ √(½ KL).
        range: L, the root mean square of the range of f over actions.
    """

    bayes: Bayes
    trials: list[TrialTerms]
    regret: dict[str, Estimate]
    against_ts: dict[str, Estimate]
    terms: dict[str, dict[str, Estimate]]
    calibration: dict[str, Estimate]
    bound: float
    range: float

    @classmethod
    def of(cls, bayes: Bayes, trials: list[TrialTerms]) -> Findings:
        """Estimates from all trials."""
        totals = {name: totals_of(trials, name, "regret") for name in METHODS}
        with_terms = ("ts", "ts-il")
        squares = [batch.squared_range for trial in trials for batch in trial["ts-il"]]
        width = math.sqrt(float(np.mean(squares)))
        kl = np.mean([[batch.kl for batch in trial["ts-il"]] for trial in trials], axis=0)
        return cls(
            bayes=bayes,
            trials=trials,
            regret={name: Estimate.of(values) for name, values in totals.items()},
            against_ts={name: Estimate.of(values - totals["ts"]) for name, values in totals.items() if name != "ts"},
            terms={name: {term: Estimate.of(totals_of(trials, name, term)) for term in TERMS} for name in with_terms},
            calibration={
                name: Estimate.of(totals_of(trials, name, "calibration") / bayes.decisions) for name in with_terms
            },
            bound=width * bayes.batch * float(np.sqrt(kl / 2).sum()),
            range=width,
        )


def totals_of(trials: Sequence[TrialTerms], method: str, term: str) -> Float64:
    """A term of a method, summed over the batches of each trial, float64[trials]."""
    return np.array([sum(getattr(batch, term) for batch in trial[method]) for trial in trials])


class _Task(NamedTuple):
    bayes: Bayes
    trial: int


class Trial:
    """One drawn problem with its requests, which are the same for all methods."""

    def __init__(self, bayes: Bayes, trial: int) -> None:
        self.bayes, self.environment = bayes, bayes.environment(trial)
        self.key = Key(bayes.seed).child("requests", trial)
        self.seed = self.key.child("agent").integer()
        self.contexts = self.environment.contexts(bayes.decisions, self.key.child("contexts").generator())
        self.encoded = self.environment.encode(self.contexts)
        self.means = self.environment.means(self.contexts)

    @cached_property
    def ucb(self) -> LinUCB | GaussianProcessUCB:
        """Upper confidence bounds with the paper's β, on the posterior of the teacher."""
        return self._ucb()

    def _ucb(self, beta: float | None = None) -> LinUCB | GaussianProcessUCB:
        options = msgspec.structs.asdict(self.environment.teacher)
        if isinstance(self.environment, LinearPrior):
            return LinUCB(**options, beta_t=beta)
        return GaussianProcessUCB(**options, beta=beta)

    def agent(self, method: Method) -> Agent:
        """A method before its first batch."""
        problem, teacher = self.environment.problem, self.environment.teacher
        if method == "uniform":
            return _Uniform(problem.actions.head().outputs, self.seed)
        if method == "ts-il":
            return Distilled(problem, teacher, Student(contexts=0), self.seed, contexts=self._unlabelled())
        chosen = {"ts": teacher, "ucb": self.ucb, "ucb-1": self._ucb(beta=1.0)}[method]
        return Undistilled(problem, chosen, self.seed)

    def _unlabelled(self) -> Float32:
        if isinstance(self.environment, GaussianProcessPrior):
            return self.environment.encode(dict(enumerate_columns(self.environment.grid)))
        rng = self.key.child("unlabelled").generator()
        return self.environment.encode(self.environment.contexts(UNLABELLED, rng))

    def play(self, method: Method) -> list[BatchTerms]:
        """All batches of a method."""
        agent, found = self.agent(method), []
        for first in range(0, self.bayes.decisions, self.bayes.batch):
            rows = slice(first, first + self.bayes.batch)
            found.append(self._terms(agent, method, rows))
            actions, propensities = agent.choose(self.encoded[rows])
            some = {name: column[rows] for name, column in self.contexts.items()}
            rewards = self.environment.rewards(some, actions, self.key.child("rewards", first).generator())
            if first + self.bayes.batch < self.bayes.decisions:
                problem = self.environment.problem
                agent.learn(Observations(problem, self.encoded[rows], actions.astype(np.int32), rewards, propensities))
            advance()
        return found

    def _terms(self, agent: Agent, method: Method, rows: slice) -> BatchTerms:
        encoded, means = self.encoded[rows], self.means[rows]
        key = self.key.child("propensities", method, rows.start)
        decides, sampled, state = _policies(agent, encoded, key)
        if sampled is None:
            return BatchTerms(regret=float((means.max(axis=1) - (decides * means).sum(axis=1)).sum()))
        return decomposed(means, self.ucb.bounds(state, encoded), sampled, decides)


def enumerate_columns(grid: Float64) -> list[tuple[str, Float64]]:
    """Columns of a grid with the names of the features."""
    return [(f"x{i}", column) for i, column in enumerate(grid.T)]


class _Uniform:
    """Uniform choice, which learns nothing."""

    def __init__(self, actions: int, seed: int) -> None:
        self.actions, self._rng = actions, Key(seed).child("uniform").generator()

    def choose(self, contexts: Float32) -> Any:
        """Actions, all equally likely."""
        n = len(contexts)
        return self._rng.integers(self.actions, size=n), np.full(n, 1 / self.actions, np.float32)

    def learn(self, observations: Observations) -> Any:
        """Learn nothing."""


def _policies(agent: Agent, encoded: Float32, key: Key) -> tuple[Float64, Float64 | None, Any]:
    """The policy that decides; Thompson sampling on its history, if it has one to compare with; and its state."""
    if isinstance(agent, Distilled):
        teacher, state, policy = agent.still.teacher, agent.still.state, agent.policy
        sampled = _rows(teacher.propensities(state, encoded, key))  # type: ignore[attr-defined]
        return _rows(_served(policy, encoded)), sampled, state
    if isinstance(agent, Undistilled):
        found = _rows(cast(Any, agent.teacher).propensities(agent.state, encoded, key))
        is_ucb = isinstance(agent.teacher, (LinUCB, GaussianProcessUCB))
        return found, None if is_ucb else found, agent.state
    assert isinstance(agent, _Uniform)
    return np.full((len(encoded), agent.actions), 1 / agent.actions), None, None


def _served(policy: Policy, encoded: Float32) -> Float32:
    return policy.probabilities_many(encoded)


def _rows(p: Any) -> Float64:
    """Probabilities in float64, normalised."""
    found = np.asarray(p, np.float64)
    normalised: Float64 = found / found.sum(axis=1, keepdims=True)
    return normalised


def decomposed(means: Float64, bounds: Float64, sampled: Float64, decides: Float64) -> BatchTerms:
    """The terms of one batch.

    Args:
        means: Rewards f of each action, float64[N, K].
        bounds: Upper confidence bounds U, float64[N, K].
        sampled: Probabilities π̄ of Thompson sampling, float64[N, K].
        decides: Probabilities π of the policy that decides, float64[N, K].
    """
    best = means.argmax(axis=1)[:, None]
    highest = np.take_along_axis(means, best, axis=1)[:, 0]
    bound_of_best = np.take_along_axis(bounds, best, axis=1)[:, 0]
    tiny = np.finfo(np.float32).tiny
    return BatchTerms(
        regret=float((highest - (decides * means).sum(axis=1)).sum()),
        optimism=float((highest - bound_of_best).sum()),
        width=float((sampled * (bounds - means)).sum()),
        matching=float((bound_of_best - (sampled * bounds).sum(axis=1)).sum()),
        gap=float(((sampled - decides) * means).sum()),
        calibration=float(np.take_along_axis(sampled, best, axis=1).sum() - (sampled**2).sum()),
        kl=max(float(rel_entr(sampled, np.maximum(decides, tiny)).sum(axis=1).mean()), 0.0),
        squared_range=float((np.ptp(means, axis=1) ** 2).mean()),
    )


def run_trial(task: _Task) -> TrialTerms:
    """All methods on one drawn problem."""
    trial = Trial(task.bayes, task.trial)
    return {method: trial.play(method) for method in METHODS}


Mapped = Callable[[Callable[[_Task], TrialTerms], Sequence[_Task]], list[TrialTerms]]


def study(bayes: Bayes, mapped: Mapped) -> Findings:
    """Run the study.

    Args:
        bayes: Settings.
        mapped: Applies a function to all tasks, as `map` or `potstill.parallel.parallel_map` do.
    """
    return Findings.of(bayes, list(mapped(run_trial, [_Task(bayes, trial) for trial in range(bayes.trials)])))
