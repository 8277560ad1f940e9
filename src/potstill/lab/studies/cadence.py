"""How often to update: simulated regret against the size of a batch and the delay of rewards, before a launch.

A delay of D decisions means that the reward of a decision is known once D more decisions have been taken. An update at
the end of a batch learns from what is known by then. Until the first one, decisions are uniform.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from potstill.errors import LabError
from potstill.keys import Key
from potstill.lab.problems import Choices, Environment, Float32, Simulation
from potstill.lab.runs import ALGORITHMS, PRESETS, Agent, Fixed, Turn, UpdateResult, play
from potstill.parallel import advance
from potstill.policy import Policy
from potstill.problem import Observations, Problem

#: Most updates of a trial: more would take over a quarter of an hour.
MOST_UPDATES = 1_000
#: Largest relative cost of the advised period, two standard errors included.
TOLERABLE = 0.05


class Cadence(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the study. Equal settings give equal results, apart from seconds.

    Args:
        problem: Name of the problem.
        decisions: Number of decisions in a trial.
        batches: Batch sizes (decisions between two updates), in ascending order.
        delays: Delays of rewards, in decisions, in ascending order.
        trials: Number of trials of each batch size and delay; trials with the same number get the same requests.
        algorithm: Name of the algorithm in the lab, such as ``linear-ts-il``.
        preset: Preset of its hyperparameters.
        seed: Seed of all randomness.
    """

    problem: str = "video"
    decisions: int = 20_000
    batches: tuple[int, ...] = (100, 300, 1000, 3000)
    delays: tuple[int, ...] = (0, 1000, 5000)
    trials: int = 4
    algorithm: str = "linear-ts-il"
    preset: str = "potstill"
    seed: int = 0

    def __post_init__(self) -> None:
        for field, least in (("decisions", 1), ("trials", 1), ("seed", 0)):
            if getattr(self, field) < least:
                raise LabError(f"{field} must be {least} or more, got {getattr(self, field)}")
        for field, least in (("batches", 1), ("delays", 0)):
            values = getattr(self, field)
            if not values or min(values) < least or list(values) != sorted(set(values)):
                raise LabError(f"{field} must be integers of {least} or more in ascending order, got {list(values)}")
        self._refuse_endless()
        self._refuse_unknown()

    def _refuse_endless(self) -> None:
        least = math.ceil(self.decisions / MOST_UPDATES)
        if self.batches[0] < least:
            raise LabError(
                f"batches of {self.batches[0]} mean {self.decisions // self.batches[0]:,} updates in each trial, and "
                f"each fits a posterior and a policy; give batches of {least} or more, or fewer decisions"
            )

    def _refuse_unknown(self) -> None:
        if self.preset not in PRESETS:
            raise LabError(f"unknown preset {self.preset!r}; the presets are {', '.join(PRESETS)}")
        known = [name for name, algorithm in ALGORITHMS.items() if self.preset in algorithm.presets]
        if self.algorithm not in known:
            raise LabError(
                f"unknown algorithm {self.algorithm!r} in preset {self.preset}; there are {', '.join(known)}"
            )

    def sizes(self, batch: int) -> list[int]:
        """Number of decisions in each batch; the last takes the remainder."""
        whole, rest = divmod(self.decisions, batch)
        return [batch] * whole + [rest] * (rest > 0)

    @property
    def steps(self) -> int:
        """Total number of batches."""
        return sum(len(self.sizes(batch)) for batch in self.batches) * len(self.delays) * self.trials


class Delayed:
    """An agent that learns each reward `delay` decisions later.

    Args:
        agent: Agent that decides once it has learnt from a batch.
        problem: The problem.
        delay: Delay of rewards, in decisions.
        seed: Seed of the uniform decisions before that.
    """

    def __init__(self, agent: Agent, problem: Problem, delay: int, seed: int) -> None:
        self._agent, self._delay = agent, delay
        self._deciding: Agent = Fixed(Policy.uniform(problem, seed=seed))
        self._waiting = Observations.none(problem)

    def choose(self, contexts: Float32) -> Choices:
        """Decide by the agent, or uniformly before the first reward is known."""
        return self._deciding.choose(contexts)

    def learn(self, observations: Observations) -> UpdateResult:
        """Add a batch, and learn from all but the last `delay` decisions."""
        waiting = self._waiting + observations
        known = max(len(waiting) - self._delay, 0)
        self._waiting = waiting[known:]
        if not known:
            return UpdateResult()
        self._deciding = self._agent
        return self._agent.learn(waiting[:known])


