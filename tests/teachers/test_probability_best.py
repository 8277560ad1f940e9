"""The quadrature against QUADPACK, closed forms, invariants and one large simulation."""

import doctest
import importlib
import itertools
import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special

from potstill.teachers import probability_best

best = sys.modules["potstill.teachers.probability_best"]  # the package exports the function of the same name

#: The module, whose name its function hides in the package.
best = importlib.import_module("potstill.teachers.probability_best")

CLOSE = 1e-5  # total variation; the design asks for 1e-4, and 4e-6 is the worst of 80,000 rows made to be hard
DOFS = [1, 2.5, 12, 1e3, 1e6, np.inf]

# (location, scale) of up to five kinds of action; a case with more actions repeats them in turn.
HARD = {
    "identical": [(0, 1)],
    "a few scales apart": [(0, 1), (1, 0.5), (-2, 2), (0.3, 0.1), (2, 1)],
    "narrow ahead of wide": [(1, 1e-6), (0, 1)],
    "narrow behind wide": [(-1, 1e-6), (0, 1)],
    "narrow far behind wide": [(-30, 1e-6), (0, 1)],
    "narrow and wide at one place": [(0, 1e-6), (0, 1)],
    "two narrow, one wide": [(0.5, 1e-6), (0.5 + 1e-6, 1e-6), (0, 1)],
    "a narrow one on each side": [(-0.5, 1e-6), (0.5, 1e-6), (0, 1)],
    "a scale for every decade and more": [(0, 1), (1e-2, 1e-2), (-1e-2, 1e-3), (0, 1e-5), (2e-6, 1e-6)],
    "ahead by a thousand": [(1e3, 1), (0, 1), (1, 1)],
    "ahead by a billion": [(1e9, 1), (0, 1), (1, 1)],
    "a billion from zero": [(1e9, 1), (1e9 + 1, 0.5), (1e9 - 1, 2)],
    "tiny": [(0, 1e-12), (1e-12, 1e-12), (0, 1e-18)],
}


def total_variation(p, q):
    return 0.5 * np.abs(np.asarray(p, float) - np.asarray(q, float)).sum(axis=-1)


def density(z, dof):
    if np.isinf(dof):
        return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return math.exp(-(dof + 1) / 2 * math.log1p(z * z / dof)) / (math.sqrt(dof) * special.beta(dof / 2, 0.5))


def by_quadpack(location, scale, dof, copies):
    """∫ f_a ∏_{b≠a} F_b for one action of each kind, with `copies` of each kind; all arguments have shape [kinds]."""
    location = location - location[0]
    steps = np.concatenate([[0.5, 1, 2, 4, 8], np.geomspace(20, -special.stdtrit(dof.min(), 1e-11), 10)])
    around = np.concatenate([-steps, [0], steps])
    breaks = np.unique(location[:, None] + scale[:, None] * around)

    def integrand(x, kind):
        z = (x - location) / scale
        others = np.prod(special.stdtr(dof, z) ** (copies - (np.arange(len(dof)) == kind)))
        return density(z[kind], dof[kind]) / scale[kind] * others

    def probability(kind):
        pieces = itertools.pairwise(breaks)
        return sum(integrate.quad(integrand, *piece, (kind,), epsabs=1e-12, epsrel=1e-9)[0] for piece in pieces)

    return np.array([probability(kind) for kind in range(len(dof))])


@pytest.mark.parametrize("dof", [*DOFS, "mixed"])
@pytest.mark.parametrize("actions", [2, 5, 20, 200])
@pytest.mark.parametrize("name", HARD)
def test_agrees_with_quadpack(name, actions, dof):
    kinds = HARD[name][:actions]
    kind = np.arange(actions) % len(kinds)
    location, scale = np.array(kinds, float).T
    freedom = np.resize(DOFS if dof == "mixed" else [dof], len(kinds)).astype(float)
    expected = by_quadpack(location, scale, freedom, np.bincount(kind))
    assert (expected * np.bincount(kind)).sum() == pytest.approx(1, abs=1e-8)
    found = probability_best(location[kind][None], scale[kind][None], freedom[kind])
    assert total_variation(found[0], expected[kind]) < CLOSE


def test_errors_that_cancel_in_the_sum_are_seen():
    """Found by search: on some panel here the shares add up well and are 3e-5 wrong, each with its own sign."""
    location = np.array([-0.19960598, 6.19727185, -0.09759564, -0.19008538, -3.19862652, -0.92425779, 1.54017122])
    scale = np.array([0.17083232, 0.90816182, 0.124243, 0.14185395, 0.80951693, 0.6319123, 0.33505137])
    dof = np.array([1.3, 1.3, 2, 6, 6, 12, 1.3])
    expected = by_quadpack(location, scale, dof, np.ones(7))
    assert total_variation(probability_best(location[None], scale[None], dof)[0], expected) < CLOSE


