"""Summary of a run: one row for each algorithm on each problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from potstill.lab.problems import Scenario
from potstill.lab.runs import results
from potstill.lab.runs.algorithms import ALGORITHMS, Algorithm
from potstill.lab.runs.comparison import Comparison, Estimate
from potstill.lab.runs.eta import Group
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
    measures = {scenario.name: scenario.measure for scenario in scenarios}
    found = finals(out, scenarios, trials)
    return [
        _row(group, found, _mean_seconds(out, group, found[group]), measures[group[0]])
        for group in groups(scenarios, pairs)
        if group in found
    ]


def groups(scenarios: Sequence[Scenario], pairs: Mapping[str, Sequence[tuple[str, Algorithm]]]) -> list[Group]:
    """Groups of trials of a run, in order."""
    return [(one.name, preset, algorithm.name) for one in scenarios for preset, algorithm in pairs[one.name]]


def finals(out: Path, scenarios: Sequence[Scenario], trials: int) -> dict[Group, dict[int, float]]:
    """Final results of the first `trials` trials in a folder, by group and number."""
    measures = {scenario.name: scenario.measure for scenario in scenarios}
    found: dict[Group, dict[int, float]] = {}
    for trial in results.load(out):
        if trial.problem in measures and trial.trial < trials:
            group = (trial.problem, trial.preset, trial.algorithm)
            found.setdefault(group, {})[trial.trial] = final(trial, measures[trial.problem])
    return found


def _mean_seconds(out: Path, group: Group, trials: Iterable[int]) -> float | None:
    kept = [results.seconds_at(results.path_of(out, *group, trial)) for trial in trials]
    known = [seconds.total for seconds in kept if seconds]
    return sum(known) / len(known) if known else None


def final(trial: Trial, measure: str) -> float:
    """The total regret of a trial, or its mean reward per decision."""
    if measure == "regret" and trial.regret is not None:
        return sum(trial.regret)
    return sum(trial.reward) / sum(trial.decisions)


def _row(
    group: Group,
    finals: dict[Group, dict[int, float]],
    seconds: float | None,
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
        seconds=seconds,
    )