class Cell(NamedTuple):
    """One trial of one batch size and delay."""

    cadence: Cadence
    environment: Callable[[], Environment]
    batch: int
    delay: int
    trial: int


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a cell.

    Attributes:
        batch: Decisions between updates.
        delay: Delay of rewards, in decisions.
        trial: Number, from 0.
        regret: Regret of the trial.
        uniform: Regret of uniform choice on the same requests.
        seconds: Median seconds of an update; 0 if there was none.
    """

    batch: int
    delay: int
    trial: int
    regret: float
    uniform: float
    seconds: float


def cells(cadence: Cadence, environment: Callable[[], Environment]) -> list[Cell]:
    """Tasks of a study, longest first."""
    return [
        Cell(cadence, environment, batch, delay, trial)
        for batch in cadence.batches
        for delay in cadence.delays
        for trial in range(cadence.trials)
    ]


def outcome(cell: Cell) -> Outcome:
    """Play a cell."""
    turns = turns_of(cell, cell.cadence.algorithm)
    seconds = [sum(turn.learned.seconds.values()) for turn in turns if turn.learned.seconds]
    return Outcome(
        batch=cell.batch,
        delay=cell.delay,
        trial=cell.trial,
        regret=_regret(turns),
        uniform=_regret(turns_of(cell, "uniform", told=False)),
        # Not the mean: some updates compile, which a service does once and a study many times.
        seconds=statistics.median(seconds) if seconds else 0.0,
    )


def turns_of(cell: Cell, algorithm: str, *, told: bool = True) -> list[Turn]:
    """Batches of a cell. Seeds are those of `lab run`, so that cells without delay reproduce its trials."""
    cadence, environment = cell.cadence, cell.environment()
    seed = Key(cadence.seed).child(cadence.problem, cell.trial).integer()
    agent_seed = Key(seed).child("agent").integer()
    agent = ALGORITHMS[algorithm].make(environment.problem, agent_seed, cadence.preset)
    delayed = Delayed(agent, environment.problem, cell.delay, agent_seed)
    world = Simulation(environment, cadence.decisions, Key(seed).child("world"))
    turns = []
    for turn in play(world, delayed, cadence.sizes(cell.batch), seed):
        turns.append(turn)
        if told:
            advance()
    return turns


def _regret(turns: Sequence[Turn]) -> float:
    return math.fsum(turn.regret for turn in turns if turn.regret is not None)


# ---- results


class Estimate(NamedTuple):
    """A mean and two standard errors; None if there is one trial."""

    mean: float
    two_se: float | None

    @property
    def at_least(self) -> float:
        """Two standard errors below the mean; minus infinity if they are not known."""
        return -math.inf if self.two_se is None else self.mean - self.two_se

    @property
    def at_most(self) -> float:
        """Two standard errors above the mean; infinity if they are not known."""
        return math.inf if self.two_se is None else self.mean + self.two_se


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate from independent values."""
    return cost(values, [0.0] * len(values), [1.0] * len(values))


def cost(regret: Sequence[float], base: Sequence[float], unit: Sequence[float] | None = None) -> Estimate:
    """Relative increase of regret over the base, paired by trial.

    A ratio of means, with the standard error of a ratio estimator. `unit`, if given, replaces the base as denominator.
    """
    more, whole = np.subtract(regret, base), np.asarray(base if unit is None else unit)
    if whole.mean() == 0:
        return Estimate(0.0 if more.mean() == 0 else math.inf, None)
    share = float(more.mean() / whole.mean())
    if len(more) < 2:
        return Estimate(share, None)
    error = float(np.std(more - share * whole, ddof=1)) / math.sqrt(len(more)) / abs(float(whole.mean()))
    return Estimate(share, 2 * error)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A batch size and a delay.

    Attributes:
        batch: Decisions between updates.
        delay: Delay of rewards, in decisions.
        updates: Number of updates in a trial; the first ones may have no rewards to learn from.
        regret: Regret of a trial.
        cost: Relative increase of regret over the smallest batch and the smallest delay.
        cost_of_batch: Relative increase of regret over the smallest batch at the same delay.
        seconds: Median seconds of an update.
        work: Seconds of updating per decision.
    """

    batch: int
    delay: int
    updates: int
    regret: Estimate
    cost: Estimate
    cost_of_batch: Estimate
    seconds: float
    work: float


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """A finished study.

    Attributes:
        cadence: Settings of the study.
        rows: One row for each delay and batch size.
        uniform: Regret of uniform choice.
    """

    cadence: Cadence
    rows: list[Row]
    uniform: Estimate

    @classmethod
    def of(cls, cadence: Cadence, outcomes: Sequence[Outcome]) -> Findings:
        """Build the study from the results of all cells."""
        by_cell: dict[tuple[int, int], list[Outcome]] = {}
        for one in sorted(outcomes, key=lambda one: (one.delay, one.batch, one.trial)):
            by_cell.setdefault((one.batch, one.delay), []).append(one)
        regret = {cell: [one.regret for one in some] for cell, some in by_cell.items()}
        smallest, soonest = cadence.batches[0], cadence.delays[0]
        rows = [
            Row(
                batch=batch,
                delay=delay,
                updates=len(cadence.sizes(batch)) - 1,
                regret=estimate(regret[batch, delay]),
                cost=cost(regret[batch, delay], regret[smallest, soonest]),
                cost_of_batch=cost(regret[batch, delay], regret[smallest, delay]),
                seconds=(seconds := statistics.median(one.seconds for one in some)),
                work=seconds / batch,
            )
            for (batch, delay), some in by_cell.items()
        ]
        base = by_cell[smallest, soonest]
        return cls(cadence=cadence, rows=rows, uniform=estimate([one.uniform for one in base]))

    def with_delay(self, delay: int) -> list[Row]:
        """Rows of a delay, by batch size."""
        return [row for row in self.rows if row.delay == delay]

    def advised(self, delay: int) -> Row:
        """The longest period with a tolerable cost, for a given delay."""
        shortest, *longer = self.with_delay(delay)
        return next((row for row in reversed(longer) if row.cost_of_batch.at_most <= TOLERABLE), shortest)


Mapped = Callable[[Callable[[Cell], Outcome], Sequence[Cell]], list[Outcome]]


def study(cadence: Cadence, environment: Callable[[], Environment], mapped: Mapped) -> Findings:
    """Run the study.

    Args:
        cadence: Settings of the study.
        environment: Makes the simulated problem; a function from a module, so that other processes can call it.
        mapped: Applies a function to all tasks, as `map` or `potstill.parallel.parallel_map` do.
    """
    return Findings.of(cadence, list(mapped(outcome, cells(cadence, environment))))
