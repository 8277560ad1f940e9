"""Bootstrap-TS: votes against counting, samples and priors that stay, and what it refuses."""

import re

import numpy as np
import pytest

from potstill.keys import Key
from potstill.problem import Observations
from potstill.teachers import PAPER, BootstrapTS, Recipe, check_teacher, load_state, save_state
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations
from potstill.teachers.neural.network import Networks

KEY = Key(1)
SMALL = {"hidden": (8,), "recipe": Recipe(steps=30, batch=32)}


def updated(teacher, observations, state=None, key=KEY):
    return teacher.update(teacher.init(PROBLEM) if state is None else state, observations, key)


def same(a, b):
    for left, right in zip(a, b, strict=True):
        same(left, right) if isinstance(left, tuple) else np.testing.assert_array_equal(left, right)


def with_biases(teacher, biases):
    """A state whose networks predict the same in every context."""
    state = teacher.init(PROBLEM)
    hidden = state.networks.biases[:-1]
    return state._replace(networks=Networks(state.networks.weights, (*hidden, np.array(biases, float))))


def test_votes_by_hand():
    """Four networks: one for the first action, two for the last, and one torn between the first two."""
    teacher = BootstrapTS(networks=4)
    state = with_biases(teacher, [[3, 1, 2], [0, 0, 1], [-5, -4, -3], [7, 7, 0]])
    p = teacher.propensities(state, example_contexts(3), KEY)
    np.testing.assert_array_equal(p, np.tile(np.float32([1.5, 0.5, 2]) / 4, (3, 1)))


def test_smoothed_votes_by_hand():
    """Half a vote for each of three actions beforehand: (votes + 0.5) / (4 + 1.5)."""
    teacher = BootstrapTS(networks=4, smoothing=0.5)
    state = with_biases(teacher, [[3, 1, 2], [0, 0, 1], [-5, -4, -3], [7, 7, 0]])
    p = teacher.propensities(state, example_contexts(1), KEY)
    np.testing.assert_allclose(p[0], np.array([2, 1, 2.5]) / 5.5, rtol=1e-6)


def test_propensities_count_the_networks_one_by_one():
    teacher = BootstrapTS(**SMALL, prior_scale=1.0)
    state, contexts = updated(teacher, example_observations()), example_contexts(40)
    counted = np.zeros((40, 3))
    for b in range(10):
        for i, x in enumerate(contexts.astype(float)):
            rewards = 0.0
            for net in (state.networks, state.priors):
                hidden = np.maximum(x @ net.weights[0][b] + net.biases[0][b], 0)
                rewards = rewards + hidden @ net.weights[1][b] + net.biases[1][b]
            counted[i, rewards.argmax()] += 1
    np.testing.assert_array_equal(teacher.propensities(state, contexts, KEY), (counted / 10).astype(np.float32))
    assert np.mean(counted.max(axis=1) < 10) > 0, "the networks should not all agree"


def test_networks_agree_where_there_is_much_to_see():
    teacher = BootstrapTS()
    state = updated(teacher, example_observations(2000))
    fast = PROBLEM.encode_many([{"speed": 9.0, "place": "home", "new": False}])
    assert teacher.propensities(state, fast, KEY)[0, 2] == 1


def test_samples_are_drawn_once_and_kept():
    teacher = BootstrapTS(**SMALL)
    state = updated(teacher, example_observations(400))
    assert state.counts.shape == (400, 10)
    # 4000 Poisson(1) counts: mean and variance 1, with standard errors 0.016 and about 0.03.
    assert abs(state.counts.mean() - 1) < 0.08
    assert abs(state.counts.var() - 1) < 0.15
    later = updated(teacher, example_observations(50, Key(9)), state, Key(2))
    np.testing.assert_array_equal(later.counts[:400], state.counts)


def test_a_window_moves_counts_with_their_observations():
    teacher = BootstrapTS(**SMALL, window=30)
    state = updated(teacher, example_observations(25))
    later = updated(teacher, example_observations(10, Key(9)), state, Key(2))
    assert len(later.memory.actions) == len(later.counts) == 30
    np.testing.assert_array_equal(later.counts[:20], state.counts[5:])


def test_without_bootstrap_every_network_sees_everything():
    state = updated(BootstrapTS(**SMALL, bootstrap=False), example_observations(20))
    assert (state.counts == 1).all()
    predicted = state.networks.predict(example_contexts(5))
    assert (predicted.std(axis=0) > 1e-4).all(), "networks differ by their start"


def test_priors_are_fixed_and_shape_what_was_not_seen():
    teacher = BootstrapTS(**SMALL, prior_scale=2.0)
    state = updated(teacher, example_observations(40))
    later = updated(teacher, example_observations(40, Key(9)), state, Key(2))
    same(state.priors, later.priors)
    contexts = example_contexts(5)
    np.testing.assert_allclose(
        teacher.predict(later, contexts), later.networks.predict(contexts) + later.priors.predict(contexts)
    )
    assert later.priors.predict(contexts).std() > 0.1


def test_networks_and_priors_together_predict_the_rewards():
    teacher = BootstrapTS(bootstrap=False, prior_scale=1.0, hidden=(50, 50))
    observations = example_observations(300)
    state = updated(teacher, observations)
    predicted = teacher.predict(state, observations.contexts)[:, np.arange(300), observations.actions]
    assert np.mean((predicted - observations.rewards) ** 2) < 0.1 * observations.rewards.var()


@pytest.mark.parametrize("options", [{}, {"prior_scale": 1.0}, {"bootstrap": False}])
def test_a_saved_state_continues_to_the_bit(tmp_path, options):
    teacher = BootstrapTS(**SMALL, **options)
    state = updated(teacher, example_observations(40))
    save_state(tmp_path / "state", teacher, state, PROBLEM)
    loaded = load_state(tmp_path / "state", teacher, PROBLEM)
    more = example_observations(30, Key(9))
    same(updated(teacher, more, state), updated(teacher, more, loaded))


def test_networks_are_trained_as_one_program():
    from potstill.teachers.neural import train

    teacher = BootstrapTS(hidden=(9,), recipe=Recipe(steps=12, batch=16, noise=0.1), networks=5)
    before, state = train.compilations(), None
    for i in range(6):
        state = updated(teacher, example_observations(10, Key(i)), state)
    assert train.compilations() - before == 1


def test_one_huge_reward_stays_finite():
    one = Observations.from_columns(
        PROBLEM, contexts=example_contexts(1), actions=np.array([1]), rewards=[1e9], propensities=[0.5]
    )
    teacher = BootstrapTS(**SMALL, prior_scale=1.0)
    assert np.isfinite(teacher.predict(updated(teacher, one), example_contexts(5))).all()


@pytest.mark.parametrize(
    "options", [{"recipe": PAPER, "bootstrap": False, "standardise": False}, {"smoothing": 1.0, "prior_scale": 1.0}]
)
def test_other_configurations_conform(options):
    check_teacher(BootstrapTS(networks=3, hidden=(20,), **options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"networks": 0}, "BootstrapTS: networks must be 1 or more, got 0"),
        ({"prior_scale": -1.0}, "BootstrapTS: prior_scale must be 0 or more, got -1.0"),
        ({"smoothing": float("nan")}, "BootstrapTS: smoothing must be 0 or more, got nan"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        BootstrapTS(**options)