scales = st.floats(-6, 2).map(lambda exponent: 10**exponent)
locations = st.floats(-5, 5)


def rows(actions):
    """One row: location, scale and dof, each [K]."""
    parts = (locations, scales, st.sampled_from(DOFS))
    return st.tuples(*(st.lists(part, min_size=actions, max_size=actions).map(np.array) for part in parts))


several = st.integers(2, 6).flatmap(rows)


def one_row(location, scale, dof):
    return probability_best(location[None], scale[None], dof)[0].astype(float)


@given(rows(2), st.sampled_from([0, 1, -1e9]), st.sampled_from([1e-9, 1, 1e6]))
def test_two_normals(row, offset, spread):
    location, scale = offset + row[0], spread * row[1]
    expected = special.ndtr((location[0] - location[1]) / np.hypot(*scale))
    assert one_row(location, scale, np.full(2, np.inf))[0] == pytest.approx(expected, abs=CLOSE)


@given(rows(2))
def test_two_cauchys(row):
    location, scale, _ = row
    expected = 0.5 + np.arctan((location[0] - location[1]) / scale.sum()) / np.pi
    assert one_row(location, scale, np.ones(2))[0] == pytest.approx(expected, abs=CLOSE)


@given(st.tuples(scales, scales, scales))
def test_three_normals_at_one_place(scale):
    variance = np.square(scale)
    correlation = variance[0] / np.sqrt((variance[0] + variance[1]) * (variance[0] + variance[2]))
    expected = 0.25 + np.arcsin(correlation) / (2 * np.pi)
    assert one_row(np.zeros(3), np.array(scale), np.full(3, np.inf))[0] == pytest.approx(expected, abs=CLOSE)


@pytest.mark.parametrize("actions", [1, 2, 3, 50, 200])
@pytest.mark.parametrize("dof", [0.1, *DOFS])
def test_equal_actions_share_equally(actions, dof):
    found = one_row(np.full(actions, 7.0), np.full(actions, 1e-3), np.full(actions, dof))
    np.testing.assert_allclose(found, 1 / actions, rtol=1e-6)


@pytest.mark.parametrize("place", [-1000, -10, -4, -1, 1, 10])
@pytest.mark.parametrize("ratio", [1e-9, 1e-12, 1e-30, 1e-300])
def test_a_point_mass_in_all_but_name(ratio, place):
    """Three of them in one place share the time that a Cauchy around 0 falls below them."""
    location, scale = np.array([place, place, place, 0.0]), np.array([ratio, ratio, ratio, 1.0])
    below = 0.5 + np.arctan(place) / np.pi
    found = one_row(location, scale, np.array([np.inf, np.inf, np.inf, 1]))
    np.testing.assert_allclose(found, [below / 3, below / 3, below / 3, 1 - below], atol=CLOSE)


@given(several)
def test_rows_are_distributions(row):
    found = one_row(*row)
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1, abs=1e-6)


@given(several, st.randoms(use_true_random=False))
def test_the_order_of_actions_does_not_matter(row, random):
    order = random.sample(range(len(row[0])), len(row[0]))
    shuffled = one_row(*(part[order] for part in row))
    assert total_variation(shuffled, one_row(*row)[order]) < CLOSE


@given(several, st.floats(-1e3, 1e3), st.floats(1e-3, 1e3))
def test_the_unit_of_reward_does_not_matter(row, shift, factor):
    location, scale, dof = row
    assert total_variation(one_row(shift + factor * location, factor * scale, dof), one_row(*row)) < CLOSE


@given(several, st.floats(0, 3))
def test_a_better_action_is_not_chosen_less(row, gain):
    location, scale, dof = row
    better = location + gain * (np.arange(len(location)) == 0)
    assert one_row(better, scale, dof)[0] >= one_row(*row)[0] - CLOSE


