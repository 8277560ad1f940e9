"""Forests against scikit-learn's own predictions and hand-sized cases."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Discrete, Numeric, Observations, Problem
from potstill.teachers import ForestTS
from potstill.teachers.forest import trees as forests

PROBLEM = Problem(
    name="forest", context=[Numeric("x", low=0, high=1), Numeric("y", low=0, high=1)], actions=Discrete(["a", "b", "c"])
)
KEY = Key(20261118)


def observed(n, seed=0, actions=3, rewards=None):
    rng = np.random.default_rng(seed)
    x, taken = rng.random((n, 2)).astype(np.float32), rng.integers(actions, size=n).astype(np.int32)
    values = np.where(taken == 1, x[:, 0] > 0.5, 0.3) if rewards is None else rewards(rng, n)
    return Observations(PROBLEM, x, taken, values.astype(np.float64), np.full(n, 1 / 3, np.float32))


def learnt(teacher, *batches):
    state = teacher.init(PROBLEM)
    for i, given in enumerate(batches):
        state = teacher.update(state, given, KEY.child(i))
    return state


def test_flat_trees_predict_what_scikit_learn_predicts():
    rng = np.random.default_rng(1)
    x, y = rng.random((500, 4)).astype(np.float32), rng.random(500)
    x[:, 2] = np.round(x[:, 2], 1)  # thresholds between equal float32 values
    fitted = [DecisionTreeRegressor(max_depth=depth, random_state=depth).fit(x, y) for depth in (None, 3, 1)]
    flat = [forests.of_sklearn(tree.tree_, np.zeros(tree.tree_.node_count), 1e-12) for tree in fitted]
    joined = forests.join(flat)
    fresh = np.concatenate([x, rng.random((5000, 4)).astype(np.float32)])
    predicted = joined.mean[joined.leaves(fresh)][:, :, 0]
    np.testing.assert_allclose(predicted, np.stack([t.predict(fresh) for t in fitted], axis=1), atol=1e-9)
    one = joined._replace(roots=joined.roots.reshape(1, -1), depth=joined.depth.reshape(1, -1))
    assert np.array_equal(one.leaves(fresh)[:, 0], joined.leaves(fresh)[:, :, 0])


def test_trees_of_one_action_are_cut_out_and_joined_again():
    state = learnt(ForestTS(trees=5, group=2), observed(200))
    again = forests.join([state.trees.of_action(a) for a in range(3)])
    for one, other in zip(again, state.trees, strict=True):
        assert np.array_equal(one, other)


def test_a_node_is_shrunk_to_its_prior():
    """One leaf with rewards 1, 1, 1 and a prior of 0 that counts for two observations: 3 / 5."""
    tree = DecisionTreeRegressor().fit(np.zeros((3, 1)), np.ones(3)).tree_
    assert np.isclose(forests.of_sklearn(tree, np.zeros(1), 2.0).mean[0], 0.6)


def test_it_learns_a_step():
    teacher = ForestTS()
    state = learnt(teacher, observed(600))
    means = teacher.mean_rewards(state, np.float32([[0.2, 0.5], [0.8, 0.5]]))
    assert abs(means[0, 1]) < 0.2
    assert means[1, 1] > 0.8
    assert np.allclose(means[:, [0, 2]], 0.3, atol=0.1)
    p = teacher.propensities(state, np.float32([[0.8, 0.5]]), KEY)
    assert p[0, 1] > 0.99


def test_means_stay_within_the_range_of_rewards():
    teacher = ForestTS(trees=20, group=5)
    state = learnt(teacher, observed(300, rewards=lambda rng, n: rng.integers(2, size=n)))
    means = teacher.mean_rewards(state, observed(1000, 5).contexts)
    assert 0 <= means.min() < means.max() <= 1


def test_marginals_are_the_moments_of_the_draws():
    teacher = ForestTS(trees=10, group=3)
    state, contexts = learnt(teacher, observed(100)), observed(20, 3).contexts
    location, scale, dof = teacher.marginals(state, contexts)
    draws = teacher.draws(state, contexts)
    assert draws.shape == (20, 3, 10)
    np.testing.assert_allclose(location, draws.mean(axis=2), atol=1e-6)
    np.testing.assert_allclose(scale, draws.std(axis=2), atol=1e-6)
    np.testing.assert_allclose(location, teacher.mean_rewards(state, contexts), atol=1e-6)
    assert np.isinf(dof).all()


def test_an_action_without_observations_keeps_the_prior_of_all_rewards():
    teacher = ForestTS()
    state = learnt(teacher, observed(200, actions=2))
    drawn = teacher.draws(state, np.float32([[0.1, 0.1]]))[0]
    assert drawn[2].std() > 2 * drawn[0].std()
    assert teacher.propensities(state, np.float32([[0.1, 0.1]]), KEY)[0, 2] > 0.1


def test_only_actions_with_enough_new_observations_get_new_trees():
    teacher = ForestTS(trees=5, group=2, refit=1.5)
    state = learnt(teacher, observed(300))
    few = teacher.update(state, observed(6, 7), KEY)
    assert np.array_equal(few.fitted, state.fitted)
    for a in range(3):
        assert np.array_equal(few.trees.of_action(a).mean, state.trees.of_action(a).mean)
    many = teacher.update(few, observed(300, 8), KEY)
    assert np.array_equal(many.fitted, many.seen)


def test_a_window_forgets():
    teacher = ForestTS(trees=10, group=3, window=200)
    old, new = observed(200, 1, rewards=lambda rng, n: np.zeros(n)), observed(200, 2, rewards=lambda rng, n: np.ones(n))
    means = teacher.mean_rewards(learnt(teacher, old, new), observed(50, 3).contexts)
    assert np.allclose(means, 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"trees": 0}, "trees must be 1 or more, got 0"),
        ({"trees": 5, "group": 6}, "group must be at most the number of trees, 5, got 6"),
        ({"features": 0.0}, "features must be above 0 and at most 1, got 0.0"),
        ({"pseudo": float("nan")}, "pseudo must be a positive number, got nan"),
        ({"refit": 0.9}, "refit must be 1 or more, got 0.9"),
        ({"window": 0}, "window must be 1 or more, or None, got 0"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(InvalidOption, match=message):
        ForestTS(**options)


@pytest.mark.parametrize("exponent", [120, 300])
def test_rewards_beyond_float32_change_nothing_but_the_scale(exponent):
    teacher, contexts = ForestTS(trees=20, group=5), observed(50, 3).contexts
    state = learnt(teacher, observed(300, rewards=lambda rng, n: rng.normal(size=n)))
    scaled = learnt(teacher, observed(300, rewards=lambda rng, n: np.ldexp(rng.normal(size=n), exponent)))
    expected, found = teacher.propensities(state, contexts, KEY), teacher.propensities(scaled, contexts, KEY)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    for one, other in zip(teacher.marginals(state, contexts)[:2], teacher.marginals(scaled, contexts)[:2], strict=True):
        np.testing.assert_allclose(np.ldexp(other, -exponent), one, rtol=1e-5, atol=1e-7)
