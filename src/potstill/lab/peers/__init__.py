"""Algorithms of other libraries in the same trials: one file for each library, one line here for each algorithm.

They get the same inputs as Potstill's: encoded contexts, raw rewards, and every batch at its end.
Hyperparameters are the library's defaults unless the name or a comment says otherwise; none depends on the problem.
"""

from __future__ import annotations

import time
from importlib import import_module, metadata
from importlib.util import find_spec
from typing import Any

import msgspec
import numpy as np

from potstill.errors import PotstillError, UnsupportedSpace, shown
from potstill.lab.problems import Choices, Float32, Float64
from potstill.lab.runs import Agent, UpdateResult
from potstill.problem import Observations, Problem
from potstill.spaces import ActionSpace, Continuous, FiniteSpace, finite


class MissingPackage(PotstillError, ValueError):
    """A peer's library is not installed."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """An algorithm of another library.

    Attributes:
        name: Name on the command line and in results.
        title: Title in tables and figures.
        about: One line about it.
        package: Library, as it is installed.
        file: Module in this folder whose ``make(actions, seed, **options)`` gives an agent.
        options: Hyperparameters.
        cost: Approximate seconds per update.
        number: Whether its action is a number; ``make`` then takes the problem in place of the number of actions.
        module: Name to import the library by, if another than the package's.
        bounded: Whether ``make`` takes the range of rewards, as ``bounds``; 0 to 1 where it is not declared.
    """

    name: str
    title: str
    about: str
    package: str
    file: str
    options: dict[str, Any]
    cost: float
    number: bool = False
    module: str | None = None
    bounded: bool = False

    def supports(self, space: ActionSpace) -> str | None:
        """Why it cannot choose from an action space; None if it can."""
        if self.number:
            return None if isinstance(space, Continuous) else "it chooses a number from an interval"
        return None if isinstance(space, FiniteSpace) else "it needs a finite list of actions"

    def make(self, problem: Problem, seed: int) -> Agent:
        """Make an agent for one trial."""
        self.version()
        if reason := self.supports(problem.actions):
            raise UnsupportedSpace(f"{self.title} does not support {shown(problem.actions)}: {reason}")
        given = problem if self.number else len(finite(problem.actions, self.title))
        bounds = {"bounds": reward_range(problem)} if self.bounded else {}
        agent: Agent = import_module(f"{__name__}.{self.file}").make(given, seed, **self.options, **bounds)
        return agent

    def why_not(self) -> str | None:
        """Message that names the package to install; None if it is installed."""
        if find_spec(self.module or self.package):
            return None
        return f"{self.title} needs {self.package}, which is not installed: pip install 'potstill[peers]'"

    def version(self) -> str:
        """Version of its library; `MissingPackage` if it is not installed."""
        if reason := self.why_not():
            raise MissingPackage(reason)
        return metadata.version(self.package)


def _vowpal(name: str, title: str, about: str, arguments: str, cost: float, *, bounded: bool = False) -> Peer:
    return Peer(
        name=name,
        title=title,
        about=about,
        package="vowpalwabbit",
        file="vowpal",
        options={"arguments": arguments},
        cost=cost,
        bounded=bounded,
    )


def _mabwiser(name: str, title: str, about: str, policy: str, alpha: float) -> Peer:
    return Peer(
        name=name,
        title=title,
        about=about,
        package="mabwiser",
        file="mabwiser",
        options={"policy": policy, "alpha": alpha},
        cost=0.02,
    )


def _forest(name: str, title: str, draw: str, drawn: int) -> Peer:
    return Peer(
        name=name,
        title=title,
        about=f"a random forest for each action, Thompson sampling: a draw is {draw}",
        package="scikit-learn",
        module="sklearn",
        file="sklearn",
        options={"trees": 100, "drawn": drawn},
        cost=1.5,
    )


def _cats(actions: int) -> Peer:
    return Peer(
        name=f"vw-cats-{actions}",
        title=f"VW CATS {actions}",
        about=f"Vowpal Wabbit, a tree over {actions} bins of a number, ε-greedy",
        package="vowpalwabbit",
        file="vowpal_cats",
        options={"actions": actions},
        cost=0.1,
        number=True,
    )


PEERS = (
    _vowpal("vw-bag", "VW bag 10", "Vowpal Wabbit, ten bootstrapped linear models that vote", "--bag 10", 0.1),
    _vowpal("vw-squarecb", "VW SquareCB", "Vowpal Wabbit, inverse gap weighting on a linear model", "--squarecb", 0.1),
    # Settings that Bietti, Agarwal and Langford (2021) fix for costs from -1 to 0, as they are here. They choose the
    # learning rate for each table; here it is the library's.
    _vowpal("vw-greedy", "VW greedy", "Vowpal Wabbit, a linear model without exploration", "--epsilon 0", 0.1),
    _vowpal("vw-egreedy", "VW ε-greedy 0.02", "Vowpal Wabbit, a linear model, ε = 0.02", "--epsilon 0.02", 0.1),
    _vowpal(
        "vw-bag-greedy",
        "VW bag 4 greedy",
        "Vowpal Wabbit, four bootstrapped linear models, the first on every observation",
        "--bag 4 --greedify",
        0.1,
    ),
    _vowpal(
        "vw-cover",
        "VW cover 4",
        "Vowpal Wabbit, online cover with four policies, doubly robust, without uniform exploration",
        "--cover 4 --psi 0.1 --nounif --cb_type dr",
        0.2,
    ),
    _vowpal(
        "vw-regcb-elim",
        "VW RegCB elimination",
        "Vowpal Wabbit, uniform among the actions that confidence bounds do not exclude",
        "--regcb --mellowness 0.001",
        0.2,
        bounded=True,
    ),
    _vowpal(
        "vw-regcb-opt",
        "VW RegCB optimistic",
        "Vowpal Wabbit, the largest upper confidence bound of a linear model",
        "--regcb --regcbopt --mellowness 0.001",
        0.2,
        bounded=True,
    ),
    _mabwiser("mabwiser-lints", "MABWiser LinTS", "ridge regressions, Thompson sampling", "LinTS", 1.0),
    _mabwiser("mabwiser-linucb", "MABWiser LinUCB", "ridge regressions, upper confidence bounds, α = 1", "LinUCB", 1.0),
    _mabwiser(
        "mabwiser-linucb-0.1",
        "MABWiser LinUCB 0.1",
        "ridge regressions, upper confidence bounds, α = 0.1",
        "LinUCB",
        0.1,
    ),
    Peer(
        name="bayesianbandits-nig",
        title="bayesianbandits NIG",
        about="normal-inverse-gamma regressions, Thompson sampling",
        package="bayesianbandits",
        file="bayesian",
        options={},
        cost=0.02,
    ),
    Peer(
        name="lightgbm-egreedy",
        title="LightGBM ε-greedy 0.05",
        about="gradient-boosted trees over contexts and actions, ε = 0.05",
        package="lightgbm",
        file="lightgbm",
        options={"epsilon": 0.05},
        cost=1.0,
    ),
    _forest("sklearn-forest-ts", "scikit-learn forest TS", "one tree", 1),
    _forest("sklearn-forest-ts-5", "scikit-learn forest TS 5", "the mean of five trees", 5),
    _cats(8),
    _cats(32),
    Peer(
        name="mabwiser-linucb-levels",
        title="MABWiser LinUCB 0.1, 20 levels",
        about="ridge regressions on 20 levels of a number, upper confidence bounds, α = 0.1",
        package="mabwiser",
        file="levels",
        options={"levels": 20, "policy": "LinUCB", "alpha": 0.1},
        cost=0.05,
        number=True,
    ),
)


class TimedPeer:
    """A peer whose learning is timed."""

    def fit(self, observations: Observations) -> None:
        """Learn from one batch."""
        raise NotImplementedError

    def learn(self, observations: Observations) -> UpdateResult:
        """Learn from one batch, and report the seconds."""
        started = time.perf_counter()
        self.fit(observations)
        return UpdateResult(seconds={"learn": time.perf_counter() - started})


def reward_range(problem: Problem) -> tuple[float, float]:
    """The declared range of rewards; 0 to 1 where it is not declared."""
    low, high = problem.reward.low, problem.reward.high
    return (0.0 if low is None else low), (1.0 if high is None else high)


def with_intercept(contexts: Float32) -> Float64:
    """Contexts and a column of ones, float64[N, d + 1], for regressions without an intercept."""
    return np.column_stack([contexts.astype(np.float64), np.ones(len(contexts))])


def drawn(p: Float64, rng: np.random.Generator) -> Choices:
    """Actions drawn from probabilities, float64[N, K] up to rounding, and the probability of each, float32[N]."""
    cumulative = p.cumsum(axis=1)
    actions = (cumulative < rng.random((len(p), 1)) * cumulative[:, -1:]).sum(axis=1)
    return actions, np.take_along_axis(p, actions[:, None], axis=1)[:, 0].astype(np.float32)


def greedy_shares(scores: Float64) -> Float64:
    """Probabilities of choosing the best score, float64[N, K]; actions that tie share them."""
    best = scores == scores.max(axis=1, keepdims=True)
    shares: Float64 = best / best.sum(axis=1, keepdims=True)
    return shares