def test_ten_million_draws():
    """Five actions at five standard deviations: fewer than 3 in a million seeds would fail, and this one is fixed."""
    rng, draws, batches = np.random.default_rng(20240229), 10**6, 10
    location, scale = np.array([0.0, 0.5, -1.0, 0.4, 0.0]), np.array([1.0, 0.3, 3.0, 0.01, 1.0])
    dof = np.array([3.0, 12.0, 1.0, 500.0, np.inf])
    wins = np.zeros(5)
    for _ in range(batches):
        noise = [rng.standard_t(nu, draws) if np.isfinite(nu) else rng.standard_normal(draws) for nu in dof]
        wins += np.bincount(np.argmax(location[:, None] + scale[:, None] * noise, axis=0), minlength=5)
    found = one_row(location, scale, dof)
    deviation = np.sqrt(found * (1 - found) / (draws * batches))
    np.testing.assert_array_less(np.abs(wins / (draws * batches) - found), 5 * deviation)


@pytest.fixture
def posterior():
    """Rows from easy to hard: location[40, 6], scale[40, 6], dof[6]."""
    rng = np.random.default_rng(5)
    decades = np.linspace(0, 9, 40)[:, None]
    return rng.normal(size=(40, 6)), 10 ** (-decades * rng.random((40, 6))), np.array(DOFS)


def test_a_row_does_not_depend_on_its_neighbours(posterior):
    location, scale, dof = posterior
    alone = [one_row(location[i], scale[i], dof) for i in range(len(location))]
    np.testing.assert_array_equal(probability_best(location, scale, dof), alone)


@pytest.mark.parametrize("size", [1, 500, 10**6])
def test_nor_on_how_the_work_is_cut(posterior, monkeypatch, size):
    expected = probability_best(*posterior)
    monkeypatch.setattr(best, "_BLOCK", size)
    monkeypatch.setattr(best, "_SLAB", size)
    np.testing.assert_array_equal(probability_best(*posterior), expected)


def test_the_input_is_left_alone(posterior):
    copies = [part.copy() for part in posterior]
    probability_best(*posterior)
    for part, copy in zip(posterior, copies, strict=True):
        np.testing.assert_array_equal(part, copy)


def test_the_example_in_the_docstring():
    assert doctest.testmod(best) == (0, 1)


def test_shapes_and_types():
    assert probability_best(np.zeros((0, 3)), np.ones((0, 3)), np.ones(3)).shape == (0, 3)
    assert probability_best([[3]], [[1]], [1]).tolist() == [[1.0]]
    assert probability_best([[0, 0]], [[1, 1]], [1, 1]).dtype == np.float32


@pytest.mark.parametrize("dof", DOFS)
def test_the_table_of_log_cdf(dof):
    z = np.sinh(np.linspace(-1, 1, 10_001) * np.arcsinh(-special.stdtrit(dof, 1e-4)))
    table = best._LogCdf.tabulate(np.array([dof, 1.0]), tail=1e-10)
    found = table(z[:, None].copy(), np.zeros(len(z), int))[:, 0]
    np.testing.assert_allclose(found, np.log(special.stdtr(dof, z)), rtol=0, atol=3e-9)


@pytest.mark.parametrize(
    ("location", "scale", "dof", "message"),
    [
        ([[0, np.nan]], [[1, 1]], [1, 1], r"location\[0, 1\] must be a finite number, got nan"),
        ([[0, 0], [0, np.inf]], [[1, 1], [1, 1]], [1, 1], r"location\[1, 1\] must be a finite number, got inf"),
        ([[0, 0]], [[1, np.inf]], [1, 1], r"scale\[0, 1\] must be a finite number above 0, got inf"),
        ([[0, 0]], [[0, 1]], [1, 1], r"scale\[0, 0\] must be a finite number above 0, got 0.0"),
        ([[0, 0]], [[1, -2]], [1, 1], r"scale\[0, 1\] must be a finite number above 0, got -2.0"),
        ([[0, 0]], [[1, 1]], [1, 0], r"dof\[1\] must be at least 0.03125, or inf for a normal, got 0.0"),
        ([[0, 0]], [[1, 1]], [np.nan, 1], r"dof\[0\] must be at least 0.03125, or inf for a normal, got nan"),
        ([0, 0], [1, 1], [1, 1], r"location must have shape \[N, K\] with K >= 1, got \[2\]"),
        (np.ones((3, 0)), np.ones((3, 0)), [], r"location must have shape \[N, K\] with K >= 1, got \[3, 0\]"),
        ([[0, 0]], [[1], [1]], [1, 1], r"scale must have shape \[1, 2\] to match location, got \[2, 1\]"),
        ([[0, 0]], [[1, 1]], [1], r"dof must have shape \[2\] to match location, got \[1\]"),
    ],
)
def test_what_is_refused(location, scale, dof, message):
    with pytest.raises(ValueError, match=message):
        probability_best(location, scale, dof)
