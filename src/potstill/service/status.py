"""How a served workspace stands: what `GET status`, `/ready` and the metrics tell. All of it reads files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from potstill.events import now
from potstill.events.wal.spool import Spool
from potstill.files import write_atomically
from potstill.service.http import unavailable
from potstill.service.problem_service import Served
from potstill.service.wire import LogStatus, Status

T = TypeVar("T")
_PROBE = "ready.probe"
#: Seconds for the disk to answer whoever asks how things stand.
PATIENCE = 5.0
#: Threads of their own: where a disk hangs, those who ask keep none from following the registry.
_threads = ThreadPoolExecutor(2, "potstill-standing")


async def looked_up(look: Callable[..., T], *arguments: object) -> T:
    """What a function finds that reads files, in a thread.

    Raises:
        Refusal: the disk does not answer.
    """
    found = asyncio.get_running_loop().run_in_executor(_threads, look, *arguments)
    try:
        return await asyncio.wait_for(found, PATIENCE)
    except TimeoutError:
        raise unavailable("disk", "the disk does not answer; try again") from None


def status(served: Served) -> Status:
    """How it stands."""
    snapshot, experiment = served.serving.now, served.experiments.now
    return Status(
        problem=served.name,
        hash=served.workspace.problem.hash,
        serving=None if snapshot.policy is None else snapshot.policy.version,
        mode=snapshot.mode,
        experiment=None if experiment is None else experiment.config.name,
        experiment_state=served.experiments.state(snapshot.mode),
        since=snapshot.since,
        decisions=served.counts.decisions,
        rewards=served.counts.rewards,
        log=log_status(served),
        ready=ready(served),
    )


def log_status(served: Served) -> LogStatus:
    """What of this machine's log is not in the lake yet."""
    pending = Spool(served.workspace.spool).pending()
    lag = 0.0 if pending.oldest is None else max(now() - pending.oldest, 0) / 1e6
    return LogStatus(segments=pending.segments, bytes=pending.bytes, lag_seconds=lag)


def ready(served: Served) -> bool:
    """Whether there is a policy, and the log takes events.

    After a failure the disk is tried: whoever sends no requests while this is false would never see it recover.
    """
    return served.serving.now.policy is not None and (served.log_fault is None or _can_write(served.workspace.spool))


def _can_write(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        write_atomically(folder / _PROBE, bytes(4096))
        (folder / _PROBE).unlink(missing_ok=True)  # another worker may be at it too
        return True
    return False
