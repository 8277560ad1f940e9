"""The shared network: what it computes, how it is trained, and how often that is compiled."""

import re

import numpy as np
import pytest

from potstill.keys import Key
from potstill.teachers import PAPER, Recipe
from potstill.teachers.neural import network as nets
from potstill.teachers.neural.network import Data, Networks, Start, Units, units_of

training = pytest.importorskip("potstill.teachers.neural.train")

KEY = Key(3)
QUICK = Recipe(steps=20, batch=32)


def fit(networks, data, recipe, key, new=1.0):
    noise = 0.1 if recipe.noise is None else recipe.noise
    return training.fit(Start(networks, new, noise), data, recipe, key)


def data(n, count=1, width=3, actions=2, seed=0):
    rng = np.random.default_rng(seed)
    contexts = rng.random((n, width)).astype(np.float32)
    taken = rng.integers(actions, size=n)
    rewards = np.where(taken == 0, contexts[:, 0], np.abs(contexts[:, 1] - 0.5))
    return Data(contexts, taken, np.tile(rewards, (count, 1)), np.ones((count, n)))


def test_a_network_by_hand():
    """x = (1, 2): hidden = relu(1 - 2, 1 + 2 - 1) = (0, 2), reward = 2·3 + 0.5."""
    network = Networks(
        (np.array([[[1.0, 1.0], [-1.0, 1.0]]]), np.array([[[7.0], [3.0]]])),
        (np.array([[0.0, -1.0]]), np.array([[0.5]])),
    )
    x = np.float32([[1, 2]])
    np.testing.assert_array_equal(network.hidden(x), [[[0, 2]]])
    np.testing.assert_array_equal(network.predict(x), [[[6.5]]])
    np.testing.assert_allclose(network.in_units(Units(100.0, 10.0)).predict(x), [[[165]]])
    assert network.sizes == (2, 2, 1)


def test_units_lead_there_and_back():
    units = units_of(np.array([1.0, 3.0]))
    assert units == Units(2.0, 1.0)
    network, x = nets.random((3, 4, 2), 2, KEY), data(5).contexts
    there = network.in_units(Units(5.0, 0.1))
    np.testing.assert_allclose(there.in_units(Units(5.0, 0.1).inverse()).predict(x), network.predict(x), atol=1e-12)


@pytest.mark.parametrize("reward", [1e9, -0.1, 0.0, 1e-300])
def test_rewards_that_are_all_alike_keep_their_unit(reward):
    assert units_of(np.full(1000, reward)) == Units(pytest.approx(reward), 1.0)


def test_chunks_cover_every_row_once():
    for n in (0, 1, nets.CHUNK, 2 * nets.CHUNK + 1):
        rows = np.concatenate([np.arange(n)[part] for part in nets.chunks(n, networks=3)])
        np.testing.assert_array_equal(rows, np.arange(n))


def test_the_papers_schedule_by_formula():
    rate = training.rate_at(PAPER, PAPER.steps)
    np.testing.assert_allclose([rate(0), rate(1), rate(99)], [0.01, 0.01 / 1.55, 0.01 / (1 + 0.55 * 99)])
    assert (PAPER.optimiser, PAPER.steps, PAPER.batch, PAPER.noise) == ("rmsprop", 100, 512, 0)


def test_the_cosine_schedule_starts_at_the_rate_and_ends_at_zero():
    rate = training.rate_at(Recipe(rate=0.5), 10)
    np.testing.assert_allclose([rate(0), rate(5), rate(10)], [0.5, 0.25, 0], atol=1e-7)


def test_one_step_of_rmsprop_by_hand():
    """All weights 0, one observation with target 2: only the output bias of its action has a gradient, -4.

    RMSProp then moves by rate·g/√(0.1·g²) = rate·√10 against the gradient, whatever its size.
    """
    start = nets.zeros((3, 2, 2), 1)
    one = Data(np.ones((1, 3)), np.array([1]), np.array([[2.0]]), np.ones((1, 1)))
    after = fit(start, one, Recipe(optimiser="rmsprop", rate=0.01, schedule="inverse-time", steps=1), KEY)
    np.testing.assert_allclose(after.biases[-1], [[0, 0.01 * np.sqrt(10)]], rtol=1e-4)
    np.testing.assert_array_equal(after.weights[-1], 0)


