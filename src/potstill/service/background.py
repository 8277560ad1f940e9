"""Work that an administrator begins from a page: a process of low priority, which ends when its worker does."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Sequence

from potstill.service.problem_service import ProblemService
from potstill.service.status import in_thread

NICE = "10"
#: Seconds between two looks whether it has begun, and the most looks.
_STEP, _STEPS = 0.1, 100


async def begin(service: ProblemService, module: str, arguments: Sequence[str], begun: Callable[[], bool]) -> None:
    """Start a module with a workspace and further arguments; returns when it has begun or ended.

    Args:
        service: The problem.
        module: The module, by name: what it loads must not be loaded here.
        arguments: Its arguments after the workspace.
        begun: Whether its work shows, so that the next look finds it; it may read files.
    """
    stated = [argument.replace("\0", "") for argument in arguments]  # an argument cannot have one
    command = [sys.executable, "-m", "potstill.service.process.child", NICE, module, service.workspace.url, *stated]
    environment = {**os.environ, "TERM": "dumb"}
    # Its standard input is a pipe from this process, so that it ends when this worker does.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, process_group=0, env=environment)
    _reap(service)
    service.children.append(process)
    for _ in range(_STEPS):
        await asyncio.sleep(_STEP)
        if process.poll() is not None or await in_thread(begun):
            return


def _reap(service: ProblemService) -> None:
    """Forget processes that have ended, and close the pipes to them."""
    for child in [child for child in service.children if child.poll() is not None]:
        if child.stdin is not None:
            child.stdin.close()
        service.children.remove(child)
