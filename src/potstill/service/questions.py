"""Requests to decide, with what several steps need of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from potstill.service.wire import DecideRequest

_values = msgspec.structs.astuple


class Questions:
    """Requests that are decided together.

    Attributes:
        requests: as they came.
        values: of their contexts, in the order of the features.
        digests: of their contexts and eligible actions; requests that differ in them have different ones, but for
            chance.
    """

    __slots__ = ("digests", "requests", "values")

    def __init__(self, requests: Sequence[DecideRequest]) -> None:
        self.requests = requests
        self.values = [_values(request.context) for request in requests]
        self.digests = [hash((row, one.eligible)) for row, one in zip(self.values, requests, strict=True)]

    def __len__(self) -> int:
        return len(self.requests)

    def at(self, places: Sequence[int]) -> Questions:
        """Those at some places."""
        return Questions([self.requests[place] for place in places])
