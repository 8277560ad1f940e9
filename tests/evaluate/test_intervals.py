"""Intervals against hand-sized cases, rows repeated one by one, and coverage that is enumerated."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import potstill as ps
from potstill.evaluate import intervals
from potstill.evaluate.evaluation import evaluate
from potstill.evaluate.log import ArrayLog
from potstill.keys import Key
from potstill.spaces.influence import Parts

KEY = Key(3)


def parts_of(rng, n, *, base=True, denominator=True):
    weights = rng.choice([0.1, 1.0, 6.0], n, p=[0.5, 0.4, 0.1])
    rewards = rng.random(n)
    return Parts(rng.normal(5, 1, n) if base else None, weights * rewards, weights if denominator else None)


def width(interval):
    return interval.high - interval.low


def test_normal_by_hand():
    interval = intervals.normal(Parts(base=np.array([1.0, 2.0, 3.0, 4.0])), 0.95)
    half = 1.959964 * math.sqrt(5 / 3) / 2
    assert interval.ends == pytest.approx((2.5 - half, 2.5 + half), abs=1e-5)
    assert (interval.level, interval.method, interval.note) == (0.95, "normal", "")


def test_normal_of_a_ratio_has_the_spread_of_the_ratio():
    rng = np.random.default_rng(0)
    logs = [parts_of(rng, 400) for _ in range(2000)]
    spread = np.std([parts.value for parts in logs])
    widths = [width(intervals.normal(parts, 0.95)) for parts in logs]
    assert np.mean(widths) == pytest.approx(2 * 1.96 * spread, rel=0.06)  # the spread is known to 1.6 %


@pytest.mark.parametrize("interval", [intervals.normal, lambda parts, level: intervals.bootstrap(parts, level, KEY)])
def test_too_little_to_say_anything(interval):
    one = interval(Parts(base=np.array([1.0])), 0.9)
    assert (one.low, one.high, one.note) == (-np.inf, np.inf, "fewer than two rows")
    nothing = interval(Parts(numerator=np.zeros(9), denominator=np.zeros(9)), 0.9)
    assert (nothing.low, nothing.high, nothing.note) == (-np.inf, np.inf, intervals.NO_WEIGHT)


@pytest.mark.parametrize("level", [0, 1, 95, math.nan])
def test_levels_that_are_none(level):
    with pytest.raises(ValueError, match="between 0 and 1, such as"):
        intervals.normal(Parts(base=np.arange(3.0)), level)
    with pytest.raises(ValueError, match="between 0 and 1, such as"):
        intervals.bootstrap(Parts(base=np.arange(3.0)), level, KEY)


@given(seed=st.integers(0, 2**32), n=st.integers(3, 40), base=st.booleans(), denominator=st.booleans())
def test_replicates_are_what_repeated_rows_would_give(seed, n, base, denominator):
    rng = np.random.default_rng(seed)
    parts = parts_of(rng, n, base=base, denominator=denominator)
    counts = rng.poisson(1, n)
    counts[0] += 2  # at least two rows
    moments = intervals._moments(intervals._grouped(intervals._centred(parts)))
    shift, error = intervals._shift_and_error((counts @ moments)[None])
    repeated = Parts(
        *(None if c is None else np.repeat(c, counts) for c in (parts.base, parts.numerator, parts.denominator))
    )
    assert shift[0] == pytest.approx(repeated.value - parts.value, abs=1e-9)
    assert error[0] == pytest.approx(np.std(repeated.influence, ddof=1) / math.sqrt(len(repeated)), abs=1e-7)


def test_counts_are_poisson():
    counts = np.bincount(intervals._poisson_table().astype(int))
    assert counts / 2**16 == pytest.approx(stats.poisson(1).pmf(np.arange(len(counts))), abs=2**-16)


def test_the_bootstrap_agrees_with_normal_when_rows_are_many_and_tame():
    rng = np.random.default_rng(1)
    for parts in (parts_of(rng, 4000), parts_of(rng, 3 * intervals.GROUPS + 5)):
        plain, drawn = intervals.normal(parts, 0.9), intervals.bootstrap(parts, 0.9, KEY)
        assert drawn.low == pytest.approx(plain.low, abs=0.06 * width(plain))
        assert drawn.high == pytest.approx(plain.high, abs=0.06 * width(plain))


def test_the_bootstrap_reaches_further_to_the_side_on_which_rare_rows_are_missing():
    rng = np.random.default_rng(2)
    parts = Parts(base=rng.exponential(1, 60) ** 2)
    drawn = intervals.bootstrap(parts, 0.95, KEY)
    assert drawn.high - parts.value > 1.5 * (parts.value - drawn.low)


def test_the_bootstrap_depends_on_its_key_alone():
    parts = parts_of(np.random.default_rng(4), 300)
    assert intervals.bootstrap(parts, 0.9, KEY) == intervals.bootstrap(parts, 0.9, KEY)
    assert intervals.bootstrap(parts, 0.9, KEY) != intervals.bootstrap(parts, 0.9, Key(4))


def test_the_bootstrap_of_rows_that_are_all_alike():
    same = intervals.bootstrap(Parts(base=np.full(50, 7.0)), 0.95, KEY)
    assert (same.low, same.high) == (7.0, 7.0)


def test_the_bootstrap_owns_up_when_two_rows_carry_everything():
    weights = np.zeros(100)
    weights[:2] = 50.0
    interval = intervals.bootstrap(Parts(None, weights * np.linspace(0, 1, 100), weights), 0.95, KEY)
    assert width(interval) == np.inf
    assert interval.note == intervals.NO_WEIGHT


def test_bernstein_by_hand():
    values = np.tile([0.0, 2.0], 500)
    log = math.log(3 / 0.05)
    half = math.sqrt(2 * (1000 / 999) * log / 1000) + 7 * 2 * log / (3 * 999)
    assert intervals.bernstein(values, 0, 2, 0.95).ends == pytest.approx((1 - half, 1 + half))


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("n", [2, 10, 60])
def test_bernstein_covers_every_coin(n, level):
    """All outcomes of n tosses with their probabilities, so that the coverage is exact."""
    heads = [intervals.bernstein(np.repeat([1.0, 0.0], [k, n - k]), 0, 1, level) for k in range(n + 1)]
    for p in np.linspace(0.001, 0.999, 41):
        covered = [interval.low <= p <= interval.high for interval in heads]
        assert stats.binom(n, p).pmf(np.arange(n + 1)) @ covered >= level


def test_bernstein_is_within_the_bounds():
    assert intervals.bernstein(np.array([0.0, 1.0]), 0, 1, 0.95).ends == (0, 1)
    assert intervals.bernstein(np.array([0.5]), 0, 1, 0.95).note == "fewer than two rows"


@pytest.mark.parametrize("bad", [1.5, -0.1, math.nan])
def test_bernstein_refuses_terms_outside_the_bounds(bad):
    with pytest.raises(ValueError, match=rf"row 1: the term must be from 0 to 1, got {bad} \(and 1 more"):
        intervals.bernstein(np.array([0.5, bad, 0.2, bad]), 0, 1, 0.95)
    with pytest.raises(ValueError, match="low must be below high"):
        intervals.bernstein(np.array([0.5]), 1, 1, 0.95)


COINS = ps.Problem(
    name="coins",
    context=[ps.Boolean("heads")],
    actions=ps.Discrete(["a", "b", "c"]),
    reward=ps.Reward(low=0.0, high=1.0),
)
LOGGING, TARGET = np.array([[0.5, 0.3, 0.2], [0.2, 0.6, 0.2]]), np.array([[0.2, 0.2, 0.6], [0.6, 0.3, 0.1]])
REWARD = np.array([[0.2, 0.4, 0.6], [0.7, 0.5, 0.3]])
TRUTH = (TARGET * REWARD).sum() / 2
LOGS, LOOKS = 120, (150, 220, 320)


def simulated(seed):
    rng, rows = np.random.default_rng(seed), LOOKS[-1]
    sides = rng.integers(0, 2, rows)
    actions = (rng.random((rows, 1)) > LOGGING[sides].cumsum(axis=1)).sum(axis=1)
    rewards = (rng.random(rows) < REWARD[sides, actions]).astype(float)
    return sides, actions, rewards


def test_estimates_of_simulated_logs_cover_the_truth():
    """Each estimator and interval fails for one seed in 10,000 if its coverage is as promised.

    `benchmarks/coverage.py` has all estimators over 1,000 logs.
    """
    names = ("ips", "snips", "dr", "sndr")
    covered = {(name, how): np.ones(LOGS, bool) for name in names for how in ("normal", "bootstrap", "anytime")}
    encoded = COINS.encode_many([{"heads": False}, {"heads": True}])
    for seed in range(LOGS):
        sides, actions, rewards = simulated(seed)
        for n in LOOKS:
            columns = {"contexts": encoded[sides[:n]], "actions": actions[:n], "rewards": rewards[:n]}
            log = ArrayLog(COINS, **columns, propensities=LOGGING[sides, actions][:n])
            asked = ("normal", "bootstrap") if n == LOOKS[-1] else ()
            found = evaluate(log, TARGET[sides[:n]], estimators=names, intervals=asked, seed=seed).target.estimates
            for name in names:
                for how, interval in {**found[name].intervals, "anytime": found[name].anytime}.items():
                    covered[name, how][seed] &= interval.low <= TRUTH <= interval.high
    fewest, most = stats.binom(LOGS, 0.95).ppf([0.00005, 0.99995])
    for (name, how), each in covered.items():
        assert fewest <= each.sum() <= (LOGS if how == "anytime" else most), (name, how)
