from datetime import UTC, datetime

import msgspec
import pytest
from examples import random_layers
from hypothesis import given
from hypothesis import strategies as st

import potstill as ps
from potstill.events import InvalidEvent, LoggedDecision
from potstill.events.records import DecisionBlock
from potstill.events.validate import EventValidator, payload
from potstill.service.decide import SMALLEST, Batch, Decider
from potstill.service.http import Refusal
from potstill.service.snapshot import Snapshot
from potstill.service.wire import Requests

PROBLEM = ps.Problem(
    name="video",
    context=[
        ps.Numeric("speed", low=0, high=100),
        ps.Categorical("kind", ["2g", "4g", "wifi"]),
        ps.Numeric("size", low=1, high=1e6, scale="log", missing="flag"),
        ps.Boolean("hd", missing=False),
    ],
    actions=ps.Discrete(["low", "mid", "high"]),
)
REQUESTS = Requests(PROBLEM)
POLICY = ps.Policy.build(PROBLEM, random_layers(PROBLEM, seed=3), version=7)

contexts = st.fixed_dictionaries(
    {"speed": st.floats(-1e9, 1e9), "kind": st.sampled_from(["2g", "4g", "wifi", "", "wifi\0", "ß", "x" * 200])},
    optional={"size": st.none() | st.floats(-10, 1e9), "hd": st.none() | st.booleans()},
)
eligible = st.none() | st.lists(st.sampled_from(PROBLEM.actions.names), min_size=1, max_size=3)
asked = st.lists(st.fixed_dictionaries({"context": contexts, "eligible": eligible}), min_size=2, max_size=6)


def asking(values):
    named = [{"id": f"id-{i}", **value} for i, value in enumerate(values)]
    return Batch(REQUESTS.read_batch(msgspec.json.encode({"requests": named})).requests)


def snapshot(mode="online", policy=POLICY):
    return Snapshot(policy, 1, mode, datetime.now(UTC))


def logged(outcome):
    parts = outcome.rows
    return [row for part in parts for row in (part.rows() if isinstance(part, DecisionBlock) else [part])]


CONTEXT = {"speed": 30.0, "kind": "4g"}


@given(asked)
def test_a_batch_is_decided_as_one_by_one_and_as_the_policy_does(values):
    decider = Decider(PROBLEM, None)
    batch = asking(values)
    replies = decider.decide(snapshot(), batch).replies
    assert replies == [decider.decide(snapshot(), batch.at([place])).replies[0] for place in range(len(batch))]
    for i, (value, reply) in enumerate(zip(values, replies, strict=True)):
        decision = POLICY.decide(value["context"], id=f"id-{i}", eligible=value["eligible"])
        assert (reply.id, reply.action, reply.policy, reply.mode) == (f"id-{i}", decision.action, 7, "online")
        assert reply.propensity == pytest.approx(decision.propensity, abs=1e-6)


@given(asked, st.sampled_from(["online", "apprentice", "log-only"]))
def test_rows_are_what_the_log_makes_of_the_same_decisions(values, mode):
    own = [{**value, "action": (value["eligible"] or ["mid"])[0], "unit": "u"} for value in values]
    batch = asking(own if mode == "apprentice" else values)
    outcome = Decider(PROBLEM, "low").decide(snapshot(mode), batch)
    for value, request, reply, row in zip(values, batch.requests, outcome.replies, logged(outcome), strict=True):
        event = LoggedDecision(
            id=reply.id,
            context=value["context"],
            action=reply.action,
            propensity=reply.propensity,
            policy=reply.policy,
            eligible=value["eligible"],
            unit=request.unit,
            mode=None if mode == "online" else mode,
            would=reply.would,
            time=row.time,
        )
        assert payload(row) == EventValidator(PROBLEM).encode(event)


def test_the_apprentice_logs_the_callers_choice_with_the_policys_probability_of_it():
    batch = asking([{"context": CONTEXT, "action": "high", "eligible": ["high", "mid"]}])
    outcome = Decider(PROBLEM, None).decide(snapshot("apprentice"), batch)
    (reply,), (row,) = outcome.replies, logged(outcome)
    p = POLICY.probabilities(CONTEXT, eligible=["high", "mid"])
    assert (reply.action, reply.mode, row.action, row.mode) == ("high", "apprentice", "high", "apprentice")
    assert reply.propensity == row.propensity == pytest.approx(float(p[2]))
    assert reply.would == POLICY.decide(CONTEXT, id=reply.id, eligible=["high", "mid"]).action


