"""The wheel is the paper's."""

import numpy as np
import pytest

from potstill.lab import Wheel
from potstill.lab.problems.environment import regrets

POINTS = {
    "x": np.array([0.0, 0.9, 0.95, 0.7, 0.7, -0.7, -0.7]),
    "y": np.array([0.0, 0.2, 0.0, 0.7, -0.7, 0.7, -0.7]),
}


def test_means_inside_and_on_each_quadrant_of_the_rim():
    inside = [1.2, 1, 1, 1, 1]
    expected = [
        inside,
        inside,
        inside,  # just delta away from the centre is still inside
        [1.2, 50, 1, 1, 1],
        [1.2, 1, 50, 1, 1],
        [1.2, 1, 1, 50, 1],
        [1.2, 1, 1, 1, 50],
    ]
    np.testing.assert_array_equal(Wheel().means(POINTS), expected)


def test_the_action_is_named_after_the_quadrant():
    names = Wheel().problem.actions.names
    best = [names[a] for a in Wheel().means(POINTS).argmax(axis=1)]
    assert best == ["safe"] * 3 + ["right-up", "right-down", "left-up", "left-down"]


def test_a_share_of_0_0975_lies_on_the_rim():
    n = 100_000
    contexts = Wheel().contexts(n, np.random.default_rng(1))
    on_rim = int((np.hypot(contexts["x"], contexts["y"]) > 0.95).sum())
    # Five standard deviations of a binomial: a right program fails with probability 6e-7, over all seeds.
    assert abs(on_rim - 0.0975 * n) < 5 * np.sqrt(n * 0.0975 * 0.9025)


def test_contexts_are_uniform_in_the_disc():
    contexts = Wheel().contexts(100_000, np.random.default_rng(2))
    x, y = contexts["x"], contexts["y"]
    # Of a disc, the squared radius and the angle are uniform; each bin's count is binomial, bounded as above.
    for share in (x**2 + y**2, (np.arctan2(y, x) / (2 * np.pi)) % 1):
        counts = np.histogram(share, bins=10, range=(0, 1))[0]
        assert counts.sum() == 100_000
        assert abs(counts - 10_000).max() < 5 * np.sqrt(100_000 * 0.1 * 0.9)


def test_rewards_are_means_with_noise_of_0_01():
    rng, wheel, n = np.random.default_rng(3), Wheel(), 50_000
    contexts = wheel.contexts(n, rng)
    actions = rng.integers(5, size=n)
    noise = wheel.rewards(contexts, actions, rng) - wheel.means(contexts)[np.arange(n), actions]
    # Standard errors of a mean and of a standard deviation, five of each.
    assert abs(noise.mean()) < 5 * 0.01 / np.sqrt(n)
    assert abs(noise.std() - 0.01) < 5 * 0.01 / np.sqrt(2 * n)


def test_equal_generators_give_equal_luck_whatever_the_action():
    wheel = Wheel()
    contexts = wheel.contexts(100, np.random.default_rng(4))
    safe, other = np.zeros(100, int), np.full(100, 2)
    means = wheel.means(contexts)
    first = wheel.rewards(contexts, safe, np.random.default_rng(5)) - means[:, 0]
    second = wheel.rewards(contexts, other, np.random.default_rng(5)) - means[:, 2]
    np.testing.assert_allclose(first, second, atol=1e-12)


def test_regret_is_what_the_best_action_would_have_added():
    actions = np.array([0, 1, 2, 1, 1, 0, 4])
    np.testing.assert_allclose(regrets(Wheel().means(POINTS), actions), [0, 0.2, 0.2, 0, 49, 48.8, 0])


def test_columns_are_encodable():
    encoded = Wheel().problem.encode_many(POINTS)
    np.testing.assert_allclose(encoded[:, 0], (POINTS["x"] + 1) / 2, rtol=1e-6)


@pytest.mark.parametrize("delta", [-0.1, 1.0, float("nan")])
def test_a_rim_must_lie_inside_the_disc(delta):
    with pytest.raises(ValueError, match="delta must be from 0 to below 1"):
        Wheel(delta=delta)
