"""Summary of a run: one row for each algorithm on each problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from potstill.lab.problems import Scenario
from potstill.lab.runs import results
from potstill.lab.runs.algorithms import ALGORITHMS, Algorithm
from potstill.lab.runs.comparison import Comparison, Estimate
from potstill.lab.runs.results import Trial


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An algorithm on a problem.

    Attributes:
        problem: Name of the scenario.
        preset: Preset of hyperparameters.
        algorithm: Name of the algorithm.
        measure: ``regret``, the total of a trial, or ``reward``, the mean per decision.
        final: Mean over trials, with two standard errors.
        against_ts: Comparison of a distilled policy with its Thompson sampling, paired by trial.
        seconds: Seconds per trial.
    """

    problem: str
    preset: str
    algorithm: str
    measure: str
    final: Estimate
    against_ts: Comparison | None
    seconds: float | None


def summary(
    out: Path, scenarios: Sequence[Scenario], pairs: Mapping[str, Sequence[tuple[str, Algorithm]]], trials: int
) -> list[Row]:
    """Rows over the first `trials` trials in a folder; missing ones are left out."""
    finals: dict[tuple[str, str, str], dict[int, float]] = {}
    seconds: dict[tuple[str, str, str], list[float]] = {}
    measures = {scenario.name: scenario.measure for scenario in scenarios}
    for trial in results.load(out):
        if trial.problem in measures and trial.trial < trials:
            group = (trial.problem, trial.preset, trial.algorithm)
            finals.setdefault(group, {})[trial.trial] = final(trial, measures[trial.problem])
            if took := results.seconds_of(out, trial):
                seconds.setdefault(group, []).append(took.total)
    wanted = [
        (scenario.name, preset, algorithm.name) for scenario in scenarios for preset, algorithm in pairs[scenario.name]
    ]
    return [_row(group, finals, seconds.get(group), measures[group[0]]) for group in wanted if group in finals]


def final(trial: Trial, measure: str) -> float:
    """The total regret of a trial, or its mean reward per decision."""
    if measure == "regret" and trial.regret is not None:
        return sum(trial.regret)
    return sum(trial.reward) / sum(trial.decisions)


def _row(
    group: tuple[str, str, str],
    finals: dict[tuple[str, str, str], dict[int, float]],
    seconds: list[float] | None,
    measure: str,
) -> Row:
    problem, preset, algorithm = group
    imitated = finals.get((problem, preset, ALGORITHMS[algorithm].imitates or ""), {})
    shared = sorted(finals[group].keys() & imitated.keys())
    pair = [finals[group][n] for n in shared], [imitated[n] for n in shared]
    return Row(
        problem=problem,
        preset=preset,
        algorithm=algorithm,
        measure=measure,
        final=Estimate.of(list(finals[group].values())),
        against_ts=Comparison.of(*pair, "regret" if measure == "regret" else "reward") if shared else None,
        seconds=sum(seconds) / len(seconds) if seconds else None,
    )
