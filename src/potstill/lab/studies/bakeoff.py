"""A bake-off: algorithms on tables with a label, compared on each table and over all of them.

On each table, two algorithms are compared by a paired t-test over trials, because trials of one number have the same
requests and noise. The win/loss matrix counts the tables on which the difference is significant. Nothing is corrected
for the number of comparisons; the number of wins expected by chance is stated instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from scipy import stats

from potstill.errors import LabError
from potstill.lab.problems import (
    TABLES,
    OwnTable,
    Scenario,
    TableProblem,
    check_table_file,
    label_of,
    own_scenario,
    read_table,
)
from potstill.lab.runs import ALGORITHMS, Estimate, RunSpec
from potstill.spaces import finite

#: Algorithms where none are named: Potstill's default, other distilled teachers, and other libraries.
ALGORITHMS_BY_DEFAULT = (
    "auto-ts-il",
    "empirical-linear-ts-il",
    "neural-linear-ts-il",
    "forest-ts-il",
    "linear-ts-il",
    "peers",
)
#: Potstill's default, which the page's figures are about.
OURS = "auto-ts-il"
#: Most decisions of a trial, where none are stated.
MOST_DECISIONS = 10_000
#: Level of the test: the probability of a win or a loss where two algorithms do not differ.
LEVEL = 0.05
#: Fewest common trials for a test. Two differences of whole numbers are equal too often.
LEAST_TRIALS = 3


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the bake-off.

    Attributes:
        name: Name of the file.
        path: Its path.
        decides: What is decided in it.
        why: Why that column is the label.
    """

    name: str
    path: Path
    decides: OwnTable
    why: str

    def scenario(self, decisions: int | None, batch: int | None) -> Scenario:
        """The scenario of the table: every row once, up to `MOST_DECISIONS`, or as many decisions as stated."""
        one = own_scenario(self.path, self.decides, decisions)
        if decisions is None:
            one = own_scenario(self.path, self.decides, min(one.decisions, MOST_DECISIONS))
        return one.with_batch(batch) if batch else one


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What was asked for about tables, each by file name, or by "" for all others.

    Attributes:
        labels: Columns of class labels.
        targets: Columns of amounts to choose among levels.
        levels: Number of levels of an amount.
        without: Columns to leave out of the context, of the tables that have them.
    """

    labels: Mapping[str, str] = {}
    targets: Mapping[str, str] = {}
    levels: int = 20
    without: tuple[str, ...] = ()


def table_files(places: Sequence[Path]) -> list[Path]:
    """The tables of folders and files, in order."""
    found = [path for place in places for path in _files(place)]
    for path in found:
        check_table_file(path)
    return list(dict.fromkeys(found))


def _files(place: Path) -> list[Path]:
    if not place.is_dir():
        return [place]
    found = sorted(path for path in place.iterdir() if path.suffix.lower() in TABLES)
    if not found:
        raise LabError(f"{place}: the folder holds no table, a file that ends in {' or '.join(TABLES)}")
    return found


def entries(files: Sequence[Path], asked: Asked) -> list[Entry]:
    """The tables with what is decided in each: as asked for, or a label found by `label_of`."""
    _refuse_unknown(files, asked)
    columns = {path: read_table(path).columns for path in files} if asked.without else {}
    if unused := [name for name in asked.without if not any(name in names for names in columns.values())]:
        raise LabError(f"--without {unused[0]}: no table has a column of that name")
    return [_entry(path, asked, tuple(name for name in asked.without if name in columns[path])) for path in files]


def _entry(path: Path, asked: Asked, without: tuple[str, ...]) -> Entry:
    """What is decided in one table: what was asked for it by name, then for all, then what its columns say."""
    for name in (path.name, ""):
        if label := asked.labels.get(name):
            decides = OwnTable(label=label, without=without)
            return Entry(name=path.name, path=path, decides=decides, why="as stated")
        if target := asked.targets.get(name):
            decides = OwnTable(target=target, levels=asked.levels, without=without)
            return Entry(name=path.name, path=path, decides=decides, why="as stated")
    try:
        found = label_of(read_table(path).drop(without))
    except LabError as error:
        raise LabError(
            f"{path}: {error}; name it with --label {path.name}=COLUMN, or --target {path.name}=COLUMN for an amount"
        ) from None
    return Entry(name=path.name, path=path, decides=OwnTable(label=found.column, without=without), why=found.why)


def _refuse_unknown(files: Sequence[Path], asked: Asked) -> None:
    names = [path.name for path in files]
    for option, stated in (("label", asked.labels), ("target", asked.targets)):
        if unknown := [name for name in stated if name and name not in names]:
            raise LabError(
                f"--{option} {unknown[0]}={stated[unknown[0]]}: there is no table of that name; there are "
                f"{', '.join(names)}"
            )
    if both := asked.labels.keys() & asked.targets.keys():
        raise LabError(f"--label and --target exclude each other for {min(both) or 'all tables'}; give one")


class TableRow(msgspec.Struct, frozen=True, kw_only=True):
    """A table: what is decided, and how much there is of it.

    Attributes:
        name: Name of the file.
        column: Column of the label or target.
        why: Why that column.
        rows: Number of rows.
        columns: Number of encoded columns of the context.
        actions: Number of actions.
        decisions: Number of decisions in a trial.
        batch: Decisions between updates.
    """

    name: str
    column: str
    why: str
    rows: int
    columns: int
    actions: int
    decisions: int
    batch: int


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """An algorithm on a table.

    Attributes:
        table, algorithm: names.
        regret: Mean regret of a trial, with two standard errors.
        relative: Mean regret over that of the best algorithm on the table; None if that is not positive.
    """

    table: str
    algorithm: str
    regret: Estimate
    relative: float | None


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """An algorithm over all tables.

    Attributes:
        algorithm: Name.
        title: Title.
        peer: Whether it is of another library.
        tables: Number of tables that it has results on.
        relative: Geometric mean of its relative regrets; None without any.
        worst: Largest relative regret.
        worst_table: Table of that.
        wins: Significant wins, over all other algorithms and tables.
        losses: Significant losses.
    """

    algorithm: str
    title: str
    peer: bool
    tables: int
    relative: float | None
    worst: float | None
    worst_table: str | None
    wins: int
    losses: int


class BakeOff(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a bake-off.

    Attributes:
        tables: The tables.
        trials: Number of trials of each algorithm on each table.
        seed: Seed of all randomness.
        standings: Algorithms, best first: by the geometric mean of relative regrets.
        cells: Algorithms on tables.
        wins: Number of tables on which the algorithm of a row is significantly better than that of a column, in the
            order of `standings`; int[A][A].
        tested: Number of pairs tested, over all tables.
        level: Level of the test.
        by_chance: Wins expected among all pairs if no two algorithms differed.
        skipped: Reasons for what was left out, by name.
    """

    tables: list[TableRow]
    trials: int
    seed: int
    standings: list[Standing]
    cells: list[Cell]
    wins: list[list[int]]
    tested: int
    level: float
    by_chance: float
    skipped: dict[str, str]

    def cell(self, table: str, algorithm: str) -> Cell | None:
        """The cell of an algorithm on a table, if it has results."""
        return next((one for one in self.cells if (one.table, one.algorithm) == (table, algorithm)), None)


