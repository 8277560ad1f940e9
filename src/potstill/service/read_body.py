"""Bodies of requests, decoded; what does not fit is refused with its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from potstill.decode import check_keys
from potstill.service.http import undecodable
from potstill.service.wire import RewardRequest, RewardsRequest


def read_body(decode: Callable[[bytes], Any], body: bytes, problem: str) -> Any:
    """A body as its decoder reads it; `Refusal` if it does not fit."""
    try:
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        unknown = "unknown field" in str(error)
        raise undecodable(_unknown_key(decode, body) if unknown else error, problem) from error


def _unknown_key(decode: Callable[[bytes], Any], body: bytes) -> msgspec.DecodeError:
    """The error about an unknown key of a body, with the nearest name."""
    one_or_more = RewardsRequest if b'"rewards"' in body else RewardRequest
    try:
        # All but `_rewards` are methods of a msgspec decoder.
        check_keys(msgspec.json.decode(body), getattr(getattr(decode, "__self__", None), "type", one_or_more))
    except msgspec.DecodeError as error:
        return error
    except RecursionError:
        return msgspec.ValidationError("unknown key, with a value that nests too deep")
    raise AssertionError("a decoder refused a key that its type has")
