"""Rankings of two out of three items: all six, with their probabilities, written out."""

import itertools

import numpy as np
import pytest

from potstill.errors import InvalidLog
from potstill.evaluate import intervals, rankings
from potstill.spaces.ranking.ope import Rankings

SLATES = list(itertools.permutations(range(3), 2))
LOGGING = np.array([0.3, 0.1, 0.2, 0.1, 0.25, 0.05])
TARGET = np.array([0.05, 0.15, 0.1, 0.3, 0.1, 0.3])
BY_POSITION = {(item, position): 0.1 + 0.2 * item + 0.15 * position for item in range(3) for position in range(2)}


def of_the_item(slate, position):
    return BY_POSITION[slate[position], position]


def of_the_items_above(slate, position):
    return of_the_item(slate, position) * (2.0 if position and slate[0] == 1 else 1.0)


def of_all_items(slate, position):
    return of_the_item(slate, position) * (3.0 if slate == (2, 0) else 1.0)


def marginal(distribution, slate, position):
    return sum(p for p, other in zip(distribution, SLATES, strict=True) if other[position] == slate[position])


def conditional(distribution, slate, position):
    """Given the items above: the first position's is its marginal, the second's what is left of the whole."""
    first = marginal(distribution, slate, 0)
    return first if position == 0 else distribution[SLATES.index(slate)] / first


def table(entry):
    return np.array([[entry(slate, position) for position in range(2)] for slate in SLATES])


def logged(reward, probability):
    return Rankings(
        rewards=table(reward),
        propensities=table(lambda *place: probability(LOGGING, *place)),
        probabilities=table(lambda *place: probability(TARGET, *place)),
    )


CASES = [
    (of_the_item, marginal, "position"),
    (of_the_item, conditional, "above"),
    (of_the_item, conditional, "all"),
    (of_the_items_above, conditional, "above"),
    (of_the_items_above, conditional, "all"),
    (of_all_items, conditional, "all"),
]


@pytest.mark.parametrize(("reward", "probability", "depends_on"), CASES)
def test_unbiased_where_rewards_depend_on_no_more_than_is_said(reward, probability, depends_on):
    parts = rankings.ips(logged(reward, probability), depends_on)
    assert LOGGING @ parts.numerator == pytest.approx(TARGET @ table(reward).sum(axis=1))


@pytest.mark.parametrize(
    ("reward", "probability", "depends_on"),
    [(of_the_items_above, marginal, "position"), (of_all_items, conditional, "above")],
)
def test_biased_where_they_depend_on_more(reward, probability, depends_on):
    parts = rankings.ips(logged(reward, probability), depends_on)
    assert abs(LOGGING @ parts.numerator - TARGET @ table(reward).sum(axis=1)) > 0.02


@pytest.mark.parametrize("depends_on", ["position", "above", "all"])
def test_normalising_weights_average_one(depends_on):
    parts = rankings.snips(logged(of_the_item, marginal if depends_on == "position" else conditional), depends_on)
    assert LOGGING @ parts.denominator == pytest.approx(1)


def test_by_hand():
    two = Rankings(
        rewards=np.array([[1.0, 0.0], [0.0, 4.0]]),
        propensities=np.array([[0.5, 0.25], [0.5, 0.5]]),
        probabilities=np.array([[0.25, 0.5], [0.5, 1.0]]),
    )
    assert two.weights().tolist() == [[0.5, 2.0], [1.0, 2.0]]
    assert two.weights("above").tolist() == [[0.5, 1.0], [1.0, 2.0]]
    assert two.weights("all").tolist() == [[1.0, 1.0], [2.0, 2.0]]
    assert rankings.ips(two).value == (0.5 + 8) / 2
    assert rankings.snips(two).value == pytest.approx((0.5 + 8) / (1.25 + 1.5))


@pytest.mark.parametrize("depends_on", ["position", "above", "all"])
def test_positions_that_were_not_shown_count_nothing(depends_on):
    """The second ranking has one position; values at the other are ignored."""
    nan = np.nan
    ragged = Rankings(
        rewards=np.array([[1.0, 0.5], [2.0, nan]]),
        propensities=np.array([[0.5, 0.5], [0.25, 0.0]]),
        probabilities=np.array([[0.25, 1.0], [0.5, nan]]),
        shown=np.array([[True, True], [True, False]]),
    )
    full = Rankings(*(each[:1] for each in (ragged.rewards, ragged.propensities, ragged.probabilities)))
    first, second = rankings.ips(full, depends_on).numerator[0], 2.0 * 2.0
    assert rankings.ips(ragged, depends_on).numerator.tolist() == [first, second]
    assert rankings.snips(ragged, depends_on).denominator[1] == pytest.approx(2.0 / 1.5)


def test_intervals_cover_the_enumerated_value():
    rng, truth = np.random.default_rng(0), TARGET @ table(of_the_item).sum(axis=1)
    exact = logged(of_the_item, marginal)
    inside = {"ips": 0, "snips": 0}
    for _ in range(300):
        rows = rng.choice(6, 400, p=LOGGING)
        clicks = (rng.random((400, 2)) < exact.rewards[rows]).astype(float)
        log = Rankings(clicks, exact.propensities[rows], exact.probabilities[rows])
        for name in inside:
            low, high = intervals.normal(getattr(rankings, name)(log), 0.9).ends
            inside[name] += low <= truth <= high
    # Binomial(300, 0.9) is in this range but for one seed in 5,000.
    assert all(250 <= count <= 288 for count in inside.values())


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("propensities", 0.0, "row 1, position 0: propensities must be above 0 and at most 1, got 0.0"),
        ("propensities", 1.5, "got 1.5"),
        ("propensities", np.nan, "got nan"),
        ("probabilities", -0.1, "row 1, position 0: probabilities must be from 0 to 1, got -0.1"),
        ("rewards", np.inf, "row 1, position 0: rewards must be a finite number, got inf"),
    ],
)
def test_bad_rows_are_named(name, value, message):
    arrays = {each: np.full((2, 3), 0.5) for each in ("rewards", "propensities", "probabilities")}
    arrays[name][1, 0] = value
    with pytest.raises(InvalidLog, match=message):
        Rankings(**arrays)


def test_wrong_shapes():
    with pytest.raises(InvalidLog, match=r"rewards must have shape \[rankings, positions\], got \(3,\)"):
        Rankings(np.zeros(3), np.ones(3), np.ones(3))
    with pytest.raises(InvalidLog, match=r"propensities must have shape \(2, 3\), as rewards has, got \(2, 2\)"):
        Rankings(np.zeros((2, 3)), np.ones((2, 2)), np.ones((2, 3)))
