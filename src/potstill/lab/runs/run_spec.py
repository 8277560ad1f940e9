"""Specification of a run, from names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from potstill.errors import LabError
from potstill.lab.problems import (
    NUMBERS,
    SCENARIOS,
    MissingData,
    OwnTable,
    Scenario,
    TableProblem,
    find_scenario,
    refuse_unused,
)
from potstill.lab.runs import runner
from potstill.lab.runs.algorithms import Algorithm, PeerAlgorithm, named
from potstill.lab.runs.eta import Group
from potstill.lab.runs.presets import PRESETS
from potstill.lab.runs.runner import Progress
from potstill.lab.runs.summary import Row, finals, groups, summary

TRIALS = 10


class Quick(msgspec.Struct, frozen=True):
    """The evaluation on a small scale.

    Attributes:
        problems: Problems, where none is named.
        updates: Number of updates of a trial, of any problem.
        algorithms: Algorithms, where none is named.
        trials: Number of trials of each.
    """

    problems: tuple[str, ...]
    updates: int
    algorithms: tuple[str, ...]
    trials: int


QUICK = Quick(
    problems=("wheel", "mushroom", "warfarin-20", "video"),
    updates=3,
    algorithms=(
        "uniform",
        "neural-greedy",
        "linear-ts",
        "linear-ts-il",
        "neural-linear-ts",
        "neural-linear-ts-il",
        "bootstrap-nn-ts",
        "bootstrap-nn-ts-il",
        "adaptive-ts",
        "adaptive-ts-il",
    ),
    trials=5,
)


class RunSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Problems, algorithms with their presets, and the number of trials.

    Attributes:
        scenarios: Problems.
        pairs: Pairs of a preset and an algorithm, by problem.
        trials: Number of trials of each.
        seed: Seed of all randomness.
        skipped: Reasons for what `all` or `peers` left out, by name.
    """

    scenarios: list[Scenario]
    pairs: dict[str, list[tuple[str, Algorithm]]]
    trials: int
    seed: int
    skipped: dict[str, str]

    @classmethod
    def of(
        cls,
        *,
        problems: Sequence[str],
        algorithms: Sequence[str],
        preset: str = "both",
        trials: int | None = None,
        decisions: int | None = None,
        seed: int = 0,
        batch: int | None = None,
        own: OwnTable | None = None,
        quick: bool = False,
    ) -> RunSpec:
        """Build a specification from names; a quick one has the defaults of `QUICK`."""
        if not problems and not quick:
            raise LabError("no problem given; name one with --problem, such as --problem wheel; --list shows them")
        _presets(preset)
        skipped: dict[str, str] = {}
        names = [name for name in _problems(problems) if not _is_missing(name, problems, skipped)]
        found = [_found(name, decisions, batch, own or OwnTable(), quick) for name in names]
        refuse_unused(own or OwnTable(), found)
        return cls.on(
            found,
            algorithms=list(algorithms) or list(QUICK.algorithms if quick else ["all"]),
            preset=preset,
            trials=trials or (QUICK.trials if quick else TRIALS),
            seed=seed,
            skipped=skipped,
        )

    @classmethod
    def on(
        cls,
        scenarios: list[Scenario],
        *,
        algorithms: Sequence[str],
        preset: str,
        trials: int,
        seed: int,
        skipped: dict[str, str] | None = None,
    ) -> RunSpec:
        """Build a specification of algorithms, by their names, on scenarios."""
        _refuse_twice(scenarios)
        left_out = {**(skipped or {}), **_dropped(scenarios)}
        pairs = {one.name: _pairs(algorithms, _presets(preset), one, left_out) for one in scenarios}
        if not any(pairs.values()):
            raise LabError("nothing is left to run: " + "; ".join(left_out.values()))
        return cls(scenarios=scenarios, pairs=pairs, trials=trials, seed=seed, skipped=left_out)

    def prepare(self) -> None:
        """Read or generate the data of trials before the first one; `MissingData` if it is not available."""
        for one in self.scenarios:
            one.prepare()

    def run(self, jobs: int, out: Path, on_progress: Callable[[Progress], None] = lambda _: None) -> Progress:
        """Run the unfinished trials."""
        return runner.run(
            self.scenarios, self.pairs, trials=self.trials, jobs=jobs, seed=self.seed, out=out, on_progress=on_progress
        )

    def finals(self, out: Path) -> dict[Group, dict[int, float]]:
        """Final results of the run's trials in a folder, by group and number, in the order of the run."""
        found = finals(out, self.scenarios, self.trials)
        return {group: found[group] for group in groups(self.scenarios, self.pairs) if group in found}

    def summary(self, out: Path) -> list[Row]:
        """Summary rows of the run."""
        return summary(out, self.scenarios, self.pairs, self.trials)