def test_it_learns_what_it_is_shown():
    shown = data(400)
    fitted = fit(nets.random((3, 50, 50, 2), 1, KEY), shown, Recipe(steps=600, noise=0.0), KEY)
    taken = fitted.predict(shown.contexts)[0][np.arange(400), shown.actions]
    assert np.mean((taken - shown.targets[0]) ** 2) < 0.02 * shown.targets[0].var()


@pytest.mark.parametrize(("noise", "n"), [(0.5, 1), (0.5, 4), (2.0, 4)])
def test_weights_stay_where_prior_and_observations_balance(noise, n):
    """One input of 1, a hidden weight v = 1 and a last one w = 1: n equal rewards of 1 + noise / 2n leave both alone.

    minus log posterior = n (reward - vw)² / (2 noise) + (v² + w²) / (2 · 2), and its slopes are 0 there.
    """
    ones = Networks((np.ones((1, 1, 1)), np.ones((1, 1, 1))), (np.zeros((1, 1)), np.zeros((1, 1))))
    alike = Data(np.ones((n, 1)), np.zeros(n, int), np.full((1, n), 1 + noise / (2 * n)), np.ones((1, n)))

    def moved(noise):
        after = fit(ones, alike, Recipe(optimiser="rmsprop", steps=1, noise=noise), KEY)
        return [float(weight[0, 0, 0]) - 1 for weight in after.weights]

    assert moved(noise) == [0, 0]
    np.testing.assert_allclose(moved(0.0), 0.01 * np.sqrt(10), rtol=1e-4)


def test_less_noise_is_learnt_by_heart():
    """Rewards with noise, in three updates: what a network then gets wrong of the truth, elsewhere."""
    rng = np.random.default_rng(0)
    contexts, actions = rng.standard_normal((3000, 2)), rng.integers(5, size=3000)
    truth = np.maximum(contexts[:, 0], 0) * (actions % 2) - contexts[:, 1] * (actions % 3 == 0)
    rewards = truth + 0.7 * rng.standard_normal(3000)

    def error_elsewhere(recipe):
        fitted = nets.random((2, 50, 50, 5), 1, KEY)
        for n in (200, 400, 600):
            shown = Data(contexts[:n], actions[:n], rewards[None, :n], np.ones((1, n)))
            fitted = fit(fitted, shown, recipe, KEY.child(n))
        predicted = fitted.predict(contexts[600:])[0][np.arange(2400), actions[600:]]
        return np.mean((predicted - truth[600:]) ** 2)

    assert error_elsewhere(Recipe()) < 0.7 * error_elsewhere(Recipe(noise=0.0))


def test_a_dead_network_is_born_again_and_the_others_live_on():
    """Few rewards of nothing but noise can shrink a network to nothing; a warm start from there would stay there."""
    alive, fresh = nets.random((3, 7, 2), 3, KEY), nets.random((3, 7, 2), 3, Key(9))
    shrunk = alive.map(lambda a: a * np.array([1.0, 1e-4, 0.01]).reshape(-1, *[1] * (a.ndim - 1)))
    assert shrunk.dead.tolist() == [False, True, False]
    revive = nets.revive(shrunk, fresh)
    for i, origin in enumerate((shrunk, fresh, shrunk)):
        for ours, theirs in zip((*revive.weights, *revive.biases), (*origin.weights, *origin.biases), strict=True):
            np.testing.assert_array_equal(ours[i], theirs[i])


def test_observations_of_no_weight_are_not_learnt():
    shown = data(200)
    wrong = shown._replace(targets=np.where(np.arange(200) % 2, shown.targets, 1e6))
    weights = (np.arange(200) % 2).astype(float)[None]
    start = nets.random((3, 8, 2), 1, KEY)
    a = fit(start, shown._replace(weights=weights), QUICK, KEY)
    b = fit(start, wrong._replace(weights=weights), QUICK, KEY)
    np.testing.assert_array_equal(a.weights[0], b.weights[0])


