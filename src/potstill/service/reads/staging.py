"""Updates on request: begun from the page, staged, and run by a process of low priority."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from potstill.files import hold, make_folder
from potstill.service.background import begin
from potstill.service.http import Refusal
from potstill.service.problem_service import ProblemService
from potstill.service.status import in_thread
from potstill.service.wire import moment
from potstill.summaries import read_updates

#: Named, not imported: what it loads must not be loaded here.
MODULE = "potstill.pipeline.queries.stage"
#: Locks in the spool: of any update, and of one that was asked for and still loads.
_LOCKS = ("update.lock", "stage.lock")


class StagingReply(Struct, frozen=True, kw_only=True):
    """Whether an update runs on this machine, and since when."""

    running: bool
    since: datetime | None = None


def read_staging(service: ProblemService) -> StagingReply:
    """Whether an update runs on this machine."""
    make_folder(service.workspace.spool)
    if not any(_is_held(service.workspace.spool / lock) for lock in _LOCKS):
        return StagingReply(running=False)
    last = read_updates(service.workspace.storage).last
    return StagingReply(running=True, since=None if last is None or last.ended else moment(last.began))


def _is_held(lock: Path) -> bool:
    held = hold(lock, wait=False)
    if held is not None:
        os.close(held)
    return held is None


async def begin_staging(service: ProblemService, reason: str, by: str) -> None:
    """Begin an update that stages its version; `Refusal` if one runs on this machine."""
    if (await in_thread(read_staging, service)).running:
        raise Refusal(409, "conflict", "an update runs already; wait until it is done")

    def begun() -> bool:
        return read_staging(service).running

    await begin(service, MODULE, [reason, by], begun)
