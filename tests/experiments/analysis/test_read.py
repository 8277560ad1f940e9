"""Units read from a table, against a loop over its rows."""

import math

import numpy as np
import polars as pl
import pytest
from experiment_examples import DAY, START, World, log, workspace

from potstill.events.lake.schema import METRICS
from potstill.experiments.analysis.read import experiments_in, read_units
from potstill.experiments.analysis.report import analyse
from potstill.experiments.analysis.units import InvalidUnits


@pytest.fixture(scope="module")
def frame():
    return log(World(units=300, effect=0.1, days=5), seed=3)


def read(frame, **options):
    return read_units(frame.lazy(), "hd-first", **{"start": START, **options})


def row(unit, arm, time, reward=1.0, metrics=None, **more):
    values = {"unit": unit, "arm": f"hd-first:{arm}", "time": START + time, "reward": reward, "metrics": metrics}
    return {"id": f"{unit}-{time}", **values, **more}


def table(*rows):
    return pl.DataFrame(list(rows), schema_overrides={"metrics": METRICS, "time": pl.Datetime("us", "UTC")})


def test_totals_are_those_of_a_loop_over_rows(frame):
    expected, past = {}, {}
    for one in frame.iter_rows(named=True):
        book = past if one["arm"] is None else expected
        book.setdefault(one["unit"], []).append((one["reward"], one["metrics"][0]["value"], one["arm"]))
    units = read(frame)
    names = sorted(expected)
    assert units.units == len(names)
    assert units.treated.tolist() == [expected[name][0][2] == "hd-first:treatment" for name in names]
    assert units.decisions.tolist() == [len(expected[name]) for name in names]
    for book, outcomes in ((expected, units.outcomes), (past, units.before.outcomes)):
        for column, name in enumerate(("reward", "watched")):
            sums = [math.fsum(one[column] for one in book.get(unit, [])) for unit in names]
            assert outcomes[name] == pytest.approx(np.array(sums), rel=1e-15)
    assert units.before.decisions.tolist() == [len(past.get(name, [])) for name in names]
    assert units.sent["watched"].tolist() == units.decisions.tolist()


