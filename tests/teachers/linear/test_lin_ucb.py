"""Batch UCB on the linear posterior, worked out by hand."""

import math

import numpy as np
import pytest

from potstill.keys import Key
from potstill.teachers import LinUCB
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations
from potstill.teachers.linear.lin_ucb import paper_beta

KEY = Key(0)


def test_the_papers_beta():
    """2·log((T⁴rd)ᵈT²) with r = d = 1."""
    assert paper_beta(1000) == pytest.approx(2 * math.log((1000**4) ** 1 * 1000**2))
    assert paper_beta(0) == 0


def test_the_highest_bound_is_taken():
    teacher = LinUCB()
    state = teacher.update(teacher.init(PROBLEM), example_observations(50), KEY)
    contexts = example_contexts(30)
    location, scale, _ = teacher.marginals(state, contexts)
    best = (location + math.sqrt(paper_beta(50)) * scale).argmax(axis=1)
    p = teacher.propensities(state, contexts, KEY)
    np.testing.assert_array_equal(p.argmax(axis=1), best)
    np.testing.assert_array_equal(p.max(axis=1), 1)


def test_without_a_bonus_it_is_greedy_and_ties_are_split():
    teacher = LinUCB(beta_t=0.0)
    np.testing.assert_allclose(teacher.propensities(teacher.init(PROBLEM), example_contexts(3), KEY), 1 / 3)
    state = teacher.update(teacher.init(PROBLEM), example_observations(50), KEY)
    location = teacher.marginals(state, example_contexts(9)).location
    p = teacher.propensities(state, example_contexts(9), KEY)
    np.testing.assert_array_equal(p.argmax(axis=1), location.argmax(axis=1))


def test_a_negative_beta_is_refused():
    with pytest.raises(ValueError, match=r"LinUCB: beta_t must be 0 or more, got -1.0"):
        LinUCB(beta_t=-1.0)
