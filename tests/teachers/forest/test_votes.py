"""Exact vote shares against all combinations of draws."""

from itertools import product

import numpy as np
import pytest

from potstill.keys import Key
from potstill.teachers.forest.votes import vote_shares


def enumerated(values):
    """Win shares of K actions over all G^K combinations of their draws, ties split evenly."""
    k, g = values.shape
    won = np.zeros(k)
    for drawn in product(range(g), repeat=k):
        scores = values[np.arange(k), drawn]
        best = scores == scores.max()
        won += best / best.sum()
    return won / g**k


@pytest.mark.parametrize(("k", "g"), [(1, 3), (2, 1), (2, 6), (3, 5), (5, 4), (6, 3)])
@pytest.mark.parametrize("levels", [1, 2, 4, 1000])
def test_all_combinations_of_draws(k, g, levels):
    """Few levels make ties within actions and between them; 1000 make hardly any."""
    values = Key(3).child("votes", k, g, levels).generator().integers(levels, size=(20, k, g)).astype(np.float32)
    expected = np.stack([enumerated(context) for context in values])
    np.testing.assert_allclose(vote_shares(values), expected, atol=1e-7)


def test_an_action_that_is_always_worse_never_wins():
    values = np.array([[[3, 4, 5], [0, 1, 2], [2, 2, 4]]], np.float32)
    np.testing.assert_allclose(vote_shares(values)[0], enumerated(values[0]), atol=1e-7)
    assert vote_shares(values)[0, 1] == 0


def test_equal_values_are_split_evenly_between_many_actions():
    np.testing.assert_allclose(vote_shares(np.zeros((2, 40, 5), np.float32)), 1 / 40, atol=1e-7)


def test_many_values_agree_with_draws():
    """40,000 joint draws of 8 actions with 50 values: standard error below 0.0025, bound at 5 of them."""
    rng = Key(4).child("votes").generator()
    values = np.round(rng.normal(size=(3, 8, 50)), 1).astype(np.float32)
    drawn = np.take_along_axis(values, rng.integers(50, size=(3, 8, 40_000)), axis=2)
    best = drawn == drawn.max(axis=1, keepdims=True)
    np.testing.assert_allclose(vote_shares(values), (best / best.sum(axis=1, keepdims=True)).mean(axis=2), atol=0.0125)


def test_chunks_of_contexts_change_nothing(monkeypatch):
    values = Key(5).child("votes").generator().integers(6, size=(23, 4, 7)).astype(np.float32)
    whole = vote_shares(values)
    monkeypatch.setattr("potstill.teachers.forest.votes._CHUNK", 100)
    np.testing.assert_allclose(vote_shares(values), whole, atol=1e-7)
    assert vote_shares(values[:0]).shape == (0, 4)