def test_a_choice_that_the_policy_rules_out_can_still_be_logged():
    layers = random_layers(PROBLEM, hidden=(), seed=0, scale=0.0)
    layers[0].bias[:] = [0, 0, -1e5]
    policy = ps.Policy.build(PROBLEM, layers, version=1)
    batch = asking([{"context": CONTEXT, "action": "high"}])
    outcome = Decider(PROBLEM, None).decide(snapshot("apprentice", policy), batch)
    assert outcome.replies[0].propensity == SMALLEST
    assert EventValidator(PROBLEM).encode(
        LoggedDecision(id="a", context=CONTEXT, action="high", propensity=SMALLEST, policy=1)
    )


@pytest.mark.parametrize(
    ("mode", "stated", "told"),
    [
        ("online", {"action": "low"}, "mode apprentice, and the mode is online"),
        ("log-only", {"action": "low"}, "the mode is log-only"),
        ("apprentice", {}, "state it in `action`"),
        ("apprentice", {"action": "low", "eligible": ["mid"]}, "'low' is not eligible"),
    ],
)
def test_an_action_is_for_the_apprentice(mode, stated, told):
    fine = {"context": CONTEXT, **({"action": "low"} if mode == "apprentice" else {})}
    with pytest.raises(Refusal, match=told) as caught:
        Decider(PROBLEM, "low").decide(snapshot(mode), asking([fine, {"context": CONTEXT, **stated}]))
    assert caught.value.status == 422
    assert "request 1" in caught.value.message


def test_the_fallback_is_taken_surely_and_is_always_eligible():
    batch = asking([{"context": CONTEXT}, {"context": CONTEXT, "eligible": ["high", "mid"]}])
    outcome = Decider(PROBLEM, "low").decide(snapshot("log-only"), batch)
    assert [reply.action for reply in outcome.replies] == ["low", "high"]
    assert all(reply.propensity == 1.0 and reply.policy == 7 for reply in outcome.replies)
    assert {row.mode for row in logged(outcome)} == {"log-only"}
    outcome = Decider(PROBLEM, "low").decide(snapshot(policy=None), batch)
    assert {reply.mode for reply in outcome.replies} == {"fallback"}
    assert Decider(PROBLEM, None).decide(snapshot(policy=None), batch) is None


def test_an_apprentice_falls_back_to_the_callers_own_choice():
    batch = asking([{"context": CONTEXT, "action": "high"}])
    (reply,) = Decider(PROBLEM, "low").decide(snapshot("apprentice", None), batch).replies
    assert (reply.action, reply.propensity, reply.mode) == ("high", 1.0, "fallback")


def test_what_takes_the_place_of_a_decision_is_logged_before_it():
    batch = asking([{"context": CONTEXT}, {"context": {**CONTEXT, "speed": 1}}])
    decider = Decider(PROBLEM, "low")
    tried = decider.decide(snapshot(), batch)
    ids = [reply.id for reply in tried.replies]
    instead = decider.fall_back(snapshot(), batch, ids=ids, time=tried.rows[0].time - 1)
    assert [row.id for row in logged(instead)] == [row.id for row in logged(tried)]
    assert all(row.time < before.time for row, before in zip(logged(instead), logged(tried), strict=True))


def test_ids_are_made_up_and_differ():
    batch = asking([{"context": CONTEXT, "id": None}] * 50)
    outcome = Decider(PROBLEM, None).decide(snapshot(), batch)
    single = Decider(PROBLEM, None).decide(snapshot(), batch.at([0]))
    assert len({reply.id for reply in outcome.replies + single.replies}) == 51


@pytest.mark.parametrize("count", [1, 2])
def test_an_id_that_is_too_long_for_the_log_is_refused(count):
    batch = asking([{"context": CONTEXT, "id": f"{i}" + "ß" * 600} for i in range(count)])
    with pytest.raises(InvalidEvent, match="1000 bytes"):
        Decider(PROBLEM, None).decide(snapshot(), batch)


def test_a_digest_tells_contexts_and_eligible_actions_apart():
    values = [
        {"context": CONTEXT},
        {"context": {**CONTEXT, "speed": 30.5}},
        {"context": {**CONTEXT, "kind": "wifi"}},
        {"context": {**CONTEXT, "size": 30.0}},
        {"context": {**CONTEXT, "hd": True}},
        {"context": CONTEXT, "eligible": ["low"]},
        {"context": CONTEXT, "eligible": ["low", "mid"]},
    ]
    digests = asking(values).digests
    assert len(set(digests)) == len(values)
    assert asking([{"context": {"kind": "4g", "speed": 30, "hd": None}}]).digests == digests[:1]
    assert asking(values[-1:]).digests == digests[-1:]
