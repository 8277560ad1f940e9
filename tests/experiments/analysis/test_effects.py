"""Effects against closed forms, SciPy, the jackknife, and simulations in which there is none."""

import numpy as np
import pytest
from experiment_examples import units
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from potstill.evaluate.intervals import fieller
from potstill.experiments.analysis.cuped import covariates
from potstill.experiments.analysis.effects import Measured, effect

CONTROL, TREATMENT = [1.0, 3.0], [2.0, 6.0, 10.0]
TREATED = np.array([False] * 2 + [True] * 3)
TOTAL = np.array(CONTROL + TREATMENT)


def test_a_case_small_enough_for_paper():
    """Means 2 and 6; variances of the means 2/2 and 16/3; Welch's degrees of freedom (1 + 16/3)²/(1/1 + (16/3)²/2)."""
    found = effect(TREATED, TOTAL, None)
    assert (found.control, found.treatment, found.units) == (2.0, 6.0, 5)
    assert found.difference == 4.0
    assert found.relative == 2.0
    assert found.variances == pytest.approx((16 / 3, 1.0))
    assert found.error == pytest.approx((19 / 3) ** 0.5)
    assert found.df == pytest.approx((19 / 3) ** 2 / (1 + (16 / 3) ** 2 / 2))


@given(st.integers(0, 10_000), st.integers(3, 40), st.integers(3, 40), st.floats(0.5, 0.999))
def test_means_are_compared_as_by_welch(seed, n, m, level):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(5, 2, n), rng.gamma(2, 3, m)
    found = Measured.of(effect(np.arange(n + m) >= n, np.concatenate([x, y]), None), level)
    expected = stats.ttest_ind(y, x, equal_var=False)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert found.interval == pytest.approx(tuple(expected.confidence_interval(level)), rel=1e-9)


@given(
    st.floats(-5, 5), st.floats(0.5, 5), st.floats(0.01, 2), st.floats(0.01, 2), st.floats(-0.9, 0.9), st.floats(1, 4)
)
def test_fieller_ends_where_the_test_does(numerator, denominator, a, b, correlation, errors):
    covariance = correlation * (a * b) ** 0.5
    found = fieller(numerator, denominator, (a, b), covariance, errors)
    if found is None:
        assert denominator**2 <= errors**2 * b
        return
    assert found[0] <= numerator / denominator <= found[1]
    for ratio in found:
        error = (a - 2 * ratio * covariance + ratio**2 * b) ** 0.5
        assert abs(numerator - ratio * denominator) == pytest.approx(errors * error, rel=1e-6, abs=1e-6)


def test_a_relative_effect_needs_a_control_that_is_clearly_positive():
    treated = np.repeat([False, True], 20)
    around_zero = np.tile([-1.0, 1.0], 20)
    found = Measured.of(effect(treated, around_zero + 0.01, None), 0.95)
    assert (found.relative, found.relative_interval, found.relative_anytime) == (None, None, None)
    assert Measured.of(effect(treated, around_zero - 9, None), 0.95).relative is None
    assert Measured.of(effect(treated, around_zero + 9, None), 0.95).relative == pytest.approx(0)


@pytest.mark.parametrize("size", [None, "decisions"])
@pytest.mark.parametrize("adjusted", [False, True])
def test_errors_are_those_of_the_jackknife(size, adjusted):
    """Leaving out one unit at a time knows nothing of formulas. At 1,200 units it agrees to a few per cent."""
    made = units(1200, np.random.default_rng(4), effect=0.1, share=0.3, past=True)
    past = covariates(made.before, "reward", per_decision=size is not None) if adjusted else None
    columns = made.treated, made.outcomes["reward"], made.decisions if size else None, past

    def left_out(i):
        found = effect(*(None if column is None else np.delete(column, i, axis=0) for column in columns))
        return found.treatment, found.control

    means, arms = np.array([left_out(i) for i in range(1200)]), made.treated
    spread = sum((arm.sum() - 1) ** 2 / arm.sum() * np.cov(means[arm], rowvar=False) for arm in (arms, ~arms))
    found = effect(*columns)
    assert found.variances == pytest.approx((spread[0, 0], spread[1, 1]), rel=0.08)
    assert found.covariance == pytest.approx(spread[0, 1], abs=0.08 * spread[1, 1])
    assert found.error**2 == pytest.approx(spread[0, 0] + spread[1, 1] - 2 * spread[0, 1], rel=0.08)


def test_there_is_no_effect_without_two_units_in_each_arm_or_without_variation():
    assert effect(np.array([True, True, False]), np.arange(3.0), None) is None
    assert effect(np.array([True, True]), np.arange(2.0), None) is None
    assert effect(np.array([True, True, False, False]), np.full(4, 0.1), None) is None
    assert (
        effect(np.array([True, True, False, False]), np.array([0.3, 0.1, 0.6, 0.2]), np.array([3.0, 1, 6, 2])) is None
    )


@pytest.mark.parametrize("past", [False, True])
@pytest.mark.parametrize("share", [0.5, 0.2])
def test_without_an_effect_one_experiment_in_twenty_finds_one(past, share):
    """400 experiments: the number of alarms is within what 5 % give in 999 of 1,000 test runs."""
    rng, alarms = np.random.default_rng(7), 0
    for _ in range(400):
        made = units(500, rng, share=share, past=past)
        known = covariates(made.before, "reward", per_decision=True)
        alarms += effect(made.treated, made.outcomes["reward"], made.decisions, known).p < 0.05
    low, high = stats.binom.interval(0.999, 400, 0.05)
    assert low <= alarms <= high


def test_relative_intervals_cover_the_relative_effect():
    """400 experiments with a true ratio of 1.25: misses are within what 5 % give in 999 of 1,000 test runs."""
    rng, misses = np.random.default_rng(8), 0
    for _ in range(400):
        made = units(400, rng, effect=0.1, past=True)  # the mean rate is 0.4
        known = covariates(made.before, "reward", per_decision=True)
        found = Measured.of(effect(made.treated, made.outcomes["reward"], made.decisions, known), 0.95)
        misses += not found.relative_interval.low <= 0.25 <= found.relative_interval.high
    low, high = stats.binom.interval(0.999, 400, 0.05)
    assert low <= misses <= high
