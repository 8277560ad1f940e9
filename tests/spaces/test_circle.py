"""A space that only the tests have goes the whole circle, through the public contract alone."""

import asyncio
import json

import msgspec
import numpy as np
import polars as pl
import pytest
from integer_range import IntegerRange
from quadratic_ts import QuadraticTS
from service_examples import flushed, opened
from worlds import LATER, NOON

import potstill as ps
from potstill import LoggedDecision, LoggedReward, PotstillError, Workspace
from potstill.errors import InvalidAction, UnsupportedSpace
from potstill.evaluate import LakeLog, evaluate
from potstill.keys import Key
from potstill.pipeline.audit import run_audit
from potstill.pipeline.reproduce import reproduce_version
from potstill.pipeline.update import run_update
from potstill.teachers import LinearTS
from potstill.teachers.registry import TEACHERS

LOW, HIGH = 2, 14
PROBLEM = f"""
name = "price"
[[context]]
type = "numeric"
name = "demand"
low = 0
high = 1
[actions]
type = "integer-range"
low = {LOW}
high = {HIGH}
[reward]
window = "1h"
"""


def best(demand):
    """The best price rises with demand, from 4 to 12."""
    return 4 + 8 * demand


def reward(demand, price, rng):
    return 1 - ((price - best(demand)) / 6) ** 2 + 0.1 * rng.standard_normal(np.shape(price))


@pytest.fixture
def problem(tmp_path):
    (tmp_path / "problem.toml").write_text(PROBLEM)
    return ps.Problem.load(tmp_path / "problem.toml")


def observed(policy, n, seed):
    rng = Key(seed).generator()
    demand = rng.random(n)
    actions, propensities = policy.decide_many(
        policy.problem.encode_many({"demand": demand}), [f"{seed}-{i}" for i in range(n)]
    )
    return ps.Observations.from_columns(
        policy.problem,
        contexts={"demand": demand},
        actions=actions,
        rewards=reward(demand, actions, rng),
        propensities=propensities,
    )


def distilled(problem, batches=4):
    still = ps.Still(problem, QuadraticTS(), student=ps.Student(hidden=(16,), steps=400, contexts=512), floor=0.002)
    for seed in range(batches):
        report = still.update(observed(still.policy, 300, seed))
    return still, report


def test_problem_file_and_hash(problem, tmp_path):
    assert problem.actions == IntegerRange(LOW, HIGH)
    problem.save(tmp_path / "again.toml")
    assert ps.Problem.load(tmp_path / "again.toml") == problem
    assert msgspec.json.decode(msgspec.json.encode(problem), type=ps.Problem).hash == problem.hash
    other = ps.Problem(name="price", context=problem.context, actions=IntegerRange(LOW, HIGH + 1))
    assert other.hash != problem.hash


def test_the_uniform_policy_decides(problem):
    policy = ps.Policy.uniform(problem)
    decision = policy.decide({"demand": 0.5}, id="a")
    assert (type(decision.action), decision.propensity) == (int, pytest.approx(1 / 13))
    assert policy.decide({"demand": 0.5}, id="a") == decision
    narrowed = policy.decide({"demand": 0.5}, id="a", eligible=[5, 8], floor=0.05)
    assert 5 <= narrowed.action <= 8
    assert (narrowed.propensity, narrowed.eligible, narrowed.floor) == (pytest.approx(0.25), (5, 8), 0.05)
    with pytest.raises(InvalidAction, match="expected a whole number from 2 to 14, got 99"):
        policy.decide({"demand": 0.5}, eligible=[5, 99])
    with pytest.raises(ValueError, match="floor must be a number from 0 to 1/13"):
        policy.decide({"demand": 0.5}, floor=0.5)


def test_teachers_say_what_they_support(problem):
    with pytest.raises(
        UnsupportedSpace, match=r"LinearTS does not support IntegerRange.*needs a finite list of actions"
    ):
        ps.Still(problem, LinearTS())
    finite = ps.Problem(name="p", context=problem.context, actions=ps.Discrete(["a", "b"]))
    with pytest.raises(
        UnsupportedSpace, match=r"QuadraticTS does not support Discrete.*use adaptive-ts, auto-ts, bootstrap-ts"
    ):
        ps.Still(finite, QuadraticTS())
    with pytest.raises(UnsupportedSpace, match=r"Policy\.probabilities needs a finite list of actions"):
        ps.Policy.uniform(problem).probabilities({"demand": 0.5})


def test_a_teacher_is_imitated_and_the_policy_file_decides_the_same(problem, tmp_path):
    still, report = distilled(problem)
    assert report.exactness.kind == "sampled"
    assert report.fidelity.kl_mean < 0.15
    assert report.fidelity.smallest_propensity >= 0.002 * (1 - 1e-5)
    for demand in (0.1, 0.5, 0.9):
        taken = [still.policy.decide({"demand": demand}, id=str(i)).action for i in range(200)]
        assert abs(np.mean(taken) - best(demand)) < 1.5
    still.policy.save(tmp_path / "price.policy")
    loaded = ps.Policy.load(tmp_path / "price.policy", problem)
    assert loaded.runtime == "numpy"
    assert loaded.decide({"demand": 0.3}, id="x") == still.policy.decide({"demand": 0.3}, id="x")
    with pytest.raises(RuntimeError, match="the native kernel has no QuadraticHead head"):
        loaded.with_runtime("native")


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setitem(TEACHERS, "quadratic-ts", QuadraticTS)


CONFIG = b"""
[teacher]
type = "quadratic-ts"
[student]
hidden = [16]
steps = 400
contexts = 512
[policy]
floor = 0.002
[update]
min_observations = 50
"""


