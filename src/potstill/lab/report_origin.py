"""Where results come from: the commands that made them, and the commits."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec

from potstill.lab import results
from potstill.lab.algorithms import ALGORITHMS
from potstill.lab.report_runs import PEERS, Run, Runs
from potstill.lab.scenarios import scenario


def commits(runs: Runs, folder: Path) -> dict[str, int]:
    """How many trials each commit has run, as they recorded it; those that recorded none are left out."""
    kept = (results.seconds_of(folder, trial) for run in runs.runs for trial in run.trials)
    return dict(Counter(seconds.commit for seconds in kept if seconds and seconds.commit).most_common())


def seed(folder: Path) -> int | None:
    """The seed of the runs in a folder, as they recorded it."""
    try:
        recorded = msgspec.json.decode((folder / "settings.json").read_bytes(), type=dict[str, msgspec.Raw])
        return msgspec.json.decode(recorded["seed"], type=int)
    except (OSError, KeyError, msgspec.MsgspecError):
        return None


def commands(runs: Runs, folder: Path) -> list[str]:
    """Commands that make such a folder: one for each problem and number of trials."""
    groups: dict[tuple[str, int], list[Run]] = {}
    for run in runs.runs:
        groups.setdefault((run.problem, len(run.trials)), []).append(run)
    recorded = seed(folder)
    tail = f"--seed {0 if recorded is None else recorded} --out {folder.name}"
    return [f"potstill lab run {_options(group)} --trials {trials} {tail}" for (_, trials), group in groups.items()]


def _options(group: list[Run]) -> str:
    names = list(dict.fromkeys(run.algorithm for run in group))
    presets = {run.preset for run in group} - {PEERS}
    preset = f" --preset {min(presets)}" if len(presets) == 1 else ""
    return f"--problem {group[0].problem}{_decisions(group[0])} --algorithms {_names(names)}{preset}"


def _names(names: list[str]) -> str:
    peers = [name for name, algorithm in ALGORITHMS.items() if PEERS in algorithm.presets]
    own = [name for name in ALGORITHMS if name not in peers]
    short = ["all" if group is own else "peers" for group in (own, peers) if group and set(group) <= set(names)]
    covered = {name for word, group in (("all", own), ("peers", peers)) if word in short for name in group}
    return ",".join([*short, *(name for name in names if name not in covered)])


def _decisions(run: Run) -> str:
    decisions = int(run.decisions[-1])
    try:
        usual = scenario(run.problem).decisions
    except ValueError:
        return ""
    return "" if decisions == usual else f" --decisions {decisions}"