def _presets(name: str) -> list[str]:
    if name == "both":
        return ["paper", "potstill"]
    if name not in PRESETS:
        raise LabError(f"unknown preset {name!r}; there are {', '.join(PRESETS)} and both")
    return [name]


def _problems(names: Sequence[str]) -> list[str]:
    """Distinct names; those of `QUICK` if there are none."""
    every = {"all": list(SCENARIOS), "numbers": list(NUMBERS)}
    return list(dict.fromkeys(part for name in names or QUICK.problems for part in every.get(name, [name])))


def _is_missing(name: str, asked: Sequence[str], skipped: dict[str, str]) -> bool:
    """Whether a problem lacks its data and was not named explicitly."""
    known = SCENARIOS | NUMBERS
    if name not in known or name in asked:
        return False
    try:
        known[name].problem  # noqa: B018
    except MissingData as error:
        skipped[known[name].title] = str(error)
        return True
    return False


def _found(name: str, decisions: int | None, batch: int | None, own: OwnTable, quick: bool) -> Scenario:
    one = find_scenario(name, own, decisions)
    one = one.with_batch(batch) if batch else one
    count = decisions or (min(one.decisions, QUICK.updates * one.batch) if quick else None)
    return one.with_decisions(count) if count else one


def _refuse_twice(found: Sequence[Scenario]) -> None:
    """Reject problems that would share a folder of results."""
    names = [one.name for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise LabError(
            f"two problems are called {twice[0]}; rename a file, or run them separately with different --out folders"
        )


def _dropped(found: Sequence[Scenario]) -> dict[str, str]:
    """Rows of tables that are not used, and why."""
    tables = {one.name: one.environment() for one in found if one.options}
    return {
        f"{table.dropped:,} of {table.dropped + table.rows:,} rows of {name}": "they have no label or target"
        for name, table in tables.items()
        if isinstance(table, TableProblem) and table.dropped
    }


def _pairs(
    asked: Sequence[str], presets: list[str], one: Scenario, skipped: dict[str, str]
) -> list[tuple[str, Algorithm]]:
    """Each algorithm under each preset that it has. Explicitly named ones always run."""
    chosen = []
    for algorithm in named(asked):
        unfit = algorithm.supports(one.problem.actions) or algorithm.refuses(one.problem.reward)
        if unfit and algorithm.name in asked:
            raise LabError(f"{algorithm.title} cannot decide {one.title}: {unfit}")
        if unfit:
            continue
        reason = _why_not_named(algorithm, presets) if algorithm.name in asked else _why_not(algorithm, one)
        if reason:
            skipped[f"{algorithm.title} on {one.title}"] = reason
        else:
            chosen.append(algorithm)
    return [
        (preset, algorithm) for preset in [*presets, "peers"] for algorithm in chosen if preset in algorithm.presets
    ]


def _why_not_named(algorithm: Algorithm, presets: list[str]) -> str | None:
    if not {*presets, "peers"}.isdisjoint(algorithm.presets):
        return None
    return f"{algorithm.title} is not in the preset {presets[0]}, only in {', '.join(algorithm.presets)}"


def _why_not(algorithm: Algorithm, one: Scenario) -> str | None:
    if isinstance(algorithm, PeerAlgorithm):
        return algorithm.peer.why_not()
    return algorithm.why_not(one.decisions)
