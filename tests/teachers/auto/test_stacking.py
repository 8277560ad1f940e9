"""Stacking weights against a fine grid, closed forms and sums by hand."""

import itertools

import numpy as np
import pytest

from potstill.keys import Key
from potstill.teachers.auto.stacking import Errors, minimum_on_simplex


def on_a_grid(products, steps=60):
    """The best weights on a grid of the simplex."""
    shares = [w for w in itertools.product(range(steps + 1), repeat=len(products) - 1) if sum(w) <= steps]
    weights = np.array([(*w, steps - sum(w)) for w in shares]) / steps
    return weights[np.argmin(np.einsum("nc,cd,nd->n", weights, products, weights))]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("candidates", [2, 3, 4])
def test_the_minimum_on_the_simplex_is_the_best_of_a_grid(candidates, seed):
    rng = Key(seed).child("simplex", candidates).generator()
    errors = rng.standard_normal((candidates, 10)) * rng.uniform(0.5, 2, (candidates, 1)) + rng.standard_normal(10)
    products = errors @ errors.T
    found, grid = minimum_on_simplex(products), on_a_grid(products, 60 if candidates < 4 else 30)
    assert (found >= 0).all()
    assert np.isclose(found.sum(), 1)
    assert found @ products @ found <= grid @ products @ grid + 1e-6
    assert np.abs(found - grid).max() < 0.05


def test_independent_errors_are_weighted_by_their_precisions():
    """With uncorrelated errors of variances 1 and 4, the weights are 4/5 and 1/5."""
    assert np.allclose(minimum_on_simplex(np.diag([1.0, 4.0])), [0.8, 0.2])


def test_a_candidate_that_adds_nothing_has_no_weight():
    """The second errs as the first, and more: the minimum without signs would be negative."""
    assert minimum_on_simplex(np.array([[1.0, 2.0], [2.0, 5.0]])).tolist() == [1.0, 0.0]


def test_equal_candidates_share_their_weight():
    assert np.allclose(minimum_on_simplex(np.ones((3, 3))), 1 / 3)


def test_errors_add_up_over_parts_and_fade():
    rng = Key(2).child("errors").generator()
    errors, actions = rng.standard_normal((2, 50)), rng.integers(3, size=50).astype(np.int32)
    parts = Errors.of(errors[:, :20], actions[:20], 3) + Errors.of(errors[:, 20:], actions[20:], 3)
    whole = Errors.of(errors, actions, 3)
    assert np.allclose(parts.products, whole.products)
    assert np.array_equal(parts.n, np.bincount(actions, minlength=3))
    assert np.allclose(whole.rmse(), np.sqrt((errors**2).mean(axis=1)))
    assert np.allclose(whole.faded(0.5).rmse(), whole.rmse())
    assert whole.faded(0.5).n.sum() == 25


def test_errors_count_relative_to_the_noise_of_their_action():
    """The first is right on the quiet action, the second by a little on the noisy one, whose squares are larger."""
    rng = Key(3).child("noise").generator()
    actions = np.repeat([0, 1], 500).astype(np.int32)
    noise = np.where(actions == 0, 0.01, 10.0) * rng.standard_normal(1000)
    errors = np.stack([noise + np.where(actions == 1, 0.5, 0.0), noise + np.where(actions == 0, 0.05, 0.0)])
    assert Errors.of(errors, actions, 2).weights(0.01)[0] > 0.9
    assert (errors[0] ** 2).sum() > (errors[1] ** 2).sum()


def test_weights_are_equal_before_any_prediction_and_small_ones_are_zero():
    assert Errors.none(4, 3).weights(0.01).tolist() == [0.25] * 4
    assert Errors.of(np.zeros((2, 20)), np.zeros(20, np.int32), 1).weights(0.01).tolist() == [0.5, 0.5]
    products = np.diag([1.0, 1000.0])[None]
    assert Errors(products, np.array([10.0])).weights(0.01).tolist() == [1.0, 0.0]


def test_a_perfect_candidate_has_all_the_weight():
    errors = np.array([[0.0] * 20, [1.0] * 20])
    assert np.allclose(Errors.of(errors, np.zeros(20, np.int32), 1).weights(0.01), [1.0, 0.0])
