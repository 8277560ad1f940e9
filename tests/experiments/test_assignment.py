"""Who is in which arm: the same for ever, in the stated share, and anew under another name.

False alarms: each statistic below is compared with the quantile that a fair assignment exceeds with probability 1e-6.
Names, units and shares are fixed, so that a test that passes once passes always.
"""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.experiments.assignment import Assignment, arm_of, salt_of, unit_of
from potstill.policy.draw import siphash

NAMES = ["hd-first", "hd-first-2", "a", "0", "prices"]
UNITS = [f"user-{i}" for i in range(20_000)]
#: Quantiles of chi-square at 1 - 1e-6, by degrees of freedom (scipy.stats.chi2.isf(1e-6, df)).
CHI_SQUARE = {1: 23.928, 15: 56.493}


def treated(name: str, share: float, units=UNITS) -> np.ndarray:
    return Assignment(name, share).treated(units)


def test_the_documented_steps_give_the_arm():
    """From the documentation, with nothing of the module under test."""
    key = hashlib.sha256(b"potstill experiment hd-first").digest()[:16]
    for unit in ("user-1", "ü", "x" * 300):
        u = (siphash(key, unit.encode()) >> 11) / 2**53
        assert arm_of("hd-first", unit, 0.3) == ("treatment" if u < 0.3 else "control")


def test_assignments_of_long_ago_stand():
    """Written down when it was made: units must never move."""
    assert salt_of("hd-first").hex() == "137413ba2b8331eddf6ac6a68a9ec7ba"
    assert [arm_of("hd-first", unit, 0.5)[0] for unit in UNITS[:24]] == list("ttcccctccttccctcttccctct")


@given(st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1), st.sampled_from(NAMES))
def test_many_units_at_once_are_assigned_as_one_by_one(units, name):
    for share in (0.1, 0.5):
        expected = [arm_of(name, unit, share) == "treatment" for unit in units]
        assert treated(name, share, units).tolist() == expected


def test_there_may_be_no_units():
    assert treated("a", 0.5, []).tolist() == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.9])
def test_the_share_is_kept(name, share):
    found, expected = treated(name, share).sum(), share * len(UNITS)
    statistic = (found - expected) ** 2 / (expected * (1 - share))
    assert statistic < CHI_SQUARE[1]


@pytest.mark.parametrize("name", NAMES)
def test_units_are_spread_evenly(name):
    shares = np.arange(1, 17) / 16
    below = [int(treated(name, share).sum()) if share < 1 else len(UNITS) for share in shares]
    counts, expected = np.diff([0, *below]), len(UNITS) / 16
    assert ((counts - expected) ** 2 / expected).sum() < CHI_SQUARE[15]


@pytest.mark.parametrize(("one", "other"), [("hd-first", "hd-first-2"), ("a", "0"), ("prices", "hd-first")])
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_two_experiments_have_nothing_to_do_with_each_other(one, other, share):
    a, b = treated(one, share), treated(other, share)
    table = np.array([[np.sum((a == i) & (b == j)) for j in (False, True)] for i in (False, True)])
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    assert ((table - expected) ** 2 / expected).sum() < CHI_SQUARE[1]


def test_a_larger_share_moves_units_only_into_treatment():
    small, large = treated("a", 0.2), treated("a", 0.6)
    assert (small <= large).all()
    assert large.sum() > small.sum()


@pytest.mark.parametrize(
    ("value", "unit"),
    [("u", "u"), ("7", "7"), (7.0, "7"), (-3.0, "-3"), (0.1, "0.1"), (1e20, "1" + "0" * 20), (None, None), ("", None)],
)
def test_a_features_value_names_a_unit(value, unit):
    assert unit_of(value) == unit
