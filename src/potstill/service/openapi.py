"""The OpenAPI 3.1 document of a service: each problem has paths of its own, with contexts and actions of its types."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import quote

import msgspec

from potstill._version import __version__
from potstill.problem import Problem
from potstill.service.operations import FAULTS, OPERATIONS, Operation
from potstill.service.schemas import PLACE, Schema, components, examples, safe
from potstill.service.tokens import Scope


def document(problems: Sequence[Problem], *, secured: bool, max_batch: int = 1000) -> dict[str, Any]:
    """The document as JSON values.

    Args:
        problems: to be shown.
        secured: whether requests need a token.
        max_batch: the most requests of a batch.
    """
    paths, schemas = _service_paths(secured), dict(_SHARED)
    for number, problem in enumerate(problems):
        prefix = f"{safe(problem.name)}-{number}" if len(problems) > 1 else safe(problem.name)
        schemas |= components(problem, prefix, max_batch)
        for operation in OPERATIONS:
            path = paths.setdefault(f"/v1/{quote(problem.name, safe='')}/{operation.path}", {})
            path[operation.method] = _described(operation, problem, prefix, secured)
    found = {
        "openapi": "3.1.0",
        "info": {
            "title": "Potstill decision service",
            "version": __version__,
            "summary": "Decisions with exact propensities, and the rewards that they learn from.",
            "description": _ABOUT,
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": problem.name} for problem in problems] + [{"name": _SERVICE}],
        "paths": paths,
        "components": {"schemas": schemas, **({"securitySchemes": {"token": _TOKEN}} if secured else {})},
    }
    return cast(dict[str, Any], msgspec.json.decode(msgspec.json.encode(found)))  # tuples become lists


def _described(operation: Operation, problem: Problem, prefix: str, secured: bool) -> Schema:
    shown = examples(problem)
    replies = _policy_replies() if operation.path == "policy" else {operation.status: _reply(operation, prefix, shown)}
    described: Schema = {
        "tags": [problem.name],
        "operationId": f"{prefix}.{operation.path.replace('/', '.')}",
        "summary": operation.summary,
        "description": operation.text,
        "responses": {**replies, **_faults(operation.faults, secured)},
    }
    if operation.body:
        described["requestBody"] = {"required": True, "content": _content(operation.body, prefix, shown)}
    if operation.path == "policy":
        described["parameters"] = [_IF_NONE_MATCH]
    return described | _needs(operation.scope, secured)


def _reply(operation: Operation, prefix: str, shown: dict[str, Any]) -> Schema:
    content = _content(operation.reply, prefix, shown) if operation.reply else _json({"$ref": f"{PLACE}Problem"})
    return {"description": "It is on disk." if operation.status == "202" else "Done.", "content": content}


def _content(names: Sequence[str], prefix: str, shown: dict[str, Any]) -> Schema:
    schemas = [{"$ref": f"{PLACE}{prefix}.{name}"} for name in names]
    described = _json(schemas[0] if len(schemas) == 1 else {"anyOf": schemas})
    described["application/json"]["examples"] = {name: {"value": shown[name]} for name in names if name in shown}
    return described


def _json(schema: Schema) -> Schema:
    return {"application/json": {"schema": schema}}


def _faults(statuses: Sequence[str], secured: bool) -> Schema:
    kept = sorted({*statuses, *(("401", "403") if secured else ())})
    return {status: {"description": FAULTS[status], "content": _json({"$ref": f"{PLACE}Failure"})} for status in kept}


def _needs(scope: Scope, secured: bool) -> Schema:
    # Where all may call, an empty requirement says so; the scope is still told.
    return {"x-scope": scope, "security": [{"token": [scope]}] if secured else []}


def _policy_replies() -> Schema:
    headers = {
        "ETag": {"description": "The SHA-256 of the file, in quotes.", "schema": {"type": "string"}},
        "X-Potstill-Version": {"description": "The version.", "schema": {"type": "integer"}},
    }
    return {
        "200": {"description": "The file.", "headers": headers, "content": {"application/octet-stream": {}}},
        "304": {"description": "It is the one you have.", "headers": headers},
    }


def _service_paths(secured: bool) -> dict[str, Any]:
    answer, text = _json({"type": "object"}), {"text/plain": {"schema": {"type": "string"}}}
    return {
        "/health": {"get": _of_service("health", "Whether the process lives", answer)},
        "/ready": {"get": _of_service("ready", "Whether every problem has a policy and a log", answer, ("503",))},
        "/metrics": {
            "get": _of_service("metrics", "Metrics for Prometheus", text, secured=secured) | _needs("read", secured)
        },
    }


def _of_service(
    name: str, summary: str, content: Schema, faults: Sequence[str] = (), *, secured: bool = False
) -> Schema:
    return {
        "tags": [_SERVICE],
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": "Yes.", "content": content}, **_faults(faults, secured)},
        "security": [],
    }


_SERVICE = "whole service"
_ABOUT = (
    'Errors are `{"error": "one sentence"}`. What is answered with 200 or 202 is on disk. '
    "A request that was not answered can be sent again with the same id."
)
_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "`Authorization: Bearer pst_…`, made by `potstill token create`.",
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "The ETag of the file you have.",
    "schema": {"type": "string"},
}
_SHARED: dict[str, Schema] = {
    "Failure": {
        "type": "object",
        "description": "Why a request was refused.",
        "properties": {"error": {"type": "string", "description": "What, where, and the way out."}},
        "required": ["error"],
    },
    "Problem": {
        "type": "object",
        "description": "What is decided, as in problem.toml.",
        "properties": {"name": {"type": "string"}, "hash": {"type": "string"}},
        "required": ["name", "hash"],
    },
}