def test_a_stack_is_trained_as_its_members_would_be_alone():
    """Equal members with equal data and one row to draw take equal steps; a member with other targets does not."""
    lone = nets.random((3, 8, 2), 1, KEY)
    stack = lone.map(lambda a: np.repeat(a, 3, axis=0))
    shown = data(1, count=3)._replace(targets=np.array([[1.0], [1.0], [-1.0]]))
    together = fit(stack, shown, QUICK, KEY)
    alone = fit(lone, Data(*shown[:2], shown.targets[:1], shown.weights[:1]), QUICK, KEY)
    np.testing.assert_allclose(together.weights[0][0], together.weights[0][1], rtol=1e-6)
    np.testing.assert_allclose(together.weights[0][0], alone.weights[0][0], rtol=1e-5, atol=1e-7)
    assert np.abs(together.weights[1][0] - together.weights[1][2]).max() > 0.01


def test_a_key_decides_all():
    start, shown = nets.random((3, 8, 2), 1, KEY), data(100)
    a, again, b = (fit(start, shown, QUICK, key) for key in (KEY, KEY, Key(4)))
    np.testing.assert_array_equal(a.weights[0], again.weights[0])
    assert not np.array_equal(a.weights[0], b.weights[0])


def test_it_compiles_once_per_power_of_two():
    start, recipe = nets.random((3, 7, 2), 1, KEY), Recipe(steps=11, batch=16)
    compiled = []
    for n in (1, 2, 64, 65, 100, 128, 129, 200, 256, 70, 3):
        before = training.compilations()
        fit(start, data(n), recipe, KEY)
        compiled.append(training.compilations() - before)
    assert compiled == [1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0]


def test_small_data_take_fewer_steps():
    taken = [training.steps_for(Recipe(steps=1000), rows) for rows in (64, 128, 256, 1024)]
    assert taken == [(256, 0), (512, 0), (1000, 0), (1000, 0)]


@pytest.mark.parametrize(
    ("new", "taken"),
    [(1.0, 1000), (0.25, 1000), (0.24, 1000), (0.126, 1000), (0.125, 500), (0.1, 500), (1 / 32, 125), (1e-9, 125)],
)
def test_a_network_that_goes_on_takes_the_last_steps_for_what_is_new(new, taken):
    """Four times the share that is new, in halves: all with more than an eighth of it, at least an eighth."""
    assert training.steps_for(Recipe(steps=1000), 4096, new) == (taken, 1000 - taken)
    assert training.steps_for(PAPER, 4096, new) == (100, 0)


def test_the_last_steps_have_the_rates_of_the_whole_run():
    """Adam's first step moves every weight that matters by its rate: of two steps from 0.5 the second has 0.25."""
    start, recipe = nets.random((3, 8, 2), 1, KEY), Recipe(rate=0.5, steps=2, catch_up=1.0, noise=0.0, batch=64)
    after = fit(start, data(64), recipe, KEY, new=0.5)
    moved = np.abs(after.biases[-1] - start.biases[-1])
    np.testing.assert_allclose(moved, 0.25, rtol=1e-4)


def test_iterates_go_on_from_the_network():
    start = nets.random((3, 8, 2), 1, KEY)
    path = training.iterates(start, data(100), Recipe(rate=1e-4), 0.1, 3, 5, KEY)
    steps = np.abs(np.diff(np.concatenate([start.biases[-1], path.biases[-1]]), axis=0))
    assert path.size == 5
    # Adam moves every weight by at most about its rate per step.
    assert (steps > 0).any(axis=1).all()
    assert steps.max() < 3 * 3e-4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 0.0}, "Recipe: rate must be a positive number, got 0.0"),
        ({"steps": 0}, "Recipe: steps must be a positive number, got 0"),
        ({"batch": -1}, "Recipe: batch must be a positive number, got -1"),
        ({"decay": -0.5}, "Recipe: decay must be 0 or more, got -0.5"),
        ({"noise": -1.0}, "Recipe: noise must be 0 or more, got -1.0"),
        ({"catch_up": 0.0}, "Recipe: catch_up must be a positive number, got 0.0"),
        ({"catch_up": float("nan")}, "Recipe: catch_up must be a positive number, got nan"),
    ],
)
def test_bad_recipes_are_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Recipe(**options)
