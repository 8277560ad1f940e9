"""Effects day by day, and whether looking every day keeps its promise."""

import numpy as np
import pytest
from scipy import stats

from potstill.experiments.analysis.breakdowns import by_day
from potstill.experiments.analysis.cuped import covariates
from potstill.experiments.analysis.effects import LEAST_ANYTIME, effect
from potstill.experiments.analysis.units import Before, Daily

LOOK = {"per_decision": True, "level": 0.95, "planned": 500}


def arrivals(rng, units, each_look):
    """Units that come once, a few between two looks: looking all the time."""
    rate, decisions = rng.gamma(2, 0.2, units), 1.0 + rng.poisson(rng.gamma(1, 3, units))
    total = rng.poisson(rate * decisions).astype(float)
    daily = Daily(np.arange(units), np.arange(units) // each_look, decisions, total)
    earlier = 1.0 + rng.poisson(3, units)
    return rng.random(units) < 0.5, daily, Before(earlier, {"reward": rng.poisson(rate * earlier).astype(float)})


def returning(rng, units, days):
    """Units with habits of their own who come back on any day."""
    habits = rng.beta(1, 2, units)
    decisions = rng.poisson(0.7, (days, units))
    day, unit = np.nonzero(decisions)
    counts = decisions[day, unit].astype(float)
    return rng.random(units) < 0.5, Daily(
        unit, day, counts, rng.binomial(counts.astype(int), habits[unit]).astype(float)
    )


def alarms(experiments):
    """How many experiments left 0 at some look: by the anytime interval, and by that for one look."""
    anytime = once = 0
    for treated, daily, past in experiments:
        shown = [day.measured for day in by_day(treated, daily, past, **LOOK)]
        anytime += any(one.anytime.low > 0 or one.anytime.high < 0 for one in shown)
        once += any(one.interval.low > 0 or one.interval.high < 0 for one in shown)
    return anytime, once


@pytest.mark.parametrize("adjusted", [False, True])
def test_looking_after_every_few_units_keeps_the_promise(adjusted):
    """100 experiments without effect, 23 looks each: at most 5 % may ever leave 0.

    The bound is passed in one of 1,000 test runs at a true rate of 5 %; the interval for one look leaves 0 far more
    often.
    """
    rng = np.random.default_rng(11)
    made = (arrivals(rng, 1000, 40) for _ in range(100))
    anytime, once = alarms((t, d, covariates(b, "reward", per_decision=True) if adjusted else None) for t, d, b in made)
    assert anytime <= stats.binom.ppf(0.999, 100, 0.05)
    assert once > stats.binom.ppf(0.99, 100, 0.05)


def test_units_that_come_back_keep_it_as_well():
    """100 experiments of 300 units over 20 days; the bound as above."""
    rng = np.random.default_rng(12)
    anytime, _ = alarms((*returning(rng, 300, 20), None) for _ in range(100))
    assert anytime <= stats.binom.ppf(0.999, 100, 0.05)


def test_each_day_is_the_effect_on_everything_so_far():
    treated, daily = returning(np.random.default_rng(0), 200, 6)
    found = by_day(treated, daily, None, **LOOK)
    assert [one.day for one in found] == [f"1970-01-0{day}" for day in range(7 - len(found), 7)]
    for number, one in enumerate(found, start=6 - len(found)):
        rows = daily.day <= number
        total = np.bincount(daily.unit[rows], daily.total[rows], 200)
        size = np.bincount(daily.unit[rows], daily.decisions[rows], 200)
        seen = size > 0
        expected = effect(treated[seen], total[seen], size[seen])
        assert one.measured.difference == pytest.approx(expected.difference)
        assert one.measured.error == pytest.approx(expected.error)
        assert one.measured.units == seen.sum()


def test_days_with_few_units_are_left_out():
    treated, daily, _ = arrivals(np.random.default_rng(1), LEAST_ANYTIME + 40, 20)
    assert [one.measured.units for one in by_day(treated, daily, None, **LOOK)] == [100, 120, 140]
    assert by_day(treated, Daily(*(np.empty(0, kind) for kind in (int, int, float, float))), None, **LOOK) == []
