"""Bad numbers, densities and spaces are refused on every door, with the value and what is needed."""

import asyncio
import json

import msgspec
import numpy as np
import polars as pl
import pytest
from service_examples import opened
from worlds import NOON

import potstill as ps
from potstill.errors import PotstillError
from potstill.evaluate import ArrayLog, evaluate
from potstill.evaluate.table_log import TableLog
from potstill.events import LoggedDecision
from potstill.events.validate import EventValidator
from potstill.pipeline.warm_start import import_history
from potstill.problem import Reward
from potstill.tables import Columns, PolicyColumns
from potstill.workspace import Workspace

PROBLEM = """
name = "pricing"
[[context]]
type = "numeric"
name = "demand"
low = 0
high = 1
[actions]
type = "continuous"
name = "price"
low = 2
high = 14
bins = 8
"""
problem = ps.Problem.from_toml(PROBLEM.encode(), "problem.toml")
POLICY = ps.Policy.uniform(problem)
CONTEXT = {"demand": 0.5}
NUMBERS = [1.9, 14.1, -1e300, float("nan"), float("inf"), -float("inf")]
OTHERS = ["7", "", None, True, [7.0], {"price": 7}]


def logged(action=7.0, density=0.5):
    EventValidator(problem).encode(
        LoggedDecision(id="a", context=CONTEXT, action=action, propensity=density, policy=0, time=NOON)
    )


def record(action=7.0, density=0.5):
    ps.Observations.from_records(
        problem, [{"context": CONTEXT, "action": action, "reward": 1.0, "propensity": density}]
    )


def columns(action=7.0, density=0.5):
    ps.Observations.from_columns(
        problem,
        contexts={"demand": [0.5]},
        actions=np.array([action]) if isinstance(action, float) else [action],
        rewards=[1.0],
        propensities=[density],
    )


def array_log(action=7.0, density=0.5):
    ArrayLog(
        problem,
        contexts={"demand": [0.5]},
        actions=np.array([action]) if isinstance(action, float) else [action],
        rewards=[1.0],
        propensities=[density],
    )


def table(tmp_path, action, density, target):
    """A table of text, in which every value is possible."""
    cells = {"demand": ["0.5"], "action": [spelt(action)], "reward": ["1"], "f": [spelt(density)]}
    path = tmp_path / "log.csv"
    pl.DataFrame({**cells, "target": [spelt(target)]}).write_csv(path)
    return str(path)


def spelt(value):
    return value if value is None or isinstance(value, str) else json.dumps(value)


def table_log(tmp_path, action=7.0, density=0.5, target=7.0):
    place = table(tmp_path, action, density, target)
    targets = [PolicyColumns.action("target", ["target"])]
    TableLog(place, Columns(propensity="f", is_density=True), interval=(2, 14), targets=targets, reward=Reward())


def warm_start(tmp_path, action=7.0, density=0.5):
    workspace = Workspace.create(str(tmp_path / "ws"), PROBLEM.encode(), b"")
    import_history(workspace, table(tmp_path, action, density, 7.0), Columns(propensity="f"))


def fixed_target(action):
    log = ArrayLog(problem, contexts={"demand": [0.5]}, actions=[7.0], rewards=[1.0], propensities=[0.5])
    evaluate(log, action)


def array_target(action):
    log = ArrayLog(problem, contexts={"demand": [0.5]}, actions=[7.0], rewards=[1.0], propensities=[0.5])
    evaluate(log, lambda _: [action])


def fallback(tmp_path, action):
    workspace = Workspace.create(str(tmp_path / "ws"), PROBLEM.encode(), b"")
    config = msgspec.structs.replace(workspace.config.serve, fallback=action)
    workspace.config = msgspec.structs.replace(workspace.config, serve=config)

    async def ask():
        async with opened(workspace):
            pass

    asyncio.run(ask())


DOORS = {
    "encode": lambda _, action: problem.actions.encode([action]),
    "eligible": lambda _, action: POLICY.decide(CONTEXT, eligible=[action, 8.0]),
    "event log": lambda _, action: logged(action),
    "records": lambda _, action: record(action),
    "columns": lambda _, action: columns(action),
    "array log": lambda _, action: array_log(action),
    "table": lambda path, action: table_log(path, action),
    "table's policy": lambda path, action: table_log(path, target=action),
    "warm start": lambda path, action: warm_start(path, action),
    "target": lambda _, action: fixed_target(action),
    "target function": lambda _, action: array_target(action),
    "fallback": lambda path, action: fallback(path, action),
}
#: A text that spells a number is a number in a table, and no fallback is none.
ACCEPTED = {
    ("table", "7"),
    ("table's policy", "7"),
    ("warm start", "7"),
    ("fallback", None),
}


