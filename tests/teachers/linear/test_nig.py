"""Sums over observations: what the definition says, however they are sorted, weighted, typed and cut into blocks."""

import numpy as np
import pytest

from potstill.teachers.linear import nig


def observed(n, p, k, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random((n, p), dtype=np.float32), rng.integers(k, size=n, dtype=np.int32), rng.standard_normal(n)


def by_definition(x, actions, rewards, weights, k):
    """One observation after another, as the sums are written."""
    p = x.shape[1]
    gram, moment, square, n = np.zeros((k, p, p)), np.zeros((k, p)), np.zeros(k), np.zeros(k)
    for row, a, y, w in zip(x.astype(np.float64), actions, rewards, weights, strict=True):
        gram[a] += w * np.outer(row, row)
        moment[a] += w * y * row
        square[a] += w * y * y
        n[a] += w
    return nig.Sums(gram, moment, square, n)


@pytest.mark.parametrize(("n", "k"), [(0, 3), (1, 3), (700, 3), (6000, 2), (500, 300)])
def test_sums_are_what_the_definition_says(n, k):
    """6,000 rows of two actions are several blocks of each; 300 actions do not fit 8 bits, and some have no row."""
    x, actions, rewards = observed(n, 5, k)
    weights = np.random.default_rng(1).random(n) + 0.5
    expected = by_definition(x, actions, rewards, weights, k)
    for found, wanted in zip(nig.sums(x, actions, rewards, weights, k), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)


def test_an_intercept_that_is_asked_for_is_one_that_is_there():
    """To the bit: the numbers that are multiplied are the same, in the same order."""
    x, actions, rewards = observed(3000, 4, 3)
    for weights in (np.ones(3000), np.random.default_rng(1).random(3000)):
        asked_for = nig.sums(x, actions, rewards, weights, 3, intercept=True)
        there = nig.sums(nig.with_intercept(x), actions, rewards, weights, 3)
        for found, wanted in zip(asked_for, there, strict=True):
            np.testing.assert_array_equal(found, wanted)


def test_equal_weights_are_no_weights():
    x, actions, rewards = observed(2500, 4, 3)
    for found, wanted in zip(
        nig.sums(x, actions, rewards, np.full(2500, 2.0), 3),
        nig.sums(x, actions, rewards, np.ones(2500), 3).scaled(2.0),
        strict=True,
    ):
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize(("n", "k"), [(0, 2), (1, 2), (5000, 300)])
def test_the_spread_is_what_solving_gives(n, k):
    """xᵀΛ⁻¹x; with 300 actions of 5 regressors, and 5,000 rows, there are several blocks either way."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((k, 20, 5))
    precision = x.transpose(0, 2, 1) @ x + 0.25 * np.eye(5)
    posterior = nig.Posterior(np.zeros((k, 5)), np.linalg.cholesky(precision), np.ones(k), np.ones(k))
    regressors = rng.standard_normal((n, 5))
    expected = np.einsum("np,kpq,nq->nk", regressors, np.linalg.inv(precision), regressors)
    np.testing.assert_allclose(nig.marginals(posterior, regressors).scale ** 2, expected, rtol=1e-9)
