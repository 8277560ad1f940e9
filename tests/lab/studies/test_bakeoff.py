"""The bake-off: its matrix and standings by hand, its tables, and the page."""

import json
import math
from pathlib import Path

import msgspec
import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from potstill.cli import app
from potstill.errors import LabError
from potstill.lab.runs import RunSpec
from potstill.lab.runs import results as stored
from potstill.lab.runs.results import Seconds, Trial
from potstill.lab.studies import bakeoff_charts as charts
from potstill.lab.studies.bakeoff import Asked, entries, paired, results, table_files, wins

PLAIN = {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}


def write_table(path, seed=0, rows=90):
    rng = np.random.default_rng(seed)
    x, z = rng.random(rows), rng.random(rows)
    kinds = np.where(x > 0.6, "high", np.where(z > 0.5, "middle", "low"))
    lines = [f"{a:.3f},{b:.3f},{kind}" for a, b, kind in zip(x, z, kinds, strict=True)]
    path.write_text("x,z,kind\n" + "\n".join(lines) + "\n")
    return path


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "tables"
    place.mkdir()
    for seed, name in enumerate(("one.csv", "two.csv")):
        write_table(place / name, seed)
    (place / "notes.txt").write_text("not a table")
    return place


def bake(*arguments):
    return CliRunner(env=PLAIN).invoke(app, ["lab", "bakeoff", *map(str, arguments)])


def trials(*values):
    return dict(enumerate(map(float, values)))


def test_the_test_is_the_paired_t_test():
    one, other = [10.0, 12, 9, 14, 11], [13.0, 14, 13, 15, 15]
    p, difference = paired(trials(*one), trials(*other))
    assert p == pytest.approx(stats.ttest_rel(one, other).pvalue)
    assert difference == pytest.approx(-2.8)


def test_only_common_trials_are_compared_and_three_are_needed():
    p, difference = paired({0: 1.0, 2: 3.0, 3: 7.0, 9: 100.0}, {2: 4.0, 0: 1.5, 3: 9.0, 5: -50.0})
    assert p == pytest.approx(stats.ttest_rel([1, 3, 7], [1.5, 4, 9]).pvalue)
    assert difference == pytest.approx(-3.5 / 3)
    assert paired(trials(1, 2), trials(5, 7))[0] is None


def test_equal_differences_are_certain_and_equal_results_a_tie():
    assert paired(trials(1, 2, 3), trials(2, 3, 4)) == (0.0, -1.0)
    assert paired(trials(1, 2, 3), trials(1, 2, 3)) == (1.0, 0.0)


def test_the_matrix_by_hand():
    """Differences of a and b: table 1 -10 ± 1 (a wins), table 2 +20 ± 1 (b wins), table 3 0 ± 9 (nobody)."""
    regrets = {
        "1": {"a": trials(10, 11, 12), "b": trials(20, 20, 23), "c": trials(50, 51, 52)},
        "2": {"a": trials(40, 41, 42), "b": trials(20, 20, 23), "c": trials(50, 51, 52)},
        "3": {"a": trials(10, 30, 20), "b": trials(20, 20, 20)},
    }
    won, tested = wins(regrets)
    assert won == {("a", "b"): 1, ("b", "a"): 1, ("a", "c"): 2, ("b", "c"): 2}
    assert tested == 3 + 3 + 1


def test_a_level_is_kept_where_nothing_differs():
    """Of 2,000 equal pairs 5 % differ by chance; five standard deviations: a false alarm in 1 of 1.7 million runs."""
    rng = np.random.default_rng(0)
    regrets = {str(t): {a: trials(*rng.normal(size=5)) for a in "ab"} for t in range(2_000)}
    won, tested = wins(regrets)
    assert tested == 2_000
    assert abs(sum(won.values()) - 100) < 5 * math.sqrt(2_000 * 0.05 * 0.95)


def spec_of(entered, algorithms, count):
    return RunSpec.on([one.scenario(None, None) for one in entered], algorithms=algorithms, preset="potstill",
                      trials=count, seed=0)  # fmt: skip


def store(out, table, preset, algorithm, regrets):
    for number, regret in enumerate(regrets):
        trial = Trial(problem=table, preset=preset, algorithm=algorithm, trial=number, seed=0, decisions=[90],
                      reward=[0.0], regret=[float(regret)])  # fmt: skip
        stored.save(out, trial, Seconds(total=1.0, stages={}))


@pytest.fixture
def found(folder, tmp_path):
    out = tmp_path / "out"
    for table, algorithm, preset, regrets in (
        ("one.csv", "uniform", "potstill", (40, 41, 42)),
        ("one.csv", "linear-ts", "potstill", (20, 20, 23)),
        ("one.csv", "vw-greedy", "peers", (10, 10, 10)),
        ("two.csv", "uniform", "potstill", (40, 40, 40)),
        ("two.csv", "linear-ts", "potstill", (5, 5, 5)),
        ("two.csv", "vw-greedy", "peers", (10, 20, 0)),
    ):
        store(out, table, preset, algorithm, regrets)
    entered = entries(table_files([folder]), Asked())
    return results(entered, spec_of(entered, ["uniform", "linear-ts", "vw-greedy"], 3), out)


