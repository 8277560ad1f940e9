"""JSON schemas of a problem's requests and replies: the wire types, with what only the problem knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from potstill.problem import Boolean, Categorical, Feature, Numeric, Problem
from potstill.service import wire

Schema = dict[str, Any]
PLACE = "#/components/schemas/"

#: What a field means, wherever it is.
FIELDS = {
    "accepted": "How many were taken up; they are on disk.",
    "action": "The action to carry out.",
    "arm": "Of the experiment that it was decided in, NAME:control or NAME:treatment; absent outside of any.",
    "context": "What is known when the decision is made.",
    "decisions": "In the order of the requests.",
    "eligible": "The actions that are allowed this time; all if left out.",
    "experiment": "The name of the experiment that is followed, also before its start; null if there is none.",
    "experiment_state": "running, not started, paused, refused or unavailable, and why; null if there is none.",
    "floor": "The smallest propensity that was asked for, if it was not the policy's own.",
    "id": "Names the decision; rewards carry the same id.",
    "key": "Names a reward among those of its decision, so that sending it again counts once.",
    "metrics": "Other outcomes to watch in experiments, numbers by name; nothing is learnt from them.",
    "mode": "How the service answers: online, apprentice or log-only; a reply may also say fallback or control.",
    "note": "Why, for the registry's history.",
    "policy": "The version of the policy that decided.",
    "propensity": "The exact probability with which the action was taken.",
    "reward_time": "When the reward came; the decision's time if left out.",
    "reward": "What came of the decision: more is better.",
    "time": "RFC 3339 with a time zone, or seconds since 1970.",
    "to": "The version to return to; the one that served before if left out.",
    "unit": "Who or what it is decided for, such as a user; kept with the decision. In an experiment it has one arm.",
    "would": "What the policy would have done.",
}
#: What a field means where it is not that.
FIELDS_OF = {
    ("DecideRequest", "action"): "Your own choice, in mode apprentice only: it is carried out.",
    ("DecideRequest", "id"): "Names the decision: the same id again gives the same decision. Made up if left out.",
    ("Observation", "action"): "The action that was taken.",
    ("RewardRequest", "time"): "RFC 3339 with a time zone, or seconds since 1970; now if left out.",
    ("Status", "decisions"): "By the worker that answers, since it started.",
    ("Status", "rewards"): "By the worker that answers, since it started.",
}


def components(problem: Problem, prefix: str, max_batch: int) -> dict[str, Schema]:
    """The schemas of a problem by name, each under a prefix."""
    requests = wire.Requests(problem)
    types = [
        requests.decide,
        requests.batch,
        requests.observe,
        wire.RewardRequest,
        wire.RewardsRequest,
        wire.RollbackRequest,
        wire.ModeRequest,
        wire.Decided,
        wire.BatchDecided,
        wire.Rewarded,
        wire.Accepted,
        wire.Status,
        wire.Moved,
    ]
    _, found = msgspec.json.schema_components(types, ref_template=f"{PLACE}{prefix}.{{name}}")
    found["Context"] = _context(problem, found["Context"])
    for name in found.keys() - {"Context"}:
        _describe(name, found[name], problem, max_batch)
    return {f"{prefix}.{name}": schema for name, schema in found.items()}


def example_context(problem: Problem) -> dict[str, object]:
    """A context that the problem takes."""
    return {feature.name: feature.example for feature in problem.context}


def examples(problem: Problem) -> dict[str, Any]:
    """A request and a reply of each schema that has one."""
    actions, context = problem.actions.names, example_context(problem)
    decide = {"context": context, "id": "decision-1"}
    low, high = problem.reward.low, problem.reward.high
    reward = high if high is not None else low if low is not None else 1.0
    decided = {"id": "decision-1", "action": actions[0], "propensity": 1 / len(actions), "policy": 1, "mode": "online"}
    observation = {
        "id": "device-1",
        "context": context,
        "action": actions[0],
        "propensity": 1 / len(actions),
        "policy": 1,
        "time": "2026-01-31T12:00:00Z",
        "reward": reward,
    }
    return {
        "DecideRequest": decide,
        "BatchRequest": {"requests": [decide, {"context": context, "id": "decision-2", "eligible": list(actions[:2])}]},
        "RewardRequest": {"id": "decision-1", "reward": reward},
        "RewardsRequest": {
            "rewards": [{"id": "decision-1", "reward": reward, "key": "first", "metrics": {"watched": 3.2}}]
        },
        "ObserveRequest": {"observations": [observation]},
        "RollbackRequest": {"note": "complaints since noon"},
        "ModeRequest": {"mode": "apprentice"},
        "Decided": decided,
        "BatchDecided": {"decisions": [decided, {**decided, "id": "decision-2", "propensity": 0.5}]},
        "Rewarded": {"id": "decision-1"},
        "Accepted": {"accepted": 1},
    }


def safe(name: str) -> str:
    """A name with the characters only that a component may have."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)


def _describe(name: str, schema: Schema, problem: Problem, max_batch: int) -> None:
    general = getattr(wire, name, None)
    properties: dict[str, Schema] = schema["properties"]
    if general is not None:  # a type that was narrowed has lost its text and the order of its fields
        order = [field.encode_name for field in msgspec.structs.fields(general)]
        schema["properties"] = properties = {field: properties[field] for field in order}
        schema.setdefault("description", (general.__doc__ or "").partition("\n")[0])
    for field, described in properties.items():
        if text := FIELDS_OF.get((name, field)) or FIELDS.get(field):
            described["description"] = text
        if field == "reward":
            _bound(described, problem)
        if field in ("requests", "observations", "rewards"):
            described["maxItems"] = max_batch
    for part in _parts(schema):
        if sorted(part.get("enum", ())) == sorted(problem.actions.names):
            part["enum"] = list(problem.actions.names)


def _bound(schema: Schema, problem: Problem) -> None:
    for part in _parts(schema):
        if part.get("type") == "number":
            bounds = {"minimum": problem.reward.low, "maximum": problem.reward.high}
            part.update({word: bound for word, bound in bounds.items() if bound is not None})


def _parts(schema: Any) -> Iterator[Schema]:
    """A schema and all that are in it."""
    if isinstance(schema, Mapping):
        yield schema  # type: ignore[misc]
    inside = schema.values() if isinstance(schema, Mapping) else schema if isinstance(schema, list) else ()
    for part in inside:
        yield from _parts(part)


def _context(problem: Problem, plain: Schema) -> Schema:
    """The type of a problem's contexts, with what each feature is."""
    described = {
        feature.name: {**plain["properties"][feature.name], **_feature(feature)} for feature in problem.context
    }
    text = f"What is known when {problem.name!r} is decided."
    return {**plain, "description": text, "properties": described, "examples": [example_context(problem)]}


def _feature(feature: Feature) -> Schema:
    about = {"examples": [feature.example], "description": _in_words(feature)}
    if isinstance(feature, Categorical):
        about["examples"] = list(feature.values)
    return about


def _in_words(feature: Feature) -> str:
    match feature:
        case Numeric(low=low, high=high, scale=scale):
            way = " on a logarithmic scale" if scale == "log" else ""
            text = f"A number; {low:g} to {high:g} tell{way}, and what is beyond counts as the end."
        case Categorical(values=values):
            text = f"One of {', '.join(values)}; anything else counts as unseen."
        case Boolean():
            text = "True or false."
    return text if feature.missing == "error" else f"{text} May be left out."
