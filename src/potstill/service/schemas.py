"""JSON schemas and examples of a problem's requests and replies, from the wire types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import msgspec

from potstill.errors import InvalidAction
from potstill.problem import Feature, Problem
from potstill.service import wire
from potstill.service.routes import wire_types
from potstill.spaces import ActionSpace

Schema = dict[str, Any]
PLACE = "#/components/schemas/"

#: What a field means in every type that has it.
FIELDS = {
    "accepted": "Number of items that were logged; they are on disk.",
    "action": "The action to carry out.",
    "arm": "Arm of the experiment, NAME:control or NAME:treatment; absent outside of experiments.",
    "context": "What is known when the decision is made.",
    "decisions": "In the order of the requests.",
    "eligible": "The actions that are allowed this time; all if left out.",
    "error": "What is wrong, where, and the way out.",
    "experiment": "Name of the experiment in potstill.toml, also before its start; null if there is none.",
    "experiment_state": "running, not started, paused, refused or unavailable, and why; null if there is none.",
    "floor": "The smallest propensity that was asked for, if it was not the policy's own.",
    "id": "Name of the decision; rewards carry the same id.",
    "key": "Name of a reward among those of its decision; sending it again counts once.",
    "metrics": "Other outcomes that experiments report, numbers by name; policies do not learn from them.",
    "mode": "How the service answers: online, apprentice or log-only; a reply also says fallback, control or design.",
    "note": "Why, for the registry's history.",
    "policy": "Version of the policy that decided.",
    "propensity": "The exact probability, or density, with which the action was taken.",
    "reward_time": "When the reward came; the decision's time if left out.",
    "reward": "Reward of the decision: more is better.",
    "time": "RFC 3339 with a time zone, or seconds since 1970.",
    "to": "The version to return to; the one that served before if left out.",
    "unit": "Whom or what it is decided for, such as a user; an experiment keeps it in one arm.",
    "would": "The action that the policy would have drawn.",
}
#: What a field of a query string means.
QUERY_FIELDS = {
    "before": "Only what is before this time; microseconds since 1970.",
    "by": "Name of a feature to show effects by.",
    "contexts": "The most contexts to compare in.",
    "first": "A version.",
    "hours": "The last hours; 0 for everything.",
    "id": "Name of the decision.",
    "limit": "The most items of the reply.",
    "second": "Another version.",
    "unit": "Only decisions of this unit.",
    "version": "Number of the version.",
}
#: What a field means in one type, where that differs.
FIELDS_OF = {
    ("DecideRequest", "action"): "Your own choice, in mode apprentice only: it is carried out.",
    ("DecideRequest", "propensity"): "Probability, or density, with which you chose `action`, if it is known.",
    ("DecideRequest", "id"): "Name of the decision: the same id gives the same decision. Generated if left out.",
    ("Observation", "action"): "The action that was taken.",
    ("RewardRequest", "time"): "RFC 3339 with a time zone, or seconds since 1970; now if left out.",
    ("StatusReply", "decisions"): "By the worker that answers, since it started.",
    ("StatusReply", "rewards"): "By the worker that answers, since it started.",
}


def components(problem: Problem, prefix: str, max_batch: int) -> dict[str, Schema]:
    """The schemas of a problem by name, each under a prefix."""
    narrowed = wire.Requests(problem).types
    types = [narrowed.get(kind, kind) for kind in wire_types()]
    _, found = msgspec.json.schema_components(types, ref_template=f"{PLACE}{prefix}.{{name}}")
    found["Context"] = _context(problem, found["Context"])
    for name in found.keys() - {"Context"}:
        if not hasattr(wire, name):  # a report, whose fields have meanings of their own
            continue
        _describe(name, found[name])
        _bound(found[name], problem, max_batch)
    return {f"{prefix}.{name}": schema for name, schema in found.items()}


def service_components(types: Sequence[type[Any]]) -> dict[str, Schema]:
    """Schemas that belong to no problem, by name."""
    _, found = msgspec.json.schema_components(types, ref_template=f"{PLACE}{{name}}")
    for name, schema in found.items():
        _describe(name, schema)
    return dict(found)


def example_context(problem: Problem) -> dict[str, object]:
    """A context that the problem accepts."""
    return {feature.name: feature.example for feature in problem.context}


def examples(problem: Problem) -> dict[str, Any]:
    """An example of each type that has one, by name."""
    action, context = problem.actions.examples[0], example_context(problem)
    decide = {"context": context, "id": "decision-1"}
    low, high = problem.reward.low, problem.reward.high
    reward = high if high is not None else low if low is not None else 1.0
    reply = {"id": "decision-1", "action": action, "propensity": 0.5, "policy": 1, "mode": "online"}
    observation = {
        "id": "device-1",
        "context": context,
        "action": action,
        "propensity": 0.5,
        "policy": 1,
        "time": "2026-01-31T12:00:00Z",
        "reward": reward,
    }
    return {
        "DecideRequest": decide,
        "BatchRequest": {"requests": [decide, {**decide, "id": "decision-2", **_restriction(problem.actions)}]},
        "RewardRequest": {"id": "decision-1", "reward": reward},
        "RewardsRequest": {
            "rewards": [{"id": "decision-1", "reward": reward, "key": "first", "metrics": {"watched": 3.2}}]
        },
        "ObserveRequest": {"observations": [observation]},
        "RollbackRequest": {"note": "complaints since noon"},
        "ModeRequest": {"mode": "apprentice"},
        "ExpectRequest": {"contexts": [context]},
        "DecideReply": reply,
        "BatchReply": {"decisions": [reply, {**reply, "id": "decision-2"}]},
        "RewardReply": {"id": "decision-1"},
        "AcceptedReply": {"accepted": 1},
    }


def _restriction(space: ActionSpace) -> dict[str, Any]:
    """Two actions as `eligible`; nothing where the space is not restricted by a list of actions."""
    try:
        return {"eligible": msgspec.json.decode(msgspec.json.encode(space.restrict(list(space.examples[:2])).value))}
    except InvalidAction:
        return {}


def safe(name: str) -> str:
    """A name with only the characters that a component may have."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)


