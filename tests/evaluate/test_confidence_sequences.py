"""Confidence sequences: the mixtures integrated and enumerated, widths, and coverage under continuous peeking.

Simulations have fixed seeds. Each would fail for one seed in 10,000 if the coverage were exactly as promised.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from potstill.evaluate import confidence_sequences, intervals
from potstill.spaces.influence import Parts

RUNS = 400


def most_misses(level):
    """Bound on the misses of a valid sequence that holds for all but one seed in 10,000."""
    return stats.binom(RUNS, 1 - level).ppf(0.9999)


def ever_outside(lows, highs, truth):
    return bool(np.any((lows > truth) | (highs < truth)))


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_the_margin_is_where_the_normal_mixture_reaches_its_limit(level):
    alpha, n, best_at = 1 - level, 700.0, 250.0
    rho = math.sqrt((-special.lambertw(-(alpha**2) / math.e, -1).real - 1) / best_at)
    s = n * confidence_sequences.margin(n, level, best_at)

    def mixed(stake):
        return math.exp(stake * s - stake**2 * n / 2) * stats.norm(0, rho).pdf(stake)

    wealth, _ = integrate.quad(mixed, -8 * rho, 8 * rho, points=[s / n], limit=200)
    assert wealth == pytest.approx(1 / alpha, rel=1e-6)


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_no_choice_is_tighter_at_the_stated_number_of_rows(level):
    others = [confidence_sequences.margin(1000, level, best_at) for best_at in np.geomspace(10, 100_000, 401)]
    assert confidence_sequences.margin(1000, level, 1000) == pytest.approx(min(others), rel=1e-9)


def test_the_price_of_looking_often():
    half = confidence_sequences.margin(np.array([10_000, 100_000]), 0.95, 10_000) * np.sqrt([10_000, 100_000])
    assert half / 1.96 == pytest.approx([1.549, 1.656], abs=0.001)


def test_asymptotic_by_hand_and_running():
    values = np.random.default_rng(0).exponential(3, 500) + 1e6
    interval = confidence_sequences.asymptotic(values.mean(), values.std(ddof=1), 500, 0.9, best_at=200)
    lows, highs = confidence_sequences.asymptotic_running(values, 0.9, best_at=200)
    assert (lows[-1], highs[-1]) == pytest.approx(interval.ends, rel=1e-12)
    assert lows[0] == -np.inf
    assert highs[1] - lows[1] == pytest.approx(
        2 * np.std(values[:2], ddof=1) * confidence_sequences.margin(2, 0.9, 200)
    )


def test_too_little_to_say_anything():
    interval = confidence_sequences.asymptotic(1.0, 0.0, 1, 0.95)
    assert (interval.low, interval.high, interval.note) == (-np.inf, np.inf, "fewer than two rows")
    for ends in (
        *confidence_sequences.asymptotic_running(np.zeros(0), 0.9),
        *confidence_sequences.bounded(np.zeros(0), 0, 1, 0.9),
    ):
        assert ends.shape == (0,)


@pytest.mark.parametrize("best_at", [0, -5, math.nan])
def test_a_best_at_that_is_no_number_of_rows(best_at):
    with pytest.raises(ValueError, match="best_at must be a number of rows above 0"):
        confidence_sequences.margin(10, 0.95, best_at)


def test_peeking_at_every_row():
    """Skewed rows, a look at each from the 100th to the 4,000th: the sequence holds, the normal interval does not."""
    rng, n = np.random.default_rng(5), np.arange(1, 4001)
    ratio = 1.645 / np.sqrt(n) / confidence_sequences.margin(n, 0.9, 1000)  # of the widths
    sequence = plain = 0
    for _ in range(RUNS):
        lows, highs = (
            ends[100:] for ends in confidence_sequences.asymptotic_running(rng.exponential(1, len(n)), 0.9, 1000)
        )
        sequence += ever_outside(lows, highs, 1.0)
        centre, half = (lows + highs) / 2, (highs - lows) / 2 * ratio[100:]
        plain += ever_outside(centre - half, centre + half, 1.0)
    assert sequence <= most_misses(0.9)
    assert plain > 0.4 * RUNS


# The exact sequences


def wealth(x, means, stake):
    """The wealth of one stake after the terms x, written out step by step."""
    log, total = 0.0, 0.5
    for t, (value, mean) in enumerate(zip(x, means, strict=True), start=1):
        guess = min(total / t, 1.0)
        log += stake * (value - mean) + (math.log(1 - stake) + stake) * (value - guess) ** 2
        total += value
    return math.exp(log)


TWO_POINTS = {"coin": (0.0, 1.0, 0.5), "rare": (0.0, 1.0, 0.1), "heavy": (0.0, 9.0, 0.1), "shifted": (0.4, 3.0, 0.2)}


@pytest.mark.parametrize("stake", [0.01, 0.5, 0.99])
@pytest.mark.parametrize(("small", "large", "p"), TWO_POINTS.values(), ids=TWO_POINTS)
def test_wealth_never_grows_on_average(small, large, p, stake):
    mean, before = p * large + (1 - p) * small, 1.0
    for n in range(1, 8):
        paths = list(itertools.product([(small, 1 - p), (large, p)], repeat=n))
        now = sum(math.prod(q for _, q in path) * wealth([x for x, _ in path], [mean] * n, stake) for path in paths)
        assert now <= before + 1e-12
        before = now


@pytest.mark.parametrize("v", [0.01, 0.7, 55.0, 1e6])
@pytest.mark.parametrize("alpha", [0.3, 0.025])
def test_boundaries_are_where_the_mixture_reaches_its_limit(alpha, v):
    stakes = confidence_sequences._STAKES
    costs, limit = v * (-np.log1p(-stakes) - stakes), math.log(len(stakes) / alpha)
    root = optimize.brentq(lambda s: special.logsumexp(stakes * s - costs) - limit, 0, 100 + 100 * v)
    found = confidence_sequences._boundary(np.array([v]), alpha)[0]
    assert root * (1 - 1e-9) <= found <= root * 1.006  # V is rounded up, never down


def test_lower_ends_are_the_terms_less_the_boundary():
    x = np.array([0.2, 3.0, 0.0, 1.0])
    guesses = [0.5, 0.7 / 2, 1.0, 3.7 / 4]
    v = np.cumsum(np.square(x - guesses))
    expected = (np.cumsum(x) - confidence_sequences._boundary(v, 0.1)) / [1, 2, 3, 4]
    assert confidence_sequences._lower(x, 0.1) == pytest.approx(expected)


@pytest.mark.parametrize(("small", "large", "p"), TWO_POINTS.values(), ids=TWO_POINTS)
def test_how_often_any_of_the_lower_ends_is_too_high(small, large, p):
    """All 16,384 paths of 14 rows with their probabilities. At α = 0.9 some do cross, so the test can fail."""
    mean, ones = p * large + (1 - p) * small, np.array(list(itertools.product([0, 1], repeat=14)))
    probabilities = p ** ones.sum(axis=1) * (1 - p) ** (14 - ones.sum(axis=1))
    crossed = [np.any(confidence_sequences._lower(np.where(path, large, small), 0.9) > mean) for path in ones]
    assert 0 < probabilities @ crossed <= 0.9


def test_bounds_of_a_mean_that_drifts_hold_at_every_row():
    rng, misses = np.random.default_rng(6), 0
    means = 0.5 + 0.4 * np.sin(np.arange(2000) / 150)
    average = np.cumsum(means) / np.arange(1, 2001)
    for _ in range(RUNS):
        lows, highs = confidence_sequences.bounded(3 * (rng.random(2000) < means) - 1.0, -1, 2, 0.8)
        misses += ever_outside(lows, highs, 3 * average - 1)
    assert misses <= most_misses(0.8)


def test_weights_need_no_bound():
    """One row in a hundred has weight 90.01: the target's value is 0.9 · 0.8 + 0.1 · 0.3 = 0.75."""
    rng, misses = np.random.default_rng(7), 0
    for _ in range(RUNS):
        rare = rng.random(3000) < 0.01
        weights, rewards = np.where(rare, 90.0, 0.1 / 0.99), rng.random(3000) < np.where(rare, 0.8, 0.3)
        lows, highs = confidence_sequences.weighted(weights, rewards.astype(float), 0, 1, 0.8)
        misses += ever_outside(lows, highs, 0.75)
    assert misses <= most_misses(0.8)
    assert 0.2 < lows[-1] < 0.75 < highs[-1] < 1.0


