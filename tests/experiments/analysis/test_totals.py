"""Sums that do not depend on the order of rows."""

from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.experiments.analysis.units import FixedPoint

NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=64).filter(lambda x: abs(x) < 1e300)


def total(values):
    fixed = FixedPoint.of(max(map(abs, values)), len(values))
    frame = pl.DataFrame({"value": values}, schema={"value": pl.Float64})
    return frame.select(*fixed.sums("value")).select(fixed.total()).item()


@given(st.lists(NUMBERS, min_size=1, max_size=40), st.randoms())
def test_any_order_gives_the_same_sum(values, random):
    shuffled = values.copy()
    random.shuffle(shuffled)
    assert total(values) == total(shuffled)


@given(st.lists(NUMBERS, min_size=1, max_size=40))
def test_the_sum_is_exact_to_far_below_the_largest_value(values):
    exact = sum(map(Fraction, values))
    # The last rounding is a double's own; below it there are some 110 bits of the largest value. Values below 1e-299
    # are nothing.
    allowed = abs(exact) * Fraction(2) ** -52 + Fraction(max(map(abs, values))) * Fraction(2) ** -100 + Fraction(1e-299)
    assert abs(Fraction(total(values)) - exact) <= allowed


def test_small_values_beside_large_ones_are_not_lost():
    assert total([1e16, 1.0, -1e16]) == 1.0
    assert total([1e16, 1e-5, -1e16]) == pytest.approx(1e-5, rel=1e-12)


@pytest.mark.parametrize("rows", [1, 10**7, 10**11])
def test_no_sum_overflows(rows):
    fixed = FixedPoint.of(3.0, rows)
    assert rows * round(3.0 / fixed.coarse) < 2**63
    assert np.isfinite(fixed.fine)
    assert fixed.fine > 0


def test_nothing_adds_up_to_nothing():
    assert total([0.0, -0.0]) == 0.0
