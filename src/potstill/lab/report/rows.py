"""What the report's tables say, as data for machines."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from potstill.lab.measure.latency import Latency
from potstill.lab.report.paper import LATENCY_MS
from potstill.lab.report.runs import PEERS, Run, Runs
from potstill.lab.runs.algorithms import ALGORITHMS
from potstill.lab.runs.comparison import Comparison, Estimate, Measure


class Final(msgspec.Struct, frozen=True, kw_only=True):
    """Where an algorithm ended: total regret of a trial, or mean reward per decision.

    Attributes:
        problem, preset, algorithm: names.
        title: of the algorithm.
        measure: which of the two.
        final: the mean over trials.
        best_peer: whether it is the best of the other libraries.
        against_best_peer: compared with it, paired by trial; None for peers, or without them.
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
    """A distilled policy against its Thompson sampling."""

    problem: str
    preset: str
    algorithm: str
    title: str
    measure: Measure
    comparison: Comparison


class Timed(msgspec.Struct, frozen=True, kw_only=True):
    """Latency here and in the paper.

    Attributes:
        problem, algorithm: names.
        title: of the algorithm.
        calls, mean_us, two_se_us, median_us, p99_us: measured here.
        paper_us: the paper's mean; None where it has none.
        speedup: median latency of Thompson sampling over that of this, its distilled policy; None for others.
        paper_speedup: the same in the paper, of means.
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
                )
            )
    return rows


def latencies(measured: Sequence[Latency]) -> list[Timed]:
    """Rows with the paper's numbers beside them."""
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
