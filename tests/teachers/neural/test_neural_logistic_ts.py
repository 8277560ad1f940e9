"""NeuralLogistic-TS: against Logistic-TS on its own features, and where a logistic regression of contexts fails."""

import numpy as np
import pytest

import potstill as ps
from potstill.errors import InvalidObservation, InvalidOption
from potstill.keys import Key
from potstill.problem import Observations
from potstill.teachers import LogisticTS, NeuralLogisticTS, Recipe, load_state, save_state
from potstill.teachers.conformance import parts_are_read_as_the_whole

KEY = Key(1)
PROBLEM = ps.Problem(
    name="corners",
    context=[ps.Numeric("x", low=0, high=1), ps.Numeric("y", low=0, high=1)],
    actions=ps.Discrete(["a", "b"]),
    reward=ps.Reward(kind="yes/no"),
)
SMALL = NeuralLogisticTS(hidden=(16,), recipe=Recipe(steps=300, batch=64, noise=0.1))


def observed(n=1200, seed=0):
    """Action b is right where exactly one of x and y is above a half: no linear predictor of them says so."""
    rng = np.random.default_rng(seed)
    contexts, actions = rng.random((n, 2)).astype(np.float32), rng.integers(0, 2, n).astype(np.int32)
    right = (contexts > 0.5).sum(axis=1) % 2 == actions
    rewards = (rng.random(n) < np.where(right, 0.9, 0.1)).astype(np.float64)
    return Observations(PROBLEM, contexts, actions, rewards, np.full(n, 0.5, np.float32))


CORNERS = np.array([[0.1, 0.1], [0.9, 0.1], [0.1, 0.9], [0.9, 0.9]], np.float32)


def test_it_learns_what_a_logistic_regression_of_contexts_cannot():
    given = observed()
    neural, linear = (
        teacher.mean_rewards(teacher.update(teacher.init(PROBLEM), given, KEY), CORNERS)
        for teacher in (SMALL, LogisticTS())
    )
    truth = np.array([[0.9, 0.1], [0.1, 0.9], [0.1, 0.9], [0.9, 0.1]])
    assert np.abs(neural - truth).max() < 0.2
    assert np.abs(linear - truth).max() > 0.3


def test_it_is_logistic_ts_on_its_own_features():
    given = observed(300)
    state = SMALL.update(SMALL.init(PROBLEM), given, KEY)
    features = state.features.regressors(given.contexts)[:, :-1]
    assert (features**2).sum(axis=1).mean() == pytest.approx(1.0, rel=1e-5)
    width = features.shape[1]
    context = [ps.Numeric(f"f{i}", low=-1e3, high=1e3) for i in range(width)]
    wide = ps.Problem(name="features", context=context, actions=PROBLEM.actions)
    on_features = Observations(wide, features.astype(np.float32), given.actions, given.rewards, given.propensities)
    expected = LogisticTS().update(LogisticTS().init(wide), on_features, KEY).posterior
    assert float(state.posterior.precision) == float(expected.precision)
    np.testing.assert_allclose(state.posterior.mean, expected.mean, rtol=1e-4, atol=1e-4)


def test_weighted_parts_are_read_as_the_whole():
    options = {"hidden": (8,), "recipe": Recipe(steps=20, noise=0.1), "weighting": "inverse-propensity"}
    parts_are_read_as_the_whole(NeuralLogisticTS(**options))


def test_a_restored_state_is_the_state(tmp_path):
    state = SMALL.update(SMALL.init(PROBLEM), observed(200), KEY)
    save_state(tmp_path / "state", SMALL, state, PROBLEM)
    restored = load_state(tmp_path / "state", SMALL, PROBLEM)
    np.testing.assert_array_equal(SMALL.propensities(state, CORNERS, KEY), SMALL.propensities(restored, CORNERS, KEY))


def test_other_rewards_and_options_are_refused():
    plain = ps.Problem(name="corners", context=PROBLEM.context, actions=PROBLEM.actions)
    given = Observations(plain, CORNERS, np.zeros(4, np.int32), np.array([0, 1, 0.5, 2]), np.ones(4, np.float32))
    with pytest.raises(InvalidObservation, match=r"NeuralLogisticTS: rewards must be 0 or 1, got 0\.5 in row 2"):
        SMALL.update(SMALL.init(plain), given, KEY)
    with pytest.raises(InvalidOption, match="NeuralLogisticTS: precision must be a positive number, got 0"):
        NeuralLogisticTS(precision=0.0)
