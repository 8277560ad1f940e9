"""How a served workspace stands: what `GET status`, `/ready` and the metrics tell. All of it reads files."""

from __future__ import annotations

import contextlib
from pathlib import Path

from potstill.events import now
from potstill.events.spool import Spool
from potstill.files import write_atomically
from potstill.service.served import Served
from potstill.service.wire import LogStatus, Status

_PROBE = "ready.probe"


def status(served: Served) -> Status:
    """How it stands."""
    snapshot = served.serving.now
    return Status(
        problem=served.name,
        hash=served.workspace.problem.hash,
        serving=None if snapshot.policy is None else snapshot.policy.version,
        mode=snapshot.mode,
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
