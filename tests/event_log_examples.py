"""Rewards to log in tests, a small problem for them, and what can be read of a spool."""

from pathlib import Path

import potstill as ps
from potstill.events import LoggedReward
from potstill.events.wal import Spool
from potstill.events.wal.segment import read

PROBLEM = ps.Problem(name="greeting", context=[ps.Boolean("returning")], actions=ps.Discrete(["hi", "hello"]))


def reward(id: object) -> LoggedReward:  # noqa: A002
    """A reward of some id."""
    return LoggedReward(id=str(id), reward=1.0, time=1_700_000_000_000_000)


def ids_in(spool: Path) -> list[str]:
    """The ids in all closed segments, writer by writer, in order."""
    folder = Spool(spool)
    return [row.id for writer in folder.writers() for path in folder.closed(writer) for row in read(path).events]
