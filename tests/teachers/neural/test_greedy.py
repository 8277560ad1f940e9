"""Greedy teachers: one action, ties, and the mixture with chance by hand."""

import numpy as np
import pytest

import potstill as ps
from potstill.keys import Key
from potstill.teachers import EpsilonGreedy, NeuralGreedy, Recipe, load_state, save_state
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations
from potstill.teachers.neural.network import Networks

KEY = Key(1)
SMALL = {"hidden": (8,), "recipe": Recipe(steps=30, batch=32)}


def with_biases(teacher, biases):
    state = teacher.init(PROBLEM)
    *before, _ = state.networks.biases
    return state._replace(networks=Networks(state.networks.weights, (*before, np.array([biases], float))))


def test_all_on_the_best_and_ties_split():
    teacher = NeuralGreedy()
    for biases, expected in (([1, 3, 2], [0, 1, 0]), ([5, 1, 5], [0.5, 0, 0.5]), ([0, 0, 0], [1 / 3] * 3)):
        p = teacher.propensities(with_biases(teacher, biases), example_contexts(2), KEY)
        np.testing.assert_allclose(p, [expected] * 2, rtol=1e-6)


def test_epsilon_is_spread_over_all_actions():
    """epsilon 0.3 over three actions: 0.1 each, and 0.7 more for the best."""
    teacher = EpsilonGreedy(epsilon=0.3)
    p = teacher.propensities(with_biases(teacher, [1, 3, 2]), example_contexts(1), KEY)
    np.testing.assert_allclose(p, [[0.1, 0.8, 0.1]], rtol=1e-6)


def test_it_takes_the_action_that_earned_most():
    teacher = NeuralGreedy()
    state = teacher.update(teacher.init(PROBLEM), example_observations(1000), KEY)
    contexts = example_contexts(100)
    fast = contexts[:, 0] > 0.2
    np.testing.assert_array_equal(teacher.propensities(state, contexts[fast], KEY).argmax(axis=1), 2)
    np.testing.assert_allclose(teacher.mean_rewards(state, contexts[fast])[:, 2], 2 * contexts[fast, 0], atol=0.3)


@pytest.mark.parametrize(
    "teacher", [NeuralGreedy(**SMALL), EpsilonGreedy(**SMALL, window=50)], ids=["greedy", "epsilon"]
)
def test_a_saved_state_continues_to_the_bit(tmp_path, teacher):
    state = teacher.update(teacher.init(PROBLEM), example_observations(40), KEY)
    save_state(tmp_path / "state", teacher, state, PROBLEM)
    loaded = load_state(tmp_path / "state", teacher, PROBLEM)
    more, contexts = example_observations(30, Key(9)), example_contexts(10)
    a, b = (teacher.update(s, more, KEY) for s in (state, loaded))
    np.testing.assert_array_equal(teacher.mean_rewards(a, contexts), teacher.mean_rewards(b, contexts))


def test_a_bad_epsilon_is_named():
    with pytest.raises(ValueError, match=r"EpsilonGreedy: epsilon must be a probability from 0 to 1, got 1\.5"):
        EpsilonGreedy(epsilon=1.5)


def test_after_noise_alone_it_still_learns():
    """Noise of five updates shrinks a network to nothing; then there is something to learn: x for half of the actions.

    A warm start from there, without revival, ends at an error of 0.05.
    """
    rng, actions = np.random.default_rng(0), ps.Discrete([str(a) for a in range(20)])
    problem = ps.Problem(name="p", context=[ps.Numeric("x", low=0, high=1)], actions=actions)
    teacher = NeuralGreedy(hidden=(20, 20), recipe=Recipe(noise=1.0))

    def observed(n, share, noise):
        x, taken = rng.random(n), rng.integers(20, size=n)
        rewards = share * x * (taken < 10) + noise * rng.standard_normal(n)
        return ps.Observations.from_columns(
            problem, contexts={"x": x}, actions=taken, rewards=rewards, propensities=np.full(n, 0.05)
        )

    state = teacher.init(problem)
    for update in range(5):
        state = teacher.update(state, observed(200, share=0, noise=1), KEY.child(update))
    state = teacher.update(state, observed(3000, share=1, noise=0.5), Key(2))
    x = np.linspace(0.05, 0.95, 10)
    predicted = teacher.mean_rewards(state, problem.encode_many({"x": x}))
    assert np.mean((predicted - x[:, None] * (np.arange(20) < 10)) ** 2) < 0.03
