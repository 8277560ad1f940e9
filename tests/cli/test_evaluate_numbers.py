"""`potstill evaluate` on a table whose action is a number: density, interval, targets, bandwidth, refusals."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.errors import InvalidTarget
from potstill.evaluate import ArrayLog, WeightHistogram, evaluate
from potstill.evaluate.targets import target
from potstill.problem import Continuous, Numeric, Problem

LOW, HIGH = 5.0, 60.0
COLUMNS = ("--action", "dose", "--density", "f")


def run(*arguments):
    runner = CliRunner(env={"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, ["evaluate", *map(str, arguments)])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    assert "Traceback" not in result.output
    return result.output


def figures(*arguments):
    return json.loads(done(*arguments, "--json"))


def best(age):
    return 10 + 0.4 * age


def doses(rows=3000):
    """Doses drawn half uniformly, half within 10 of 35; their densities are exact."""
    rng = np.random.default_rng(0)
    age = rng.uniform(20, 80, rows)
    dose = np.where(rng.random(rows) < 0.5, rng.uniform(LOW, HIGH, rows), rng.uniform(25, 45, rows))
    density = 0.5 / (HIGH - LOW) + 0.5 / 20 * (np.abs(dose - 35) <= 10)
    reward = 1 - ((dose - best(age)) / 30) ** 2 + 0.1 * rng.standard_normal(rows)
    return pl.DataFrame({"age": age, "dose": dose, "f": density, "reward": reward, "target_dose": best(age)})


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    place = tmp_path_factory.mktemp("doses") / "doses.csv"
    doses().write_csv(place)
    return place


def changed(tmp_path, **columns):
    """The table with other values in rows 1 and 3 of some columns; as text, so that a column may hold anything."""
    frame = doses(200).cast(pl.String)
    for name, value in columns.items():
        bad = pl.int_range(pl.len()).is_in([1, 3])
        frame = frame.with_columns(pl.when(bad).then(pl.lit(value)).otherwise(pl.col(name)).alias(name))
    frame.write_csv(tmp_path / "changed.csv")
    return tmp_path / "changed.csv"


def test_a_fixed_dose_is_valued(table):
    """Within 0.02 of the truth: four standard errors of 0.002, and a bias of smoothing of about 0.007."""
    found = figures(table, *COLUMNS, "--policy", "action:30", "--context", "age", "--low", LOW, "--high", HIGH)
    truth = float((1 - ((30 - best(doses()["age"].to_numpy())) / 30) ** 2).mean())
    estimates = found["target"]["estimates"]
    assert abs(estimates["dr"]["value"] - truth) < 0.02
    assert found["target"]["bandwidth"] is not None
    assert found["target"]["name"] == "always 30"
    assert "replay" not in estimates


def test_a_column_of_doses_is_valued_and_compared(table):
    found = figures(table, *COLUMNS, "--policy", "column:target_dose", "--against", "action:30", "--bandwidth", 0.04)
    assert abs(found["target"]["estimates"]["snips"]["value"] - 1) < 0.03
    assert found["difference"]["snips"]["intervals"]["likelihood"]["low"] > 0
    assert found["target"]["bandwidth"] == found["against"]["bandwidth"] == 0.04


def test_an_array_of_doses_is_the_column(table, tmp_path):
    np.save(tmp_path / "doses.npy", doses()["target_dose"].to_numpy())
    options = (*COLUMNS, "--bandwidth", 0.04, "--estimators", "snips", "--policy")
    file, column = (figures(table, *options, policy) for policy in (tmp_path / "doses.npy", "column:target_dose"))
    assert file["target"]["estimates"]["snips"]["value"] == column["target"]["estimates"]["snips"]["value"]
    np.save(tmp_path / "wide.npy", np.full((3000, 2), 0.5))
    assert "wide.npy: there must be numbers float[rows], got float64[3000, 2]" in refused(
        table, *options, tmp_path / "wide.npy"
    )


def test_text_and_page_say_the_bandwidth_and_what_intervals_leave_out(table, tmp_path):
    page = tmp_path / "page.html"
    said = done(table, *COLUMNS, "--policy", "action:30", "--bandwidth", 0.08, "--out", page)
    for place in (said, page.read_text()):
        assert "within 8 % of the interval around it count (bandwidth 0.08)" in place
        assert "Intervals do not cover the bias of that smoothing" in place
    assert "dose is taken as a number from 5.11557 to 59.9998" in said
    assert "of the rows have weight 0: their number is farther from that of always 30 than the bandwidth" in (
        page.read_text()
    )


@pytest.mark.parametrize("stated", [None, 0.2])
def test_the_histogram_of_weights_counts_only_the_chosen_bandwidth(stated):
    """Rows count once, and weigh 0 where the dose is farther away than the bandwidth; candidates leave no trace."""
    rng = np.random.default_rng(2)
    problem = Problem(name="p", context=[], actions=Continuous("dose", 0, 1))
    dose, none = rng.random(400), np.zeros((400, 0), np.float32)
    log = ArrayLog(problem, contexts=none, actions=dose, rewards=1 - (dose - 0.4) ** 2, propensities=np.ones(400))
    histogram = WeightHistogram(target(problem, 0.5))
    found = evaluate(log, histogram, estimators=("snips",), bandwidth=stated)
    assert found.target.bandwidth == (stated or found.target.bandwidth)
    assert histogram.zero == pytest.approx((np.abs(dose - 0.5) >= found.target.bandwidth).mean(), abs=0.003)
    assert sum(one.rows for one in histogram.bins) == pytest.approx(1 - histogram.zero)


def test_the_uniform_density_may_be_one_number(table):
    found = figures(table, "--action", "dose", "--density", 1 / 55, "--policy", "uniform")
    assert abs(found["target"]["estimates"]["ips"]["value"] - found["logged"]["value"]) < 0.02
    said = refused(table, "--action", "dose", "--density", 0.5, "--policy", "uniform")
    assert "a density that is the same in all rows is at most 0.018" in said
    assert "got --density 0.5" in said


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("f", "0", "row 1: f must be a density above 0, got 0"),
        ("f", "-1", "row 1: f must be a density above 0, got -1"),
        ("f", "NaN", "row 1: f must be a density above 0, got NaN"),
        ("f", "inf", "row 1: f must be a density above 0, got inf"),
        ("f", "much", "row 1: f must be a density above 0, got much"),
        ("f", "", "row 1: f must be a density above 0, got "),
        ("dose", "4", "row 1: dose must be a number from 5 to 60, got 4"),
        ("dose", "NaN", "row 1: dose must be a number from 5 to 60, got NaN"),
        ("dose", "inf", "row 1: dose must be a number from 5 to 60, got inf"),
        ("dose", "low", "row 1: dose must be a number from 5 to 60, got low"),
        ("target_dose", "61", "row 1: target_dose must be a number from 5 to 60, got 61"),
        ("target_dose", "NaN", "row 1: target_dose must be a number from 5 to 60, got NaN"),
        ("target_dose", "all", "row 1: target_dose must be a number from 5 to 60, got all"),
    ],
)
def test_bad_rows_are_refused_or_counted(tmp_path, column, value, message):
    place = changed(tmp_path, **{column: value})
    options = (*COLUMNS, "--low", 5, "--high", 60, "--policy", "column:target_dose")
    said = refused(place, *options)
    assert message in said
    assert "leave them out with --skip-unfit; --low and --high state a wider interval" in said
    found = figures(place, *options, "--skip-unfit")
    assert (found["rows"], found["left_out"]) == (198, {"unfit": 2})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--density", "f", "--policy", "action:99"), "dose must be a number from 5.11557 to 59.9998, got 99"),
        (("--density", "f", "--policy", "action:NaN"), "got 'NaN'"),
        (("--density", "f", "--policy", "action:high"), "got 'high'"),
        (("--density", "f", "--policy", "column:none"), "there is no column 'none'"),
        (("--density", "none", "--policy", "uniform"), "name the right one with --density"),
        (("--density", "f", "--policy", "columns:d"), "there must be a column dACTION"),
        (("--density", "f", "--propensity", "f", "--policy", "uniform"), "not both"),
        (("--density", "f", "--high", "5", "--policy", "uniform"), "low must be below high"),
        (("--density", "f", "--low", "nan", "--policy", "uniform"), "low must be a finite number, got nan"),
        (("--density", "f", "--bandwidth", "0", "--policy", "action:30"), "bandwidth must be a share"),
        (("--propensity", "f", "--low", "5", "--policy", "uniform"), "name the density with --density"),
        (("--propensity", "f", "--policy", "uniform"), "name the column of its density with --density"),
    ],
)
def test_bad_options_are_refused(table, options, message):
    assert message in refused(table, "--action", "dose", *options)


def test_an_action_column_without_numbers_is_refused(tmp_path):
    pl.DataFrame({"dose": ["low", "high"], "f": [0.5, 0.5], "reward": [0, 1]}).write_csv(tmp_path / "words.csv")
    said = refused(tmp_path / "words.csv", *COLUMNS, "--policy", "uniform")
    assert "column 'dose' holds no numbers" in said
    pl.DataFrame({"dose": [5, 5], "f": [0.5, 0.5], "reward": [0, 1]}).write_csv(tmp_path / "one.csv")
    assert "column 'dose' is always 5" in refused(tmp_path / "one.csv", *COLUMNS, "--policy", "uniform")


def test_a_bandwidth_is_refused_for_a_list(tmp_path):
    frame = pl.DataFrame({"action": ["a", "b"] * 5, "reward": [0, 1] * 5, "propensity": [0.5] * 10})
    frame.write_csv(tmp_path / "list.csv")
    said = refused(tmp_path / "list.csv", "--policy", "action:a", "--bandwidth", 0.1)
    assert "a bandwidth is for actions that are numbers, and these are a list" in said


class Halves:
    """A target of one's own that gives a number for each row."""

    name = "halves"

    def actions(self, block, first_row):
        return np.full(len(block), self.number)


def test_a_target_of_ones_own_gives_numbers():
    rng = np.random.default_rng(1)
    problem = Problem(name="p", context=[Numeric("x", low=0, high=1)], actions=Continuous("price", 0, 1))
    numbers = rng.random(500)
    log = ArrayLog(
        problem, contexts={"x": rng.random(500)}, actions=numbers, rewards=numbers, propensities=np.ones(500)
    )
    own = Halves()
    own.number = 0.5
    found = evaluate(log, own, estimators=("snips",), bandwidth=0.1)
    assert abs(found.estimate.value - 0.5) < 0.03
    assert found.target.bandwidth == 0.1
    own.number = 2.0
    with pytest.raises(InvalidTarget, match=r"halves, row 0: 2.0 is not an action"):
        evaluate(log, own, estimators=("snips",), bandwidth=0.1)
    assert target(problem, np.full(500, 0.5)).name == "actions"
