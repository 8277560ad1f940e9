"""Imitation error after each update, what it can cost at most, and what it did cost."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from potstill.lab.report.runs import Run, Runs
from potstill.lab.runs.comparison import Estimate
from potstill.lab.runs.results import Trial


class Imitated(msgspec.Struct, frozen=True, kw_only=True):
    """A distilled policy's imitation error.

    Attributes:
        problem, preset, algorithm: names.
        title: of the algorithm.
        decisions: in a trial.
        kl: held-out divergence from the teacher after each update, in nats, the mean over trials.
        price: the paper's bound on what these divergences cost, L·√(KL/2) per decision, added up over a trial's
            decisions: each batch at the price of the policy that decided it.
        cost: what was given up against Thompson sampling, in all, paired by trial; None if that was not run.
    """

    problem: str
    preset: str
    algorithm: str
    title: str
    decisions: int
    kl: list[float]
    price: Estimate
    cost: Estimate | None

    @property
    def mean_kl(self) -> float:
        """The mean over updates."""
        return float(np.mean(self.kl))


def imitation(runs: Runs) -> list[Imitated]:
    """Of every distilled policy that reports its divergence."""
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
        price=Estimate.of([paid(trial) for trial in run.trials]),
        cost=_cost(run, teacher),
    )


def paid(trial: Trial) -> float:
    """The bound over a whole trial. The first batch is uniform for all and costs nothing."""
    return float(np.dot(trial.price or [], trial.decisions[1:]))


def _complete(trial: Trial) -> bool:
    """Whether every update but the one after the last batch says its divergence."""
    updates = len(trial.decisions) - 1
    return updates > 0 and len(trial.kl or []) == len(trial.price or []) == updates


def _cost(run: Run, teacher: Run | None) -> Estimate | None:
    comparison = run.against(teacher) if teacher else None
    if comparison is None:
        return None
    difference = comparison.difference
    if run.measure == "regret":
        return difference
    # Mean reward per decision, of which more is better.
    decisions = float(run.decisions[-1])
    two_se = None if difference.two_se is None else decisions * difference.two_se
    return Estimate(-decisions * difference.mean, two_se, difference.trials)


def with_cost(imitated: Sequence[Imitated]) -> list[Imitated]:
    """Those whose Thompson sampling was run too."""
    return [one for one in imitated if one.cost is not None]
