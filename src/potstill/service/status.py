"""Status and readiness of a problem, for `GET status`, `/ready` and the metrics. All of it reads files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from potstill.events import now, read_scrub, read_totals
from potstill.events.wal import Spool
from potstill.files import write_atomically
from potstill.service.http import unavailable
from potstill.service.problem_service import ProblemService
from potstill.service.wire import LogStatus, StatusReply, hold_reply
from potstill.workspace import in_words

T = TypeVar("T")
_PROBE = "ready.probe"
#: Seconds to wait for the disk.
TIMEOUT = 5.0
#: A pool of its own: where a disk hangs, status requests do not block the threads that follow the registry.
_threads = ThreadPoolExecutor(2, "potstill-status")


async def in_thread(read: Callable[..., T], *arguments: object) -> T:
    """Run a function that reads files in a thread; `Refusal` if the disk does not answer in time."""
    future = asyncio.get_running_loop().run_in_executor(_threads, read, *arguments)
    try:
        return await asyncio.wait_for(future, TIMEOUT)
    except TimeoutError:
        raise unavailable("disk", "the disk does not answer; retry") from None


def status(service: ProblemService) -> StatusReply:
    """Status of a problem."""
    snapshot, experiment = service.snapshots.current, service.experiments.current
    return StatusReply(
        problem=service.name,
        hash=service.workspace.problem.hash,
        serving=None if snapshot.policy is None else snapshot.policy.version,
        decides=None if snapshot.policy is None else in_words(snapshot.policy),
        pinned=hold_reply(snapshot.pinned),
        paused=hold_reply(snapshot.paused),
        mode=snapshot.mode,
        mode_fault=snapshot.mode_fault,
        experiment=None if experiment is None else experiment.config.name,
        experiment_state=service.experiments.state(snapshot.mode),
        since=snapshot.since,
        decisions=service.counts.decisions,
        rewards=service.counts.rewards,
        log=log_status(service),
        ready=is_ready(service),
        notices=[
            *(notice for notice in file_notices(service) if notice is not None),
            *log_notices(service),
            *read_scrub(service.workspace.spool).notices,
        ],
    )


def file_notices(service: ProblemService) -> tuple[str | None, ...]:
    """What is wrong with files that the service follows, or has changed in them; None for each that is well."""
    return service.problems.notice, service.snapshots.fault, service.experiments.notice, service.designs.notice


def log_status(service: ProblemService) -> LogStatus:
    """What this machine's log holds that is not in the lake yet."""
    pending = Spool(service.workspace.spool).pending()
    lag = 0.0 if pending.oldest is None else max(now() - pending.oldest, 0) / 1e6
    return LogStatus(segments=pending.segments, bytes=pending.bytes, lag_seconds=lag)


def unused_rewards(service: ProblemService) -> dict[str, int]:
    """Numbers of rewards that joins could not use, by reason; empty while storage is unavailable."""
    try:
        return read_totals(service.workspace.cuts).unused
    except OSError:
        return {}


def watermark_lags(service: ProblemService) -> dict[tuple[str, str], float]:
    """Seconds that each open log is behind, by id and machine; empty while storage is unavailable."""
    try:
        marks = service.workspace.watermarks.all()
    except OSError:
        return {}
    return {(mark.log, mark.host): (now() - mark.time) / 1e6 for mark in marks if mark.open and mark.gone is None}


def clock_step(service: ProblemService) -> int:
    """Microseconds that this machine's clock was set ahead since its log was opened; events do not follow it."""
    mark = service.workspace.log_watermark.mirror()
    return 0 if mark is None else mark.step


def log_notices(service: ProblemService) -> list[str]:
    """What an operator should know about this machine's log."""
    workspace = service.workspace
    mark = workspace.log_watermark.mirror()
    return [] if mark is None else mark.notices(now())


def is_ready(service: ProblemService) -> bool:
    """Whether there is a policy and the log can be written.

    After a failed write the disk is probed: a load balancer sends no requests while this is false, so that no request
    would notice that the disk has recovered.
    """
    loaded = service.snapshots.current.policy is not None
    return loaded and (service.log_fault is None or _can_write(service.workspace.spool))


def _can_write(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        write_atomically(folder / _PROBE, bytes(4096))
        (folder / _PROBE).unlink(missing_ok=True)  # another worker may have deleted it
        return True
    return False
