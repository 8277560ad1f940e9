"""Plans from stated numbers and from a log."""

import numpy as np
import polars as pl
import pytest
from experiment_examples import DAY, START, World, log

from potstill.experiments.analysis.planning import Effect, History, NoHistory, plan, read_history
from potstill.experiments.analysis.power import units_needed


def test_effects_are_read_as_they_are_written():
    assert Effect.read("2%") == Effect(0.02, relative=True)
    assert Effect.read(" -2.5 % ") == Effect(0.025, relative=True)
    assert Effect.read("0.01") == Effect(0.01, relative=False)
    assert Effect.read("2%").of(0.4) == pytest.approx(0.008)
    for wrong in ("two", "", "0", "nan", "inf%"):
        with pytest.raises(ValueError, match="--effect must look like 2%"):
            Effect.read(wrong)
    for mean, said in ((None, "unknown"), (-1.0, "-1")):
        with pytest.raises(ValueError, match=f"a relative effect needs a mean above 0, and it is {said}"):
            Effect.read("2%").of(mean)


def test_a_plan_from_stated_numbers():
    made = plan(Effect.read("2%"), mean=0.5, sd=1.0, explained=0.36)
    assert made.once.units == units_needed(0.01, 1.0)
    assert made.with_past.units == pytest.approx(0.64 * made.once.units, rel=1e-3)
    assert 1.5 < made.every_day.units / made.once.units < 2.5
    assert (made.once.days, made.new_each_day, made.outlook) == (None, None, [])
    assert made.relative == pytest.approx(0.02)
    assert plan(Effect.read("0.01"), mean=None, sd=1.0).relative is None


def test_days_are_read_off_what_was_seen_and_then_extrapolated():
    history = History(mean=1.0, sd=1.0, explained=0.0, units_by_day=[100, 150, 170, 190])
    assert history.new_each_day == 20
    assert [history.days_for(units) for units in (1, 100, 101, 190, 191, 250)] == [1, 1, 2, 4, 5, 7]
    assert [history.units_after(days) for days in (1, 4, 6)] == [100, 190, 230]
    assert History(mean=1.0, sd=1.0, explained=0.0, units_by_day=[100, 100]).days_for(101) is None
    assert History(mean=1.0, sd=1.0, explained=0.0, units_by_day=[7]).days_for(21) == 3


def rows(frame):
    return frame.lazy().with_columns(arm=pl.lit(None, pl.String))


def test_a_log_says_how_units_vary_and_how_many_come():
    frame = log(World(units=400, days=10), seed=2)
    found = read_history(rows(frame), days=28)
    by_unit = frame.group_by("unit").agg(pl.col("reward").sum(), pl.len(), pl.col("time").min()).sort("time")
    total, size = by_unit["reward"].to_numpy(), by_unit["len"].to_numpy()
    assert found.mean == pytest.approx(total.sum() / size.sum())
    values = (total - found.mean * size) / size.mean()
    assert found.sd == pytest.approx(values.std(ddof=1))
    assert found.units_by_day[-1] == len(by_unit)
    first = int(by_unit["time"].dt.epoch("us").min())
    assert found.units_by_day[0] == (by_unit["time"].dt.epoch("us") < first + DAY).sum()
    per_unit = read_history(rows(frame), per_decision=False)
    assert (per_unit.mean, per_unit.sd) == pytest.approx((total.mean(), total.std(ddof=1)))


def test_what_the_past_explains_is_the_square_of_a_correlation():
    """Every unit comes as often in both halves, so that the share is the squared correlation of the two."""
    rng = np.random.default_rng(3)
    habit = rng.normal(size=300)
    halves = [habit + rng.normal(0, 0.5, 300) for _ in range(2)]
    frame = pl.DataFrame(
        {
            "id": [str(i) for i in range(600)],
            "unit": [f"u{i}" for i in range(300)] * 2,
            "time": pl.Series([START + i for i in range(300)] + [START + DAY + i for i in range(300)]).cast(
                pl.Datetime("us", "UTC")
            ),
            "reward": np.concatenate(halves),
        }
    )
    found = read_history(frame.lazy())
    assert found.explained == pytest.approx(np.corrcoef(*halves)[0, 1] ** 2, abs=1e-9)
    made = plan(Effect.read("0.1"), mean=found.mean, sd=found.sd, explained=found.explained, history=found)
    assert made.with_past.units < made.once.units
    assert (made.log_days, made.new_each_day, made.once.days, made.outlook) == (2, None, None, [])


def test_a_log_of_less_than_a_week_foretells_no_days():
    """On the first day every unit is new: at that rate the plan would end though no new unit ever comes."""
    week = History(mean=1.0, sd=1.0, explained=0.0, units_by_day=[100, 120, 125, 126, 126, 127, 128])
    made = plan(Effect.read("0.5"), mean=1.0, sd=1.0, history=week)
    assert (made.log_days, made.once.units, made.once.days) == (7, 128, 7)
    assert [one.days for one in made.outlook] == [7, 14, 28, 56]
    days = History(mean=1.0, sd=1.0, explained=0.0, units_by_day=week.units_by_day[:6])
    made = plan(Effect.read("0.5"), mean=1.0, sd=1.0, history=days)
    assert (made.log_days, made.new_each_day, made.once.days, made.outlook) == (6, None, None, [])


def test_only_the_last_days_count_and_a_metric_can_be_chosen():
    frame = log(World(units=200, days=10), seed=2)
    assert len(read_history(rows(frame), days=5).units_by_day) <= 5
    assert read_history(rows(frame), metric="watched").mean > read_history(rows(frame)).mean
    with pytest.raises(NoHistory, match="there is no metric 'clicks' in the log; the outcomes are reward, watched"):
        read_history(rows(frame), metric="clicks")


def test_a_log_without_units_says_what_to_do():
    frame = log(World(units=20)).with_columns(unit=pl.lit(None, pl.String))
    with pytest.raises(NoHistory, match="no observation has a unit: send `unit` with requests"):
        read_history(frame.lazy())


def test_a_single_unit_has_no_spread():
    frame = log(World(units=200)).filter(pl.col("unit") == "user-1")
    assert read_history(frame.lazy()).sd == 0