def test_standings_by_hand(found):
    by_name = {one.algorithm: one for one in found.standings}
    assert [one.algorithm for one in found.standings] == ["vw-greedy", "linear-ts", "uniform"]
    assert by_name["vw-greedy"].relative == pytest.approx(math.sqrt(1 * 2))
    assert by_name["linear-ts"].relative == pytest.approx(math.sqrt(2.1 * 1))
    assert by_name["uniform"].relative == pytest.approx(math.sqrt(4.1 * 8))
    assert (by_name["uniform"].worst, by_name["uniform"].worst_table) == (8, "two.csv")
    # two.csv: 10 ± 10 of vw-greedy differs from 40 by t = 5.2 (p = 0.035), and not from 5 (t = 0.87).
    assert found.wins == [[0, 1, 2], [0, 0, 2], [0, 0, 0]]
    assert [(one.wins, one.losses) for one in found.standings] == [(3, 0), (2, 1), (0, 4)]
    assert (found.tested, found.by_chance) == (6, pytest.approx(0.3))
    assert found.cell("one.csv", "linear-ts").regret.mean == 21


def test_the_page_says_the_test_and_that_nothing_is_corrected(found):
    page = charts.page(found, ["potstill", "lab", "bakeoff"])
    section = next(one for one in page.sections if one.title == "Who beats whom")
    assert "two-sided paired t-test over trials" in section.caption
    assert "level 0.05" in section.caption
    assert "Nothing is corrected for the number of comparisons. 6 pairs were tested" in section.caption
    assert section.tables[0].rows[0] == ("1", "VW greedy", "–", "1", "2")
    assert charts.regrets(found).rows[1][:2] == ("Linear-TS", "21.0 ± 2.0")
    assert "VW greedy" in page.html()


def test_an_algorithm_that_lacks_a_table_says_so(found):
    less = msgspec.structs.replace(
        found, standings=[msgspec.structs.replace(found.standings[0], tables=1), *found.standings[1:]]
    )
    assert charts.standings(less).rows[0][1] == "VW greedy (1 of 2 tables)"


ARGUMENTS = ("--algorithms", "uniform,linear-ts", "--trials", 3, "--jobs", 1, "--batch", 30)


def test_a_run_writes_its_files_and_is_resumed(folder, tmp_path):
    out = tmp_path / "out"
    done = bake(folder, *ARGUMENTS, "--out", out, "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [(one["name"], one["column"], one["why"]) for one in told["tables"]] == [
        ("one.csv", "kind", "the only column of names"),
        ("two.csv", "kind", "the only column of names"),
    ]
    assert {one["decisions"] for one in told["tables"]} == {90}
    kept = json.loads((out / "one.csv/potstill/linear-ts/0002.json").read_text())
    assert kept["decisions"] == [30, 30, 30]
    assert {path.name for path in (out / "bakeoff").iterdir()} >= {"bakeoff.html", "bakeoff.json", "bakeoff.md"}
    assert "| Linear-TS |" in (out / "bakeoff" / "bakeoff.md").read_text()
    times = {path: path.stat().st_mtime_ns for path in out.glob("*/*/*/*.json")}
    removed = out / "two.csv/potstill/uniform/0001.json"
    content = removed.read_bytes()
    removed.unlink()
    again = bake(folder, *ARGUMENTS, "--out", out)
    assert again.exit_code == 0, again.output
    assert "one.csv: label kind (the only column of names)" in again.output
    assert removed.read_bytes() == content
    changed = {path for path in times if path.stat().st_mtime_ns != times[path]}
    assert changed == {removed, removed.with_suffix(".seconds.json")}
    other = bake(folder, *ARGUMENTS[:-1], 45, "--out", out)
    assert other.exit_code == 1
    assert "problems.one.csv.batch = 30, and this run has 45" in other.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--label", "three.csv=kind"), "--label three.csv=kind: there is no table of that name; there are one.csv"),
        (("--label", "one.csv="), "--label one.csv=: state the column"),
        (("--label", "kind", "--label", "x"), "--label x: all files already has 'kind'"),
        (("--label", "kind", "--target", "x"), "--label and --target exclude each other for all tables"),
        (("--label", "one.csv=colour"), "label 'colour' is not a column of the table; its columns are x, z, kind"),
        (("--without", "id"), "--without id: no table has a column of that name"),
        (("--without", "kind"), "no column is clearly the label"),
        (("--algorithms", "magic"), "unknown algorithm 'magic'"),
    ],
)
def test_bad_options_are_refused(folder, tmp_path, arguments, said):
    done = bake(folder, *arguments, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert said in " ".join(done.output.split())


def test_an_unclear_label_names_the_way_out(tmp_path):
    path = tmp_path / "amounts.csv"
    path.write_text("a,b\n" + "\n".join(f"{i / 7},{i / 3}" for i in range(40)))
    with pytest.raises(LabError, match=r"name it with --label amounts.csv=COLUMN, or --target amounts.csv=COLUMN"):
        entries([path], Asked())
    (entry,) = entries([path], Asked(targets={"": "b"}, levels=5))
    assert entry.scenario(None, None).problem.actions.labels == ("0", "3.25", "6.5", "9.75", "13")


def test_places_without_tables_are_refused(tmp_path):
    with pytest.raises(LabError, match="the folder holds no table"):
        table_files([tmp_path])
    with pytest.raises(LabError, match="there is no such file"):
        table_files([tmp_path / "nothing.csv"])
    (tmp_path / "table.xlsx").write_text("")
    with pytest.raises(LabError, match=r"not in .\.xlsx."):
        table_files([tmp_path / "table.xlsx"])


def test_the_default_folder_is_that_of_the_data(folder, monkeypatch):
    monkeypatch.setenv("POTSTILL_DATA", str(folder.parent))
    done = bake("--algorithms", "uniform", "--decisions", 10, "--trials", 1, "--jobs", 1, "--out", folder.parent / "o")
    assert done.exit_code == 0, done.output
    assert "two.csv: label kind" in done.output
    assert "a test needs 3" in Path(folder.parent / "o" / "bakeoff" / "bakeoff.md").read_text()
