"""Algorithms by name: those of the paper's evaluation, and those of other libraries."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from potstill.errors import LabError
from potstill.lab import peers
from potstill.lab.runs.presets import PRESETS
from potstill.lab.runs.trial import Agent, Distilled, Fixed, Undistilled
from potstill.policy import Policy
from potstill.problem import Problem, Reward
from potstill.spaces import ActionSpace
from potstill.teachers import AnyTeacher, reward_kinds, to_config

#: Beyond this many decisions, every update of a Gaussian process takes minutes.
GP_DECISIONS = 10_000


class Algorithm(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent is made for one trial.

    Attributes:
        name: Name on the command line and in results.
        title: Title in tables and figures.
        about: One line about it.
        teacher: Row in `PRESETS`; None if it has no hyperparameters.
        imitates: Name of the Thompson sampling whose distilled policy this is.
        cost: Rough seconds per update, to order tasks and to estimate the time left before any measurement.
        limit: Largest number of decisions in a trial for which `all` includes it.
    """

    name: str
    title: str
    about: str
    teacher: str | None = None
    imitates: str | None = None
    cost: float = 1.0
    limit: int | None = None

    @property
    def presets(self) -> tuple[str, ...]:
        """Presets that it has."""
        return tuple(name for name, choices in PRESETS.items() if self.teacher is None or self.teacher in choices)

    def make(self, problem: Problem, seed: int, preset: str) -> Agent:
        """Make an agent for one trial."""
        if self.teacher is None:
            return Fixed(Policy.uniform(problem, seed=seed))
        choice = PRESETS[preset][self.teacher]
        if self.imitates:
            return Distilled(problem, choice.teacher, choice.student, seed)
        return Undistilled(problem, choice.teacher, seed)

    def settings(self, preset: str) -> dict[str, Any]:
        """Hyperparameters that results depend on, as plain values."""
        if self.teacher is None:
            return {}
        choice = PRESETS[preset][self.teacher]
        student = {"student": choice.student.config()} if self.imitates else {}
        return {"teacher": to_config(choice.teacher), **student}

    def supports(self, space: ActionSpace) -> str | None:
        """Why it cannot choose from an action space; None if it can."""
        return None if self.teacher is None else self._any_teacher.supports(space)

    def refuses(self, reward: Reward) -> str | None:
        """Why it cannot learn from the rewards of a problem; None if it can."""
        kinds = () if self.teacher is None else reward_kinds(self._any_teacher)
        if not kinds or reward.kind in kinds:
            return None
        return f"it needs rewards of kind {' or '.join(kinds)}, and the problem states {reward.kind or 'none'}"

    @property
    def _any_teacher(self) -> AnyTeacher:
        """Its teacher in some preset; what it supports is the same in all."""
        return next(choices[self.teacher] for choices in PRESETS.values() if self.teacher in choices).teacher

    def why_not(self, decisions: int) -> str | None:
        """Why `all` leaves it out of a trial of this many decisions; None if it does not."""
        if self.limit is None or decisions <= self.limit:
            return None
        return f"leaves out trials of more than {self.limit:,} decisions, where each update takes minutes"


class PeerAlgorithm(Algorithm, frozen=True, kw_only=True):
    """Another library's algorithm, with that library's hyperparameters.

    Attributes:
        peer: The algorithm of another library.
    """

    peer: peers.Peer

    @property
    def presets(self) -> tuple[str, ...]:
        """The preset of other libraries."""
        return ("peers",)

    def make(self, problem: Problem, seed: int, preset: str) -> Agent:  # noqa: ARG002
        """Make an agent for one trial; `peers.MissingPackage` if its library is not installed."""
        return self.peer.make(problem, seed)

    def supports(self, space: ActionSpace) -> str | None:
        """Why it cannot choose from an action space; None if it can."""
        return self.peer.supports(space)

    def refuses(self, reward: Reward) -> str | None:  # noqa: ARG002
        """None: those of other libraries learn from all rewards."""
        return None

    def settings(self, preset: str) -> dict[str, Any]:  # noqa: ARG002
        """The options, and the library's version."""
        return {"package": self.peer.package, "version": self.peer.version(), "options": self.peer.options}


