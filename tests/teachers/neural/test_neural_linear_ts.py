"""NeuralLinear-TS: against Linear-TS on features written out by hand, its options, and what it refuses."""

import re

import numpy as np
import pytest

import potstill as ps
from potstill.keys import Key
from potstill.problem import Observations
from potstill.teachers import PAPER, LinearTS, NeuralLinearTS, Recipe, load_state, save_state
from potstill.teachers.conformance import PROBLEM, check_teacher, example_contexts, example_observations
from potstill.teachers.neural.neural_linear_ts import _all_sums, regressors

KEY = Key(1)
SMALL = NeuralLinearTS(hidden=(16, 8), recipe=Recipe(steps=100, batch=64))


def updated(teacher, observations, state=None, key=KEY):
    return teacher.update(teacher.init(observations.problem) if state is None else state, observations, key)


def same(a, b):
    for left, right in zip(a, b, strict=True):
        same(left, right) if isinstance(left, tuple) else np.testing.assert_array_equal(left, right)


def test_with_the_identity_as_network_it_is_linear_ts():
    """Contexts are in [0, 1], so that relu(I·x) = x: the regression is on the contexts themselves."""
    teacher = NeuralLinearTS(hidden=(PROBLEM.width,), standardise=False, alpha=6.0, beta=6.0)
    observations = example_observations()
    identity = teacher.init(PROBLEM).networks._replace(
        weights=(np.eye(PROBLEM.width)[None], np.zeros((1, PROBLEM.width, 3)))
    )
    memory = teacher._append(teacher.init(PROBLEM).memory, observations)
    units = teacher._units(memory)
    posterior = teacher._posterior(_all_sums(identity, memory, units), units)
    linear = updated(LinearTS(), observations)
    for ours, theirs in zip(posterior, linear.posterior, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)
    contexts = example_contexts(20)
    state = teacher.init(PROBLEM)._replace(memory=memory, learnt=np.array(1), networks=identity, posterior=posterior)
    p = teacher.propensities(state, contexts, KEY)
    np.testing.assert_allclose(p, LinearTS().propensities(linear, contexts, KEY), atol=1e-6)


def test_the_prior_goes_by_the_length_of_the_regressors():
    """Otherwise it would say more or less depending on how large a network happens to make its features."""
    observations = example_observations(80)
    state = updated(SMALL, observations)
    x = regressors(state.networks, observations.contexts)
    for a in range(3):
        prior = state.posterior.root[a] @ state.posterior.root[a].T
        prior -= x[observations.actions == a].T @ x[observations.actions == a]
        np.testing.assert_allclose(prior, 0.25 * (x**2).sum(axis=1).mean() * np.eye(9), rtol=1e-5, atol=1e-6)


def test_the_posterior_is_the_regression_on_the_networks_own_features():
    observations = example_observations(200)
    state = updated(NeuralLinearTS(standardise=False, recipe=PAPER), observations)
    x = observations.contexts.astype(float)
    for weight, bias in zip(state.networks.weights[:-1], state.networks.biases[:-1], strict=True):
        x = np.maximum(x @ weight[0] + bias[0], 0)
    x = np.append(x, np.ones((200, 1)), axis=1)
    for a in range(3):
        x_a, y_a = x[observations.actions == a], observations.rewards[observations.actions == a]
        precision = x_a.T @ x_a + 0.25 * np.eye(101)
        mean = np.linalg.solve(precision, x_a.T @ y_a)
        np.testing.assert_allclose(state.posterior.mean[a], mean, rtol=1e-4, atol=1e-5)
        assert state.posterior.alpha[a] == 3 + len(y_a) / 2
        beta = 3 + (y_a @ y_a - mean @ precision @ mean) / 2
        assert state.posterior.beta[a] == pytest.approx(beta, rel=1e-4)


def test_the_unit_of_rewards_does_not_matter():
    observations = example_observations(100)
    moved = Observations(
        PROBLEM,
        observations.contexts,
        observations.actions,
        1024 * observations.rewards - 4096,
        observations.propensities,
    )
    contexts = example_contexts(30)
    a, b = updated(SMALL, observations), updated(SMALL, moved)
    np.testing.assert_allclose(SMALL.propensities(a, contexts, KEY), SMALL.propensities(b, contexts, KEY), atol=1e-3)
    ours, theirs = SMALL.marginals(a, contexts), SMALL.marginals(b, contexts)
    np.testing.assert_allclose(1024 * ours.location - 4096, theirs.location, rtol=1e-3, atol=2)
    np.testing.assert_allclose(1024 * ours.scale, theirs.scale, rtol=1e-2)


