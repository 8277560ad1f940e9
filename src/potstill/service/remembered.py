"""The last decisions by id, so that asking again gives the same answer and is not logged again."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from msgspec import Struct

from potstill.service.durable import Group
from potstill.service.errors import Refusal, unfit
from potstill.service.questions import Questions
from potstill.service.wire import Decided, DecideRequest


# gc=False: a hundred thousand of them are not looked through again and again; none refers back to itself.
class Kept(Struct, frozen=True, gc=False):
    """A decision that was taken.

    Attributes:
        digest: of its context and eligible actions.
        reply: what was answered.
        group: with which it goes to disk; None if nothing waits for that.
    """

    digest: int
    reply: Decided
    group: Group | None


class Remembered:
    """So many of the last decisions of this worker."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._kept: OrderedDict[str | None, Kept] = OrderedDict()

    def find(self, asked: Questions) -> dict[int, Kept]:
        """The decisions that were taken under the requests' ids, by place; most requests have none.

        Raises:
            Refusal: an id was used for another context or other eligible actions, or stands here twice.
        """
        if len(asked) > 1:
            _refuse_twice(asked.requests)
        known: dict[int, Kept] = {}
        for place, request in enumerate(asked.requests):
            kept = self._kept.get(request.id)
            # What did not reach the disk was never decided.
            if kept is None or (kept.group is not None and kept.group.error is not None):
                continue
            if kept.digest != asked.digests[place]:
                raise _conflict(kept.reply.id)
            known[place] = kept
        return known

    def add(self, digests: Sequence[int], replies: Sequence[Decided], group: Group | None) -> None:
        """Remember decisions, and forget the oldest."""
        kept = self._kept
        for digest, reply in zip(digests, replies, strict=True):
            kept[reply.id] = Kept(digest, reply, group)
        while len(kept) > self._size:
            kept.popitem(last=False)


def _refuse_twice(requests: Sequence[DecideRequest]) -> None:
    ids = [request.id for request in requests if request.id is not None]
    if len(set(ids)) == len(ids):
        return
    seen: set[str] = set()
    for place, request in enumerate(requests):
        if request.id in seen:
            raise unfit(f"id {request.id!r} stands twice; each decision needs its own - at `$.requests[{place}].id`")
        seen.update(() if request.id is None else (request.id,))


def _conflict(decision_id: str) -> Refusal:
    message = f"id {decision_id!r} was used for another context or other eligible actions; use a new id"
    return Refusal(409, "conflict", message)
