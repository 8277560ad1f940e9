"""Requests to decide, with what several steps need of them."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from potstill.policy.native_runtime import digests
from potstill.service.wire import DecideRequest

_values = msgspec.structs.astuple


class Questions:
    """Requests that are decided together.

    Attributes:
        requests: as they came.
        ids: of theirs; None where one is to be made up.
        values: of their contexts, in the order of the features.
        eligible: of theirs; None if all of them allow all actions.
        digests: of their contexts and eligible actions; requests that differ in them have different ones, but for
            chance.
        arms: of the experiment that they are decided in, or None; set by it, and None if there is none.
    """

    __slots__ = ("arms", "digests", "eligible", "ids", "requests", "values")

    def __init__(self, requests: Sequence[DecideRequest]) -> None:
        self.requests = requests
        self.arms: list[str | None] | None = None
        self.ids = [request.id for request in requests]
        self.values = [_values(request.context) for request in requests]
        eligible = [request.eligible for request in requests]
        self.eligible = eligible if any(eligible) else None
        self.digests = digests(self.values)
        if self.eligible is not None:
            pairs = zip(self.digests, self.eligible, strict=True)
            self.digests = [digest if some is None else hash((digest, some)) for digest, some in pairs]

    def __len__(self) -> int:
        return len(self.requests)

    def at(self, places: Sequence[int]) -> Questions:
        """Those at some places."""
        return Questions([self.requests[place] for place in places])
