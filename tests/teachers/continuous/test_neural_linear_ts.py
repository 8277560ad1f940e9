"""NeuralLinear-TS on an interval: its posterior given the features, and rewards that are not linear in the context."""

import numpy as np
import pytest

from potstill.keys import Key
from potstill.problem import Numeric, Observations, Problem
from potstill.spaces import Continuous
from potstill.teachers import ContinuousLinearTS, ContinuousNeuralLinearTS
from potstill.teachers.continuous.basis import cosines
from potstill.teachers.neural import Recipe, network, train
from potstill.teachers.neural.network import Data, Start

KEY = Key(8)
PROBLEM = Problem(
    name="dose",
    context=[Numeric("a", low=0, high=1), Numeric("b", low=0, high=1)],
    actions=Continuous("dose", low=0, high=10, bins=32),
)


def best(contexts):
    """High where just one of the columns is high: no linear function of the context is any good."""
    return 2 + 6 * np.abs(contexts[:, 0] - contexts[:, 1])


def observations(n, seed=0):
    rng = np.random.default_rng(seed)
    contexts, actions = rng.random((n, 2)).astype(np.float32), rng.uniform(0, 10, n)
    rewards = 50 - np.abs(actions - best(contexts)) + 0.1 * rng.standard_normal(n)
    return Observations(PROBLEM, contexts, actions, rewards, np.full(n, 0.1, np.float32))


def learnt(teacher, given):
    return teacher.update(teacher.init(PROBLEM), given, KEY)


def test_it_learns_a_best_action_that_is_not_linear_in_the_context():
    given, contexts = observations(1500), observations(200, seed=1).contexts
    errors = []
    for teacher in (ContinuousNeuralLinearTS(), ContinuousLinearTS()):
        actions = teacher.sample_actions(learnt(teacher, given), contexts, 20, KEY)
        errors.append(np.abs(actions - best(contexts)[:, None]).mean())
    assert errors[0] < 0.6
    assert errors[0] < errors[1] / 2


def test_given_the_features_the_mean_is_that_of_a_dense_ridge_solve():
    teacher, given = ContinuousNeuralLinearTS(hidden=(20, 4), size=5), observations(120)
    state = learnt(teacher, given)
    fitted = state.regression
    features = state.scale * state.networks.hidden(given.contexts)[0]
    rows = np.column_stack([np.ones(120), features - features.mean(axis=0)])
    design = np.einsum("nk,nj->nkj", rows, cosines(given.actions / 10, 5)).reshape(120, -1)
    y = (given.rewards - given.rewards.mean()) / given.rewards.std()
    ridge = np.diag(1 / fitted.scales.variances(5, 0))
    weights = np.linalg.solve(design.T @ design + ridge, design.T @ y)
    np.testing.assert_allclose(fitted.posterior.mean[0], weights, rtol=1e-5, atol=1e-7)


def test_factors_that_select_one_output_train_as_its_position_does():
    rng, n = np.random.default_rng(0), 100
    positions, targets = rng.integers(3, size=n), rng.standard_normal((1, n))
    contexts, recipe = rng.random((n, 2)), Recipe(steps=50)
    start = Start(network.random((2, 8, 3), 1, KEY))
    trained = [
        train.fit(start, Data(contexts, actions, targets, np.ones((1, n))), recipe, KEY)
        for actions in (positions, np.eye(3)[positions])
    ]
    for one, other in zip(trained[0].weights, trained[1].weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)
    predicted = [trained[0].predict_taken(contexts, actions) for actions in (positions, np.eye(3)[positions])]
    np.testing.assert_allclose(*predicted, atol=1e-12)


def test_a_window_keeps_the_latest_and_options_are_checked():
    teacher = ContinuousNeuralLinearTS(hidden=(8,), window=30)
    assert len(learnt(teacher, observations(50)).memory.actions) == 30
    with pytest.raises(ValueError, match="ContinuousNeuralLinearTS: size must be at least 3, got 1"):
        ContinuousNeuralLinearTS(size=1)
    with pytest.raises(ValueError, match="ContinuousNeuralLinearTS: hidden must be"):
        ContinuousNeuralLinearTS(hidden=())
