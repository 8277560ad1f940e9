"""DeepKernel-TS: a Gaussian process whose inputs are the context and a network's last layer."""

import numpy as np
import pytest

import potstill as ps
from potstill.keys import Key
from potstill.teachers import DeepKernelTS, Recipe, load_state, max_variance_design, save_state
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations

KEY = Key(3)
QUICK = {"hidden": (8, 4), "recipe": Recipe(steps=100, batch=32), "draws": 64, "fit_steps": 5}


@pytest.fixture(scope="module")
def learnt():
    teacher = DeepKernelTS(**QUICK)
    return teacher, teacher.update(teacher.init(PROBLEM), example_observations(120), KEY)


def test_the_inputs_are_the_context_and_the_last_layer(learnt):
    teacher, state = learnt
    contexts = example_contexts(30)
    inputs = teacher.inputs(state, contexts)
    assert inputs.shape == (30, PROBLEM.width + 4)
    np.testing.assert_array_equal(inputs[:, : PROBLEM.width], contexts)
    hidden = state.networks.hidden(contexts)[0]
    np.testing.assert_allclose(inputs[:, PROBLEM.width :], float(state.scale) * hidden)
    seen = teacher.inputs(state, state.memory.contexts)[:, PROBLEM.width :]
    assert 2 * seen.var(axis=0).sum() == pytest.approx(4 / 4)  # as far apart as four columns in [0, 1]


def test_before_the_first_observation_the_features_are_zero():
    teacher = DeepKernelTS(**QUICK)
    assert not teacher.inputs(teacher.init(PROBLEM), example_contexts(5))[:, PROBLEM.width :].any()


def test_it_learns(learnt):
    teacher, state = learnt
    contexts = example_contexts(200, Key(9))
    truth = np.arange(3) * contexts[:, :1]
    error = ((teacher.mean_rewards(state, contexts) - truth) ** 2).mean()
    assert error < 0.1 * truth.var()


def test_the_network_does_not_see_one_observation_in_five():
    """Rewards of held-out observations change hyperparameters and the posterior, never the network."""
    teacher, observations = DeepKernelTS(**QUICK), example_observations(120)
    rewards = observations.rewards.copy()
    rewards[4::5] = rewards[4::5][::-1]
    other = ps.Observations(PROBLEM, observations.contexts, observations.actions, rewards, observations.propensities)
    one, two = (teacher.update(teacher.init(PROBLEM), given, KEY) for given in (observations, other))
    for left, right in zip(one.networks.weights, two.networks.weights, strict=True):
        np.testing.assert_array_equal(left, right)
    assert not np.array_equal(one.logs, two.logs)


def test_batches_hold_the_same_observations_out(learnt):
    teacher, _ = learnt
    observations = example_observations(40)
    state = teacher.init(PROBLEM)
    for rows in (slice(0, 7), slice(7, 40)):
        state = teacher.update(state, observations[rows], KEY)
    np.testing.assert_array_equal(state.memory.rewards, observations.rewards)
    assert state.posterior.points.contexts.shape == (40, PROBLEM.width + 4)


def test_a_saved_state_continues_to_the_bit(learnt, tmp_path):
    teacher, state = learnt
    save_state(tmp_path / "state", teacher, state, PROBLEM)
    again = load_state(tmp_path / "state", teacher, PROBLEM)
    more = example_observations(20, Key(8))
    one, other = (teacher.update(part, more, KEY) for part in (state, again))
    np.testing.assert_array_equal(one.posterior.weights, other.posterior.weights)


def test_designs_and_information_are_in_terms_of_its_inputs(learnt):
    teacher, state = learnt
    design = max_variance_design(teacher, PROBLEM, example_contexts(20), 5, state)
    assert len(set(zip(design.contexts.tolist(), design.actions.tolist(), strict=True))) == 5
    assert 0 < teacher.information_gain(state, 10) < teacher.information_gain(state, 120)


def test_options_of_the_network_are_checked():
    with pytest.raises(ValueError, match="DeepKernelTS: hidden must be"):
        DeepKernelTS(hidden=())
