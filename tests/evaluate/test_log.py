"""Valid and invalid logs."""

import numpy as np
import pytest
from evaluate_examples import TINY

import potstill as ps
from potstill.errors import InvalidLog
from potstill.evaluate.log import ArrayLog, Block, check

BOUNDED = ps.Problem(
    name="bounded", context=[ps.Boolean("x")], actions=ps.Discrete(["a", "b"]), reward=ps.Reward(low=-1, high=1)
)


def log(problem=TINY, rows=4, **columns):
    given = {
        "contexts": np.zeros((rows, 1), np.float32),
        "actions": np.zeros(rows, int),
        "rewards": np.zeros(rows),
        "propensities": np.full(rows, 0.5),
    }
    return ArrayLog(problem, **(given | columns))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"propensities": [0.5, 0.0, 0.5, 0.0]},
            r"row 1: propensity must be .*, got 0\.0 \(and 1 more: rows 3\)",
        ),
        ({"propensities": [0.5, 0.5, -0.1, 0.5]}, r"row 2: propensity must be a probability above 0 .*, got -0\.1"),
        ({"propensities": [0.5, None, 0.5, 0.5]}, r"row 1: propensity must be a probability .*, got nan"),
        ({"propensities": [0.5, 0.5, 0.5, 50.0]}, r"row 3: propensity must be .* at most 1, got 50\.0"),
        ({"actions": np.array([0, 1, 3, 0])}, r"row 2: action must be one of a, b, c, got 3"),
        ({"actions": np.array([0, -1, 0, 0])}, r"row 1: action must be one of a, b, c, got -1"),
        ({"actions": np.array([0, 2**32, 0, 0])}, r"row 1: action must be one of a, b, c, got 4294967296"),
        ({"actions": ["a", "b", "z", "c"]}, r"row 2: unknown action 'z' \(str\); the actions are a, b, c"),
        ({"actions": ["a", "b", None, "c"]}, r"row 2: unknown action None"),
        ({"rewards": [0, np.nan, 1, 1]}, r"row 1: reward must be a number from -1e\+100 to 1e\+100, got nan"),
        ({"rewards": [0, 0, 1, np.inf]}, r"row 3: reward must be a number from -1e\+100 to 1e\+100, got inf"),
        ({"rewards": [0, 0, 1, "no"]}, r"rewards must be numbers"),
        ({"contexts": np.array([[0], [1], [np.nan], [1]], np.float32)}, r"a non-finite number at \(2, 0\)"),
        (
            {"eligible": np.array([[1, 0, 0], [0, 1, 1], [1, 1, 1], [1, 0, 1]])},
            r"action must be eligible; .*, got a",
        ),
        ({"eligible": np.ones((4, 2))}, r"eligible must have shape \(4, 3\), got \(4, 2\)"),
        ({"rewards": [0, 0, 0]}, r"rewards must have 4 rows, as contexts has, got 3"),
        ({"times": [1, 2]}, r"times must have 4 rows"),
        ({"groups": {"device": ["tv"]}}, r"device must have 4 rows"),
    ],
)
def test_bad_rows_are_refused_by_number(columns, message):
    with pytest.raises(ValueError, match=message):
        log(**columns)


def test_rewards_outside_of_the_bounds_are_refused():
    with pytest.raises(InvalidLog, match=r"row 2: reward must be a number from -1 to 1, got 1\.5"):
        log(BOUNDED, rewards=[0, 1, 1.5, 0])
    with pytest.raises(InvalidLog, match=r"row 0: reward must be a number from -1 to 1, got -2\.0"):
        log(BOUNDED, rewards=[-2, 1, 1, 0])


def test_contexts_that_are_not_finite_are_refused():
    block = Block(np.full((2, 1), np.inf, np.float32), np.zeros(2, np.int32), np.zeros(2), np.ones(2))
    with pytest.raises(InvalidLog, match=r"row 7: context must be finite numbers; .*, got inf"):
        check(TINY, block, 7)


def test_many_bad_rows_are_counted_and_the_first_named():
    with pytest.raises(InvalidLog, match=r"row 0: .* \(and 9 more: rows 1, 2, 3, 4, 5, …\)"):
        log(rows=10, rewards=np.full(10, np.nan))


def test_a_log_of_observations(problem):
    rows = [
        {
            "context": {"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True},
            "action": "480p",
            "reward": 1.0,
            "propensity": 0.25,
        },
        {
            "context": {"bandwidth_kbps": 50, "connection": "2g", "hd_screen": False},
            "action": "360p",
            "reward": 0.0,
            "propensity": 0.5,
        },
    ]
    observations = ps.Observations.from_records(problem, rows)
    made = ArrayLog.of(observations, times=[1, 2])
    named = ArrayLog(
        problem,
        contexts=[row["context"] for row in rows],
        actions=[row["action"] for row in rows],
        rewards=[1, 0],
        propensities=[0.25, 0.5],
    )
    (one,), (other,) = made.blocks(), named.blocks()
    for name in ("contexts", "actions", "rewards", "propensities"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    assert one.times.tolist() == [1, 2]
    assert len(made) == 2
