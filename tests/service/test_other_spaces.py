"""The service with a space that is no list of names: a number on an interval, whose propensity is a density."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec
import numpy as np
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

import potstill as ps
from potstill.errors import InvalidAction
from potstill.events import DecisionBlock
from potstill.events.lake.frames import decision_frame
from potstill.experiments.rules import read_rules
from potstill.service.decide import Batch, Decider
from potstill.service.http import Refusal
from potstill.service.openapi import document
from potstill.service.schemas import examples
from potstill.service.snapshot import Snapshot
from potstill.service.wire import DecideRequest, Requests
from potstill.spaces import WireTypes, register


class Interval(NamedTuple):
    """Numbers from low to high, as a restriction."""

    value: tuple[float, float]

    @property
    def allowed(self):
        return np.array([self.value])

    def permits(self, action):
        return self.value[0] <= action <= self.value[1]

    def first(self):
        return self.value[0]


class Uniform:
    """Uniform densities on one interval per row."""

    def __init__(self, bounds):
        self.low, self.high = bounds.T

    def draw(self, u):
        return (self.low + u[:, 0] * (self.high - self.low))[:, None].astype(np.float32)

    def propensity(self, actions):
        return 1 / (self.high - self.low) * np.ones(len(actions))


class Head(msgspec.Struct, frozen=True):
    outputs: int = 1
    draws: int = 2
    kernel: str = ""

    def check_floor(self, floor):
        pass

    def distribution(self, outputs, allowed, floor):
        return Uniform(np.tile([0.0, 0.5], (len(outputs), 1)) if allowed is None else allowed)


class Dial(msgspec.Struct, frozen=True, tag_field="type", tag="dial-of-the-service-tests"):
    """A number from 0 to 0.5."""

    measure: ClassVar[str] = "lebesgue"
    wire: ClassVar[WireTypes] = WireTypes(Annotated[float, msgspec.Meta(ge=0)], tuple[float, float])
    columns: ClassVar[Mapping[str, Any]] = {"action": "number", "eligible": "numbers"}
    examples: ClassVar[list[float]] = [0.0, 0.5]

    def parse(self, value):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 0.5:
            raise InvalidAction(f"a number from 0 to 0.5 is needed, got {value!r}")
        return float(value)

    def encode(self, values):
        return np.array([[self.parse(value)] for value in values], np.float32)

    def decode(self, actions):
        return actions[:, 0].tolist()

    def valid(self, actions):
        return (actions[:, 0] >= 0) & (actions[:, 0] <= 0.5)

    def embed(self, actions):
        return actions

    def restrict(self, eligible):
        low, high = map(self.parse, eligible)
        if low >= high:
            raise InvalidAction(f"an interval is needed, got {eligible!r}")
        return Interval((low, high))

    def allow(self, eligible):
        return np.array([(0.0, 0.5) if one is None else self.restrict(one).value for one in eligible])

    def head(self):
        return Head()


register(Dial, learn="none")
PROBLEM = ps.Problem(name="dial", context=[ps.Boolean("b")], actions=Dial())
REQUESTS, POLICY = Requests(PROBLEM), ps.Policy.uniform(PROBLEM, version=3)


def decided(*stated, mode="online", fallback=None, policy=POLICY):
    asked = [{"context": {"b": True}, "id": f"id-{i}", **one} for i, one in enumerate(stated)]
    batch = Batch(REQUESTS.read_batch(json.dumps({"requests": asked})).requests)
    return Decider(PROBLEM, fallback).decide(Snapshot(policy, 1, mode, datetime.now(UTC)), batch)


def rows(decisions):
    return [row for part in decisions.rows for row in (part.rows() if isinstance(part, DecisionBlock) else [part])]


def test_one_by_one_and_in_a_batch_decisions_are_the_policys():
    stated = [{}, {"eligible": [0.1, 0.2]}, {}]
    batch = decided(*stated)
    for i, (one, reply) in enumerate(zip(stated, batch.replies, strict=True)):
        decision = POLICY.decide({"b": True}, id=f"id-{i}", eligible=one.get("eligible"))
        assert (reply.action, reply.propensity) == (pytest.approx(decision.action), pytest.approx(decision.propensity))
    assert [row.eligible for row in rows(batch)] == [None, (0.1, 0.2), None]
    (single,) = rows(decided({"eligible": [0.1, 0.2]}))
    assert (single.eligible, single.propensity) == ((0.1, 0.2), pytest.approx(10))


def test_what_is_not_of_the_space_is_refused():
    with pytest.raises(msgspec.ValidationError, match="float"):
        decided({"eligible": ["a", "b"]})
    with pytest.raises(InvalidAction, match="interval"):
        decided({"eligible": [0.2, 0.1]})
    with pytest.raises(InvalidAction, match=r"0 to 0\.5"):
        decided({"action": 0.7}, mode="apprentice")


def test_own_choices_have_the_policys_density():
    made = decided({"action": 0.25}, {"action": 0, "eligible": [0, 0.25]}, mode="apprentice")
    assert [(reply.action, reply.propensity) for reply in made.replies] == [(0.25, 2.0), (0.0, 4.0)]
    with pytest.raises(Refusal, match="not eligible"):
        decided({"action": 0.3, "eligible": [0, 0.25]}, mode="apprentice")


def test_the_fallback_gives_way_to_the_first_that_is_eligible():
    made = decided({}, {"eligible": [0.1, 0.2]}, fallback=0.4, policy=None)
    assert [reply.action for reply in made.replies] == [0.4, 0.1]


def test_rules_name_numbers():
    rules = read_rules(b"default = 0.25\n[[rule]]\nwhen = { b = true }\naction = 0.5", PROBLEM, "rules.toml")
    assert (rules.action([True]), rules.action([False])) == (0.5, 0.25)
    assert rules.action([True], (0.1, 0.2)) == 0.1


def test_restrictions_that_cannot_be_hashed_have_digests():
    first, second = (
        Batch([DecideRequest(context=REQUESTS.read_decide(b'{"context": {"b": true}}').context, eligible=eligible)])
        for eligible in ([0.1, 0.2], [0.1, 0.3])
    )
    assert first.digests != second.digests


def test_the_document_and_the_tables_have_numbers():
    found = document([PROBLEM])
    OpenAPIV31SpecValidator(found).validate()
    schemas = found["components"]["schemas"]
    assert schemas["dial.DecideReply"]["properties"]["action"]["type"] == "number"
    assert "maximum" not in schemas["dial.Observation"]["properties"]["propensity"]
    REQUESTS.read_observe(json.dumps(examples(PROBLEM)["ObserveRequest"]))
    frame = decision_frame(rows(decided({}, {"eligible": [0.1, 0.2]})), PROBLEM)
    assert frame["eligible"].to_list() == [None, [0.1, 0.2]]
    assert frame["action"].dtype.is_float()
