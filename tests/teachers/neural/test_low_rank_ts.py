"""LowRank-TS: moments of its draws against the Gaussian they are drawn from, and against counting."""

import re

import msgspec
import numpy as np
import pytest

from potstill.keys import Key
from potstill.problem import Observations
from potstill.teachers import LowRankTS, Recipe, load_state, save_state
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations

KEY = Key(1)
SMALL = LowRankTS(hidden=(6,), recipe=Recipe(steps=50, batch=32), rank=5, draws=100)
#: Undecided between actions.
WIDE = msgspec.structs.replace(SMALL, spread=30.0)


def updated(teacher, observations, state=None):
    return teacher.update(teacher.init(PROBLEM) if state is None else state, observations, KEY)


def same(a, b):
    for left, right in zip(a, b, strict=True):
        same(left, right) if isinstance(left, tuple) else np.testing.assert_array_equal(left, right)


def flat(networks):
    return np.concatenate([a.reshape(networks.size, -1) for part in networks for a in part], axis=1)


def test_draws_have_half_the_covariance_of_the_path_and_half_its_diagonal():
    """Covariance DᵀD/(2(R-1)) + diag(DᵀD/R)/2, and 20,000 draws: entries within 6 standard errors of √(2/20000)·σσ'."""
    state = updated(SMALL, example_observations(50))
    drawn = np.concatenate([flat(stack) for stack in SMALL._low_rank(state).draw(20_000, KEY.generator())]).astype(
        float
    )
    deviations = flat(state.deviations)
    gram = deviations.T @ deviations
    expected = gram / 8 + np.diag(np.diag(gram)) / 10
    sd = np.sqrt(np.diag(expected))
    found = np.cov(drawn.T)
    assert (np.abs(found - expected) <= 6 * np.sqrt(2 / 20_000) * np.outer(sd, sd) + 1e-12).all()


def test_propensities_count_drawn_networks():
    state, contexts = updated(SMALL, example_observations(30)), example_contexts(15)
    counted = np.zeros((15, 3))
    for stack in SMALL._low_rank(state).draw(100, KEY.generator()):
        for predicted in stack.predict(contexts):
            counted[np.arange(15), predicted.argmax(axis=1)] += 1
    np.testing.assert_allclose(SMALL.propensities(state, contexts, KEY), counted / 100, atol=1e-6)


def test_exactness_declares_the_draws():
    exactness = LowRankTS(draws=400).exactness
    assert (exactness.kind, exactness.draws, exactness.standard_error) == ("sampled", 400, 0.025)
    assert exactness.mean_standard_error(4 * 128) == 0.0125


def test_contexts_share_networks_in_small_groups_only():
    """Five groups of 128 equal contexts: equal labels within a group, others in the next."""
    state = updated(WIDE, example_observations(30))
    labels = WIDE.propensities(state, np.repeat(example_contexts(1), 640, axis=0), KEY)
    groups = labels.reshape(5, 128, 3)
    assert (groups == groups[:, :1]).all()
    assert len(np.unique(groups[:, 0], axis=0)) > 1


def test_every_context_is_given_networks_of_its_own_to_act_by():
    state = updated(WIDE, example_observations(30))
    actions = WIDE.sample_actions(state, np.repeat(example_contexts(1), 300, axis=0), 1, KEY)[:, 0]
    share = WIDE.propensities(state, np.repeat(example_contexts(1), 128 * 40, axis=0), Key(3)).mean(axis=0)
    assert 0.05 < share.max() < 0.98, "something must be left to draw"
    counted = np.bincount(actions, minlength=3) / 300
    assert np.abs(counted - share).max() < 5 * np.sqrt(0.25 / 300)


def test_deviations_average_to_nothing_and_narrow_with_observations():
    """100 times the observations of a minibatch: a tenth of the deviations."""
    path = SMALL.init(PROBLEM).deviations.map(lambda a: np.random.default_rng(0).standard_normal(a.shape))
    mean, wide = SMALL._gaussian(path, 20)
    _, narrow = SMALL._gaussian(path, 3200)
    np.testing.assert_allclose(flat(wide).mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(flat(mean) + flat(wide), flat(path))
    np.testing.assert_allclose(flat(narrow), flat(wide) / 10)


def test_draws_tell_rewards_apart_that_are_huge_and_nearly_equal():
    """Rewards of 1e9 + 0, 1, 2 by action: float32 alone could not."""
    observations = example_observations(300)
    rewards = 1e9 + observations.actions
    huge = Observations(PROBLEM, observations.contexts, observations.actions, rewards, observations.propensities)
    teacher = LowRankTS(hidden=(20,), draws=64)
    p = teacher.propensities(updated(teacher, huge), example_contexts(10), KEY)
    assert (p.argmax(axis=1) == 2).all()


def test_a_saved_state_continues_to_the_bit(tmp_path):
    state = updated(SMALL, example_observations(40))
    save_state(tmp_path / "state", SMALL, state, PROBLEM)
    loaded = load_state(tmp_path / "state", SMALL, PROBLEM)
    more = example_observations(30, Key(9))
    same(updated(SMALL, more, state), updated(SMALL, more, loaded))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rank": 1}, "LowRankTS: rank must be 2 or more, got 1"),
        ({"draws": 0}, "LowRankTS: draws must be 1 or more, got 0"),
        ({"every": 0}, "LowRankTS: every must be 1 or more, got 0"),
        ({"spread": 0.0}, "LowRankTS: spread must be a positive number, got 0.0"),
        ({"collect_rate": -1.0}, "LowRankTS: collect_rate must be a positive number, got -1.0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        LowRankTS(**options)
