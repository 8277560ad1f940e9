"""How noisy rewards are: learnt where they are noisy, not taken for granted, and the same in memory and in parts."""

import numpy as np
import pytest
from teachers.parts import Parts

from potstill.keys import Key
from potstill.problem import Observations
from potstill.teachers import AdaptiveTS, BootstrapTS, LowRankTS, NeuralGreedy, NeuralLinearTS, Recipe
from potstill.teachers.conformance import PROBLEM, example_observations
from potstill.teachers.neural import noise_selection as noises
from potstill.teachers.neural.network import Data

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


def judged(given, key=KEY):
    return noises.select(given, given.targets.var(), SIZES, RECIPE, key)


@pytest.mark.parametrize("seed", range(3))
def test_noisy_rewards_are_told_from_clean_ones(seed):
    clean, noisy = (judged(data(1000, share, seed), KEY.child(seed)) for share in (0.0, 0.95))
    assert clean == noises.CANDIDATES[0] < noisy


def test_a_noisier_candidate_must_be_clearly_better():
    """By two standard errors: gains of 1 and of -0.8 in turn have a mean of 0.1 and a standard error of 0.09."""
    luck = np.where(np.arange(100) % 2, 1.0, -0.8)
    base = np.full(100, 5.0)
    assert noises._choose(np.stack([base, base - luck, base - luck])) == 0
    assert noises._choose(np.stack([base, base - 1, base - 1])) == 1
    assert noises._choose(np.stack([base, base - luck, base - 1])) == 2


def test_it_is_learnt_again_when_there_is_half_as_much_more():
    assert [noises.initial(None).is_due(n, n) for n in (1, 99, 100)] == [False, False, True]
    once = noises.selected(0.3, 100)
    assert [once.is_due(100 + new, new) for new in (0, 49, 50)] == [False, False, True]
    assert once.after(20).is_due(150, 30)


@pytest.mark.parametrize("noise", [0.0, 0.7, 1])
def test_what_a_recipe_says_stands(noise):
    teacher = NeuralGreedy(hidden=(4,), recipe=Recipe(steps=3, noise=noise))
    state = teacher.update(teacher.init(PROBLEM), example_observations(150), KEY)
    assert (state.noise.share, state.noise.judged) == (noise, 0)
    assert state.noise.share.dtype == np.float64


def test_many_observations_are_sampled_in_order():
    assert len(noises.sample(50, KEY)) == 50
    some = noises.sample(20_000, KEY)
    assert len(some) == 8192
    assert (np.diff(some) > 0).all()
    np.testing.assert_array_equal(some, noises.sample(20_000, KEY))


@pytest.mark.parametrize("teacher", [NeuralLinearTS, NeuralGreedy, BootstrapTS, LowRankTS, AdaptiveTS])
def test_networks_learn_it_while_observations_come(teacher, monkeypatch):
    """Adaptive-TS counts those that it shows to its network, four in five."""
    monkeypatch.setattr(noises, "select", lambda *_: 0.3)
    quick = teacher(hidden=(8,), recipe=Recipe(steps=10))
    state, judged = quick.init(PROBLEM), []
    for batch in range(5):
        state = quick.update(state, example_observations(125, KEY.child(batch)), KEY.child("update", batch))
        judged.append(int(state.noise.judged))
    every = [125, 250, 375, 375, 625]
    assert judged == ([n * 4 // 5 for n in every] if teacher is AdaptiveTS else every)
    assert state.noise.share == 0.3


def test_a_window_does_not_keep_it_from_being_learnt(monkeypatch):
    """With a window of 100, after every 50 observations at least."""
    shares = iter([0.3, 1.0, 0.1, 0.3])
    monkeypatch.setattr(noises, "select", lambda *_: next(shares))
    teacher = NeuralGreedy(hidden=(4,), recipe=Recipe(steps=3), window=100)
    state, learnt = teacher.init(PROBLEM), []
    for batch in range(7):
        state = teacher.update(state, example_observations(40, KEY.child(batch)), KEY)
        learnt.append(float(state.noise.share))
    assert learnt == [0.1, 0.1, 0.3, 0.3, 1.0, 1.0, 0.1]


@pytest.mark.parametrize("standardise", [True, False])
@pytest.mark.parametrize("weighting", ["equal", "inverse-propensity"])
def test_in_parts_it_is_learnt_from_the_same_sample(standardise, weighting, monkeypatch):
    """Of 400 observations 50 are sampled, and 40 drawn for minibatches; the two need not meet."""
    monkeypatch.setattr(noises, "_ROWS", 50)
    looked_at = []
    monkeypatch.setattr(noises, "select", lambda shown, variance, *_: looked_at.append((shown, variance)) or 0.3)
    recipe = Recipe(steps=5, batch=8)
    teacher = NeuralLinearTS(hidden=(8,), recipe=recipe, standardise=standardise, weighting=weighting)
    observations = example_observations(400)
    whole = teacher.update(teacher.init(PROBLEM), observations, KEY)
    read = teacher.reread(teacher.init(PROBLEM), Parts(observations, [7, 150]), KEY)
    (in_memory, variance), (in_parts, of_parts) = looked_at
    assert variance == pytest.approx(of_parts)
    for ours, theirs in zip(in_memory, in_parts, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    for a, b in zip(whole.networks.weights, read.networks.weights, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_rewards_that_overflow_the_prior_leave_a_network_that_recovers():
    """Raw rewards of 1e21 have a variance that no 32-bit number can hold."""
    teacher = NeuralGreedy(hidden=(8,), recipe=Recipe(steps=20), standardise=False)
    usual = example_observations(150)
    huge = Observations(PROBLEM, usual.contexts, usual.actions, 1e21 * usual.rewards, usual.propensities)
    state = teacher.update(teacher.init(PROBLEM), huge, KEY)
    assert np.isfinite(teacher.update(state, usual, KEY).networks.weights[0]).all()
