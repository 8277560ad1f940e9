"""The event log in an event loop: one submission for each iteration of the loop, and nothing is lost at the end."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path

import pytest
import worlds

from potstill.events import EventLog, InvalidEvent, LoggedReward, LogUnavailable
from potstill.events.wal import read
from potstill.service.async_log import AsyncLog

Work = Callable[[AsyncLog, EventLog], Coroutine[None, None, None]]


def reward(name: str) -> LoggedReward:
    return LoggedReward(id=name, reward=1.0)


def running(
    tmp_path: Path, work: Callable[[AsyncLog, EventLog], Coroutine[None, None, None]], **options: float
) -> None:
    async def run() -> None:
        log = EventLog(tmp_path / "log", worlds.made(str(tmp_path / "video")).problem, **options)
        try:
            await work(AsyncLog(log, 5.0), log)
        finally:
            log.close()

    asyncio.run(run())


def written(tmp_path: Path) -> list[str]:
    return [row.id for path in sorted(tmp_path.glob("log/*/*.log")) for row in read(path).events]


def test_what_is_submitted_in_one_iteration_of_the_loop_is_one_group(tmp_path, monkeypatch):
    handed: list[int] = []

    async def work(log: AsyncLog, events: EventLog) -> None:
        submit = events.submit_frames
        monkeypatch.setattr(events, "submit_frames", lambda data: (handed.append(len(data)), submit(data))[1])
        commits = [log.submit([reward(f"a{i}")]) for i in range(20)]
        assert len(set(map(id, commits))) == 1
        await asyncio.gather(*(commit.wait() for commit in commits))
        await log.submit([reward("b")]).wait()

    running(tmp_path, work)
    assert handed == [20, 1]
    assert written(tmp_path) == [*(f"a{i}" for i in range(20)), "b"]


def test_one_that_does_not_fit_is_refused_alone(tmp_path):
    async def work(log: AsyncLog, _: EventLog) -> None:
        first = log.submit([reward("a")])
        with pytest.raises(InvalidEvent):
            log.submit([LoggedReward(id="", reward=1.0)])
        await asyncio.gather(first.wait(), log.submit([reward("b")]).wait())

    running(tmp_path, work)
    assert written(tmp_path) == ["a", "b"]


def test_closing_writes_what_was_just_submitted(tmp_path):
    async def work(log: AsyncLog, _: EventLog) -> None:
        commit = log.submit([reward("a")])
        await log.close()
        await commit.wait()

    running(tmp_path, work)
    assert written(tmp_path) == ["a"]


def test_what_the_log_refuses_fails_and_the_next_is_written(tmp_path):
    async def work(log: AsyncLog, _: EventLog) -> None:
        with pytest.raises(LogUnavailable, match="bytes are pending"):
            await log.submit([reward(f"a{i}") for i in range(1000)]).wait()
        await log.submit([reward("b")]).wait()

    running(tmp_path, work, pending_bytes=2000)
    assert written(tmp_path) == ["b"]
