"""Students that minimise the Wasserstein distance, beside those that minimise KL."""

from functools import partial

import msgspec
import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm

import potstill as ps
from potstill.distill import imitate
from potstill.distill.imitate import by_distance
from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.policy import outputs
from potstill.spaces.registry import learning

SPACE = ps.Continuous("dose", 0, 1, bins=64)


def labels(x):
    """A narrow peak whose place depends on the context in a way that four hidden units cannot follow."""
    place = 0.2 + 0.6 * (0.5 + 0.5 * np.sin(3 * x[:, :1] + 2 * x[:, 1:2])) * x[:, 2:3]
    p = np.diff(norm.cdf((SPACE.edges[None] - place) / 0.05), axis=1)
    return (p / p.sum(axis=1, keepdims=True)).astype(np.float32)


def trained(space, labels, x, distance):
    student, space = ps.Student(hidden=(4,), steps=500, distance=distance), learning(space)

    def train(student, start):
        return imitate(x, labels, student, Key(0), start, learning=space)

    return by_distance(train, student, None)


def distance(space, found, x, labels):
    q = softmax(outputs(found.layers, "tanh", x).astype(float), axis=1)
    return float(learning(space).geometry.distance(labels.astype(float), q).mean())


def test_a_small_network_moves_numbers_less_far_if_it_is_trained_to():
    x, fresh = (np.random.default_rng(seed).random((n, 3), np.float32) for seed, n in ((0, 3000), (1, 500)))
    kl, near = (trained(SPACE, labels(x), x, name) for name in ("kl", "wasserstein"))
    assert distance(SPACE, near, fresh, labels(fresh)) < 0.6 * distance(SPACE, kl, fresh, labels(fresh))
    assert near.steps > kl.steps
    assert near.kl > kl.kl


def test_actions_with_positions_are_imitated_by_distance_too():
    rng = np.random.default_rng(2)
    space = ps.Discrete(list("abcdef"), positions=[1, 2, 3, 5, 8, 13])
    x = rng.random((2000, 3), np.float32)
    wanted = softmax(4 * np.tanh(x @ rng.normal(size=(3, 6)) * 5), axis=1).astype(np.float32)
    kl, near = (trained(space, wanted, x, name) for name in ("kl", "wasserstein"))
    assert distance(space, near, x, wanted) < distance(space, kl, x, wanted)


def test_a_space_without_distances_is_refused():
    problem = ps.Problem(name="p", context=[ps.Boolean("b")], actions=ps.Discrete(["a", "b"]))
    with pytest.raises(InvalidOption, match=r"needs distances between actions, .*positions=\[\.\.\.\]"):
        ps.Still(problem, student=ps.Student(distance="wasserstein"))
    with pytest.raises(ValueError, match="distance must be one of 'kl', 'wasserstein', got 'w2'"):
        ps.Student(distance="w2")


def test_the_report_states_the_distance_and_its_price():
    """The price bounds the cost, by the appendix's lemma, on a list of actions."""
    space = ps.Discrete(["low", "middle", "high"], positions=[1, 2, 4])
    problem = ps.Problem(name="p", context=[ps.Numeric("x", low=0, high=1)], actions=space)
    still = ps.Still(problem, student=ps.Student(hidden=(), steps=50, contexts=500))
    rng = Key(0).generator()
    x, actions = rng.random(300), rng.integers(0, 3, 300)
    rewards = np.where(actions == np.floor(3 * np.abs(np.sin(7 * x))), 1.0, 0.0)
    rows = partial(ps.Observations.from_columns, problem, contexts={"x": x}, propensities=np.full(300, 1 / 3))
    found = still.update(rows(actions=actions.astype(np.int32), rewards=rewards)).fidelity
    assert 0 < found.w1_mean <= found.w1_max <= 3
    assert abs(found.cost) <= found.w1_price


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"positions": [1, 2]}, "positions must be 3 numbers, one for each action"),
        ({"positions": [1, 2, 1]}, "positions: 'a' and 'c' are both at 1"),
        ({"positions": [1, 2, float("nan")]}, "positions must be finite numbers"),
        ({"positions": "abc"}, "positions must be numbers"),
        ({"distances": [[0, 1], [1, 0]]}, "distances must be 3 rows of 3 numbers"),
        ({"distances": [[0, 1, 2], [1, 0, 1], [3, 1, 0]]}, "from 'a' to 'c' it is 2, which is not the same in both"),
        ({"distances": [[1, 1, 2], [1, 0, 1], [2, 1, 0]]}, "from 'a' to 'a' it is 1, which must be 0"),
        ({"distances": [[0, 0, 2], [0, 0, 1], [2, 1, 0]]}, "from 'a' to 'b' it is 0, which must be above 0"),
        ({"distances": [[0, 1, 5], [1, 0, 1], [5, 1, 0]]}, "from 'a' to 'c' it is 5, which is longer than a detour"),
        ({"positions": [1, 2, 3], "distances": [[0]]}, "positions or distances of actions, not both"),
    ],
)
def test_what_is_no_metric_is_refused(options, reason):
    with pytest.raises(ps.InvalidProblem, match=reason):
        ps.Discrete(["a", "b", "c"], **options)


def test_positions_and_distances_travel_and_others_keep_their_hash():
    plain = ps.Problem(name="p", context=[], actions=ps.Discrete(["a", "b"]))
    placed = ps.Problem(name="p", context=[], actions=ps.Discrete(["a", "b"], positions=[1, 2]))
    assert plain.hash != placed.hash
    assert b"positions" not in msgspec.json.encode(plain)
    again = ps.Policy.from_bytes(ps.Policy.uniform(placed).to_bytes()).problem
    assert again == placed
    assert again.actions.positions == (1.0, 2.0)
