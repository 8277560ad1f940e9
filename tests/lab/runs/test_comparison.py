"""Paired comparison: Fieller's interval by hand and by coverage, and the words of the verdict."""

import math

import numpy as np
import pytest
from scipy import stats

from potstill.lab.runs.comparison import LEAST_TRIALS, Comparison, Estimate, expected_by_chance, fieller

SPACE = "\N{NO-BREAK SPACE}"


def test_an_estimate_by_hand():
    # Mean 4, squared deviations 4 + 0 + 4 over 2: standard deviation 2, standard error 2/√3.
    assert Estimate.of([2, 4, 6]) == Estimate(4.0, pytest.approx(4 / math.sqrt(3)), 3)
    assert Estimate.of([5]) == Estimate(5.0, None, 1)


def test_fieller_by_hand():
    """x = 9, 10, 11 and y = 20, 22, 24: variances 1 and 4, covariance 2, and t = 4.3027 for 2 degrees of freedom.

    t²/n = 6.171. a = 100 - 6.171 = 93.829; b = 220 - 2·6.171 = 207.658; c = 484 - 4·6.171 = 459.316. The discriminant
    b² - a·c is (207.658)² - 93.829·459.316 = 43121.9 - 43097.2 = 24.68, its root 4.968.
    """
    low, high = fieller([20, 22, 24], [9, 10, 11])
    assert low == pytest.approx((207.658 - 4.968) / 93.829, abs=2e-3)
    assert high == pytest.approx((207.658 + 4.968) / 93.829, abs=2e-3)


def test_the_ends_of_the_interval_are_where_a_t_test_turns_significant():
    """The definition, by an independent t-test."""
    rng = np.random.default_rng(5)
    x = 100 + 10 * rng.standard_normal(12)
    y = 1.1 * x + 3 * rng.standard_normal(12)
    for end in fieller(y, x):
        assert stats.ttest_1samp(y - end * x, 0.0).pvalue == pytest.approx(0.05, abs=1e-9)


def test_there_is_no_interval_where_there_can_be_none():
    assert fieller([1.0], [1.0]) is None
    # A denominator that is not away from 0: any ratio would do.
    assert fieller([1.0, 2.0, 3.0], [-1.0, 0.0, 1.1]) is None


def test_trials_that_agree_give_the_ratio_itself():
    assert fieller([2.0, 2.0, 2.0], [1.0, 1.0, 1.0]) == pytest.approx((2.0, 2.0))


@pytest.mark.parametrize("trials", [5, 10])
def test_the_interval_covers_as_often_as_it_says(trials):
    """4,000 simulated experiments with common luck and a ratio of 1.05.

    At 95 % coverage the share of misses has a standard deviation of 0.34 %: ±1.5 % are 4.4 of them, and a right
    program fails for one seed in 90,000.
    """
    rng = np.random.default_rng(trials)
    covered = 0
    for _ in range(4_000):
        luck = 40 * rng.standard_normal(trials)
        x = 1_000 + luck + 20 * rng.standard_normal(trials)
        y = 1_050 + luck + 20 * rng.standard_normal(trials)
        low, high = fieller(y, x)
        covered += low <= 1.05 <= high
    assert covered / 4_000 == pytest.approx(0.95, abs=0.015)


def test_pairing_sees_what_luck_would_hide():
    luck = np.array([100.0, 900, 300, 700, 500, 1_100])
    noise = np.array([1.0, -1, 2, -2, 1, -1])
    paired = Comparison.of(1.03 * luck + noise, luck, "regret")
    assert paired.outside
    assert (paired.low, paired.high) == (pytest.approx(1.03, abs=0.01), pytest.approx(1.03, abs=0.01))
    unpaired = Comparison.of(1.03 * luck + noise, luck[::-1], "regret")
    assert not unpaired.outside


NEAR = np.array([100.0, 101, 99, 100, 102, 98])
STEPS = np.array([1.0, -1, 1, -1, 1, -1])


@pytest.mark.parametrize(
    ("one", "other", "measure", "verdict"),
    [
        (NEAR + STEPS, NEAR, "regret", "no difference found: within two standard errors"),
        (NEAR, NEAR, "regret", "equal in every trial"),
        (NEAR[:4], NEAR[:4] + 1, "regret", "too few trials for a verdict: 4, and 5 are needed"),
        (NEAR * [0.4, 1.9, 1.6, 0.5, 1.5, 0.6], NEAR, "regret", "inconclusive: within two standard errors, but"),
        (1.06 * NEAR, NEAR, "regret", f"IL costs 6.0 to 6.0{SPACE}%: outside two standard errors"),
        (0.97 * NEAR, NEAR, "regret", f"IL gains 3.0 to 3.0{SPACE}%: outside two standard errors"),
        (
            NEAR + STEPS + 1,
            NEAR,
            "regret",
            f"IL costs 1.0{SPACE}%: just outside two standard errors; the 95",
        ),
        # Of reward more is better.
        (1.06 * NEAR, NEAR, "reward", f"IL gains 6.0 to 6.0{SPACE}%: outside two standard errors"),
        (0.97 * NEAR, NEAR, "reward", f"IL costs 3.0 to 3.0{SPACE}%: outside two standard errors"),
        # No share of what is not clearly away from zero.
        (
            NEAR,
            np.array([-3.0, 3, -2, 2, -1, 1]),
            "regret",
            "IL costs: outside two standard errors, but without an interval",
        ),
    ],
)
def test_verdicts(one, other, measure, verdict):
    assert Comparison.of(one, other, measure).verdict.startswith(verdict)


def test_outside_is_told_by_two_standard_errors():
    # The standard error of the steps' mean is √(6/5)/√6 = 0.447.
    assert not Comparison.of(NEAR + STEPS + 0.88, NEAR, "regret").outside
    assert Comparison.of(NEAR + STEPS + 0.91, NEAR, "regret").outside


def test_comparisons_outside_by_chance_are_counted():
    judged = Comparison.of(NEAR + STEPS, NEAR, "regret")
    unjudged = Comparison.of(NEAR[:4], NEAR[:4], "regret")
    assert unjudged.outside is None
    assert unjudged.difference.trials < LEAST_TRIALS
    # P(|T| > 2) with 5 degrees of freedom is 0.1019 in tables of Student's distribution.
    assert expected_by_chance([judged] * 20 + [unjudged]) == pytest.approx(20 * 0.1019, abs=0.01)