@pytest.mark.parametrize("action", [*NUMBERS, *OTHERS], ids=str)
@pytest.mark.parametrize("door", DOORS)
def test_an_action_that_is_no_number_of_the_interval_is_refused(tmp_path, door, action):
    if isinstance(action, (str, type(None))) and (door, action) in ACCEPTED:
        DOORS[door](tmp_path, action)
        return
    with pytest.raises(PotstillError) as caught:
        DOORS[door](tmp_path, action)
    said = str(caught.value)
    if (door, action) == ("records", None):
        assert "row 0: 'action' is missing" in said
    else:
        assert "must be a number from 2 to 14" in said, said
        assert "got " in said


DENSITIES = {
    "event log": lambda _, density: logged(density=density),
    "records": lambda _, density: record(density=density),
    "columns": lambda _, density: columns(density=density),
    "array log": lambda _, density: array_log(density=density),
    "table": lambda path, density: table_log(path, density=density),
    "warm start": lambda path, density: warm_start(path, density=density),
}


@pytest.mark.parametrize("density", [0.0, -0.5, float("nan"), float("inf"), 1e-60, "much"], ids=str)
@pytest.mark.parametrize("door", DENSITIES)
def test_a_density_that_is_none_is_refused(tmp_path, door, density):
    with pytest.raises(PotstillError, match=r"density above 0|must be numbers|must be a number"):
        DENSITIES[door](tmp_path, density)


@pytest.mark.parametrize("door", DENSITIES)
def test_a_density_above_1_is_accepted(tmp_path, door):
    DENSITIES[door](tmp_path, 3.5)


SPACES = [
    ({"low": 2, "high": 2}, "low must be below high"),
    ({"low": 3, "high": 2}, "low must be below high"),
    ({"low": 0, "high": 2, "scale": "log"}, "a log scale needs low above 0, got 0"),
    ({"low": -1, "high": 2, "scale": "log"}, "a log scale needs low above 0, got -1"),
    ({"low": 1, "high": 2, "bins": 1}, "bins must be a whole number from 2"),
    ({"low": 1, "high": 2, "bins": 0}, "bins must be a whole number from 2"),
    ({"low": 1, "high": 2, "scale": "exp"}, "exp"),
    ({"low": float("nan"), "high": 2}, "low must be a finite number, got nan"),
    ({"low": 1, "high": float("inf")}, "high must be a finite number, got inf"),
    ({"low": 1, "high": "two"}, "high|str"),
    ({"low": 1, "high": 2, "bins": 2.5}, "bins|int"),
]


@pytest.mark.parametrize(("options", "message"), SPACES, ids=[str(options) for options, _ in SPACES])
def test_a_space_that_is_none_is_refused_in_code_and_in_files(options, message):
    with pytest.raises(PotstillError, match=message):
        ps.Continuous("price", **options)
    stated = {"name": "p", "context": [], "actions": {"type": "continuous", "name": "price", **options}}
    with pytest.raises(PotstillError, match=message):
        ps.Problem.from_toml(msgspec.toml.encode(stated), "problem.toml")


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        ({"eligible": [1, 5]}, "$.eligible[0]"),
        ({"eligible": [5, 99]}, "$.eligible[1]"),
        ({"eligible": [5]}, "$.eligible"),
        ({"eligible": "5"}, "$.eligible"),
        ({"eligible": [5, None]}, "$.eligible[1]"),
        ({"eligible": [9, 4]}, "from below to"),
        ({"action": "x"}, "$.action"),
        ({"action": 99}, "$.action"),
    ],
)
def test_the_service_names_the_place(tmp_path, request_, place):
    workspace = Workspace.create(str(tmp_path / "ws"), PROBLEM.encode(), b"")

    async def ask():
        async with opened(workspace) as asker:
            return await asker.post("decide", {"context": CONTEXT, **request_})

    reply = asyncio.run(ask())
    assert reply.status == 422
    assert place in reply.json["error"]


def test_numbers_at_the_ends_of_the_interval_are_kept():
    """As float64 and float32: 0.7 as a float32 is below 0.7."""
    ends = ps.Problem(name="p", context=[], actions=ps.Continuous("price", 0.7, 1.1))
    for kind in (np.float64, np.float32):
        numbers = np.array([0.7, 1.1], kind)
        made = ps.Observations.from_columns(
            ends, contexts=np.zeros((2, 0), np.float32), actions=numbers, rewards=[0.0, 1.0], propensities=[2.5, 2.5]
        )
        assert ends.actions.valid(made.actions).all(), made.actions
