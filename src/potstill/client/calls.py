"""Calls of the service's endpoints: requests, and how their replies are read. Sans-IO: no waiting."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from potstill.client.errors import Refused, ServiceError, Unreachable
from potstill.client.retry import Retry, exchange
from potstill.client.sansio import Call, Reply, Request
from potstill.client.wire import Answer, DecideRequest, encode, listed

T = TypeVar("T")
_JSON = {"content-type": "application/json"}


class _Decisions(msgspec.Struct):
    decisions: list[Answer]


class _Accepted(msgspec.Struct):
    accepted: int


class _Error(msgspec.Struct):
    error: str


def decide(asked: DecideRequest, retry: Retry) -> Call[Answer]:
    """One decision."""
    reply = yield from _post("decide", encode(asked), retry)
    return _read(reply, 200, Answer, "decide")


def decide_batch(asked: Sequence[DecideRequest], retry: Retry) -> Call[list[Answer]]:
    """Decisions in the order of the requests."""
    reply = yield from _post("decide/batch", encode({"requests": asked}), retry)
    answers = _read(reply, 200, _Decisions, "decide/batch").decisions
    if len(answers) != len(asked):
        raise ServiceError(f"decide/batch: {len(asked)} decisions were requested, and {len(answers)} came back")
    return answers


def post_rows(path: str, name: str, bodies: Sequence[bytes], retry: Retry) -> Call[None]:
    """Send rows; returns when the service has acknowledged all of them."""
    reply = yield from _post(path, listed(name, bodies), retry)
    accepted = _read(reply, 202, _Accepted, path).accepted
    if accepted != len(bodies):
        raise Unreachable(f"{path}: {len(bodies)} rows were sent, and {accepted} were accepted")


def policy(retry: Retry) -> Call[bytes]:
    """The bytes of the policy file."""
    reply = yield from exchange(Request("GET", "policy"), retry)
    return _policy_of(reply)


def changed_policy(etag: str, retry: Retry) -> Call[bytes | None]:
    """The bytes of the policy file; None if `etag` still names it."""
    reply = yield from exchange(Request("GET", "policy", None, {"if-none-match": etag}), retry)
    return None if reply.status == 304 else _policy_of(reply)


def status(retry: Retry) -> Call[dict[str, Any]]:
    """Status of the problem."""
    reply = yield from exchange(Request("GET", "status"), retry)
    return _read(reply, 200, dict[str, Any], "status")


def etag_of(data: bytes) -> str:
    """The entity tag of a policy file: its SHA-256 in quotes."""
    return f'"{hashlib.sha256(data).hexdigest()}"'


def _policy_of(reply: Reply) -> bytes:
    if reply.status != 200:
        raise _refusal(reply, "policy")
    stated = reply.headers.get("etag")
    if stated is not None and stated.removeprefix("W/") != etag_of(reply.body):
        raise Unreachable(f"policy: the download does not match the SHA-256 in its ETag, {stated}")
    return reply.body


def _post(path: str, body: bytes, retry: Retry) -> Call[Reply]:
    return exchange(Request("POST", path, body, _JSON), retry)


def _read(reply: Reply, status: int, kind: type[T], path: str) -> T:
    if reply.status != status:
        raise _refusal(reply, path)
    try:
        return msgspec.json.decode(reply.body, type=kind)
    except msgspec.DecodeError as error:
        # Not from the service: a captive portal, or a proxy.
        raise Unreachable(f"{path}: the reply is not from the service: {error}") from error


def _refusal(reply: Reply, path: str) -> ServiceError:
    try:
        said = msgspec.json.decode(reply.body, type=_Error).error
    except msgspec.DecodeError:
        said = "no reason given"
    message = f"{path}: the service answered {reply.status}: {said}"
    return Refused(reply.status, message) if 400 <= reply.status < 500 else Unreachable(message)