#: Regret of each trial, by table, then by algorithm, then by number of the trial.
Regrets = Mapping[str, Mapping[str, Mapping[int, float]]]


def results(entered: Sequence[Entry], spec: RunSpec, out: Path) -> BakeOff:
    """Results of the finished trials of a run on tables."""
    regrets: dict[str, dict[str, dict[int, float]]] = {}
    for (table, _, algorithm), trials in spec.finals(out).items():
        regrets.setdefault(table, {})[algorithm] = trials
    if not regrets:
        raise LabError(f"{out} holds no finished trial of these tables and algorithms")
    cells = [cell for table, found in regrets.items() for cell in _cells(table, found)]
    won, tested = wins(regrets)
    ranked = sorted(_standings(cells, won), key=lambda one: math.inf if one.relative is None else one.relative)
    return BakeOff(
        tables=[_table_row(one, scenario) for one, scenario in zip(entered, spec.scenarios, strict=True)],
        trials=spec.trials,
        seed=spec.seed,
        standings=ranked,
        cells=cells,
        wins=[[won.get((one.algorithm, other.algorithm), 0) for other in ranked] for one in ranked],
        tested=tested,
        level=LEVEL,
        by_chance=LEVEL * tested,
        skipped=spec.skipped,
    )


def wins(regrets: Regrets, level: float = LEVEL) -> tuple[dict[tuple[str, str], int], int]:
    """Number of tables on which one algorithm is significantly better than another, and the number of tests."""
    won: dict[tuple[str, str], int] = {}
    tested = 0
    for found in regrets.values():
        names = list(found)
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                p, difference = paired(found[one], found[other])
                tested += p is not None
                if p is not None and p < level:
                    pair = (one, other) if difference < 0 else (other, one)
                    won[pair] = won.get(pair, 0) + 1
    return won, tested


