"""Kernels: the paper's formulas value by value, their gradients by finite differences, and what they refuse."""

import re

import msgspec
import numpy as np
import pytest
from scipy.special import gamma, kv

from potstill.teachers.gp import pairs
from potstill.teachers.gp.kernels import (
    RBF,
    Constant,
    Independent,
    Kernel,
    Linear,
    Matern,
    Product,
    Sum,
    Typical,
    depends_on_action,
)
from potstill.teachers.gp.pairs import Points

RNG = np.random.default_rng(5)
POINTS = Points(RNG.random((6, 3)).astype(np.float32), np.array([0, 1, 2, 0, 2, 2], np.int32))
FEATURES = np.array([[0.0, 1.0], [0.4, 0.0], [1.0, 2.0]])
PAIRS = pairs.between(POINTS, POINTS, FEATURES)
TYPICAL = Typical(0.9, 0.7)

EVERY_KIND = (
    Linear("context", variance=0.3) * Independent(variance=2.0)
    + Matern("context", smoothness="1/2") * (RBF("action", length_scale=0.6) + Constant(variance=0.2))
    + Matern("context", smoothness="3/2") * Linear("action")
    + Matern("action", smoothness="5/2", variance=1.7)
)


def paper_matern(nu, length_scale, x, y):
    """The paper's formula with the Bessel function, which the closed forms of ν = ½, 3/2, 5/2 have to equal."""
    r = np.sqrt(2 * nu) / length_scale * np.linalg.norm(x - y)
    return 2 ** (1 - nu) / gamma(nu) * r**nu * kv(nu, r) if r else 1.0


def value(kernel):
    return np.broadcast_to(kernel(kernel.start(TYPICAL), PAIRS), (6, 6))


def pairwise(f, vectors):
    return np.array([[f(x, y) for y in vectors] for x in vectors])


CONTEXTS = POINTS.contexts.astype(float)
TAKEN = FEATURES[POINTS.actions]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Linear("context", variance=2.0), pairwise(lambda x, y: 2.0 * x @ y, CONTEXTS)),
        (Linear("action"), pairwise(lambda x, y: x @ y, TAKEN)),
        (RBF("context", 0.5, 3.0), pairwise(lambda x, y: 3 * np.exp(-((x - y) @ (x - y)) / (2 * 0.5**2)), CONTEXTS)),
        (RBF("action"), pairwise(lambda x, y: np.exp(-((x - y) @ (x - y)) / (2 * 0.7**2)), TAKEN)),
        (Matern("context", 0.5, smoothness="1/2"), pairwise(lambda x, y: paper_matern(0.5, 0.5, x, y), CONTEXTS)),
        (Matern("context", smoothness="3/2"), pairwise(lambda x, y: paper_matern(1.5, 0.9, x, y), CONTEXTS)),
        (Matern("action", 0.4), pairwise(lambda x, y: paper_matern(2.5, 0.4, x, y), TAKEN)),
        (Independent(variance=4.0), 4.0 * (POINTS.actions[:, None] == POINTS.actions)),
        (Constant(variance=4.0), np.full((6, 6), 4.0)),
    ],
)
def test_values_are_the_paper_s(kernel, expected):
    np.testing.assert_allclose(value(kernel), expected, rtol=1e-10, atol=1e-14)


def test_sums_and_products():
    a, b, c = RBF("context"), RBF("action"), Independent(variance=0.5)
    np.testing.assert_allclose(value(a * b + c), value(a) * value(b) + value(c), rtol=1e-14)


def test_which_kernels_tell_actions_apart():
    assert all(map(depends_on_action, (Independent(), RBF("action"), RBF("context") + Constant() * Linear("action"))))
    assert not any(map(depends_on_action, (Constant(), RBF("context"), Linear("context") * Matern("context"))))


def test_slopes_by_finite_differences():
    """Of Σ adjoint · k with a random adjoint, over a kernel that holds every kind."""
    logs, adjoint, step = EVERY_KIND.start(TYPICAL), RNG.standard_normal((6, 6)), 1e-6
    assert logs.shape == (EVERY_KIND.size,)

    def difference(up, down):
        return (EVERY_KIND(*up) - EVERY_KIND(*down)) * adjoint / (2 * step)

    by_logs = [difference((logs + step * e, PAIRS), (logs - step * e, PAIRS)).sum() for e in np.eye(len(logs))]
    slopes = EVERY_KIND.slopes(logs, PAIRS, adjoint)
    np.testing.assert_allclose(slopes.logs, by_logs, rtol=1e-6, atol=1e-8)
    apart = 1 - np.eye(6)  # no distance can fall below 0
    for field, found in slopes.context._asdict().items():
        nudge = {sign: getattr(PAIRS.context, field) + sign * step * apart for sign in (1, -1)}
        up, down = (PAIRS._replace(context=PAIRS.context._replace(**{field: nudge[sign]})) for sign in (1, -1))
        expected = difference((logs, up), (logs, down))
        np.testing.assert_allclose(found * apart, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kernel", EVERY_KIND.parts)
def test_every_layout_of_pairs_says_the_same(kernel):
    """Covariances over a grid, within contexts and of points with themselves are entries of the plain matrix."""
    k, contexts = len(FEATURES), POINTS.contexts
    logs = kernel.start(TYPICAL)
    crossed = Points(np.repeat(contexts, k, axis=0), np.tile(np.arange(k, dtype=np.int32), 6))
    plain = np.broadcast_to(kernel(logs, pairs.between(crossed, crossed, FEATURES)), (18, 18))
    among = np.broadcast_to(kernel(logs, pairs.between(crossed, POINTS, FEATURES)), (18, 6))
    grid = np.broadcast_to(kernel(logs, pairs.grid(contexts, POINTS, FEATURES)), (6, k, 6))
    within = np.broadcast_to(kernel(logs, pairs.within(contexts, FEATURES)), (6, k, k))
    np.testing.assert_allclose(grid, among.reshape(6, k, 6), rtol=1e-12)
    np.testing.assert_allclose(within, [plain[i : i + k, i : i + k] for i in range(0, 18, k)], rtol=1e-7)
    np.testing.assert_allclose(kernel(logs, pairs.selves(crossed, FEATURES)), np.diag(plain), rtol=1e-12)


def test_equal_points_are_at_distance_zero():
    """Rounding would leave 1e-15, of which the root in a Matérn-½ kernel is 3e-8."""
    x = np.random.default_rng(0).random((50, 117)).astype(np.float32)
    assert (np.diag(pairs.geometry(x, x.copy()).squared) == 0).all()


def test_a_kernel_survives_json():
    assert msgspec.json.decode(msgspec.json.encode(EVERY_KIND), type=Kernel) == EVERY_KIND


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RBF("reward"), "RBF: on must be 'context' or 'action', got 'reward'"),
        (lambda: Linear("reward"), "Linear: on must be 'context' or 'action', got 'reward'"),
        (lambda: RBF("action", 0.0), "RBF: length_scale must be a positive number, got 0.0"),
        (lambda: Matern("action", variance=-1.0), "Matern: variance must be a positive number, got -1.0"),
        (lambda: Independent(variance=np.inf), "Independent: variance must be a positive number, got inf"),
        (lambda: Matern("action", smoothness="7/2"), "smoothness must be one of 1/2, 3/2, 5/2, got '7/2'"),
        (lambda: Sum(()), "Sum: parts must hold at least one kernel"),
        (lambda: Product(()), "Product: parts must hold at least one kernel"),
    ],
)
def test_bad_options_are_named(make, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
