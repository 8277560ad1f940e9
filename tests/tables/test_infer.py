"""Actions in natural order, and propensities that cannot be the same in all rows."""

import numpy as np
import polars as pl
import pytest

from potstill.errors import InvalidLog, InvalidProblem
from potstill.tables import actions_in, check_constant_propensity, features_in, features_of, natural


def test_actions_are_in_natural_order():
    table = pl.LazyFrame({"action": ["a10", "b", "a2", "a1", "a02", "10", "9"]})
    assert actions_in(table, ["action"], ["a3"], "t") == ["9", "10", "a1", "a02", "a2", "a3", "a10", "b"]
    names = [f"item {k}" for k in range(120)]
    assert sorted(set(names), key=natural) == names


@pytest.mark.parametrize(
    ("propensity", "counts"),
    [(0.25, (250, 251, 249, 250)), (0.25, (300, 250, 225, 225)), (0.5, (400, 350, 250)), (1.0, (1000,))],
)
def test_propensities_that_can_be_the_same_in_all_rows(propensity, counts):
    check_constant_propensity(propensity, dict(zip("abcd", counts, strict=False)), "t")


@pytest.mark.parametrize(
    ("propensity", "counts"), [(0.25, (340, 220, 220, 220)), (0.25, (500, 500)), (0.01, (34, 966))]
)
def test_propensities_that_cannot_be_the_same_in_all_rows(propensity, counts):
    with pytest.raises(InvalidLog, match=r"was taken in .* % of 1,000 rows. If the propensity was"):
        check_constant_propensity(propensity, dict(zip("abcd", counts, strict=False)), "t")


def test_a_right_propensity_is_not_refused():
    """Of 2,000 uniform logs; by the bound, fewer than one in a million is refused."""
    rng = np.random.default_rng(0)
    for rows in (20, 10_000):
        for drawn in rng.multinomial(rows, np.full(34, 1 / 34), size=1_000):
            check_constant_propensity(1 / 34, dict(enumerate(drawn.tolist())), "t")


@pytest.mark.parametrize(
    ("spelling", "advice"),
    [("shop-{0}", "Hashed"), ("Red shoes, size {0}", "Text"), ("2026-01-31T12:00:{1:02}.{0}Z", "Timestamp")],
)
def test_many_different_strings_are_refused_with_the_type_that_suits_them(spelling, advice):
    table = pl.DataFrame({"x": [spelling.format(i, i % 60) for i in range(100)], "y": range(100)})
    with pytest.raises(InvalidProblem, match=f"'x' has 100 different values, .* in Python pass a {advice}, or"):
        features_of(table, None, target="y")
    with pytest.raises(InvalidLog, match=f"here: column 'x' has 100 different .* state the problem with a {advice}"):
        features_in(table.lazy(), ["x"], "here")
