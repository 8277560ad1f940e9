"""Ratios by the delta method against drawing units again."""

import numpy as np
import pytest
from experiment_examples import units

from potstill.experiments.analysis.effects import linearised


def test_by_hand():
    """Ratio 6/4; each unit adds what it has beyond its size's due, over the mean size 2."""
    assert linearised(np.array([2.0, 4.0]), np.array([1.0, 3.0])).tolist() == [1.5 + 0.25, 1.5 - 0.25]


def test_the_spread_is_that_of_drawing_units_again():
    made = units(800, np.random.default_rng(1))
    total, size = made.outcomes["reward"], made.decisions
    rng = np.random.default_rng(2)
    counts = rng.multinomial(800, np.full(800, 1 / 800), 4000)
    again = counts @ total / (counts @ size)
    values = linearised(total, size)
    assert values.mean() == pytest.approx(total.sum() / size.sum())
    assert values.std(ddof=1) / 800**0.5 == pytest.approx(again.std(), rel=0.05)


def test_counting_decisions_as_if_they_were_independent_would_be_too_narrow():
    """The reason for all of this: decisions of one unit are alike."""
    rng = np.random.default_rng(3)
    habits = rng.beta(0.5, 0.5, 500)
    size = np.full(500, 20.0)
    total = rng.binomial(20, habits).astype(float)
    mean = total.sum() / size.sum()
    naive = (mean * (1 - mean) / size.sum()) ** 0.5
    assert linearised(total, size).std(ddof=1) / 500**0.5 > 2.5 * naive
