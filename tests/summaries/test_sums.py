"""Sums say what the rows say: estimates and intervals beside NumPy on the rows themselves."""

import numpy as np
import pytest

from potstill.keys import Key
from potstill.summaries import Sums, Weighted, against, difference, mean_of, off_policy


def sums(values):
    return Sums(len(values), float(values.sum()), float((values**2).sum()))


def weighted(w, r):
    products = (w, w**2, w * r, w * r**2, w**2 * r, w**2 * r**2)
    return Weighted(*(float(product.sum()) for product in products))


def example(seed=0, n=500):
    rng = Key(seed).generator()
    return rng.exponential(size=n), rng.normal(3.0, 2.0, size=n)


def test_a_mean_has_the_usual_interval():
    _, r = example()
    found = mean_of(sums(r))
    error = r.std(ddof=1) / np.sqrt(len(r))
    assert (found.value, found.rows) == (pytest.approx(r.mean()), 500)
    assert (found.low, found.high) == pytest.approx((r.mean() - 1.959964 * error, r.mean() + 1.959964 * error))


def test_sums_of_parts_are_the_sums_of_the_whole():
    w, r = example()
    parts = [slice(0, 10), slice(10, 11), slice(11, None)]
    assert sum((sums(r[part]) for part in parts), Sums()).total == pytest.approx(r.sum())
    total = sum((weighted(w[part], r[part]) for part in parts), Weighted())
    assert off_policy(total, sums(r)).value == pytest.approx((w * r).sum() / w.sum())


def test_an_off_policy_estimate_is_self_normalised_with_the_error_of_its_influence():
    w, r = example()
    value = (w * r).sum() / w.sum()
    error = np.sqrt((w**2 * (r - value) ** 2).sum()) / w.sum()
    found = off_policy(weighted(w, r), sums(r))
    assert (found.value, found.low) == (pytest.approx(value), pytest.approx(value - 1.959964 * error))
    assert found.effective == pytest.approx(w.sum() ** 2 / (w**2).sum())


def test_a_comparison_on_the_same_rows_counts_their_covariance():
    w, r = example()
    value, mean, n = (w * r).sum() / w.sum(), r.mean(), len(r)
    influence = (r - mean) / n - w * (r - value) / w.sum()
    found = against(weighted(w, r), sums(r))
    assert found.value == pytest.approx(mean - value)
    assert found.high - found.value == pytest.approx(1.959964 * np.sqrt((influence**2).sum()), rel=1e-6)


def test_the_same_distribution_differs_by_nothing():
    _, r = example()
    found = against(weighted(np.ones_like(r), r), sums(r))
    assert (found.value, found.low, found.high) == pytest.approx((0.0, 0.0, 0.0), abs=1e-6)


def test_intervals_of_a_comparison_cover():
    """400 logs of 300 rows: 95% intervals miss 20 times on average; outside 6 to 38 with probability below 1e-4."""
    missed = 0
    for seed in range(400):
        rng = Key(seed).child("log").generator()
        p = rng.choice([0.2, 0.8], size=300)
        taken = rng.random(300) < p
        r = np.where(taken, 1.0, 0.4) + rng.normal(size=300)
        propensity = np.where(taken, p, 1 - p)
        found = against(weighted(0.5 / propensity, r), sums(r))
        truth = 0.5 * 1.0 + 0.5 * 0.4 - (0.5 * 1.0 + 0.5 * 0.4)  # p averages 0.5, as the target
        missed += not found.low <= truth <= found.high
    assert 6 <= missed <= 38


def test_without_rows_nothing_is_known():
    assert off_policy(Weighted(), Sums()).value is None
    assert mean_of(Sums(1, 2.0, 4.0)).low is None
    assert difference(Sums(), Sums(2, 2.0, 2.0)).value is None
