"""Fidelity by hand-sized numbers."""

import math

import msgspec
import numpy as np
import pytest
from finite_imitation import fidelity

from potstill.distill import Fidelity
from potstill.distill import fidelity as fidelity_of
from potstill.spaces import FiniteDistribution
from potstill.spaces.finite_learning import FiniteLearning


def test_two_contexts_by_hand():
    # Of the first row ½·log(½ / ¼) + ½·log(½ / ¾), of the second log(1 / ½); percentiles interpolate between them.
    measured = fidelity([[0.5, 0.5], [1.0, 0.0]], [[0.25, 0.75], [0.5, 0.5]], reward_range=3.0)
    first, second = 0.5 * math.log(2) + 0.5 * math.log(2 / 3), math.log(2)
    assert measured.contexts == 2
    assert measured.kl_mean == pytest.approx((first + second) / 2)
    assert measured.kl_p95 == pytest.approx(first + 0.95 * (second - first))
    assert measured.tv_mean == pytest.approx(0.375)
    assert measured.tv_max == pytest.approx(0.5)
    assert measured.smallest_propensity == 0.25
    assert measured.reward_range == 3.0
    assert measured.regret_price == pytest.approx(3 * math.sqrt((first + second) / 4))


def test_a_floor_is_a_cost_of_its_own_and_no_error_of_imitation():
    """A perfect student under a floor of 0.1 moves ½·(|1 − 0.9| + |0 − 0.1|) = 0.1 of its decisions."""
    labels = np.array([[1.0, 0.0], [0.5, 0.5]], np.float32)
    served = FiniteDistribution(np.array([[0.9, 0.1], [0.5, 0.5]], np.float32))
    measured = fidelity_of(FiniteLearning(2), labels, FiniteDistribution(labels), 3.0, served=served)
    assert (measured.kl_mean, measured.tv_mean) == (0, 0)
    assert measured.floor_tv == pytest.approx(0.05)
    assert measured.floor_price == pytest.approx(0.15)
    assert measured.smallest_propensity == pytest.approx(0.1)


def test_without_a_floor_nothing_is_said_about_one():
    assert not {"floor_tv", "floor_price"} & set(msgspec.to_builtins(fidelity([[0.5, 0.5]], [[0.4, 0.6]], 2.0)))


def test_the_cost_is_the_reward_given_up_by_the_teachers_own_means():
    """(½ − ¼)·1 + (½ − ¾)·3 = −0.5 in the first context, (1 − ½)·8 + (0 − ½)·0 = 4 in the second."""
    labels = np.array([[0.5, 0.5], [1.0, 0.0]], np.float32)
    student = FiniteDistribution(np.array([[0.25, 0.75], [0.5, 0.5]], np.float32))
    means = np.array([[1.0, 3.0], [8.0, 0.0]])
    measured = fidelity_of(FiniteLearning(2), labels, student, None, rewards=means)
    assert measured.cost == pytest.approx((-0.5 + 4) / 2)
    shifted = fidelity_of(FiniteLearning(2), labels, student, None, rewards=means + 1e9)
    assert shifted.cost == pytest.approx(measured.cost)
    served = FiniteDistribution(np.array([[0.3, 0.7], [0.5, 0.5]], np.float32))
    floored = fidelity_of(FiniteLearning(2), labels, student, 10.0, rewards=means, served=served)
    assert floored.floor_cost == pytest.approx((-0.05 * 1 + 0.05 * 3) / 2)
    assert abs(floored.cost) <= floored.regret_price


def test_without_a_range_there_is_no_bound():
    measured = fidelity([[0.5, 0.5]], [[0.4, 0.6]], None)
    assert measured.kl_mean > 0
    assert (measured.reward_range, measured.regret_price) == (None, None)
    assert msgspec.json.decode(msgspec.json.encode(measured), type=Fidelity) == measured


def test_a_perfect_student_costs_nothing():
    labels = np.random.default_rng(0).dirichlet(np.ones(7), size=50).astype(np.float32)
    measured = fidelity(labels, labels, reward_range=1.0)
    assert 0 <= measured.kl_mean < 1e-15
    assert measured.tv_max == 0
    assert measured.regret_price < 1e-7


def test_the_price_bounds_what_the_worst_rewards_could_cost():
    rng = np.random.default_rng(1)
    labels, probabilities = rng.dirichlet(np.ones(4), size=200), rng.dirichlet(np.ones(4), size=200)
    rewards = 5 + 2 * (labels > probabilities)  # every action that is chosen too seldom is worth 2 more
    lost = ((labels - probabilities) * rewards).sum(axis=1).mean()
    measured = fidelity(labels, probabilities, reward_range=2.0)
    assert lost == pytest.approx(2 * measured.tv_mean)
    assert lost <= measured.regret_price


def test_float32_rounding_neither_makes_the_divergence_negative_nor_infinite():
    row = np.full((1, 200), 1 / 200, np.float32)
    assert fidelity(row, row * np.float32(1 + 2e-6), 1.0).kl_mean < 1e-12
    underflown = fidelity([[1 - 1e-30, 1e-30]], [[1.0, 0.0]], 1.0)
    assert 0 <= underflown.kl_mean < 1e-20
    assert underflown.smallest_propensity == 0
    wrong = fidelity([[0.0, 1.0]], [[1.0, 0.0]], 1.0)
    assert wrong.kl_mean == pytest.approx(-math.log(np.finfo(np.float32).tiny))


def test_it_survives_json():
    measured = fidelity([[0.5, 0.5]], [[0.4, 0.6]], 2.0)
    assert msgspec.json.decode(msgspec.json.encode(measured), type=Fidelity) == measured


@pytest.mark.parametrize(
    ("labels", "probabilities", "reward_range", "message"),
    [
        ([[1.0]], [[0.5, 0.5]], 1.0, r"got \[1, 1\] and \[1, 2\]"),
        ([1.0], [1.0], 1.0, r"one shape \[N, K\]"),
        (np.zeros((0, 2)), np.zeros((0, 2)), 1.0, "not empty"),
        ([[1.0]], [[1.0]], -1.0, "reward_range must be the largest less the smallest mean reward, got -1.0"),
        ([[1.0]], [[1.0]], math.nan, "got nan"),
    ],
)
def test_what_cannot_be_measured_is_refused(labels, probabilities, reward_range, message):
    with pytest.raises(ValueError, match=message):
        fidelity(labels, probabilities, reward_range)