@pytest.mark.parametrize("outcome", ["reward", "watched"])
def test_days_add_up(frame, outcome):
    units = read(frame, daily=outcome)
    daily = units.daily[outcome]
    assert np.bincount(daily.unit, daily.total) == pytest.approx(units.outcomes[outcome], rel=1e-15)
    assert np.bincount(daily.unit, daily.decisions).tolist() == units.decisions.tolist()
    assert np.unique(daily.day).tolist() == [START // DAY + day for day in range(5)]
    assert (np.diff(daily.day) >= 0).all()


def test_one_file_or_many_in_any_order_give_the_same_report_to_the_bit(frame, tmp_path):
    frame.write_parquet(tmp_path / "whole.parquet")
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    for number, part in enumerate(shuffled.iter_slices(len(frame) // 7 + 1)):
        part.write_parquet(tmp_path / f"part-{number}.parquet")
    reports = []
    for files in ("whole.parquet", "part-*.parquet"):
        rows = pl.scan_parquet(tmp_path / files)
        units = read_units(rows, "hd-first", start=START, by="context_connection")
        reports.append(analyse(units, share=0.5, by="connection"))
    assert reports[0] == reports[1]
    assert reports[0].main.adjusted


def test_the_lake_gives_what_the_table_gives(frame, tmp_path):
    made = workspace(tmp_path / "w", frame)
    ours = analyse(read_units(made.lake.scan("observations"), "hd-first", start=START), share=0.5)
    assert ours == analyse(read(frame), share=0.5)


def test_units_in_both_arms_and_decisions_of_no_unit_are_left_out_and_counted():
    rows = table(
        row("a", "control", 1),
        row("b", "control", 2),
        row("b", "treatment", 3),
        row("c", "treatment", 4),
        row(None, "treatment", 5),
    )
    units = read(rows)
    assert units.treated.tolist() == [False, True]
    assert (units.in_both, units.without_unit) == (1, 1)
    nobody = read(rows.filter(pl.col("unit") == "b"))
    assert (nobody.units, nobody.in_both) == (0, 1)


def test_what_was_before_the_start_is_the_past_and_not_too_long_ago():
    rows = table(
        row("a", "none", -3 * DAY, 5.0),
        row("a", "none", -1, 2.0),
        row("a", "control", 0, 3.0),
        row("b", "treatment", 1, 1.0),
    )
    units = read(rows, past_days=2)
    assert units.outcomes["reward"].tolist() == [3.0, 1.0]
    assert units.before.outcomes["reward"].tolist() == [2.0, 0.0]
    assert units.before.decisions.tolist() == [1, 0]
    assert (units.before_start, units.period) == (0, (START, START + 1))


def test_what_units_did_in_an_arm_before_a_start_that_was_moved_is_no_past():
    rows = table(
        row("a", "none", -4 * DAY, 7.0),
        row("a", "control", -2 * DAY, 5.0),
        row("b", "treatment", -1, 2.0),
        row("b", "none", -1, 9.0),
        row("a", "control", 0, 3.0),
        row("b", "treatment", 1, 1.0),
    )
    units = read(rows, past_days=3)
    assert units.outcomes["reward"].tolist() == [3.0, 1.0]
    assert units.before.outcomes["reward"].tolist() == [7.0, 0.0]
    assert units.before_start == 2


def test_a_start_that_was_moved_does_not_shrink_the_effect(frame):
    """Half-way through, treated rewards would explain treated rewards away."""
    whole, moved = (analyse(read(frame, start=start), share=0.5) for start in (START, START + 3 * DAY))
    assert moved.main.measured.difference == pytest.approx(moved.main.plain.difference, rel=0.35)
    assert not any("before the start" in line for line in whole.warnings)
    assert any(line.startswith("Excluded because they precede the start: ") for line in moved.warnings)


def test_without_a_start_the_first_decision_is_it():
    rows = table(
        row("a", "control", 5, 3.0), row("b", "treatment", 9), row("b", "none", 4, 7.0), row("b", "none", 7, 8.0)
    )
    units = read(rows, start=None)
    assert units.outcomes["reward"].tolist() == [3.0, 1.0]
    assert units.before.outcomes["reward"].tolist() == [0.0, 7.0]


def test_metrics_that_are_missing_or_not_finite_count_as_not_sent():
    rows = table(
        row("a", "control", 1, metrics=[{"name": "watched", "value": 2.0}, {"name": "clicks", "value": 1.0}]),
        row("a", "control", 2, metrics=[{"name": "watched", "value": math.nan}]),
        row("a", "control", 3),
        row("b", "treatment", 4, metrics=[{"name": "watched", "value": math.inf}]),
    )
    units = read(rows, daily="watched")
    assert units.outcomes["watched"].tolist() == [2.0, 0.0]
    assert units.outcomes["clicks"].tolist() == [1.0, 0.0]
    assert units.sent["watched"].tolist() == [1.0, 0.0]
    assert units.not_finite == 2
    assert units.daily["watched"].total.tolist() == [2.0, 0.0]
    assert units.daily["watched"].decisions.tolist() == [3.0, 1.0]


def test_a_metric_that_is_called_reward_does_not_replace_the_reward():
    rows = table(row("a", "control", 1, 2.0, metrics=[{"name": "reward", "value": 9.0}]), row("b", "treatment", 2))
    units = read(rows, daily="metric reward")
    assert units.outcomes["reward"].tolist() == [2.0, 1.0]
    assert units.outcomes["metric reward"].tolist() == [9.0, 0.0]
    assert units.daily["metric reward"].total.tolist() == [9.0, 0.0]


def test_a_metric_that_is_called_decisions_does_not_hide_how_many_there_were():
    rows = table(row("a", "control", 1, metrics=[{"name": "decisions", "value": 9.0}]), row("b", "treatment", 2))
    assert list(read(rows).outcomes) == ["reward", "metric decisions"]


def test_a_segment_is_that_of_the_first_decision():
    rows = table(
        row("a", "control", 2, where="later"),
        row("a", "control", 1, where="first"),
        row("b", "treatment", 3, where="first"),
        row("b", "treatment", 3, where="other"),
    )
    rows = rows.with_columns(id=pl.Series(["1", "2", "4", "3"]))
    assert read(rows, by="where").segment.tolist() == ["first", "other"]


def test_a_table_without_metrics_will_do(frame):
    units = read(frame.drop("metrics"))
    assert list(units.outcomes) == ["reward"]


def test_experiments_are_found_by_their_names():
    rows = table(
        row("a", "control", 1), {**row("b", "control", 2), "arm": "a:b:treatment"}, {**row("c", "", 3), "arm": None}
    )
    assert experiments_in(rows.lazy()) == ["a:b", "hd-first"]


@pytest.mark.parametrize("reward", [math.nan, math.inf, None])
def test_a_reward_that_is_no_number_is_refused(reward):
    rows = table(row("a", "control", 1), row("b", "treatment", 2, reward=reward))
    with pytest.raises(InvalidUnits, match="1 rows have a reward that is not a finite number"):
        read(rows)
