"""The last decisions by id, so that asking again gives the same answer and is not logged again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from potstill.service.async_log import Group
from potstill.service.decide import Questions
from potstill.service.http import Refusal, unfit
from potstill.service.wire import Decided


# gc=False and tuples: a hundred thousand of them are not looked through again and again; none refers back to itself.
class Taken(Struct, frozen=True, gc=False):
    """Decisions that were taken together.

    Attributes:
        digests: of their contexts and eligible actions.
        replies: what was answered.
        group: with which they go to disk; None if nothing waits for that.
    """

    digests: tuple[int, ...]
    replies: tuple[Decided, ...]
    group: Group | None


class Kept(NamedTuple):
    """One decision of those; attributes are the same."""

    digest: int
    reply: Decided
    group: Group | None


class Remembered:
    """So many of the last decisions of this worker, and up to as many before them.

    There are two generations, and the older one is forgotten as a whole: to forget ids one by one takes as long as all
    else that is done here.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._young: dict[str | None, Taken] = {}
        self._old: dict[str | None, Taken] = {}

    def find(self, asked: Questions) -> dict[int, Kept]:
        """The decisions that were taken under the requests' ids, by place; most requests have none.

        Raises:
            Refusal: an id was used for another context or other eligible actions, or stands here twice.
        """
        if len(asked) > 1:
            _refuse_twice(asked.ids)
        if self._young.keys().isdisjoint(asked.ids) and self._old.keys().isdisjoint(asked.ids):
            return {}
        known: dict[int, Kept] = {}
        for place, kept in sorted(self._kept(asked.ids).items()):
            # What did not reach the disk was never decided.
            if kept.group is not None and kept.group.error is not None:
                continue
            if kept.digest != asked.digests[place]:
                raise _conflict(kept.reply.id)
            known[place] = kept
        return known

    def add(self, digests: Sequence[int], replies: Sequence[Decided], group: Group | None) -> None:
        """Remember decisions, and forget the oldest."""
        taken = Taken(tuple(digests), tuple(replies), group)
        for reply in replies:
            self._young[reply.id] = taken
        if len(self._young) >= self._size:
            self._young, self._old = {}, self._young

    def _kept(self, ids: Sequence[str | None]) -> dict[int, Kept]:
        """What is there under some ids, by their places."""
        places = {name: place for place, name in enumerate(ids)}
        found = {name: taken for name in places if (taken := self._young.get(name) or self._old.get(name))}
        kept: dict[int, Kept] = {}
        for taken in {id(taken): taken for taken in found.values()}.values():
            for digest, reply in zip(taken.digests, taken.replies, strict=True):
                if found.get(reply.id) is taken:
                    kept[places[reply.id]] = Kept(digest, reply, taken.group)
        return kept


def _refuse_twice(ids: Sequence[str | None]) -> None:
    stated = [name for name in ids if name is not None]
    if len(set(stated)) == len(stated):
        return
    seen: set[str] = set()
    for place, name in enumerate(ids):
        if name in seen:
            raise unfit(f"id {name!r} stands twice; each decision needs its own - at `$.requests[{place}].id`")
        seen.update(() if name is None else (name,))


def _conflict(decision_id: str) -> Refusal:
    message = f"id {decision_id!r} was used for another context or other eligible actions; use a new id"
    return Refusal(409, "conflict", message)
