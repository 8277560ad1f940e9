"""The OpenAPI 3.1 document, from the endpoint table: each problem has its own paths, contexts and actions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote

import msgspec

from potstill._version import __version__
from potstill.problem import Problem
from potstill.service import wire
from potstill.service.personalizer import EVENT_ID, KEY_HEADER
from potstill.service.personalizer import wire as personalizer_wire
from potstill.service.routes import (
    PERSONALIZER,
    PERSONALIZER_ENDPOINTS,
    PERSONALIZER_REFUSALS,
    PROBLEM_ENDPOINTS,
    REFUSALS,
    SERVICE_ENDPOINTS,
    Endpoint,
    personalizer_types,
)
from potstill.service.schemas import PLACE, QUERY_FIELDS, Schema, components, examples, safe, service_components


def document(
    problems: Sequence[Problem],
    *,
    closed: Collection[str] = (),
    hidden: int = 0,
    max_batch: int = 1000,
    personalizer: bool = False,
) -> dict[str, Any]:
    """The document as JSON values.

    Args:
        problems: Problems to show.
        closed: Names of problems whose requests need a token.
        hidden: Number of further problems, for which the caller's token is not enough.
        max_batch: The most requests of a batch.
        personalizer: Whether requests of Azure Personalizer are answered, for the one problem.
    """
    # Endpoints of the service show what a caller may see, and refuse only one who may see nothing.
    secured = bool(closed) and all(problem.name in closed for problem in problems)
    paths: dict[str, Any] = {f"/{row.path}": {"get": _operation(row, "", {}, secured)} for row in SERVICE_ENDPOINTS}
    schemas = service_components([wire.ErrorReply, wire.HealthReply])
    for number, problem in enumerate(problems):
        prefix = f"{safe(problem.name)}-{number}" if len(problems) > 1 else safe(problem.name)
        schemas |= components(problem, prefix, max_batch)
        shown, needs_token = examples(problem), problem.name in closed
        for row in PROBLEM_ENDPOINTS:
            path = paths.setdefault(f"/v1/{quote(problem.name, safe='')}/{row.path}", {})
            path[row.method.lower()] = _operation(row, f"{prefix}.", shown, needs_token) | {"tags": [problem.name]}
    if personalizer and problems:
        (problem,) = problems
        schemas |= service_components([*personalizer_types(), personalizer_wire.PersonalizerError])
        paths |= _personalizer_paths(problem, secured=problem.name in closed)
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
        "components": {"schemas": schemas, **_security(personalizer, closed=bool(closed or hidden))},
        "x-hidden": hidden,
    }
    return cast(dict[str, Any], msgspec.json.decode(msgspec.json.encode(found)))  # tuples become lists


def _personalizer_paths(problem: Problem, *, secured: bool) -> dict[str, Any]:
    """The endpoints of Personalizer, with its errors; a token may also be sent as its key."""
    found: dict[str, Any] = {}
    for row in PERSONALIZER_ENDPOINTS:
        operation = _operation(row, "", {}, secured, personalizer_wire.PersonalizerError, PERSONALIZER_REFUSALS) | {
            "tags": [problem.name]
        }
        name = row.path.translate({ord("/"): ".", ord("{"): None, ord("}"): None})
        operation["operationId"] = f"personalizer.{name}"
        operation["security"] = [*operation["security"], {_KEY: []}] if secured else []
        if EVENT_ID in row.path:
            operation["parameters"] = [_EVENT]
        found[f"{PERSONALIZER}{row.path}"] = {row.method.lower(): operation}
    return found


def _security(personalizer: bool, *, closed: bool) -> dict[str, Any]:
    """The ways to send a token, if any is needed."""
    schemes = {"token": _TOKEN, **({_KEY: _KEY_SCHEME} if personalizer else {})}
    return {"securitySchemes": schemes} if closed else {}


def _operation(
    row: Endpoint,
    prefix: str,
    shown: dict[str, Any],
    secured: bool,
    error: type[Any] = wire.ErrorReply,
    meanings: Mapping[int, str] = REFUSALS,
) -> Schema:
    secured = secured and row.scope is not None
    operation: Schema = {
        "tags": [_SERVICE],
        "operationId": f"{prefix}{row.path.replace('/', '.')}",
        "summary": row.summary,
        "description": row.text or row.summary,
        "responses": {**_success(row, prefix, shown), **_refusals(row, secured, error, meanings)},
        # Where no token is needed, an empty requirement says so.
        "security": [{"token": [row.scope]}] if secured else [],
    }
    if row.request:
        operation["requestBody"] = {"required": True, "content": _json(row.request, prefix, shown)}
    if row.etag:
        operation["parameters"] = [_IF_NONE_MATCH]
    if row.query is not None:
        operation["parameters"] = [*_parameters(row.query)]
    return operation if row.scope is None else operation | {"x-scope": row.scope}


def _success(row: Endpoint, prefix: str, shown: dict[str, Any]) -> Schema:
    content = _json(row.reply, prefix, shown) if row.reply else {row.media: _UNTYPED.get(row.media, {})}
    text = "Success." if row.status == 200 else "It is on disk."
    if row.status == 204:
        return {"204": {"description": text}}
    if not row.etag:
        return {str(row.status): {"description": text, "content": content}}
    return {
        str(row.status): {"description": text, "headers": _ETAG, "content": content},
        "304": {"description": "Not modified: it is the one you have.", "headers": _ETAG},
    }


def _parameters(query: type[Any]) -> Iterator[Schema]:
    """Fields of a query string."""
    for field in msgspec.structs.fields(query):
        schema = msgspec.json.schema(field.type)
        if "anyOf" in schema:  # a field that may be left out is not null in an address
            (schema,) = (part for part in schema["anyOf"] if part.get("type") != "null")
        text = QUERY_FIELDS[field.encode_name]
        yield {
            "name": field.encode_name,
            "in": "query",
            "required": field.required,
            "description": text,
            "schema": schema,
        }


def _json(types: Sequence[type[Any]], prefix: str, shown: dict[str, Any]) -> Schema:
    names = [kind.__name__ for kind in types]
    schemas = [{"$ref": f"{PLACE}{prefix}{name}"} for name in names]
    described: Schema = {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}
    if samples := {name: {"value": shown[name]} for name in names if name in shown}:
        described["examples"] = samples
    return {"application/json": described}


def _refusals(row: Endpoint, secured: bool, error: type[Any], meanings: Mapping[int, str]) -> Schema:
    content = _json([error], "", {})
    statuses = sorted({*row.refusals, *((401, 403) if secured else ())})
    return {str(status): {"description": meanings[status], "content": content} for status in statuses}


_SERVICE = "service"
_ABOUT = (
    'Errors are `{"error": "one sentence"}`. What is answered with 200 or 202 is on disk. '
    "A request that was not answered can be sent again with the same id."
)
_TOKEN = {
    "type": "http",
    "scheme": "bearer",
    "description": "`Authorization: Bearer pst_…`, made by `potstill token create`.",
}
_KEY = "subscription_key"
_KEY_SCHEME = {"type": "apiKey", "in": "header", "name": KEY_HEADER, "description": "A token, as Personalizer's key."}
_EVENT = {
    "name": "eventId",
    "in": "path",
    "required": True,
    "description": "Id of the event: that of the rank request, or of its reply.",
    "schema": {"type": "string", "minLength": 1},
}
_ETAG = {
    "ETag": {"description": "SHA-256 of the file, in quotes.", "schema": {"type": "string"}},
    "X-Potstill-Version": {"description": "Version of the policy.", "schema": {"type": "integer"}},
}
_IF_NONE_MATCH = {
    "name": "If-None-Match",
    "in": "header",
    "required": False,
    "description": "ETag of the file you have.",
    "schema": {"type": "string"},
}
#: Schemas of replies that have no wire type; files have none.
_UNTYPED: dict[str, Schema] = {
    "application/json": {"schema": {"type": "object"}},
    "text/plain": {"schema": {"type": "string"}},
    "text/html": {"schema": {"type": "string"}},
}
