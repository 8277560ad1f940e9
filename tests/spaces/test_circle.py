"""A space that only the tests have goes the whole circle, through the public contract alone."""

import msgspec
import numpy as np
import polars as pl
import pytest
from integer_range import IntegerRange
from quadratic_ts import QuadraticTS
from worlds import LATER, NOON

import potstill as ps
from potstill import LoggedDecision, LoggedReward, PotstillError, Workspace
from potstill.errors import InvalidAction, UnsupportedSpace
from potstill.evaluate import LakeLog, evaluate
from potstill.keys import Key
from potstill.pipeline.audit import audit
from potstill.pipeline.reproduce import reproduce
from potstill.pipeline.update import update
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
    with pytest.raises(UnsupportedSpace, match=r"QuadraticTS does not support Discrete.*use adaptive-ts, bootstrap-ts"):
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
        assert update(made, now=LATER).outcome == "published"
    return made


def test_log_lake_join_update_audit_and_reproduction(workspace):
    decisions = workspace.lake.read("decisions", workspace.lake.files("decisions")).collect()
    assert (decisions.schema["action"], decisions.schema["eligible"]) == (pl.Int64(), pl.List(pl.Int64()))
    assert len(decisions) == 600
    found = audit(workspace)
    assert (found.checked, found.clean) == (600, True)
    assert reproduce(workspace, 3).identical
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
    update(workspace, now=LATER)
    found = audit(workspace)
    assert (found.propensities >= 1, found.actions >= 1) == (True, True)


def test_the_log_refuses_what_is_no_action(workspace):
    bad = LoggedDecision(id="x", context={"demand": 0.5}, action=99, propensity=0.5, policy=1)
    with workspace.event_log() as log, pytest.raises(PotstillError, match="whole number from 2 to 14, got 99"):
        log.append(bad)


def test_off_policy_evaluation_from_the_lake(workspace):
    """The distilled policy against uniform, by estimators that know the truth within their intervals."""
    log = LakeLog(workspace)
    found = evaluate(log, workspace.serving(), against="uniform", estimators=("ips", "snips", "dr", "dm"))
    rng = np.random.default_rng(0)
    demand = rng.random(20_000)
    prices = rng.integers(LOW, HIGH + 1, 20_000)
    truth = float((1 - ((prices - best(demand)) / 6) ** 2).mean())
    assert found.old is not None
    for name in ("snips", "dr"):
        low, high = found.old.estimates[name].intervals["normal"]
        assert low - 0.15 <= truth <= high + 0.15, name
    assert found.new.estimates["dr"].value > found.old.estimates["dr"].value
