"""The split of units against the exact binomial test."""

import numpy as np
import pytest
from scipy import stats

from potstill.experiments.analysis.sample_ratio import ALARM, mismatch, split


@pytest.mark.parametrize("share", [0.5, 0.1])
@pytest.mark.parametrize("units", [1_000, 100_000])
def test_alarms_are_those_of_the_exact_test(units, share):
    """By enumeration: where the two disagree, and how often a sound split alarms."""
    treatment = np.arange(units + 1)
    alarms = np.array([mismatch(units - n, n, share) < ALARM for n in treatment.tolist()])
    chances = stats.binom.pmf(treatment, units, share)
    assert 0.5 * ALARM < chances[alarms].sum() < 1.5 * ALARM
    unsound = stats.binom.pmf(treatment, units, share * 1.05 if units == 100_000 else share * 1.6)
    assert unsound[alarms].sum() > 0.75


def test_against_the_exact_test_at_single_splits():
    for treatment in (4_900, 4_850, 4_800):
        exact = stats.binomtest(treatment, 10_000, 0.5).pvalue
        assert mismatch(10_000 - treatment, treatment, 0.5) == pytest.approx(exact, rel=0.1)


def test_a_split_says_whether_it_is_broken():
    assert not split(5_000, 5_010, 0.5).broken
    assert split(5_000, 5_500, 0.5).broken
    assert split(20, 0, 0.5).broken
    assert split(5_000, 5_500, None).p is None
    assert split(0, 0, 0.5).p is None
    with pytest.raises(ValueError, match=r"share must be between 0 and 1, got 1\.5"):
        split(3, 4, 1.5)
