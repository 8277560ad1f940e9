"""CUPED against regression."""

import numpy as np
import pytest
from experiment_examples import units
from hypothesis import given
from hypothesis import strategies as st

from potstill.experiments.analysis.cuped import LEAST_WITH_PAST, covariates
from potstill.experiments.analysis.effects import effect
from potstill.experiments.analysis.units import Before


def regression(treated, total, past):
    """The coefficients of the arm and of the past, after that of the constant."""
    design = np.column_stack([np.ones(len(total)), treated, past])
    return np.linalg.lstsq(design, total, rcond=None)[0][1:]


@given(st.integers(0, 1000), st.integers(20, 60), st.integers(20, 60), st.integers(1, 2))
def test_the_adjusted_effect_is_that_of_a_regression(seed, n, m, k):
    rng = np.random.default_rng(seed)
    treated = np.arange(n + m) >= n
    past = rng.normal(size=(n + m, k))
    total = past.sum(axis=1) + 0.5 * treated + rng.normal(size=n + m)
    found = effect(treated, total, None, past)
    assert found.difference == pytest.approx(regression(treated, total, past)[0], abs=1e-9)


def test_the_error_is_that_of_a_regression_if_both_arms_vary_alike():
    """Twice the same residuals: the heteroscedastic error is then the ordinary one."""
    rng = np.random.default_rng(2)
    treated = np.repeat([False, True], 15)
    past, rest = np.tile(rng.normal(size=(15, 2)), (2, 1)), np.tile(rng.normal(size=15), 2)
    total = past @ [1.0, 2.0] + rest
    design = np.column_stack([np.ones(30), treated, past])
    _, left, _, _ = np.linalg.lstsq(design, total, rcond=None)
    ordinary = left[0] / (30 - 4) * np.linalg.inv(design.T @ design)[1, 1]
    assert effect(treated, total, None, past).error ** 2 == pytest.approx(ordinary)


def test_the_error_is_that_of_what_the_regression_leaves():
    """Arms of different sizes in which the past tells different things: what the means have in common cancels."""
    rng = np.random.default_rng(3)
    treated, past = np.arange(200) < 30, rng.normal(size=(200, 1))
    total = past[:, 0] * np.where(treated, 3.0, -1.0) + rng.normal(size=200)
    _, slope = regression(treated, total, past)
    rest = total - slope * past[:, 0]
    variance = rest[treated].var(ddof=1) / 30 + rest[~treated].var(ddof=1) / 170
    assert effect(treated, total, None, past).error ** 2 == pytest.approx(variance * 198 / 197)


def test_the_means_of_both_arms_stay_in_place():
    """Shifting the past by a constant changes nothing, and without imbalance in the past nothing moves at all."""
    rng = np.random.default_rng(0)
    treated = np.repeat([False, True], 50)
    past = np.tile(rng.normal(size=50), 2)[:, None]
    total = past[:, 0] + rng.normal(size=100)
    plain, adjusted = effect(treated, total, None), effect(treated, total, None, past + 100)
    assert adjusted.difference == pytest.approx(plain.difference)
    assert adjusted.control == pytest.approx(plain.control)
    assert adjusted.error < plain.error


def test_variance_shrinks_by_what_the_past_explains():
    """A correlation of 0.8 leaves 1 - 0.64 of the variance."""
    rng = np.random.default_rng(5)
    treated, past = rng.random(40_000) < 0.5, rng.normal(size=40_000)
    total = 0.8 * past + 0.6 * rng.normal(size=40_000)
    left = (effect(treated, total, None, past[:, None]).error / effect(treated, total, None).error) ** 2
    assert left == pytest.approx(0.36, abs=0.01)


def test_units_without_a_past_get_the_mean_and_a_flag():
    before = Before(np.array([2.0, 4.0, 0.0] * 20), {"reward": np.array([1.0, 4.0, 0.0] * 20)})
    assert covariates(before, "reward", per_decision=True)[:3].tolist() == [[0.5, 0], [1.0, 0], [0.75, 1]]
    assert covariates(before, "reward", per_decision=False)[:3].tolist() == [[1.0, 0], [4.0, 0], [2.5, 1]]
    all_known = Before(np.ones(60), {"reward": np.arange(60.0)})
    assert covariates(all_known, "reward", per_decision=True).shape == (60, 1)


def test_too_little_past_is_not_used():
    few = np.zeros(100)
    few[: LEAST_WITH_PAST - 1] = 1
    assert covariates(Before(few, {"reward": few}), "reward", per_decision=True) is None
    assert covariates(Before(few, {"reward": few}), "watched", per_decision=True) is None
    assert covariates(None, "reward", per_decision=True) is None


def test_a_past_that_never_varies_changes_nothing():
    made = units(200, np.random.default_rng(6))
    constant = np.ones((200, 2))
    plain = effect(made.treated, made.outcomes["reward"], made.decisions)
    same = effect(made.treated, made.outcomes["reward"], made.decisions, constant)
    assert same.difference == pytest.approx(plain.difference)
    assert same.error == pytest.approx(plain.error, rel=0.01)
