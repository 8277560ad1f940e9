"""Wasserstein distances: cumulative sums against the linear program, and three gradients against each other."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import softmax
from scipy.stats import wasserstein_distance

from potstill.spaces.transport import REGULARISATION, Bins, Line, Metric, dual, envelope_gradient, policy_gradient

K = 6
RNG = np.random.default_rng(7)
POINTS = RNG.random((K, 2))
PLANE = np.linalg.norm(POINTS[:, None] - POINTS[None], axis=-1)


def two(seed, k=K, rows=8):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(k, 0.5), rows), rng.dirichlet(np.full(k, 0.5), rows)


def primal(p, q, distances):
    """W₁ by the transport plan itself."""
    k = len(p)
    rows = np.kron(np.eye(k), np.ones(k))
    columns = np.kron(np.ones(k), np.eye(k))
    return linprog(distances.ravel(), A_eq=np.vstack([rows, columns]), b_eq=np.concatenate([p, q])).fun


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.floats(-100, 100), min_size=3, max_size=8, unique=True))
def test_on_a_line_it_is_the_area_between_distribution_functions(seed, positions):
    p, q = two(seed, len(positions), rows=3)
    line = Line(tuple(positions))
    expected = [wasserstein_distance(positions, positions, one, other) for one, other in zip(p, q, strict=True)]
    np.testing.assert_allclose(line.distance(p, q), expected, atol=1e-9)
    np.testing.assert_allclose(line.loss(jnp.asarray(p), jnp.asarray(q)), expected, rtol=1e-3, atol=1e-4)


def test_a_line_is_a_metric_like_any_other():
    p, q = two(1)
    positions = np.array([3.0, -1.0, 7.0, 2.5, 0.0, 11.0])
    distances = np.abs(positions[:, None] - positions[None])
    np.testing.assert_allclose(
        Line(tuple(positions)).distance(p, q), Metric(tuple(map(tuple, distances))).distance(p, q), atol=1e-9
    )


def test_within_bins_mass_is_spread_evenly():
    """Against a line with a thousand points in each bin."""
    edges = (0.0, 1.0, 1.5, 4.0, 4.2)
    p, q = two(2, 4)
    fine = np.concatenate([np.linspace(a, b, 1000, endpoint=False) for a, b in itertools.pairwise(edges)])
    expected = Line(tuple(fine)).distance(np.repeat(p, 1000, axis=1) / 1000, np.repeat(q, 1000, axis=1) / 1000)
    np.testing.assert_allclose(Bins(edges).distance(p, q), expected, rtol=2e-3)
    np.testing.assert_allclose(Bins(edges).loss(jnp.asarray(p), jnp.asarray(q)), expected, rtol=2e-3)


def test_the_dual_equals_the_primal():
    p, q = two(3)
    metric = Metric(tuple(map(tuple, PLANE)))
    for one, other, distance in zip(p, q, metric.distance(p, q), strict=True):
        assert distance == pytest.approx(primal(one, other, PLANE), abs=1e-9)
        potential = dual(one, other, PLANE)
        assert (potential[:, None] - potential[None] <= PLANE + 1e-9).all()


def test_envelope_gradient_finite_differences_and_policy_gradient_agree():
    """The estimate from 200,000 draws is within four standard errors in each coordinate (false alarm 6e-5 each)."""
    rng = np.random.default_rng(4)
    p, scores = rng.dirichlet(np.ones(K)), rng.standard_normal(K)
    potential = dual(p, softmax(scores), PLANE)
    exact = envelope_gradient(potential, scores)

    def distance(z):
        return Metric(tuple(map(tuple, PLANE))).distance(p[None], softmax(z)[None])[0]

    steps = [(distance(scores + step) - distance(scores - step)) / 2e-5 for step in 1e-5 * np.eye(K)]
    np.testing.assert_allclose(exact, steps, atol=1e-6)
    actions = rng.choice(K, 200_000, p=softmax(scores))
    error = np.abs(potential).max() / np.sqrt(len(actions))
    assert np.abs(policy_gradient(potential, scores, actions) - exact).max() < 4 * error


def test_sinkhorn_is_smallest_at_equal_distributions_and_close_to_the_distance():
    p, q = two(5)
    metric = Metric(tuple(map(tuple, PLANE)))
    same = jnp.asarray(p, jnp.float32)
    between = np.asarray(metric.loss(same, jnp.asarray(q, jnp.float32)) - metric.loss(same, same))
    exact = metric.distance(p, q)
    most = 2 * REGULARISATION * PLANE.mean() * np.log(K)  # the regularisation times the entropy of two plans
    assert np.abs(between - exact).max() < most
    slope = jax.grad(lambda z, target: metric.loss(target[None], jax.nn.softmax(z)[None])[0])
    at_the_target = jax.vmap(slope)(jnp.log(same), same)
    np.testing.assert_allclose(at_the_target, 0, atol=1e-2)  # Sinkhorn stops at marginals that are right to 1e-3


def test_the_envelope_gradient_points_as_that_of_sinkhorn():
    p, q = two(6, rows=1)
    scores = np.log(q[0])
    exact = envelope_gradient(dual(p[0], q[0], PLANE), scores)
    metric = Metric(tuple(map(tuple, PLANE)))
    found = jax.grad(lambda z: metric.loss(jnp.asarray(p, jnp.float32), jax.nn.softmax(z)[None])[0])(
        jnp.asarray(scores, jnp.float32)
    )
    assert exact @ np.asarray(found) / np.linalg.norm(exact) / np.linalg.norm(found) > 0.98


@pytest.mark.parametrize(
    "geometry", [Line((0.0, 2.0, 1.0, 5.0, 3.0, 9.0)), Metric(tuple(map(tuple, PLANE)))], ids=["line", "metric"]
)
def test_slope_times_distance_bounds_the_change_of_reward(geometry):
    p, q = two(8, rows=50)
    rewards = np.random.default_rng(9).standard_normal((50, K))
    change = ((p - q) * rewards).sum(axis=1)
    assert (np.abs(change) <= geometry.lipschitz(rewards) * geometry.distance(p, q) + 1e-9).all()
