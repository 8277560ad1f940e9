"""Estimators by enumeration and by hand."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from evaluate_examples import LOGGING, MEANS, SHARES, TARGET, VALUE, logs, rich_log, table, terms_of
from hypothesis import given
from hypothesis import strategies as st

from potstill.evaluate.estimators import (
    ESTIMATORS,
    Parts,
    clipped_ips,
    dm,
    dr,
    dr_os,
    ips,
    quantiles,
    replay,
    sndr,
    snips,
    switch_dr,
)
from potstill.evaluate.models import RidgeModel, fitted
from potstill.evaluate.targets import target
from potstill.evaluate.terms import Terms, compute_terms

WRONG_MODEL = np.array([[5.0, -3.0, 1.0], [0.0, 2.0, 2.0]])
WRONG_PROPENSITIES = np.array([[0.2, 0.2, 0.6], [0.9, 0.05, 0.05]])
UNIFORM = np.full((2, 3), 1 / 3)


def expectation(estimator, model=None, rows=2, **world):
    """The mean of an estimate over every log that there could have been."""
    return sum(
        probability * estimator(terms_of(log, table(TARGET), None if model is None else table(model))).value
        for log, probability in logs(rows, **world)
    )


def test_ips_is_right_on_average_over_every_possible_log():
    assert expectation(ips) == pytest.approx(VALUE, abs=1e-12)


def test_ips_is_wrong_if_the_propensities_are():
    assert abs(expectation(ips, stated=WRONG_PROPENSITIES) - VALUE) > 0.1


@pytest.mark.parametrize("model", [MEANS, WRONG_MODEL, 0 * MEANS], ids=["right", "wrong", "nothing"])
def test_dr_is_right_with_any_fixed_model_if_the_propensities_are_right(model):
    assert expectation(dr, model) == pytest.approx(VALUE, abs=1e-12)


def test_dr_is_right_with_wrong_propensities_if_the_model_is_right():
    assert expectation(dr, MEANS, stated=WRONG_PROPENSITIES) == pytest.approx(VALUE, abs=1e-12)


def test_dr_is_wrong_if_both_are():
    assert abs(expectation(dr, WRONG_MODEL, stated=WRONG_PROPENSITIES) - VALUE) > 0.1


def test_dm_is_as_right_as_its_model():
    assert expectation(dm, MEANS) == pytest.approx(VALUE, abs=1e-12)
    assert expectation(dm, WRONG_MODEL) == pytest.approx(SHARES @ (TARGET * WRONG_MODEL).sum(axis=1), abs=1e-12)


def test_dr_with_a_cross_fitted_model_is_right_on_average_over_every_possible_log():
    """Each row's prediction comes from other rows, so that it does not know the row's own action and reward."""
    mean = 0.0
    for log, probability in logs(3, noise=0):
        model = fitted(RidgeModel(penalties=(1.0,)), log)
        (terms,) = compute_terms(log, [target(log.problem, table(TARGET))], model).terms
        mean += probability * dr(terms).value
    assert mean == pytest.approx(VALUE, abs=1e-12)


def test_replay_is_right_on_average_over_uniform_logs_with_a_match():
    chosen = np.array([1, 2])  # the action of each context
    value = SHARES @ MEANS[[0, 1], chosen]
    mean = total = 0.0
    for log, probability in logs(2, logging=UNIFORM):
        estimate = replay(terms_of(log, table(chosen))).value
        if not math.isnan(estimate):
            mean, total = mean + probability * estimate, total + probability
    assert mean / total == pytest.approx(value, abs=1e-12)
    assert total == pytest.approx(1 - (2 / 3) ** 2)  # a row matches with probability one third


def test_replay_is_biased_on_other_logs():
    chosen = np.array([1, 2])
    pairs = [(replay(terms_of(log, table(chosen))).value, p) for log, p in logs(2, logging=LOGGING)]
    known = [(value, p) for value, p in pairs if not math.isnan(value)]
    mean = sum(value * p for value, p in known) / sum(p for _, p in known)
    assert abs(mean - SHARES @ MEANS[[0, 1], chosen]) > 0.1


@pytest.fixture
def by_hand() -> Terms:
    """Three rows with weights 1, 2 and 1/2."""
    probability, propensity = np.array([0.5, 0.5, 0.4]), np.array([0.5, 0.25, 0.8])
    return Terms(
        weight=probability / propensity,
        reward=np.array([1.0, 3.0, 2.0]),
        predicted=np.array([0.5, 2.0, 2.0]),
        expected=np.array([1.0, 2.0, 1.5]),
        probability=probability,
        propensity=propensity,
        matched=np.array([True, False, True]),
        missing=np.zeros(3),
    )


@pytest.mark.parametrize(
    ("estimator", "value"),
    [
        (replay, (1 + 2) / 2),
        (ips, (1 * 1 + 2 * 3 + 0.5 * 2) / 3),
        (partial(clipped_ips, clip=1.5), (1 * 1 + 1.5 * 3 + 0.5 * 2) / 3),
        (partial(clipped_ips, clip=math.inf), 8 / 3),
        (snips, (1 * 1 + 2 * 3 + 0.5 * 2) / (1 + 2 + 0.5)),
        (dm, (1 + 2 + 1.5) / 3),
        (dr, 1.5 + (1 * 0.5 + 2 * 1 + 0.5 * 0) / 3),
        (sndr, 1.5 + (1 * 0.5 + 2 * 1 + 0.5 * 0) / (1 + 2 + 0.5)),
        (partial(switch_dr, threshold=1.0), 1.5 + (1 * 0.5) / 3),
        (partial(switch_dr, threshold=2.0), 1.5 + 2.5 / 3),
        (partial(dr_os, shrinkage=4.0), 1.5 + (1 / 1.25 * 0.5 + 2 / 2 * 1) / 3),
        (partial(dr_os, shrinkage=math.inf), 1.5 + 2.5 / 3),
    ],
)
def test_values_by_hand(by_hand, estimator, value):
    assert estimator(by_hand).value == pytest.approx(value, abs=1e-12)


def test_the_registry_has_them_in_order():
    names = ["replay", "ips", "clipped-ips", "snips", "dm", "dr", "sndr", "switch-dr", "dr-os"]
    assert list(ESTIMATORS) == names


@pytest.mark.parametrize("name", ESTIMATORS)
def test_influence_has_the_value_as_its_mean_and_is_its_derivative(name, by_hand):
    parts = ESTIMATORS[name](by_hand)
    assert parts.influence.mean() == pytest.approx(parts.value, abs=1e-12)
    for row in range(3):
        assert parts.influence[row] - parts.value == pytest.approx(derivative(parts, row), abs=1e-5)


def derivative(parts, row, step=1e-6):
    """Of the value, as the row gets more of the weight of all rows."""

    def value(share):
        weights = np.full(3, (1 - share) / 3)
        weights[row] += share
        base = 0.0 if parts.base is None else weights @ parts.base
        above = 0.0 if parts.numerator is None else weights @ parts.numerator
        return base + above / (1.0 if parts.denominator is None else weights @ parts.denominator)

    return (value(step) - value(-step)) / (2 * step)


@given(st.floats(-100, 100))
def test_self_normalised_estimates_move_with_the_rewards(constant):
    terms = terms_of(rich_log(50), "high")
    moved = replace(terms, reward=terms.reward + constant)
    for estimator in (snips, sndr, replay):
        assert estimator(moved).value == pytest.approx(estimator(terms).value + constant, abs=1e-9)
    if abs(constant) > 1:
        assert ips(moved).value != pytest.approx(ips(terms).value + constant, abs=1e-3)


def test_a_target_that_shares_no_action_with_the_log_has_no_ratio(by_hand):
    nothing = replace(by_hand, weight=np.zeros(3), matched=np.zeros(3, bool))
    for estimator in (replay, snips, sndr):
        parts = estimator(nothing)
        assert math.isnan(parts.value)
        assert np.isnan(parts.influence).all()
    assert ips(nothing).value == 0
    assert dr(nothing).value == dm(nothing).value == switch_dr(nothing).value == dr_os(nothing).value == 1.5


def heavy_tails(seed=0, rows=2000) -> Terms:
    """A few huge weights whose rewards are noise, which everything tuned should cut off."""
    rng = np.random.default_rng(seed)
    propensity = np.where(rng.uniform(size=rows) < 0.01, 1e-4, 0.9)
    reward = rng.normal(0.5, 1.0, rows)
    ones, half = np.ones(rows), np.full(rows, 0.5)
    return Terms(0.9 / propensity, reward, half, half, 0.9 * ones, propensity, ones > 0, 0 * ones)


def estimated_error(terms, kept, residual, base):
    bias = np.mean((terms.weight - kept) * np.abs(residual))
    return np.var(base + kept * residual) / len(terms) + bias**2


def test_parameters_minimise_the_estimated_error():
    terms = heavy_tails()
    grid = quantiles(terms)
    clip = min(grid, key=lambda c: estimated_error(terms, np.minimum(terms.weight, c), terms.reward, 0))
    assert clipped_ips(terms).parameter == clip
    residual = terms.reward - terms.predicted
    threshold = min(
        grid, key=lambda t: estimated_error(terms, terms.weight * (terms.weight <= t), residual, terms.expected)
    )
    assert switch_dr(terms).parameter == threshold
    shrunk = dr_os(terms).parameter
    error = estimated_error(terms, terms.weight / (1 + terms.weight**2 / shrunk), residual, terms.expected)
    for weight in grid[1:]:
        kept = terms.weight / (1 + terms.weight**2 / weight**2)
        assert error <= estimated_error(terms, kept, residual, terms.expected)


def test_no_weight_passes_the_largest():
    terms = heavy_tails()
    assert clipped_ips(terms, 7.0).largest == 7.0
    assert switch_dr(terms, 7.0).largest == 7.0
    assert dr_os(terms, 16.0).largest == 2.0
    ones = replace(terms, reward=np.ones(len(terms)), predicted=np.zeros(len(terms)))
    for parts in (clipped_ips(ones, 7.0), switch_dr(ones, 7.0), dr_os(ones, 16.0)):
        assert parts.numerator.max() <= parts.largest


def test_equal_weights_are_left_alone():
    terms = replace(heavy_tails(), weight=np.ones(2000))
    for estimator in (clipped_ips, switch_dr, dr_os):
        assert estimator(terms).parameter == math.inf


@pytest.mark.parametrize("parameter", [0.0, -1.0, math.nan])
def test_parameters_are_above_zero(by_hand, parameter):
    for estimator in (clipped_ips, switch_dr, dr_os):
        with pytest.raises(ValueError, match="must be above 0"):
            estimator(by_hand, parameter)


def test_parts_of_some_rows_keep_their_parameter(by_hand):
    parts = clipped_ips(by_hand, 1.5).where(np.array([False, True, True]))
    assert parts.value == pytest.approx((1.5 * 3 + 0.5 * 2) / 2)
    assert (parts.parameter, len(parts)) == (1.5, 2)


def test_parts_of_nothing_are_refused():
    with pytest.raises(ValueError, match="a base or a numerator"):
        Parts(denominator=np.ones(3))