def paired(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[float | None, float]:
    """Two-sided p-value of a paired t-test over common trials, and the mean difference; None with too few trials."""
    common = sorted(one.keys() & other.keys())
    difference = np.array([one[trial] - other[trial] for trial in common])
    if len(common) < LEAST_TRIALS:
        return None, 0.0
    mean, error = float(difference.mean()), float(difference.std(ddof=1)) / math.sqrt(len(common))
    if error == 0:
        return (0.0 if mean else 1.0), mean
    return float(2 * stats.t.sf(abs(mean) / error, len(common) - 1)), mean


def _cells(table: str, found: Mapping[str, Mapping[int, float]]) -> list[Cell]:
    means = {name: Estimate.of(list(trials.values())) for name, trials in found.items()}
    best = min(one.mean for one in means.values())
    return [
        Cell(table=table, algorithm=name, regret=one, relative=one.mean / best if best > 0 else None)
        for name, one in means.items()
    ]


def _standings(cells: Sequence[Cell], won: Mapping[tuple[str, str], int]) -> list[Standing]:
    names = dict.fromkeys(cell.algorithm for cell in cells)
    return [_standing(name, [cell for cell in cells if cell.algorithm == name], won) for name in names]


def _standing(name: str, cells: Sequence[Cell], won: Mapping[tuple[str, str], int]) -> Standing:
    relative = {cell.table: cell.relative for cell in cells if cell.relative is not None}
    worst = max(relative, key=lambda table: relative[table], default=None)
    algorithm = ALGORITHMS[name]
    return Standing(
        algorithm=name,
        title=algorithm.title,
        peer="peers" in algorithm.presets,
        tables=len(cells),
        relative=math.exp(sum(map(math.log, relative.values())) / len(relative)) if relative else None,
        worst=relative[worst] if worst else None,
        worst_table=worst,
        wins=sum(count for (winner, _), count in won.items() if winner == name),
        losses=sum(count for (_, loser), count in won.items() if loser == name),
    )


def _table_row(entry: Entry, scenario: Scenario) -> TableRow:
    environment, problem = scenario.environment(), scenario.problem
    assert isinstance(environment, TableProblem)
    return TableRow(
        name=entry.name,
        column=next(iter(entry.decides.stated.values())),
        why=entry.why,
        rows=environment.rows,
        columns=problem.width,
        actions=len(finite(problem.actions, "a bake-off")),
        decisions=scenario.decisions,
        batch=scenario.batch,
    )
