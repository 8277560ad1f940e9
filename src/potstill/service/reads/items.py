"""Items of a catalogue, changed by an administrator."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from potstill.errors import InvalidAction, InvalidProblem
from potstill.service.http import unfit
from potstill.service.problem_service import ProblemService
from potstill.service.wire import ItemsRequest
from potstill.workspace import CannotChangeActions, sync_items


class ItemsReply(Struct, frozen=True, kw_only=True):
    """A catalogue after a change of its items.

    Attributes:
        items: Number of items.
        added: Ids of new items.
        changed: Ids of items whose features have other values now.
        removed: Ids of items that are gone.
        hash: Hash of the problem.
        serving: The version that serves; null if none is published.
        text: What was done, in words.
    """

    items: int
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]
    hash: str
    serving: int | None
    text: str


async def change_items(service: ProblemService, asked: ItemsRequest, by: str) -> ItemsReply:
    """Change the items, and follow the change in this worker; the others follow within seconds.

    Raises:
        Refusal: They cannot be changed as asked.
    """
    place, more = service.workspace.url, asked.remove
    try:
        report = await asyncio.to_thread(
            sync_items, place, asked.items, whole=asked.whole, remove=more, reason=asked.reason, by=by
        )
    except (CannotChangeActions, InvalidAction, InvalidProblem) as error:
        raise unfit(str(error)) from error
    await service.follow()
    return ItemsReply(
        items=report.items,
        added=report.added,
        changed=report.changed,
        removed=report.removed,
        hash=report.problem_hash,
        serving=report.serving,
        text=report.text,
    )
