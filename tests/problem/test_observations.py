"""Observations: from records and columns, checked row by row."""

import re

import numpy as np
import pytest

import potstill as ps


def record(context, /, **change):
    return {"context": context, "action": "480p", "reward": 0.5, "propensity": 0.25} | change


def test_from_records(problem, context):
    observations = ps.Observations.from_records(problem, [record(context), record(context, action="1080p", reward=0)])
    assert len(observations) == 2
    assert observations.actions.tolist() == [1, 3]
    assert observations.rewards.tolist() == [0.5, 0.0]
    np.testing.assert_array_equal(observations.contexts[0], problem.encode(context))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward": float("nan")}, "row 1: reward must be a number from -1e+100 to 1e+100, got nan"),
        ({"reward": -1e200}, "row 1: reward must be a number from -1e+100 to 1e+100, got -1e+200"),
        ({"reward": None}, "row 1: 'reward' is missing; a record has context, action, reward, propensity"),
        ({"reward": "1"}, "row 1: reward must be a number, got '1' (str)"),
        ({"propensity": 0.0}, "row 1: propensity must be a probability above 0 and at most 1, got 0.0"),
        ({"propensity": 1.5}, "row 1: propensity must be a probability above 0 and at most 1, got 1.5"),
        ({"action": "4k"}, "row 1: unknown action '4k' (str); the actions are 360p, 480p, 720p, 1080p"),
        ({"action": ["480p"]}, "row 1: unknown action"),
        ({"context": {"speed": 1}}, "row 1: "),
    ],
)
def test_a_bad_record_is_named(problem, context, change, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        ps.Observations.from_records(problem, [record(context), record(context, **change)])


def test_bad_columns_name_the_rows(problem):
    good = {
        "contexts": np.zeros((4, 7)),
        "actions": np.zeros(4, int),
        "rewards": np.zeros(4),
        "propensities": np.full(4, 0.5),
    }
    with pytest.raises(ps.InvalidObservation, match=r"row 1: reward .* got nan \(and 1 more: rows 3\)"):
        ps.Observations.from_columns(problem, **good | {"rewards": [0, np.nan, 0, np.nan]})
    with pytest.raises(ps.InvalidObservation, match="row 2: action must be one of 360p, 480p, 720p, 1080p, got 9"):
        ps.Observations.from_columns(problem, **good | {"actions": np.array([0, 1, 9, 2])})
    with pytest.raises(ps.InvalidObservation, match=r"rewards must have shape \(4,\), as contexts has, got \(3,\)"):
        ps.Observations.from_columns(problem, **good | {"rewards": np.zeros(3)})


def test_parts_and_sums(problem, context):
    whole = ps.Observations.from_records(problem, [record(context, reward=r) for r in range(5)])
    assert (whole[:2] + whole[2:]).rewards.tolist() == whole.rewards.tolist()
    assert whole[whole.rewards > 2].rewards.tolist() == [3, 4]
    other = ps.Problem(name="other", context=problem.context, actions=problem.actions)
    with pytest.raises(ps.InvalidObservation, match="'video-upload' and 'other' are of different problems"):
        whole + ps.Observations.none(other)


def test_rewards_outside_the_stated_bounds_are_refused(problem, context):
    bounded = ps.Problem(
        name="bounded", context=problem.context, actions=problem.actions, reward=ps.Reward(low=0, high=1)
    )
    ps.Observations.from_records(bounded, [record(context, reward=r) for r in (0, 0.5, 1)])
    for reward in (-0.1, 1.1):
        with pytest.raises(ps.InvalidObservation, match="row 1: reward must be a number from 0 to 1, got"):
            ps.Observations.from_records(bounded, [record(context), record(context, reward=reward)])


def test_a_record_that_is_no_mapping_is_refused(problem, context):
    with pytest.raises(ps.InvalidObservation, match="row 0: a record must be a mapping with context, action"):
        ps.Observations.from_records(problem, record(context))
