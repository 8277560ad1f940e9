"""Prices go the whole circle: problem file, policy, log, lake, join, update, audit, evaluation, service, export."""

import asyncio
import json

import msgspec
import numpy as np
import polars as pl
import pytest
from service_examples import flushed, opened
from worlds import LATER, NOON

import potstill as ps
from potstill import LoggedDecision, LoggedReward, PotstillError, Workspace
from potstill.evaluate import LakeLog, evaluate
from potstill.experiments.analysis.workspace import observations
from potstill.keys import Key
from potstill.pipeline.audit import run_audit
from potstill.pipeline.reproduce import reproduce_version
from potstill.pipeline.update import run_update

LOW, HIGH = 2, 14
PROBLEM = f"""
name = "pricing"
[[context]]
type = "numeric"
name = "demand"
low = 0
high = 1
[actions]
type = "continuous"
name = "price"
low = {LOW}
high = {HIGH}
bins = 48
[reward]
window = "1h"
"""
CONFIG = b"""
[student]
hidden = [32]
steps = 600
contexts = 1024
[policy]
floor = 0.05
[update]
min_observations = 50
"""


def best(demand):
    """The best price rises with demand, from 4 to 12."""
    return 4 + 8 * demand


def reward(demand, price, rng):
    return float(1 - ((price - best(demand)) / 6) ** 2 + 0.1 * rng.standard_normal())


def logged(workspace, policy, n, seed):
    """Decide, and log decisions and rewards; every tenth decision is restricted to an interval."""
    rng, events = Key(seed).generator(), []
    for i in range(n):
        context = {"demand": float(rng.random())}
        decision = policy.decide(context, id=f"{seed}-{i}", eligible=[4, 9.5] if i % 10 == 0 else None)
        events.append(LoggedDecision.of(decision, context, time=NOON + i * 1000))
        value = reward(context["demand"], decision.action, rng)
        events.append(LoggedReward(id=decision.id, reward=value, time=NOON + i * 1000 + 60_000_000))
    with workspace.event_log() as log:
        log.append(*events)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    made = Workspace.create(str(tmp_path_factory.mktemp("circle") / "workspace"), PROBLEM.encode(), CONFIG)
    for seed in range(3):
        logged(made, made.start() if seed == 0 else made.serving(), 200, seed)
        assert run_update(made, now=LATER).outcome == "published"
    return made


def test_the_problem_travels(workspace):
    problem = workspace.problem
    assert problem.actions == ps.Continuous("price", LOW, HIGH, bins=48)
    assert msgspec.json.decode(msgspec.json.encode(problem), type=ps.Problem).hash == problem.hash


def test_the_policy_has_learnt_and_states_its_distance_from_the_teacher(workspace):
    served = workspace.serving()
    for demand in (0.1, 0.5, 0.9):
        taken = [served.decide({"demand": demand}, id=str(i), floor=0.0).action for i in range(200)]
        assert abs(np.mean(taken) - best(demand)) < 1.2
    fidelity = served.metadata.fidelity
    assert 0 < fidelity["w1_mean"] < 0.05 * (HIGH - LOW)
    assert fidelity["smallest_propensity"] >= 0.05 * (1 - 1e-5)
    assert fidelity["cost"] <= fidelity["w1_price"]


def test_log_lake_join_audit_and_reproduction(workspace):
    decisions = workspace.lake.read("decisions", workspace.lake.files("decisions")).collect()
    assert (decisions.schema["action"], decisions.schema["eligible"]) == (pl.Float64(), pl.List(pl.Float64()))
    assert decisions["action"].is_between(LOW, HIGH).all()
    found = run_audit(workspace)
    assert (found.checked, found.clean) == (600, True)
    assert reproduce_version(workspace, 3).identical


def test_off_policy_evaluation_from_the_lake(workspace):
    """A fixed price, up to the bias of smoothing; the policy earns more (both with margins of several errors)."""
    found = evaluate(LakeLog(workspace), workspace.serving(), against=8.0, estimators=("snips", "dr"))
    demand = np.linspace(0, 1, 1001)
    fixed = float((1 - ((8 - best(demand)) / 6) ** 2).mean())
    assert abs(found.against.estimates["dr"].value - fixed) < 0.1
    assert found.target.estimates["dr"].value > found.against.estimates["dr"].value + 0.05
    assert found.against.bandwidth is not None


def test_the_log_refuses_what_is_no_price(workspace):
    for action in (99.0, float("nan"), "7"):
        bad = LoggedDecision(id="x", context={"demand": 0.5}, action=action, propensity=0.5, policy=1)
        with workspace.event_log() as log, pytest.raises(PotstillError, match="price must be a number from 2 to 14"):
            log.append(bad)


def test_the_service_decides_logs_and_describes_it(workspace):
    context = {"demand": 0.5}

    async def ask():
        async with opened(workspace) as asker:
            decided = (await asker.post("decide", {"context": context, "id": "s-1"})).json
            narrowed = (await asker.post("decide", {"context": context, "id": "s-2", "eligible": [6, 8]})).json
            again = (await asker.post("decide", {"context": context, "id": "s-2", "eligible": [6, 8]})).json
            batch = {"requests": [{"context": context, "id": f"b-{i}", "eligible": [6, 8]} for i in range(3)]}
            several = (await asker.post("decide/batch", batch)).json["decisions"]
            refused = [
                (await asker.post("decide", {"context": context, "eligible": bad})).status
                for bad in ([8, 6], [1, 8], "x", [6], [6, "a"], [6, None])
            ]
            schema = (await asker.get("/openapi.json")).json
            return decided, narrowed, again, several, refused, schema

    decided, narrowed, again, several, refused, schema = asyncio.run(ask())
    assert decided["action"] == workspace.serving().decide(context, id="s-1").action
    assert 6 <= narrowed["action"] <= 8
    assert again == narrowed
    assert all(6 <= each["action"] <= 8 for each in several)
    assert refused == [422] * 6
    assert '"maximum":14' in json.dumps(schema, separators=(",", ":"))
    rows = flushed(workspace).scan("decisions").filter(pl.col("id").is_in(["s-1", "s-2"])).sort("id").collect()
    assert rows["action"].to_list() == [decided["action"], narrowed["action"]]
    assert rows["eligible"].to_list() == [None, [6.0, 8.0]]
    assert run_audit(workspace).clean


def test_experiments_compare_the_objective(tmp_path):
    """Rewards of an experiment's observations are revenues where the problem maximises them."""
    text = PROBLEM.replace('window = "1h"', 'window = "1h"\nobjective = "price * sold"')
    made = Workspace.create(str(tmp_path / "objective"), text.encode(), CONFIG)
    policy, rng = made.start(), Key(5).generator()
    events, revenue = [], {}
    for i in range(60):
        decision = policy.decide({"demand": 0.5}, id=f"o-{i}")
        sold = float(rng.random() < 0.5)
        revenue[decision.id] = decision.action * sold
        events.append(LoggedDecision.of(decision, {"demand": 0.5}, time=NOON + i))
        events.append(LoggedReward(id=decision.id, reward=sold, time=NOON + i + 60_000_000))
    with made.event_log() as log:
        log.append(*events)
    assert run_update(made, now=LATER).outcome == "published"
    rows = observations(made).collect()
    assert dict(zip(rows["id"], rows["reward"], strict=True)) == revenue
