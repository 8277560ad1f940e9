"""An audit finds what was not decided as it was logged, and nothing else."""

import numpy as np
import pytest
from native_examples import needs_native
from worlds import LATER, NOON, contexts, log, made

import potstill as ps
from potstill.events import LoggedDecision
from potstill.pipeline.audit import run_audit
from potstill.pipeline.update import run_update
from potstill.policy import Layer


def logged(workspace, *decisions):
    with workspace.event_log() as opened:
        opened.append(*decisions)
    run_update(workspace, now=NOON)


def test_what_policies_decided_agrees(place):
    workspace = made(place)
    for seed in range(2):
        log(workspace, workspace.start(), 120, seed=seed)
        run_update(workspace, now=LATER)
    found = run_audit(workspace)
    assert found.clean
    assert (found.decisions, found.checked) == (240, 240)
    assert found.largest < 1e-6


def test_eligible_actions_and_floors_are_taken_into_account(tmp_path):
    workspace = made(str(tmp_path))
    log(workspace, workspace.start(), 120)
    run_update(workspace, now=LATER)
    policy = workspace.serving()
    decisions = [
        policy.decide(context, id=f"e{i}", eligible=["360p", "1080p"] if i % 2 else None, floor=0.1 if i % 3 else None)
        for i, context in enumerate(contexts(60, seed=3))
    ]
    rows = zip(decisions, contexts(60, seed=3), strict=True)
    logged(workspace, *(LoggedDecision.of(decision, context, time=LATER) for decision, context in rows))
    found = run_audit(workspace)
    assert found.clean
    assert found.checked == 180


def test_what_the_policy_did_not_draw_is_not_held_against_it(tmp_path):
    workspace = made(str(tmp_path))
    policy = workspace.start()
    own = [LoggedDecision.of(policy.decide(c, id=f"o{i}"), c, time=NOON) for i, c in enumerate(contexts(20))]
    fixed = [
        LoggedDecision(id=f"f{i}", context=c, action="360p", propensity=1.0, policy=0, mode="fallback", time=NOON)
        for i, c in enumerate(contexts(20))
    ]
    chosen = [
        LoggedDecision(
            id=f"a{i}", context=c, action="720p", propensity=float(policy.probabilities(c)[1]), policy=0,
            mode="apprentice", unit="user-7", time=NOON,
        )
        for i, c in enumerate(contexts(20))
    ]  # fmt: skip
    logged(workspace, *own, *fixed, *chosen)
    found = run_audit(workspace)
    assert found.clean
    assert (found.decisions, found.checked, found.fixed) == (60, 40, 20)
    run_update(workspace, now=LATER, force=True)
    sources = workspace.lake.scan("observations").collect()["source"].value_counts()
    assert dict(sources.rows()) == {"log": 20, "fallback": 20, "apprentice": 20}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"propensity": 0.5}, "propensities"),
        ({"context": {"bandwidth_kbps": 99_999.0, "connection": "wifi"}}, "propensities"),
        ({"id": "another"}, "actions"),
        ({"policy": 7}, "missing"),
    ],
)
def test_what_was_altered_is_found(tmp_path, change, what):
    workspace = made(str(tmp_path))
    for seed in range(2):
        log(workspace, workspace.start(), 200, seed=seed)
        run_update(workspace, now=LATER)
    context = {"bandwidth_kbps": 100.0, "connection": "2g"}
    decision = workspace.serving().decide(context, id="altered-1")
    event = LoggedDecision.of(decision, context, time=LATER)
    honest = {name: getattr(event, name) for name in event.__struct_fields__}
    if what == "actions":  # an id that draws another action
        names = (f"another-{i}" for i in range(10_000))
        change = {"id": next(n for n in names if workspace.serving().decide(context, id=n).action != decision.action)}
    logged(workspace, LoggedDecision(**{**honest, **change}))
    found = run_audit(workspace)
    assert not found.clean
    assert found.checked == (400 if what == "missing" else 401)
    if what == "missing":
        assert found.missing == {7: 1}
    else:
        assert getattr(found, what) == 1
        assert found.mismatches[0].id == change.get("id", "altered-1")


def far_apart(workspace):
    """A published policy whose scores are up to 50 apart, so that propensities fall below 1e-20."""
    rng, problem = np.random.default_rng(0), workspace.problem
    hidden = Layer(
        (2 * rng.standard_normal((problem.width, 50))).astype(np.float32), rng.standard_normal(50).astype(np.float32)
    )
    last = Layer(
        (3 * rng.standard_normal((50, len(problem.actions)))).astype(np.float32), hidden.bias[: len(problem.actions)]
    )
    policy = ps.Policy.build(problem, [hidden, last], version=1)
    workspace.registry.publish(policy, teacher=None, report=b"{}", expected=workspace.registry.head().number)
    return policy


@pytest.mark.parametrize("runtime", ["numpy", pytest.param("native", marks=needs_native)])
def test_honest_logs_of_far_apart_scores_are_not_accused(tmp_path, runtime):
    workspace = made(str(tmp_path))
    workspace.start()
    policy = far_apart(workspace).with_runtime(runtime)
    given = contexts(5_000)
    logged(
        workspace,
        *(LoggedDecision.of(policy.decide(c, id=f"o{i}"), c, time=NOON) for i, c in enumerate(given)),
    )
    found = run_audit(workspace)
    assert found.clean
    assert found.checked == 5_000


def test_a_small_propensity_is_checked_as_closely_as_a_large_one(tmp_path):
    workspace = made(str(tmp_path))
    workspace.start()
    policy = far_apart(workspace)
    context, p = next((c, p) for c in contexts(500) if 1e-12 < (p := policy.probabilities(c)).min() < 1e-7)
    action, smallest = policy.problem.actions.names[p.argmin()], float(p.min())
    stated = {"context": context, "action": action, "policy": 1, "mode": "apprentice", "unit": "u", "time": NOON}
    logged(
        workspace,
        LoggedDecision(id="honest", propensity=smallest, **stated),
        LoggedDecision(id="altered", propensity=2 * smallest, **stated),
    )
    found = run_audit(workspace)
    assert [one.id for one in found.mismatches] == ["altered"]


def test_an_empty_lake_is_clean(tmp_path):
    workspace = made(str(tmp_path))
    assert run_audit(workspace).clean
    assert isinstance(workspace.start(), ps.Policy)
