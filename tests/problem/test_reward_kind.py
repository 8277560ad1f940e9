"""Kinds of reward: what they refuse, at every door and in configurations; problems without one are what they were."""

import math

import msgspec
import numpy as np
import polars as pl
import pytest
import tomli_w

import potstill as ps
from potstill.errors import InvalidProblem, PotstillError
from potstill.evaluate import TableLog
from potstill.events import EventLog, LoggedReward
from potstill.problem import inferred_kind
from potstill.tables import Columns, reward_fits
from potstill.workspace import InvalidConfig, Workspace

VERDICTS = {
    "yes/no": [(0, True), (1, True), (-0.0, True), (0.5, False), (2, False), (-1, False), (math.nan, False)],
    "count": [(0, True), (7, True), (1e6, True), (1.5, False), (-1, False), (math.inf, False), (1e101, False)],
    "number": [(0.5, True), (-3.25, True), (math.nan, False), (1e101, False)],
}
CASES = [(kind, value, fits) for kind, rule in VERDICTS.items() for value, fits in rule]


def problem_of(kind, **stated):
    return ps.Problem(
        name="kinds", context=[ps.Boolean("x")], actions=ps.Discrete(["a", "b"]), reward=ps.Reward(kind=kind, **stated)
    )


def in_arrays(problem, value, tmp_path):
    ps.Observations.from_columns(problem, contexts=[{"x": True}], actions=["a"], rewards=[value], propensities=[0.5])


def in_event_log(problem, value, tmp_path):
    with EventLog(tmp_path / "log", problem) as log:
        log.append(LoggedReward(id="i", reward=value))


def in_table(problem, value, tmp_path):
    row = {"x": [True], "action": ["a"], "reward": [float(value)], "propensity": [0.5]}
    pl.DataFrame(row).write_parquet(tmp_path / "t.parquet")
    TableLog(str(tmp_path / "t.parquet"), Columns(), problem=problem)


def in_lake(problem, value, tmp_path):
    if not len(pl.DataFrame({"reward": [float(value)]}).filter(reward_fits(problem))):
        raise PotstillError("left out")


@pytest.mark.parametrize("door", [in_arrays, in_event_log, in_table, in_lake], ids=lambda door: door.__name__)
@pytest.mark.parametrize(("kind", "value", "fits"), CASES)
def test_a_reward_has_one_verdict_through_every_door(door, kind, value, fits, tmp_path):
    problem = problem_of(kind)
    if fits:
        door(problem, value, tmp_path)
        return
    with pytest.raises(PotstillError):
        door(problem, value, tmp_path)


def test_messages_say_what_a_reward_must_be(tmp_path):
    with pytest.raises(PotstillError, match=r"row 0: reward must be 0 or 1, got 0\.6"):
        in_arrays(problem_of("yes/no"), 0.6, tmp_path)
    with pytest.raises(PotstillError, match=r"reward must be a whole number from 0 to 9, got 2\.5"):
        in_event_log(problem_of("count", high=9), 2.5, tmp_path)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ({"kind": "binary"}, r"reward: kind must be one of yes/no, count, number, got 'binary'"),
        ({"kind": "yes/no", "high": 2}, r"kind 'yes/no' has rewards 0 and 1, got low=None, high=2\.0; leave them out"),
        ({"kind": "yes/no", "low": 0.5}, r"kind 'yes/no' has rewards 0 and 1"),
        ({"kind": "yes/no", "default": 0.5}, r"default of kind 'yes/no' must be 0 or 1, got 0\.5"),
        ({"kind": "count", "low": -1}, r"kind 'count' has no negative rewards, got low=-1\.0"),
        ({"kind": "count", "default": -1}, r"default of kind 'count' must be 0 or a positive whole number, got -1\.0"),
        ({"kind": "count", "default": 0.5}, r"must be 0 or a positive whole number, got 0\.5"),
        ({"kind": "count", "high": 0}, r"low must be below high"),
    ],
)
def test_contradictions_are_refused(stated, message):
    with pytest.raises(InvalidProblem, match=message):
        ps.Reward(**stated)


def test_a_kind_sets_the_bounds():
    assert ps.Reward(kind="yes/no") == ps.Reward(kind="yes/no", low=0, high=1)
    assert (ps.Reward(kind="count").low, ps.Reward(kind="count").high) == (0, None)
    assert (ps.Reward(kind="number").low, ps.Reward(kind="number").high) == (None, None)


def test_problems_without_a_kind_are_what_they_were_and_a_kind_changes_no_hash(tmp_path):
    plain, stated = problem_of(None, low=0, high=1), problem_of("yes/no")
    assert msgspec.json.encode(plain.reward) == b'{"low":0.0,"high":1.0}'
    assert msgspec.json.encode(ps.Reward()) == b"{}"
    assert plain.hash == stated.hash
    stated.save(tmp_path / "problem.toml")
    assert ps.Problem.load(tmp_path / "problem.toml") == stated


@pytest.mark.parametrize(("kind", "refused"), [("yes/no", {"sum", "mean"}), ("count", {"mean"}), ("number", set())])
def test_rewards_are_not_combined_into_ones_of_another_kind(kind, refused, tmp_path):
    problem = tomli_w.dumps(msgspec.to_builtins(problem_of(kind))).encode()
    for aggregate in ("first", "last", "sum", "max", "mean"):
        config, place = f'[join]\naggregate = "{aggregate}"\n'.encode(), tmp_path / aggregate
        if aggregate not in refused:
            Workspace.create(place, problem, config)
            continue
        with pytest.raises(InvalidConfig, match=f"join.aggregate = '{aggregate}' can give rewards that are not"):
            Workspace.create(place, problem, config)
        assert not (place / "problem.toml").exists()


def test_an_objective_of_yes_or_no_outcomes_has_its_own_bounds():
    """The outcome is of the kind, and what is maximised is not."""
    problem = ps.Problem(
        name="pricing",
        context=[],
        actions=ps.Continuous("price", low=1, high=9),
        reward=ps.Reward(kind="yes/no", objective="price * sold"),
    )
    assert (problem.maximised.low, problem.maximised.high, problem.maximised.kind) == (0, 9, None)


@pytest.mark.parametrize(
    ("rewards", "kind"),
    [([0, 1, 1], "yes/no"), ([0, 0], None), ([1], None), ([], None), ([0, 1, 0.5], None), ([0, 1, math.nan], None)],
)
def test_the_kind_of_rewards_is_inferred_where_both_values_are_seen(rewards, kind):
    assert inferred_kind(np.array(rewards, np.float64)) == kind
