"""The change detector finds a change of a mean, and rarely one that is not there."""

import numpy as np
import pytest

from potstill.keys import Key
from potstill.summaries import Sums, find_change


def series(means, seed=0, rows=40):
    rng = Key(seed).generator()
    cells = [rng.normal(mean, 1.0, size=rows) for mean in means]
    return [(at, Sums(rows, float(cell.sum()), float((cell**2).sum()))) for at, cell in enumerate(cells)]


def test_a_drop_is_found_where_it_happened():
    found = find_change(series([1.0] * 30 + [0.5] * 20))
    assert found.alarm
    assert abs(found.time - 30) <= 2
    assert (found.before, found.after) == (pytest.approx(1.0, abs=0.1), pytest.approx(0.5, abs=0.1))


def test_a_steady_series_raises_no_alarm():
    """100 series, false-alarm rate below 0.001 each: more than one alarm has probability below 0.005."""
    assert sum(find_change(series([1.0] * 40, seed)).alarm for seed in range(100)) <= 1


def test_constant_rewards_are_no_change():
    cells = [(at, Sums(50, 50 * 0.1, 50 * 0.01)) for at in range(20)]
    assert not find_change(cells).alarm


@pytest.mark.parametrize("cells", [[], [(0, Sums(10, 1.0, 1.0))], [(at, Sums()) for at in range(5)]])
def test_few_rows_say_nothing(cells):
    assert find_change(cells) is None


def test_a_step_without_noise_is_certain():
    cells = [(at, Sums(100, 100.0 * level, 100.0 * level**2)) for at, level in enumerate(np.repeat([1.0, 2.0], 5))]
    assert find_change(cells).p == 0.0
