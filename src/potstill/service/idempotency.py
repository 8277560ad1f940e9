"""Idempotency: the last decisions by id, so that a retry gets the same answer and is logged once.

Decisions that are not in this worker's memory are recalled from the segments on the machine's disk: at the start, and
where another worker, or this one long ago, has decided an id (`potstill.service.shared_ids`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from msgspec import Struct

from potstill.events import DecisionRow
from potstill.service.async_log import AsyncCommit
from potstill.service.decide import Batch, context_digests
from potstill.service.http import Refusal, unfit
from potstill.service.wire import DecideReply, Mode
from potstill.spaces import ActionSpace, FiniteSpace

#: Recalled decisions in a batch; a hit looks through its batch.
_BATCH = 50


# gc=False and tuples: the collector does not traverse a hundred thousand of them; none refers back to itself.
class CachedBatch(Struct, frozen=True, gc=False):
    """Decisions that were taken together.

    Attributes:
        digests: Digests of their contexts and restrictions.
        replies: Their replies.
        commit: Commit that logs them; None if nothing waits for it.
    """

    digests: tuple[int, ...]
    replies: tuple[DecideReply, ...]
    commit: AsyncCommit | None


class CachedDecision(NamedTuple):
    """One decision of a `CachedBatch`."""

    digest: int
    reply: DecideReply
    commit: AsyncCommit | None


class IdempotencyCache:
    """The last `size` decisions of this worker, and up to `size` more before them.

    There are two generations, and the older one is evicted as a whole: evicting ids one by one takes as long as
    everything else here.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._young: dict[str | None, CachedBatch] = {}
        self._old: dict[str | None, CachedBatch] = {}

    def knows(self, name: str) -> bool:
        """Whether there is an earlier decision with an id."""
        return name in self._young or name in self._old

    def find(self, batch: Batch) -> dict[int, CachedDecision]:
        """Earlier decisions with the requests' ids, by place; most requests have none.

        Raises:
            Refusal: An id was used for another context or restriction, or occurs twice in the batch.
        """
        if len(batch) > 1:
            _refuse_duplicates(batch.ids)
        if self._young.keys().isdisjoint(batch.ids) and self._old.keys().isdisjoint(batch.ids):
            return {}
        found: dict[int, CachedDecision] = {}
        for place, cached in sorted(self._cached(batch.ids).items()):
            # A decision that did not reach the disk was never taken.
            if cached.commit is not None and cached.commit.error is not None:
                continue
            if cached.digest != batch.digests[place]:
                raise _conflict(cached.reply.id)
            found[place] = cached
        return found

    def add(self, digests: Sequence[int], replies: Sequence[DecideReply], commit: AsyncCommit | None) -> None:
        """Add decisions, and evict the oldest."""
        cached = CachedBatch(tuple(digests), tuple(replies), commit)
        self._young.update(dict.fromkeys([reply.id for reply in replies], cached))
        if len(self._young) >= self._size:
            self._young, self._old = {}, self._young

    def recall(self, rows: Sequence[DecisionRow], space: ActionSpace) -> None:
        """Add decisions that were read from the log.

        Restrictions of spaces without a finite list are not logged as they were asked: such decisions are left out.
        """
        finite = isinstance(space, FiniteSpace)
        rows = [row for row in rows if finite or row.eligible is None]
        for start in range(0, len(rows), _BATCH):
            part = rows[start : start + _BATCH]
            self.add(
                context_digests([row.values for row in part], [row.eligible for row in part]), _replies(part), None
            )

    def _cached(self, ids: Sequence[str | None]) -> dict[int, CachedDecision]:
        """Cached decisions with these ids, by their places."""
        places = {name: place for place, name in enumerate(ids)}
        batches = {name: batch for name in places if (batch := self._young.get(name) or self._old.get(name))}
        found: dict[int, CachedDecision] = {}
        for batch in {id(batch): batch for batch in batches.values()}.values():
            for digest, reply in zip(batch.digests, batch.replies, strict=True):
                if batches.get(reply.id) is batch:
                    found[places[reply.id]] = CachedDecision(digest, reply, batch.commit)
        return found


def _replies(rows: Sequence[DecisionRow]) -> list[DecideReply]:
    """What was answered."""
    return [
        DecideReply(
            row.id, row.action, row.propensity, row.policy, cast(Mode, row.mode or "online"), row.would, row.arm
        )
        for row in rows
    ]


def _refuse_duplicates(ids: Sequence[str | None]) -> None:
    unnamed = ids.count(None)
    if len(set(ids)) == len(ids) - max(unnamed - 1, 0):
        return
    seen: set[str] = set()
    for place, name in enumerate(ids):
        if name in seen:
            raise unfit(f"id {name!r} occurs twice; each decision needs its own - at `$.requests[{place}].id`")
        seen.update(() if name is None else (name,))


def _conflict(decision_id: str) -> Refusal:
    message = f"id {decision_id!r} was used for another context or other eligible actions; use a new id"
    return Refusal(409, "conflict", message)
