"""Event-log helpers: a small problem, rewards to log, and a reader of a spool's ids."""

from pathlib import Path

import potstill as ps
from potstill.events import LoggedReward
from potstill.events.wal import Spool
from potstill.events.wal.segment import read

PROBLEM = ps.Problem(name="greeting", context=[ps.Boolean("returning")], actions=ps.Discrete(["hi", "hello"]))


def reward(id: object) -> LoggedReward:  # noqa: A002
    """A reward for a decision id."""
    return LoggedReward(id=str(id), reward=1.0, time=1_700_000_000_000_000)


def ids_in(spool: Path) -> list[str]:
    """The ids in all closed segments, writer by writer, in order."""
    folder = Spool(spool)
    return [row.id for writer in folder.writers() for path in folder.closed(writer) for row in read(path).events]
