"""Rows of the report's tables, as data."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from potstill.lab.measure import Latency, SameLanguage
from potstill.lab.report.along import Along, along
from potstill.lab.report.runs import LATENCY_MS, PEERS, Run, Runs
from potstill.lab.runs import ALGORITHMS, Comparison, Estimate, Measure, Trial


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """Final result of an algorithm: total regret of a trial, or mean reward per decision.

    Attributes:
        problem, preset, algorithm: names.
        title: Title of the algorithm.
        measure: ``regret`` or ``reward``.
        final: Mean over trials.
        best_peer: Whether this is the best of the other libraries.
        against_best_peer: Comparison with the best peer, paired by trial; None for peers, or without them.
    """

    problem: str
    preset: str
    algorithm: str
    title: str
    measure: Measure
    final: Estimate
    best_peer: bool
    against_best_peer: Comparison | None


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """A distilled policy compared with its Thompson sampling, at the end and along the curve."""

    problem: str
    preset: str
    algorithm: str
    title: str
    measure: Measure
    comparison: Comparison
    along: Along | None


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """Latency here and in the paper.

    Attributes:
        problem, algorithm: names.
        title: Title of the algorithm.
        calls, mean_us, two_se_us, median_us, p99_us: Measured on this machine.
        paper_us: The paper's mean; None where it has none.
        speedup: Median latency of Thompson sampling over that of this distilled policy; None for others.
        paper_speedup: The same ratio in the paper, of means.
    """

    problem: str
    algorithm: str
    title: str
    calls: int
    mean_us: float
    two_se_us: float
    median_us: float
    p99_us: float
    paper_us: float | None
    speedup: float | None
    paper_speedup: float | None


class Alike(msgspec.Struct, frozen=True, kw_only=True):
    """Thompson sampling and its distilled policy, timed in one language.

    Attributes:
        problem, algorithm: names; the algorithm is the Thompson sampling.
        title: Title of the algorithm.
        language: ``numpy`` or ``c``.
        calls: Number of timed calls of each.
        ts_us: Median microseconds of Thompson sampling.
        il_us: Median microseconds of the distilled policy.
        speedup: Their ratio.
    """

    problem: str
    algorithm: str
    title: str
    language: str
    calls: int
    ts_us: float
    il_us: float
    speedup: float


def finals(runs: Runs) -> list[Final]:
    """One row for each run."""
    return [_final(run, runs.best_peer(run.problem)) for run in runs.runs]


def _final(run: Run, best: Run | None) -> Final:
    return Final(
        problem=run.problem,
        preset=run.preset,
        algorithm=run.algorithm,
        title=run.title,
        measure=run.measure,
        final=run.estimate,
        best_peer=run is best,
        against_best_peer=run.against(best) if best and run.preset != PEERS else None,
    )


def comparisons(runs: Runs) -> list[Compared]:
    """One row for each distilled policy whose Thompson sampling was run on the same trials."""
    rows = []
    for run, teacher in runs.pairs():
        if comparison := run.against(teacher):
            rows.append(
                Compared(
                    problem=run.problem,
                    preset=run.preset,
                    algorithm=run.algorithm,
                    title=run.title,
                    measure=run.measure,
                    comparison=comparison,
                    along=along(run, teacher),
                )
            )
    return rows


def latencies(measured: Sequence[Latency]) -> list[Timed]:
    """Rows of measured latencies with the paper's numbers."""
    here = {(one.problem, one.algorithm): one.median_us for one in measured}
    return [_timed(one, here) for one in measured]


def _timed(one: Latency, here: dict[tuple[str, str], float]) -> Timed:
    own = (one.problem, one.algorithm)
    taught_by = (one.problem, ALGORITHMS[one.algorithm].imitates or "")
    ms = LATENCY_MS.get(own)
    return Timed(
        **msgspec.structs.asdict(one),
        title=ALGORITHMS[one.algorithm].title,
        paper_us=None if ms is None else 1000 * ms,
        speedup=here[taught_by] / one.median_us if taught_by in here else None,
        paper_speedup=LATENCY_MS[taught_by] / ms if ms is not None and taught_by in LATENCY_MS else None,
    )