def _describe(name: str, schema: Schema) -> None:
    properties: dict[str, Schema] = schema["properties"]
    if (general := getattr(wire, name, None)) is not None:  # narrowing drops the text and the order of the fields
        order = [field.encode_name for field in msgspec.structs.fields(general)]
        schema["properties"] = properties = {field: properties[field] for field in order}
        schema.setdefault("description", (general.__doc__ or "").partition("\n")[0])
    for field, described in properties.items():
        if text := FIELDS_OF.get((name, field)) or FIELDS.get(field):
            described["description"] = text


def _bound(schema: Schema, problem: Problem, max_batch: int) -> None:
    """Add what only the problem and the service know: bounds of rewards and batches, the order of actions."""
    for field, described in schema["properties"].items():
        if field in ("requests", "observations", "rewards"):
            described.setdefault("maxItems", max_batch)
        if field == "reward":
            bounds = {"minimum": problem.reward.low, "maximum": problem.reward.high}
            bounds |= {"multipleOf": 1.0} if problem.reward.whole else {}
            for part in _parts(described):
                if part.get("type") == "number":
                    part.update({word: bound for word, bound in bounds.items() if bound is not None})
    action = problem.actions.wire.action
    stated = list(get_args(action)) if get_origin(action) is Literal else []
    for part in _parts(schema):
        if stated and sorted(part.get("enum", ())) == sorted(stated):
            part["enum"] = stated  # msgspec sorts them


def _parts(schema: Any) -> Iterator[Schema]:
    """A schema and all schemas inside it."""
    if isinstance(schema, Mapping):
        yield schema  # type: ignore[misc]
    inside = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    for part in inside:
        yield from _parts(part)


def _context(problem: Problem, plain: Schema) -> Schema:
    """The type of a problem's contexts, with a description of each feature."""
    described = {
        feature.name: {**plain["properties"][feature.name], **_feature(feature)} for feature in problem.context
    }
    text = f"What is known when {problem.name!r} is decided."
    return {**plain, "description": text, "properties": described, "examples": [example_context(problem)]}


def _feature(feature: Feature) -> Schema:
    text = f"{feature.in_words} May be left out." if feature.optional else feature.in_words
    return {"examples": feature.examples, "description": text}
