"""Work for engines: functions that a worker in another process can import."""

import os
import signal
from pathlib import Path

from potstill.events.join.execute import join_slice, summarize_partition
from potstill.pipeline.labels import label_shard


def added(item, more):
    return item + more.sum(), os.getpid()


def refused(item, what):
    raise ValueError(f"{what} {item} is refused")


def killed_once(item, folder):
    """Return the item; the first worker that gets item 2 is killed before it returns."""
    if item == 2 and _first(Path(folder) / "killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    return item * 10


def killed_after_labelling(numbered, work, folder):
    """Like `label_shard`; the first worker of shard 1 is killed after writing the labels, before it returns."""
    found = label_shard(numbered, work)
    if numbered[0] == 1 and _first(Path(folder) / "killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    return found


def killed_after_looking(partition, *common):
    """Like `summarize_partition`; the first worker is killed after its work, before it returns."""
    *given, folder = common
    found = summarize_partition(partition, *given)
    if _first(Path(folder) / "killed-looking"):
        os.kill(os.getpid(), signal.SIGKILL)
    return found


def killed_after_observing(stretch, *common):
    """Like `join_slice`; the first worker with observations is killed after writing them, before it returns."""
    *given, folder = common
    found = join_slice(stretch, *given)
    if found.files and _first(Path(folder) / "killed-observing"):
        os.kill(os.getpid(), signal.SIGKILL)
    return found


def always_killed(item):
    os.kill(os.getpid(), signal.SIGKILL)


def _first(marker):
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True
