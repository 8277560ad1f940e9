"""Effects by segment, and what many segments do to chance."""

import numpy as np
import pytest
from scipy import stats

from potstill.experiments.analysis.breakdowns import by_segment, interaction
from potstill.experiments.analysis.effects import Effect, effect, holm


def world(rng, effects, units=800):
    """Units in as many segments as there are effects."""
    where, treated = rng.integers(0, len(effects), units), rng.random(units) < 0.5
    total = 5 + rng.normal(size=units) + treated * np.asarray(effects)[where]
    return np.array([f"s{code}" for code in where]), treated, total


def segments(rng, effects, units=800):
    names, treated, total = world(rng, effects, units)
    return by_segment("kind", names, treated, lambda rows: effect(treated[rows], total[rows], None), 0.95)


def test_holm_by_hand():
    """Of 0.01, 0.04, 0.03: the smallest times 3, the next times 2, the largest not below that."""
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


def test_interaction_of_many_units_is_a_chi_square():
    """Effects 1, 3 and 2 with errors 1: their squared distances from the mean add up to 2."""
    apart = [Effect(0.0, difference, (0.5, 0.5), 0.0, 1e9, 50) for difference in (1.0, 3.0, 2.0)]
    assert interaction(apart) == pytest.approx(stats.chi2.sf(2, 2))
    assert interaction(apart[:1]) is None


def test_interaction_of_two_segments_is_the_t_test_of_their_difference():
    apart = [Effect(0.0, 1.0, (0.5, 0.5), 0.0, 8.0, 50), Effect(0.0, 3.0, (0.5, 1.5), 0.0, 12.0, 50)]
    df = 3**2 / (1 / 8 + 2**2 / 12)
    assert interaction(apart) == pytest.approx(2 * stats.t.sf(2 / 3**0.5, df))


def test_interaction_is_the_test_of_welch():
    """As an analysis of variance of samples with unequal variances, which SciPy has."""
    rng = np.random.default_rng(1)
    samples = [rng.normal(mean, 1 + mean, size) for mean, size in ((0.1, 8), (0.5, 20), (1.0, 13))]
    means = [Effect(0.0, one.mean(), (one.var(ddof=1) / len(one), 0.0), 0.0, len(one) - 1, len(one)) for one in samples]
    assert interaction(means) == pytest.approx(stats.f_oneway(*samples, equal_var=False).pvalue)


def test_an_effect_in_one_segment_is_found_there():
    found = segments(np.random.default_rng(0), [0.0, 0.0, 0.8])
    moved = {one.name: one.p < 0.05 for one in found.segments}
    assert moved == {"s0": False, "s1": False, "s2": True}
    assert found.p < 1e-4
    assert found.sentence.startswith("The effect depends on kind (p = ")
    assert found.sentence.endswith("an effect is found in s2.")


def test_many_segments_do_not_make_findings():
    """300 experiments of five segments without effect; each bound holds in 999 of 1,000 test runs at 5 %."""
    rng, any_found, different, outside = np.random.default_rng(3), 0, 0, 0
    for _ in range(300):
        found = segments(rng, [0.0] * 5, 600)
        any_found += any(one.p < 0.05 for one in found.segments)
        outside += any(one.measured.interval.is_above or one.measured.interval.is_below for one in found.segments)
        different += found.p < 0.05
    low, high = stats.binom.interval(0.999, 300, 0.05)
    assert any_found <= high
    assert outside <= high
    assert low <= different <= high


def test_small_segments_are_shown_without_an_effect():
    names = np.array(["large"] * 80 + ["small"] * 9)
    treated, total = np.arange(89) % 2 > 0, np.arange(89) % 7 / 1.0
    found = by_segment("kind", names, treated, lambda rows: effect(treated[rows], total[rows], None), 0.95)
    assert [(one.name, one.units, one.measured is None) for one in found.segments] == [
        ("large", 80, False),
        ("small", 9, True),
    ]
    assert found.p is None
    assert found.sentence == "Too few units to compare effects by kind: a segment needs 20 in each arm."


def test_numbers_are_cut_into_ranges():
    rng = np.random.default_rng(4)
    treated, total = rng.random(500) < 0.5, rng.normal(size=500)
    found = by_segment(
        "speed", rng.gamma(2, 100, 500), treated, lambda rows: effect(treated[rows], total[rows], None), 0.95
    )
    assert len(found.segments) == 5
    assert sum(one.units for one in found.segments) == 500
