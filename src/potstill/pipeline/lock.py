"""One updater at a time on a machine; the registry keeps those of several machines apart."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from potstill.events.wal.locks import hold
from potstill.workspace import Workspace


class Busy(BlockingIOError):
    """Another updater is at work on this workspace."""


@contextmanager
def only_updater(workspace: Workspace, *, wait: bool) -> Iterator[None]:
    """Hold the workspace's update lock; `Busy` if another has it and `wait` is false. It ends with the process."""
    workspace.spool.mkdir(parents=True, exist_ok=True)
    held = hold(workspace.spool / "update.lock", wait=wait)
    if held is None:
        raise Busy(f"another update of {workspace.url} is going on; try again later, or wait for it with --wait")
    try:
        yield
    finally:
        os.close(held)
