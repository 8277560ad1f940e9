"""Planned numbers of units against closed forms and simulations."""

import numpy as np
import pytest
from scipy import stats

from potstill.experiments.analysis.effects import LEAST_ANYTIME, anytime_errors
from potstill.experiments.analysis.power import anytime_needed, detectable, power_of, units_needed


def found(rng, units, effect, share, experiments):
    """How often a Welch test finds an effect, in its direction."""
    treated = round(units * share)
    x = rng.normal(0, 1, (experiments, units - treated))
    y = rng.normal(effect, 1, (experiments, treated))
    result = stats.ttest_ind(y, x, axis=1, equal_var=False)
    return int(((result.pvalue < 0.05) & (result.statistic > 0)).sum())


@pytest.mark.parametrize(("effect", "share"), [(0.3, 0.5), (0.5, 0.3), (1.2, 0.5)])
def test_the_planned_number_has_the_planned_power(effect, share):
    """3,000 experiments of the planned size find it as often as planned, in 999 of 1,000 test runs."""
    units = units_needed(effect, 1.0, share=share)
    low, high = stats.binom.interval(0.999, 3000, power_of(units, effect, 1.0, share=share))
    assert low <= found(np.random.default_rng(2), units, effect, share, 3000) <= high
    assert power_of(units, effect, 1.0, share=share) >= 0.8 > power_of(units - 1, effect, 1.0, share=share)


def test_many_units_are_those_of_the_textbook():
    """16·σ²/δ² for each arm, or to the letter 2·(1.96 + 0.84)²·σ²/δ²."""
    textbook = 4 * (1.959964 + 0.841621) ** 2 * 0.9**2 / 0.01**2
    assert units_needed(0.01, 0.9) == pytest.approx(textbook, rel=1e-4)
    assert units_needed(-0.01, 0.9) == units_needed(0.01, 0.9)
    assert units_needed(0.01, 0.9, share=0.1) == pytest.approx(textbook * (10 + 10 / 9) / 4, rel=1e-4)


def test_what_so_many_units_can_see_needs_so_many_units():
    for units in (60, 1_000, 50_000):
        assert units_needed(detectable(units, 2.0), 2.0) == pytest.approx(units, rel=0.02)


def test_looking_every_day_finds_it_by_the_planned_number():
    """At that number alone the power is as stated; with all the looks before it, it is more."""
    effect, units, rng = 0.5, anytime_needed(0.5, 1.0), np.random.default_rng(5)
    treated = rng.random((1500, units)) < 0.5
    # A unit's part in the difference of arms, whose mean is the effect and whose standard deviation is about 2.
    parts = np.where(treated, 2.0, -2.0) * rng.normal(0, 1, treated.shape) + effect
    n = np.arange(1, units + 1)
    errors = np.array([anytime_errors(int(size), 0.95, units) for size in n])
    above = np.cumsum(parts, axis=1) / n > errors * 2 / np.sqrt(n)
    low, high = stats.binom.interval(0.999, 1500, 0.8)
    assert low <= above[:, -1].sum() <= high
    assert above[:, 30:].any(axis=1).sum() > above[:, -1].sum()
    half = anytime_needed(0.5, 1.0, power=0.5)
    assert above[:, 30:half].any(axis=1).mean() > 0.5
    assert units_needed(0.5, 1.0) < half < units


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"effect": 0.0}, "the effect must be a number other than 0, got 0.0"),
        ({"sd": 0.0}, "the standard deviation must be above 0, got 0.0"),
        ({"share": 1.0}, "share must be between 0 and 1, got 1.0"),
        ({"level": 95.0}, "level must be between 0 and 1, got 95.0"),
        ({"power": 0.3}, "power must be from 0.5 to below 1, got 0.3"),
        ({"effect": 1e-9}, "needs more than 10¹⁰ units"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        units_needed(**{"effect": 0.1, "sd": 1.0, **arguments})


def test_looking_every_day_needs_as_many_units_as_its_interval_is_relied_upon_from():
    assert units_needed(10.0, 1.0) < 11
    assert anytime_needed(10.0, 1.0) == LEAST_ANYTIME