def test_it_learns_what_a_line_cannot():
    """The last action is best in the middle of the range only."""
    problem = ps.Problem(name="bump", context=[ps.Numeric("x", low=0, high=1)], actions=ps.Discrete(["flat", "bump"]))
    rng = np.random.default_rng(0)
    x, actions = rng.random((600, 1)).astype(np.float32), rng.integers(2, size=600)
    rewards = np.where(actions == 1, 2.0 * (np.abs(x[:, 0] - 0.5) < 0.2), 1.0) + 0.1 * rng.standard_normal(600)
    observations = Observations.from_columns(
        problem, contexts=x, actions=actions, rewards=rewards, propensities=np.full(600, 0.5)
    )
    at = np.float32([[0.1], [0.5], [0.9]])
    neural, linear = NeuralLinearTS(), LinearTS()
    p = neural.propensities(updated(neural, observations), at, KEY)[:, 1]
    np.testing.assert_allclose(p, [0, 1, 0], atol=0.05)
    p = linear.propensities(updated(linear, observations), at, KEY)[:, 1]
    assert np.abs(p - [0, 1, 0]).max() > 0.3


def test_before_the_first_observation_all_actions_are_alike():
    p = NeuralLinearTS().propensities(NeuralLinearTS().init(PROBLEM), example_contexts(5), KEY)
    np.testing.assert_allclose(p, 1 / 3, atol=1e-6)


def test_an_action_never_tried_keeps_its_prior_and_a_chance():
    some = example_observations(100)
    state = updated(SMALL, some[some.actions != 2])
    assert state.posterior.alpha[2] == SMALL.alpha
    assert (SMALL.propensities(state, example_contexts(20), KEY)[:, 2] > 0.01).all()


def test_a_saved_state_continues_to_the_bit(tmp_path):
    state = updated(SMALL, example_observations(40))
    save_state(tmp_path / "state", SMALL, state, PROBLEM)
    loaded = load_state(tmp_path / "state", SMALL, PROBLEM)
    same(state, loaded)
    more = example_observations(30, Key(9))
    same(updated(SMALL, more, state), updated(SMALL, more, loaded))


def test_a_window_forgets_all_before_it():
    windowed = NeuralLinearTS(hidden=(8,), recipe=Recipe(steps=50), window=25, warm_start=False)
    old, new = example_observations(40), example_observations(25, Key(9))
    state = updated(windowed, new, updated(windowed, old))
    assert len(state.memory.actions) == 25
    fresh = updated(windowed, new)
    same(state._replace(noise=fresh.noise), fresh)  # all but how many have come since noise was learnt


def test_a_warm_start_goes_on_from_the_network_before():
    """With a rate of next to nothing the network stays what it was; in other units, but with equal predictions."""
    still = NeuralLinearTS(hidden=(8,), recipe=Recipe(steps=2, rate=1e-12))
    before = updated(still, example_observations(40))
    after = updated(still, example_observations(50, Key(9)), before)
    contexts = example_contexts(10)
    np.testing.assert_allclose(
        after.networks.predict(contexts), before.networks.predict(contexts), rtol=1e-4, atol=1e-5
    )


def test_rare_actions_can_count_more():
    observations = example_observations(60)
    rare = Observations(
        PROBLEM,
        observations.contexts,
        observations.actions,
        observations.rewards,
        np.where(observations.actions == 0, 0.1, 0.9).astype(np.float32),
    )
    state = updated(NeuralLinearTS(hidden=(8,), recipe=Recipe(steps=10), weighting="inverse-propensity"), rare)
    share = (state.posterior.alpha - 3) * 2 / 60
    count = np.bincount(rare.actions, minlength=3)
    expected = count * [10, 1 / 0.9, 1 / 0.9]
    np.testing.assert_allclose(share, expected / expected.sum(), rtol=1e-5)


@pytest.mark.parametrize("options", [{"recipe": PAPER, "standardise": False}, {"window": 20}, {"hidden": (5,)}])
def test_other_configurations_conform(options):
    check_teacher(NeuralLinearTS(**options))


@pytest.mark.parametrize("shift", [0.0, 1e9])
def test_equal_rewards_give_a_finite_posterior(shift):
    observations = example_observations(64)
    alike = Observations(
        PROBLEM, observations.contexts, observations.actions, np.full(64, shift), observations.propensities
    )
    state = updated(SMALL, alike)
    assert all(np.isfinite(a).all() for a in state.posterior)
    location = SMALL.marginals(state, example_contexts(10)).location
    np.testing.assert_allclose(location, shift, atol=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": 0.0}, "NeuralLinearTS: precision must be a positive number, got 0.0"),
        ({"alpha": -1.0}, "NeuralLinearTS: alpha must be a positive number, got -1.0"),
        (
            {"hidden": ()},
            "hidden must be the numbers of units of at least one layer, each 1 or more, got ()",
        ),
        ({"hidden": (10, 0)}, "got (10, 0)"),
        ({"window": 0}, "NeuralLinearTS: window must be 1 or more, or None, got 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        NeuralLinearTS(**options)
