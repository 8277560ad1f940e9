"""How imitation error falls with contexts and labels: the paper's generalisation theorem, measured.

Theorem "generalization" bounds the held-out KL divergence of a policy fitted on N contexts with N_a sampled actions
each by a multiple of

    1/N + 1/√(N·N_a),

up to logarithms, if the policy class contains the teacher. Exact labels are the limit of many samples and leave 1/N.
The study runs `imitate` as every update does, with early stopping and the step limit of a `Student`, and measures
the policy on fresh contexts against exact labels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from scipy.stats import t as student_t

from potstill.distill import Student, fidelity, imitate
from potstill.errors import LabError
from potstill.keys import Key
from potstill.lab.problems import Environment, Float32, Float64, Simulation, TableProblem
from potstill.lab.runs import Undistilled, play
from potstill.parallel import advance
from potstill.policy import outputs
from potstill.spaces import FiniteDistribution, learning
from potstill.teachers import LinearTS, NeuralLinearTS

#: Teachers whose labels are exact, by name.
TEACHERS: dict[str, LinearTS | NeuralLinearTS] = {"linear-ts": LinearTS(), "neural-linear-ts": NeuralLinearTS()}
#: Number of labels that stands for exact ones.
EXACT = 0
#: Divergences below this multiple of the smallest may be limited by the network and its training steps, not by labels.
ABOVE_FLOOR = 2.5
#: A policy counts for the slope if its divergence is below this share of the best context-free policy's.
BELOW_BLIND = 1 / 3
#: Labels are as good as exact ones if they add at most this share of divergence.
AS_GOOD = 1.1
#: Fewest contexts to distil on.
LEAST_CONTEXTS = 20
_FRESH = 8192
_BATCH = 1000


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the study. Equal settings give equal results.

    Args:
        problem: Name of the problem.
        teacher: Name of the teacher, one of `TEACHERS`.
        contexts: N, in ascending order.
        labels: N_a, sampled actions per context, in ascending order; exact labels are always added.
        repeats: Number of repeats of everything but the teacher: contexts, labels and training.
        decisions: Number of decisions that the teacher has learnt from, by Thompson sampling in batches of 1,000.
        seed: Seed of all randomness.
    """

    problem: str = "video"
    teacher: str = "linear-ts"
    contexts: tuple[int, ...] = (250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000)
    labels: tuple[int, ...] = (1, 4, 16, 64, 256, 2048)
    repeats: int = 4
    decisions: int = 5000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.teacher not in TEACHERS:
            raise LabError(f"teacher must be one with exact labels: {', '.join(TEACHERS)}; got {self.teacher!r}")
        for field, least in (("contexts", LEAST_CONTEXTS), ("labels", 1)):
            values = getattr(self, field)
            if not values or min(values) < least or list(values) != sorted(set(values)):
                raise LabError(f"{field} must be integers of {least} or more in ascending order, got {list(values)}")
        for field, least in (("repeats", 1), ("decisions", 1), ("seed", 0)):
            if getattr(self, field) < least:
                raise LabError(f"{field} must be {least} or more, got {getattr(self, field)}")

    def fitted(self, environment: Environment) -> Rates:
        """The settings limited to the contexts of a problem: half of the rows of a table are held out."""
        if not isinstance(environment, TableProblem) or (half := environment.rows // 2) >= self.contexts[-1]:
            return self
        fitting = tuple(n for n in self.contexts if n <= half)
        shares = tuple(n for n in (half // 8, half // 4, half // 2, half) if n >= LEAST_CONTEXTS)
        return msgspec.structs.replace(self, contexts=fitting if len(fitting) > len(shares) else shares or (half,))

    @property
    def kinds(self) -> tuple[int, ...]:
        """Kinds of labels: exact ones first, then sampled ones from many to few."""
        return (EXACT, *self.labels[::-1])

    @property
    def steps(self) -> int:
        """Total number of policies to distil."""
        return len(self.contexts) * len(self.kinds) * self.repeats


class Lesson(NamedTuple):
    """Inputs of a task.

    Attributes:
        rates: The settings.
        environment: Environment whose contexts are imitated on.
        fresh: Environment whose contexts policies are measured on; the same, unless contexts are rows of a table.
        state: State of a trained teacher.
        contexts: Number of contexts to imitate on.
    """

    rates: Rates
    environment: Environment
    fresh: Environment
    state: Any
    contexts: int


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Held-out divergence of policies from N contexts with N_a labels each.

    Attributes:
        contexts: N.
        labels: N_a; 0 stands for exact labels.
        kl: Divergence in nats, one for each repeat.
    """

    contexts: int
    labels: int
    kl: list[float]

    @property
    def mean(self) -> float:
        """Mean over the repeats."""
        return float(np.mean(self.kl))

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN for one repeat."""
        return float(np.std(self.kl, ddof=1)) / math.sqrt(len(self.kl)) if len(self.kl) > 1 else math.nan


class Slope(msgspec.Struct, frozen=True, kw_only=True):
    """Exponent of a power law with its 95 % interval; None for too few points."""

    exponent: float | None = None
    low: float | None = None
    high: float | None = None
    points: int = 0


def lessons(rates: Rates, environment: Environment) -> list[Lesson]:
    """Tasks of a study, longest first; one for each N, so that each program is compiled once."""
    state = taught(environment, rates.decisions, rates.seed, TEACHERS[rates.teacher])
    fresh = environment
    if isinstance(environment, TableProblem):
        environment, fresh = _held_out(environment, rates)
    return [Lesson(rates, environment, fresh, state, n) for n in reversed(rates.contexts)]


def _held_out(table: TableProblem, rates: Rates) -> tuple[Any, Any]:
    """Rows to imitate on, and held-out rows to measure on."""
    fresh, imitated = table.halves(Key(rates.seed).child("halves").generator())
    if rates.contexts[-1] > imitated.rows:
        raise LabError(
            f"{rates.problem} has {table.rows:,} rows, of which half are held out: give --contexts up to "
            f"{imitated.rows:,}, not {rates.contexts[-1]:,}"
        )
    return imitated, fresh


def taught(
    environment: Environment, decisions: int, seed: int, teacher: LinearTS | NeuralLinearTS = TEACHERS["linear-ts"]
) -> Any:
    """State of a teacher after taking `decisions` decisions."""
    agent = Undistilled(environment.problem, teacher, Key(seed).child("agent").integer())
    whole, rest = divmod(decisions, _BATCH)
    # A trial does not learn from its last batch, so one more batch of a single decision is added.
    sizes = [*[_BATCH] * whole, *[rest] * (rest > 0), 1]
    for _ in play(Simulation(environment, decisions + 1, Key(seed).child("world")), agent, sizes, seed):
        pass
    return agent.state


def learn(lesson: Lesson) -> list[Point]:
    """Distil on N contexts with every kind of labels; a repeat has the same contexts for all kinds."""
    rates = lesson.rates
    fresh, truth = _fresh(lesson)
    kl: dict[int, list[float]] = {kind: [] for kind in rates.kinds}
    for repeat in range(rates.repeats):
        key = Key(rates.seed).child("repeat", repeat)
        contexts, exact = _labelled(lesson, lesson.environment, lesson.contexts, key.child("contexts"))
        for kind in rates.kinds:
            labels = sampled(exact, kind, key.child("labels", lesson.contexts, kind)) if kind else exact
            imitation = imitate(
                contexts, labels, Student(), key.child("imitate"), learning=learning(lesson.environment.problem.actions)
            )
            served = softmax(outputs(imitation.layers, Student().activation, fresh), axis=1)
            kl[kind].append(_kl(lesson, truth, served))
            advance()
    return [Point(contexts=lesson.contexts, labels=kind, kl=values) for kind, values in kl.items()]


def _kl(lesson: Lesson, truth: NDArray[Any], student: NDArray[Any]) -> float:
    space = lesson.environment.problem.actions
    return fidelity(learning(space), truth, FiniteDistribution(student), 1.0).kl_mean


def blind(lesson: Lesson) -> float:
    """The divergence, in nats, of the best policy that ignores the context."""
    _, truth = _fresh(lesson)
    return _kl(lesson, truth, np.broadcast_to(truth.mean(axis=0, dtype=np.float64), truth.shape))


def _fresh(lesson: Lesson) -> tuple[Float32, Float32]:
    """Held-out contexts and their exact labels; a table may have fewer."""
    count = min(_FRESH, lesson.fresh.rows) if isinstance(lesson.fresh, TableProblem) else _FRESH
    return _labelled(lesson, lesson.fresh, count, Key(lesson.rates.seed).child("fresh"))


def _labelled(lesson: Lesson, environment: Environment, n: int, key: Key) -> tuple[Float32, Float32]:
    """Contexts, float32[n, d], and their exact labels, float32[n, K]."""
    contexts = environment.encode(environment.contexts(n, key.generator()))
    return contexts, TEACHERS[lesson.rates.teacher].propensities(lesson.state, contexts, key)


def sampled(exact: Float32, draws: int, key: Key) -> Float32:
    """Shares of actions in `labels` posterior draws, float32[N, K], drawn from the exact propensities."""
    p = exact.astype(np.float64)
    p /= p.sum(axis=1, keepdims=True)
    shares: Float32 = (key.generator().multinomial(draws, p) / draws).astype(np.float32)
    return shares


# ---- results


class Findings(msgspec.Struct, frozen=True, kw_only=True):
    """A finished study.

    Attributes:
        rates: Settings of the study.
        points: One point for each N and kind of labels.
        blind: Divergence of the best policy that ignores the context.
        floor: The smallest divergence that was reached.
        in_contexts: Exponent of divergence as a power of N, by kind of labels.
        in_labels: Exponent of the excess divergence of sampled over exact labels, as a power of N·N_a.
    """

    rates: Rates
    points: list[Point]
    blind: float
    floor: float
    in_contexts: dict[int, Slope]
    in_labels: Slope

    @classmethod
    def of(cls, rates: Rates, points: Sequence[Point], blind: float) -> Findings:
        """Build the study from all its points."""
        ordered = sorted(points, key=lambda point: (point.labels, point.contexts))
        found = cls(
            rates=rates,
            points=ordered,
            blind=blind,
            floor=min(point.mean for point in ordered),
            in_contexts={},
            in_labels=Slope(),
        )
        return msgspec.structs.replace(
            found,
            in_contexts={kind: found._slope_in_contexts(kind) for kind in rates.kinds},
            in_labels=found._slope_in_labels(),
        )

    def curve(self, labels: int) -> list[Point]:
        """Points of one kind of labels, by N."""
        return [point for point in self.points if point.labels == labels]

    def falling(self, labels: int) -> list[Point]:
        """Points between the ceiling and the floor, where a slope is meaningful."""
        low, high = ABOVE_FLOOR * self.floor, BELOW_BLIND * self.blind
        return [point for point in self.curve(labels) if low <= point.mean <= high]

    def excess(self) -> list[tuple[Point, Float64]]:
        """Points of sampled labels above the floor, and their excess over exact ones, float64[repeats]."""
        exact = {point.contexts: np.array(point.kl) for point in self.curve(EXACT)}
        pairs = [(point, np.array(point.kl) - exact[point.contexts]) for point in self.points if point.labels]
        high = BELOW_BLIND * self.blind
        return [(point, more) for point, more in pairs if more.mean() >= self.floor and point.mean <= high]

    def as_good_as_exact(self, contexts: int) -> int | None:
        """Fewest labels per context that are as good as exact ones; None if none are."""
        by_labels = {point.labels: point.mean for point in self.points if point.contexts == contexts}
        exact = by_labels.pop(EXACT)
        return min((labels for labels, kl in by_labels.items() if kl <= AS_GOOD * exact), default=None)

    def contexts_for(self, kl: float, labels: int) -> float | None:
        """Number of contexts that reach a divergence, interpolated between points; None outside of them."""
        curve = self.curve(labels)
        logs = np.minimum.accumulate(np.log([point.mean for point in curve]))
        if not logs[-1] <= math.log(kl) <= logs[0]:
            return None
        return float(np.exp(np.interp(-math.log(kl), -logs, np.log([point.contexts for point in curve]))))

    def _slope_in_contexts(self, labels: int) -> Slope:
        points = self.falling(labels)
        return slope([point.contexts for point in points], [point.kl for point in points])

    def _slope_in_labels(self) -> Slope:
        pairs = self.excess()
        return slope([point.contexts * point.labels for point, _ in pairs], [more for _, more in pairs])


def slope(x: Sequence[float], y: Sequence[Sequence[float] | Float64]) -> Slope:
    """The exponent b of y ∝ x^b by least squares on the logarithms of means over repeats, with a jackknife interval.

    Args:
        x: [P] values.
        y: [P, R] values, R repeats of each.
    """
    if len(set(x)) < 3:
        return Slope(points=len(x))
    values = np.array(y, np.float64)
    exponent, repeats = _exponent(x, values.mean(axis=1)), values.shape[1]
    if repeats < 3:  # two points would give an interval with every slope
        return Slope(exponent=exponent, points=len(x))
    without = [_exponent(x, np.delete(values, r, axis=1).mean(axis=1)) for r in range(repeats)]
    error = math.sqrt((repeats - 1) * np.var(without))
    half = float(student_t.ppf(0.975, repeats - 1)) * error
    return Slope(exponent=exponent, low=exponent - half, high=exponent + half, points=len(x))


def _exponent(x: Sequence[float], y: NDArray[np.float64]) -> float:
    return float(np.polyfit(np.log(x), np.log(np.maximum(y, np.finfo(float).tiny)), 1)[0])


Mapped = Callable[[Callable[[Lesson], list[Point]], Sequence[Lesson]], list[list[Point]]]


def study(rates: Rates, environment: Environment, mapped: Mapped) -> Findings:
    """Run the study.

    Args:
        rates: Settings of the study.
        environment: The problem. Half of the rows of a table are held out to measure on.
        mapped: Applies a function to all tasks, as `map` or `potstill.parallel.parallel_map` do.
    """
    tasks = lessons(rates, environment)
    points = [point for some in mapped(learn, tasks) for point in some]
    return Findings.of(rates, points, blind(tasks[0]))
