"""Summary of a report as data."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from potstill._version import __version__
from potstill.lab.measure import Measurements
from potstill.lab.problems import is_known, scenario, usual_batch
from potstill.lab.report.rows import (
    Alike,
    Compared,
    Final,
    Imitated,
    Timed,
    alike,
    comparisons,
    finals,
    imitation,
    latencies,
)
from potstill.lab.report.runs import PEERS, Run, Runs, deviations
from potstill.lab.runs import ALGORITHMS, commit, expected_by_chance, results


def commits(runs: Runs, folder: Path) -> dict[str, int]:
    """Number of trials by recorded commit; trials without one are left out."""
    kept = (results.seconds_of(folder, trial) for run in runs.runs for trial in run.trials)
    return dict(Counter(seconds.commit for seconds in kept if seconds and seconds.commit).most_common())


class _Recorded(msgspec.Struct, frozen=True):
    """Settings of a folder that commands need."""

    seed: int = 0
    problems: dict[str, dict[str, Any]] = {}


def commands(runs: Runs, folder: Path) -> list[str]:
    """Commands that reproduce a folder: one for each problem and number of trials, or for each preset."""
    recorded = _recorded(folder)
    tail = f"--seed {recorded.seed} --out {folder.name}"
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs.runs:
        groups.setdefault((run.problem, len(run.trials)), []).append(run)
    return [
        f"potstill lab run {_problem(part[0], recorded)} {_algorithms(part)} --trials {trials} {tail}"
        for (_, trials), group in groups.items()
        for part in _parts(group)
    ]


def _recorded(folder: Path) -> _Recorded:
    try:
        return msgspec.json.decode((folder / "settings.json").read_bytes(), type=_Recorded)
    except (OSError, msgspec.MsgspecError):
        return _Recorded()


def _parts(group: list[Run]) -> list[list[Run]]:
    """Runs on one problem that one command can reproduce: it runs every algorithm under all its presets."""
    asked = {(preset, run.algorithm) for run in group for preset in _presets(group) if preset in _known(run)}
    if asked == {(run.preset, run.algorithm) for run in group if run.preset != PEERS}:
        return [group]
    presets = dict.fromkeys(run.preset for run in group)
    return [[run for run in group if run.preset == preset] for preset in presets]


def _presets(group: list[Run]) -> set[str]:
    return {run.preset for run in group} - {PEERS}


def _known(run: Run) -> tuple[str, ...]:
    return ALGORITHMS[run.algorithm].presets if run.algorithm in ALGORITHMS else ()


def _algorithms(group: list[Run]) -> str:
    presets = _presets(group)
    preset = f" --preset {min(presets)}" if len(presets) == 1 else ""
    return f"--algorithms {','.join(_names(group, presets))}{preset}"


def _names(group: list[Run], presets: set[str]) -> list[str]:
    """Names of the algorithms, abbreviated by `all` and `peers`."""
    names, decisions = list(dict.fromkeys(run.algorithm for run in group)), int(group[0].decisions[-1])
    words = {
        "all": [a.name for a in ALGORITHMS.values() if presets & {*a.presets} and not a.why_not(decisions)],
        "peers": [a.name for a in ALGORITHMS.values() if PEERS in a.presets],
    }
    meant = {word: members for word, members in words.items() if members and set(members) <= set(names)}
    covered = {name for members in meant.values() for name in members}
    return [*meant, *(name for name in names if name not in covered)]


def _problem(run: Run, recorded: _Recorded) -> str:
    decisions = f" --decisions {int(run.decisions[-1])}{_batch(run)}"
    if is_known(run.problem):
        usual = scenario(run.problem).decisions == int(run.decisions[-1])
        return f"--problem {run.problem}{_batch(run) if usual else decisions}"
    options = recorded.problems.get(run.problem, {}).get("options", [])
    return f"--problem {shlex.join([run.problem, *options])}{decisions}"


def _batch(run: Run) -> str:
    """The option for decisions between updates, if they are not the problem's own."""
    batch, decisions = int(run.decisions[0]), int(run.decisions[-1])
    usual = scenario(run.problem).batch if is_known(run.problem) else usual_batch(decisions)
    return "" if batch in (usual, decisions) else f" --batch {batch}"


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The report as data.

    Attributes:
        library: Potstill's version.
        commit: Commit that the report was made from; None outside a checkout.
        commits: Number of trials by the commit that ran them.
        commands: Commands that reproduce the results.
        trials: Number of finished trials.
        deviations: Deviations from the paper, if its problems were run.
        notes: Remarks to print.
        finals: Final result of every algorithm.
        comparisons: Distilled policies against their Thompson sampling.
        outside_by_chance: Expected number outside two standard errors if no policy differed.
        imitation: Imitation error of the distilled policies: KL, bound and measured cost.
        latency: Latencies, with the paper's where it has them.
        same_language: Thompson sampling against distilled policies in one language.
        measurements: Raw measurements of this machine; None if none were made.
    """

    library: str
    commit: str | None
    commits: dict[str, int]
    commands: list[str]
    trials: int
    deviations: list[str]
    notes: str
    finals: list[Final]
    comparisons: list[Compared]
    outside_by_chance: float
    imitation: list[Imitated]
    latency: list[Timed]
    same_language: list[Alike]
    measurements: Measurements | None


def summary(runs: Runs, folder: Path, measured: Measurements | None, notes: str, further: list[str]) -> Summary:
    """Summary of some runs."""
    compared = comparisons(runs)
    return Summary(
        library=__version__,
        commit=commit(),
        commits=commits(runs, folder),
        commands=[*commands(runs, folder), *further],
        trials=sum(len(run.trials) for run in runs.runs),
        deviations=deviations(runs.problems),
        notes=notes,
        finals=finals(runs),
        comparisons=compared,
        outside_by_chance=expected_by_chance([row.comparison for row in compared]),
        imitation=imitation(runs),
        latency=latencies(measured.latency) if measured else [],
        same_language=alike(measured.same_language) if measured else [],
        measurements=measured,
    )