def test_weighted_holds_although_an_action_was_never_logged():
    rewards = (np.random.default_rng(8).random(20_000) < 0.5).astype(float)
    lows, highs = confidence_sequences.weighted(
        np.full(20_000, 0.7), rewards, 0, 1, 0.95
    )  # 0.3 of the target was never tried
    assert lows[-1] == pytest.approx(0.7 * 0.5, abs=0.05)
    assert highs[-1] == pytest.approx(0.7 * 0.5 + 0.3, abs=0.05)


def test_the_price_of_being_exact():
    values = (np.random.default_rng(9).random(10_000) < 0.3).astype(float)
    lows, highs = confidence_sequences.bounded(values, 0, 1, 0.95)
    plain = intervals.normal(Parts(base=values), 0.95)
    assert highs[-1] - lows[-1] < 1.95 * (plain.high - plain.low)
    assert lows[-1] <= plain.low < plain.high <= highs[-1]


def test_ends_scale_with_the_terms_and_stay_within_the_bounds():
    x = np.random.default_rng(10).random(200)
    lows, highs = confidence_sequences.bounded(x, 0, 1, 0.9)
    assert lows[0] == 0
    assert highs[0] == 1
    scaled = confidence_sequences.bounded(7 - 5 * x, 2, 7, 0.9)
    assert scaled[0] == pytest.approx(7 - 5 * highs)
    assert scaled[1] == pytest.approx(7 - 5 * lows)


def test_a_table_of_boundaries_does_not_depend_on_how_far_it_goes():
    assert np.array_equal(confidence_sequences._boundaries(0.05, 1), confidence_sequences._boundaries(0.05, 3)[:512])


def test_terms_outside_the_bounds():
    with pytest.raises(ValueError, match="row 1: the term must be from 0 to 1, got 2"):
        confidence_sequences.bounded(np.array([0.0, 2.0]), 0, 1, 0.95)
    with pytest.raises(ValueError, match=r"row 0: the term must be from 0.0 to inf, got -0.5"):
        confidence_sequences.weighted(np.array([-0.5, 2.0]), np.zeros(2), 0, 1, 0.95)