def logged(workspace, policy, n, seed):
    """Decide, and log decisions and rewards; every tenth decision is restricted."""
    rng, events = Key(seed).generator(), []
    for i in range(n):
        context = {"demand": float(rng.random())}
        decision = policy.decide(context, id=f"{seed}-{i}", eligible=[4, 9] if i % 10 == 0 else None)
        events.append(LoggedDecision.of(decision, context, time=NOON + i * 1000))
        value = float(reward(context["demand"], decision.action, rng))
        events.append(LoggedReward(id=decision.id, reward=value, time=NOON + i * 1000 + 60_000_000))
    with workspace.event_log() as log:
        log.append(*events)


@pytest.fixture
def workspace(registered, tmp_path):
    made = Workspace.create(str(tmp_path / "workspace"), PROBLEM.encode(), CONFIG)
    for seed in range(3):
        logged(made, made.start() if seed == 0 else made.serving(), 200, seed)
        assert run_update(made, now=LATER).outcome == "published"
    return made


def test_log_lake_join_update_audit_and_reproduction(workspace):
    decisions = workspace.lake.read("decisions", workspace.lake.files("decisions")).collect()
    assert (decisions.schema["action"], decisions.schema["eligible"]) == (pl.Int64(), pl.List(pl.Int64()))
    assert len(decisions) == 600
    found = run_audit(workspace)
    assert (found.checked, found.clean) == (600, True)
    assert reproduce_version(workspace, 3).identical
    served = workspace.serving()
    taken = [served.decide({"demand": 0.5}, id=str(i)).action for i in range(200)]
    assert abs(np.mean(taken) - best(0.5)) < 1.5


def test_an_altered_propensity_or_action_is_noticed_by_the_audit(workspace):
    decision = workspace.serving().decide({"demand": 0.5}, id="honest")
    action = HIGH if decision.action != HIGH else LOW
    forged = [
        LoggedDecision(id="p", context={"demand": 0.5}, action=decision.action, propensity=0.9, policy=3, time=NOON),
        LoggedDecision.of(msgspec.structs.replace(decision, action=action), {"demand": 0.5}, time=NOON),
    ]
    with workspace.event_log() as log:
        log.append(*forged)
    run_update(workspace, now=LATER)
    found = run_audit(workspace)
    assert (found.propensities >= 1, found.actions >= 1) == (True, True)


def test_the_log_refuses_what_is_no_action(workspace):
    bad = LoggedDecision(id="x", context={"demand": 0.5}, action=99, propensity=0.5, policy=1)
    with workspace.event_log() as log, pytest.raises(PotstillError, match="whole number from 2 to 14, got 99"):
        log.append(bad)


def test_off_policy_evaluation_from_the_lake(workspace):
    """Uniform prices within four standard errors of their true value (false alarm 1e-4), and below the policy's."""
    found = evaluate(
        LakeLog(workspace), workspace.serving(), against="uniform", estimators=("ips", "snips", "dm", "dr")
    )
    demand = np.linspace(0, 1, 2001)[:, None]
    whole, narrow = np.arange(LOW, HIGH + 1), np.arange(4, 10)
    value = {len(prices): (1 - ((prices - best(demand)) / 6) ** 2).mean() for prices in (whole, narrow)}
    truth = 0.9 * value[len(whole)] + 0.1 * value[len(narrow)]
    for name in ("ips", "snips", "dr"):
        estimate = found.against.estimates[name]
        assert abs(estimate.value - truth) < 4 * estimate.standard_error, name
    assert found.against.estimates["dr"].standard_error < 0.1
    assert found.target.estimates["dr"].value > found.against.estimates["dr"].value + 0.2


def test_the_service_decides_logs_and_describes_it(workspace):
    context = {"demand": 0.5}

    async def ask():
        async with opened(workspace) as asker:
            decided = (await asker.post("decide", {"context": context, "id": "s-1"})).json
            narrowed = (await asker.post("decide", {"context": context, "id": "s-2", "eligible": [6, 8]})).json
            batch = {"requests": [{"context": context, "id": f"b-{i}", "eligible": [6, 8]} for i in range(3)]}
            several = (await asker.post("decide/batch", batch)).json["decisions"]
            refused = await asker.post("decide", {"context": context, "eligible": [1, 8]})
            seen = {"id": "e", "context": context, "action": 7, "propensity": 0.5, "policy": 1, "time": 1_763_200_000}
            observed = await asker.post("observe", {"observations": [seen]})
            unknown = await asker.post("observe", {"observations": [{**seen, "action": "seven"}]})
            schema = (await asker.get("/openapi.json")).json
            return decided, narrowed, several, refused, observed, unknown, schema

    decided, narrowed, several, refused, observed, unknown, schema = asyncio.run(ask())
    assert decided["action"] == workspace.serving().decide(context, id="s-1").action
    assert 6 <= narrowed["action"] <= 8
    assert all(6 <= each["action"] <= 8 for each in several)
    assert (refused.status, observed.status, unknown.status) == (422, 202, 422)
    assert '"maximum":14' in json.dumps(schema, separators=(",", ":"))
    rows = flushed(workspace).scan("decisions").filter(pl.col("id").is_in(["s-1", "s-2"])).sort("id").collect()
    assert rows["action"].to_list() == [decided["action"], narrowed["action"]]
    assert rows["eligible"].to_list() == [None, [6, 8]]
    assert {each.id for each in run_audit(workspace).mismatches} == {"e"}  # which stated a propensity of its own