def alike(measured: Sequence[SameLanguage]) -> list[Alike]:
    """One row for each problem, algorithm and language."""
    by_name = {(one.problem, one.algorithm, one.language): one for one in measured}
    return [
        Alike(
            problem=problem,
            algorithm=algorithm,
            title=ALGORITHMS[algorithm].title,
            language=language,
            calls=one.calls,
            ts_us=one.median_us,
            il_us=distilled.median_us,
            speedup=one.median_us / distilled.median_us,
        )
        for (problem, algorithm, language), one in by_name.items()
        if (distilled := by_name.get((problem, f"{algorithm}-il", language))) is not None
    ]


class Imitated(msgspec.Struct, frozen=True, kw_only=True):
    """A distilled policy's imitation error.

    Attributes:
        problem, preset, algorithm: names.
        title: Title of the algorithm.
        decisions: Number of decisions in a trial.
        kl: Held-out KL divergence from the teacher after each update, in nats, mean over trials.
        given_up: Reward that imitation gives up by the teacher's mean rewards, summed over a trial; each batch counts
            with the policy that decided it. None for trials of before it was measured.
        price: The paper's bound on the cost of these divergences, L·√(KL/2) per decision, summed likewise. None
            without a declared range of rewards.
        cost: Total regret minus that of Thompson sampling, paired by trial; None if that was not run.
    """

    problem: str
    preset: str
    algorithm: str
    title: str
    decisions: int
    kl: list[float]
    given_up: Estimate | None
    price: Estimate | None
    cost: Estimate | None

    @property
    def mean_kl(self) -> float:
        """The mean over updates."""
        return float(np.mean(self.kl))


def imitation(runs: Runs) -> list[Imitated]:
    """Imitation of every distilled policy that reports its divergence."""
    taught_by = {id(run): teacher for run, teacher in runs.pairs()}
    return [_imitated(run, taught_by.get(id(run))) for run in runs.runs if all(map(_complete, run.trials))]


def _imitated(run: Run, teacher: Run | None) -> Imitated:
    return Imitated(
        problem=run.problem,
        preset=run.preset,
        algorithm=run.algorithm,
        title=run.title,
        decisions=int(run.decisions[-1]),
        kl=[float(kl) for kl in np.mean([trial.kl or [] for trial in run.trials], axis=0)],
        given_up=_summed([trial.cost for trial in run.trials], run),
        price=_summed([trial.price for trial in run.trials], run),
        cost=_cost(run, teacher),
    )


def _summed(per_decision: Sequence[list[float] | None], run: Run) -> Estimate | None:
    """Totals over a trial of values per decision, after each update but the last; None unless all trials have them.

    The first batch is uniform for every algorithm and costs nothing.
    """
    found = [values for values in per_decision if values is not None]
    if len(found) < len(run.trials):
        return None
    return Estimate.of([float(np.dot(values, run.trials[0].decisions[1:])) for values in found])


def _complete(trial: Trial) -> bool:
    """Whether every update but the one after the last batch reports its divergence."""
    updates = len(trial.decisions) - 1
    return updates > 0 and len(trial.kl or []) == updates


def _cost(run: Run, teacher: Run | None) -> Estimate | None:
    comparison = run.against(teacher) if teacher else None
    if comparison is None:
        return None
    difference = comparison.difference
    if run.measure == "regret":
        return difference
    # Mean reward per decision: more is better.
    decisions = float(run.decisions[-1])
    two_se = None if difference.two_se is None else decisions * difference.two_se
    return Estimate(-decisions * difference.mean, two_se, difference.trials)


def with_cost(imitated: Sequence[Imitated]) -> list[Imitated]:
    """Policies whose Thompson sampling was run too."""
    return [one for one in imitated if one.cost is not None]
