"""How noisy rewards are: learnt where they are noisy, not taken for granted, and the same in memory and in parts."""

import numpy as np
import pytest

from potstill.keys import Key
from potstill.teachers import PAPER, NeuralGreedy, NeuralLinearTS, Recipe
from potstill.teachers import noise as noises
from potstill.teachers.check import PROBLEM, example_observations
from potstill.teachers.network import Data

KEY = Key(5)
RECIPE = Recipe(steps=600, batch=64)
SIZES = (10, 40, 40, 2)


def data(n, share, seed=0):
    """Standardised rewards of two actions that depend on the first of ten features, with a share of noise."""
    rng = np.random.default_rng(seed)
    contexts, actions = rng.random((n, 10), np.float32), rng.integers(2, size=n)
    signal = np.sqrt(12) * (contexts[:, 0] - 0.5) * (2 * actions - 1)
    targets = np.sqrt(1 - share) * signal + np.sqrt(share) * rng.standard_normal(n)
    return Data(contexts, actions, targets[None], np.ones((1, n)))


@pytest.mark.parametrize("seed", range(3))
def test_noisy_rewards_are_told_from_clean_ones(seed):
    clean, noisy = (noises.judged(data(1000, share, seed), SIZES, RECIPE, KEY.child(seed)) for share in (0.0, 0.95))
    assert clean == pytest.approx(0.1, rel=0.3)
    assert noisy > 2 * clean


def test_it_is_a_share_of_the_variance_whatever_the_unit_of_rewards():
    plain = data(100, 0.95)
    large = plain._replace(targets=1000 * plain.targets)
    shares = [noises.judged(some, SIZES, RECIPE, KEY) / some.targets.var() for some in (plain, large)]
    assert np.isclose(np.subtract.outer(shares, noises.CANDIDATES), 0).any(axis=1).all()


def test_a_noisier_candidate_must_be_clearly_better():
    """Two standard errors: gains of 1 and -1 at random are none, whatever their mean happens to be."""
    luck = np.where(np.arange(100) % 2, 1.0, -0.8)
    base = np.full(100, 5.0)
    assert noises._chosen(np.stack([base, base - luck, base - luck])) == 0
    assert noises._chosen(np.stack([base, base - 1, base - 1])) == 1
    assert noises._chosen(np.stack([base, base - luck, base - 1])) == 2


def test_it_is_learnt_again_when_there_is_half_as_much_more():
    assert [noises.given(None).is_due(n) for n in (1, 9, 10)] == [False, False, True]
    once = noises.Noise(np.array(0.3), np.array(100))
    assert [once.is_due(n) for n in (100, 149, 150)] == [False, False, True]


@pytest.mark.parametrize(("noise", "expected"), [(0.0, 0.0), (0.7, 0.7)])
def test_what_a_recipe_says_stands(noise, expected):
    teacher = NeuralGreedy(hidden=(4,), recipe=Recipe(steps=3, noise=noise))
    state = teacher.update(teacher.init(PROBLEM), example_observations(50), KEY)
    assert (float(state.noise.variance), int(state.noise.judged)) == (expected, 0)


def test_the_paper_has_no_prior():
    assert PAPER.noise == 0


def test_many_observations_are_sampled_in_order():
    assert len(noises.sample(50, KEY)) == 50
    some = noises.sample(20_000, KEY)
    assert len(some) == 8192
    assert (np.diff(some) > 0).all()
    np.testing.assert_array_equal(some, noises.sample(20_000, KEY))


def test_a_network_learns_it_while_observations_come():
    teacher = NeuralLinearTS(hidden=(8,), recipe=Recipe(steps=10))
    state, judged = teacher.init(PROBLEM), []
    for batch in range(5):
        state = teacher.update(state, example_observations(20, KEY.child(batch)), KEY.child("update", batch))
        judged.append(int(state.noise.judged))
    assert judged == [20, 40, 60, 60, 100]
