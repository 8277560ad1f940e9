"""Labels under masks: the probability of being the best of the eligible actions, against brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Discrete
from potstill.teachers import TEACHERS, FunctionTeacher, labels_masks, probability_best
from potstill.teachers.conformance import example_contexts, example_observations, problem_for
from potstill.teachers.forest.votes import vote_shares

MASKED = sorted(name for name, teacher in TEACHERS.items() if teacher().supports(Discrete(["a", "b"])) is None)


def masks(rng, rows, actions):
    """Random masks of each row with at least one action."""
    eligible = rng.random((rows, actions)) < 0.5
    eligible[np.arange(rows), rng.integers(actions, size=rows)] = True
    return eligible


def test_quadrature_equals_that_of_the_eligible_actions_alone():
    rng = np.random.default_rng(1)
    location, scale = rng.normal(size=(40, 6)), np.exp(rng.normal(size=(40, 6)))
    dof, eligible = np.array([1.5, 3, 8, 30, np.inf, np.inf]), masks(rng, 40, 6)
    found = probability_best(location, scale, dof, eligible)
    assert (found[~eligible] == 0).all()
    for row in range(40):
        own = eligible[row]
        alone = probability_best(location[row : row + 1, own], scale[row : row + 1, own], dof[own])
        np.testing.assert_allclose(found[row, own], alone[0], atol=2e-6)


def test_quadrature_agrees_with_brute_force_sampling():
    """100 comparisons of shares of 200,000 draws: a false alarm below 1e-4 (Hoeffding, 1e-6 each)."""
    rng = np.random.default_rng(2)
    location, scale = rng.normal(size=(20, 5)), np.exp(0.7 * rng.normal(size=(20, 5)))
    dof, eligible = np.array([4.0, 6.0, 10.0, 50.0, 500.0]), masks(rng, 20, 5)
    draws = location[..., None] + scale[..., None] * rng.standard_t(dof[:, None], (20, 5, 200_000))
    draws[~eligible] = -np.inf
    winners = draws.argmax(axis=1)
    sampled = np.stack([(winners == action).mean(axis=1) for action in range(5)], axis=1)
    margin = np.sqrt(np.log(2e6) / (2 * 200_000))
    assert np.abs(probability_best(location, scale, dof, eligible) - sampled).max() < margin


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 6), st.floats(-6, 6))
def test_quadrature_under_masks_is_a_distribution_that_only_grows(seed, actions, spread):
    rng = np.random.default_rng(seed)
    location, scale = rng.normal(size=(5, actions)), np.exp(spread * rng.normal(size=(5, actions)))
    eligible, dof = masks(rng, 5, actions), np.full(actions, np.inf)
    found, whole = probability_best(location, scale, dof, eligible), probability_best(location, scale, dof)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-5)
    assert (found[~eligible] == 0).all()
    # Fewer rivals: no eligible action is less often the best.
    assert (found[eligible] >= whole[eligible] - 1e-5).all()


def test_a_mask_of_everything_changes_no_bit():
    rng = np.random.default_rng(3)
    location, scale, dof = rng.normal(size=(9, 4)), np.exp(rng.normal(size=(9, 4))), np.full(4, 5.0)
    everything = np.ones((9, 4), bool)
    assert (probability_best(location, scale, dof, everything) == probability_best(location, scale, dof)).all()


def test_a_wrong_mask_is_refused():
    location, dof = np.zeros((2, 3)), np.full(3, np.inf)
    with pytest.raises(InvalidOption, match=r"eligible must be bool\[2, 3\] to match location, got bool\[2, 2\]"):
        probability_best(location, location + 1, dof, np.zeros((2, 2), bool))
    with pytest.raises(InvalidOption, match=r"eligible\[1\] allows no action"):
        probability_best(location, location + 1, dof, np.array([[True, False, True], [False] * 3]))


def test_votes_of_a_forest_equal_those_of_the_eligible_actions_alone():
    rng = np.random.default_rng(4)
    values = rng.integers(0, 4, (30, 5, 6)).astype(np.float32)  # few levels, hence many ties
    eligible = masks(rng, 30, 5)
    found = vote_shares(values, eligible)
    assert (found[~eligible] == 0).all()
    for row in range(30):
        alone = vote_shares(values[row : row + 1, eligible[row]])
        np.testing.assert_allclose(found[row, eligible[row]], alone[0], atol=1e-6)


@pytest.mark.parametrize("name", MASKED)
def test_every_finite_teacher_labels_masks(name):
    """Zero outside, a sum of one, certainty where one action is left, and the same as without where all are."""
    teacher = TEACHERS[name]()
    assert labels_masks(teacher)
    problem = problem_for(teacher)
    state = teacher.update(teacher.init(problem), example_observations(60, problem=problem), Key(1))
    contexts, rng = example_contexts(21), np.random.default_rng(5)
    eligible = masks(rng, 21, 3)
    p = teacher.propensities(state, contexts, Key(2), eligible)
    assert p.dtype == np.float32
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)
    assert (p[~eligible] == 0).all()
    assert (p[eligible & (eligible.sum(axis=1, keepdims=True) == 1)] == 1).all()
    whole = teacher.propensities(state, contexts, Key(2))
    everything = teacher.propensities(state, contexts, Key(2), np.ones((21, 3), bool))
    np.testing.assert_allclose(everything, whole, atol=1e-6)
    slack = 1e-5 if teacher.exactness.draws is None else 4.1 / teacher.exactness.draws
    # Fewer rivals: no eligible action is less often the best.
    assert (p[eligible] >= whole[eligible] - slack).all()


def test_a_teacher_without_the_parameter_says_so():
    assert not labels_masks(FunctionTeacher(lambda contexts: np.full((len(contexts), 3), 1 / 3)))