def _pair(name: str, title: str, about: str, cost: float, cost_il: float, limit: int | None = None) -> list[Algorithm]:
    """A Thompson sampling and its distilled policy."""
    own = Algorithm(name=name, title=title, about=about, teacher=name, cost=cost, limit=limit)
    distilled = Algorithm(
        name=f"{name}-il",
        title=f"{title}-IL",
        about=f"the policy distilled from {title}",
        teacher=name,
        imitates=name,
        cost=cost_il,
        limit=limit,
    )
    return [own, distilled]


_OWN = [
    Algorithm(name="uniform", title="UniformRandom", about="uniform choice, without learning", cost=0.001),
    Algorithm(
        name="neural-greedy",
        title="Neural-Greedy",
        about="the best prediction of one network, without exploration",
        teacher="neural-greedy",
        cost=0.2,
    ),
    *_pair("linear-ts", "Linear-TS", "a Bayesian linear regression for each action", 0.004, 0.6),
    *_pair(
        "neural-linear-ts",
        "NeuralLinear-TS",
        "Bayesian linear regressions on the last hidden layer of a network",
        0.25,
        0.8,
    ),
    *_pair("bootstrap-nn-ts", "Bootstrap-NN-TS", "ten bootstrapped networks, one of which decides at random", 0.7, 1.2),
    *_pair(
        "adaptive-ts", "Adaptive-TS", "a Bayesian linear regression that learns its prior; not in the paper", 0.35, 1.2
    ),
    *_pair(
        "empirical-linear-ts", "EmpiricalLinear-TS", "Linear-TS with prior and noise scales learnt from data", 0.01, 0.6
    ),
    *_pair("auto-ts", "Auto-TS", "linear, neural and tree models, stacked by their predictions; the default", 0.5, 1.2),
    *_pair("forest-ts", "Forest-TS", "bootstrapped regression trees for each action; not in the paper", 0.5, 1.5),
    *_pair("logistic-ts", "Logistic-TS", "a Bayesian logistic regression for each action; rewards 0 and 1", 0.03, 0.6),
    *_pair(
        "neural-logistic-ts",
        "NeuralLogistic-TS",
        "Bayesian logistic regressions on the last hidden layer of a network; rewards 0 and 1",
        0.4,
        1.0,
    ),
    *_pair("poisson-ts", "Poisson-TS", "a Bayesian Poisson regression for each action; counts", 0.03, 0.6),
    *_pair("gp-ts", "GP-TS", "a Gaussian process over contexts and actions", 1.5, 5, GP_DECISIONS),
    *_pair(
        "continuous-linear-ts",
        "Continuous-Linear-TS",
        "a number, by Bayesian linear regression on products of context columns and functions of the number",
        0.3,
        1.5,
    ),
    *_pair(
        "continuous-neural-linear-ts",
        "Continuous-NeuralLinear-TS",
        "a number, by Bayesian linear regression on the last hidden layer of a network",
        1.0,
        3.0,
    ),
    *_pair(
        "continuous-gp-ts", "Continuous-GP-TS", "a number, by a Gaussian process over contexts and numbers", 2, 5, 2_000
    ),
]
_PEERS: list[Algorithm] = [
    PeerAlgorithm(name=peer.name, title=peer.title, about=peer.about, peer=peer, cost=peer.cost) for peer in peers.PEERS
]

ALGORITHMS: dict[str, Algorithm] = {algorithm.name: algorithm for algorithm in (*_OWN, *_PEERS)}


#: An algorithm, of Potstill or of another library.
_GROUPS = {"all": _OWN, "peers": _PEERS}


def named(names: Iterable[str]) -> list[Algorithm]:
    """Algorithms by their names; ``all`` are Potstill's and ``peers`` those of other libraries."""
    chosen: dict[str, Algorithm] = {}
    for name in names:
        if name not in ALGORITHMS and name not in _GROUPS:
            known = ", ".join([*_GROUPS, *ALGORITHMS])
            raise LabError(f"unknown algorithm {name!r}; there are {known}")
        chosen |= {algorithm.name: algorithm for algorithm in _GROUPS.get(name) or [ALGORITHMS[name]]}
    return list(chosen.values())
