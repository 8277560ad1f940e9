"""Items of a catalogue, changed by an administrator."""

from __future__ import annotations

import asyncio

from potstill.errors import InvalidAction, InvalidProblem
from potstill.service.http import unfit
from potstill.service.problem_service import ProblemService
from potstill.service.wire import ItemsRequest
from potstill.workspace import CannotChangeActions, ItemsReport, sync_items


async def change_items(service: ProblemService, asked: ItemsRequest, by: str) -> ItemsReport:
    """Change the items, and follow the change in this worker; the others follow within seconds.

    Raises:
        Refusal: They cannot be changed as asked.
    """
    place, gone = service.workspace.url, asked.remove
    try:
        report = await asyncio.to_thread(
            sync_items, place, asked.items, whole=asked.whole, remove=gone, reason=asked.reason, by=by
        )
    except (CannotChangeActions, InvalidAction, InvalidProblem) as error:
        raise unfit(str(error)) from error
    await service.follow()
    return report
