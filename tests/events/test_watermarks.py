"""Watermarks: a cut never passes a log, and clocks are judged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

import potstill as ps
from potstill import clock
from potstill.clock import CLOCK, SECOND
from potstill.events import (
    EventLog,
    ImplausibleClock,
    LoggedDecision,
    LoggedReward,
    LogWatermark,
    UnknownLog,
    Watermark,
    Watermarks,
    in_words,
)
from potstill.events.join import join
from potstill.events.lake import Flusher, Lake
from potstill.events.wal import Spool
from potstill.storage import Storage, open_storage

DAY = 86_400 * SECOND
HOUR = 3600
PROBLEM = ps.Problem(
    name="p",
    context=[ps.Numeric("x", low=0, high=1)],
    actions=ps.Discrete(["l", "r"]),
    reward=ps.Reward(window="10m"),
)


class Host:
    """A machine with a spool of its own that shares a lake with others."""

    def __init__(self, spool: Path, place: str, problem: ps.Problem = PROBLEM) -> None:
        self.storage = open_storage(place).within("watermarks")
        self.spool, self.problem, self.lake = spool, problem, Lake(f"{place}/events", problem)
        self.mark = LogWatermark(spool, self.storage)
        self.flusher = Flusher(Spool(spool), self.lake, self.mark)

    def open(self) -> EventLog:
        return self.mark.register(lambda: EventLog(self.spool, self.problem))

    @property
    def published(self) -> Watermark:
        [found] = [mark for mark in Watermarks(self.storage).all() if mark.log == self.mark.mirror().log]  # type: ignore[union-attr]
        return found


def decision(name: str, time: int) -> LoggedDecision:
    return LoggedDecision(id=name, context={"x": 0.5}, action="l", propensity=0.5, policy=1, time=time)


def joined(host: Host, cuts: Storage, now: int, lease: int = 24 * HOUR) -> dict[str, float]:
    """Join as an update does; rewards by id of all observations so far."""
    horizon = Watermarks(host.storage).horizon(now, lease)
    join(host.lake, cuts, host.problem, aggregate="last", settle=0, now=horizon.time)
    return dict(host.lake.scan("observations").select("id", "reward").collect().iter_rows())


@pytest.fixture
def hosts(tmp_path: Path) -> tuple[Host, Host]:
    return Host(tmp_path / "a", str(tmp_path / "store")), Host(tmp_path / "b", str(tmp_path / "store"))


def test_a_cut_waits_for_a_reward_on_a_machine_that_cannot_reach_the_store(
    hosts: tuple[Host, Host], tmp_path: Path
) -> None:
    a, b = hosts
    cuts, window = open_storage(tmp_path / "cuts"), PROBLEM.reward.window_seconds * SECOND
    with a.open() as log_a, b.open() as log_b:
        start = clock.now()
        log_a.append(decision("one", start))
        log_b.append(LoggedReward(id="one", reward=1.0, time=start + 1))
        log_a.rotate()
        assert a.flusher.flush(now=start + 2 * window).error is None
        # The decision is final by the clock, and its reward is still on the other machine.
        assert joined(a, cuts, start + 2 * window) == {}
        held = Watermarks(a.storage).horizon(start + 2 * window, 24 * HOUR)
        assert held.held_by is not None
        assert held.held_by.log == b.published.log
        assert f"potstill events logs DIR --gone {b.published.log}" in held.words(start + 2 * window)[0]
        log_b.rotate()
        assert b.flusher.flush(now=start + 2 * window).error is None
        assert joined(a, cuts, start + 2 * window) == {"one": 1.0}


def test_rewards_are_committed_before_their_decisions(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    append: Callable[..., bool] = Lake.append

    def noted(lake: Lake, table: Any, *rest: Any, **named: Any) -> bool:
        order.append(table)
        return append(lake, table, *rest, **named)

    monkeypatch.setattr(Lake, "append", noted)
    with hosts[0].open() as log:
        log.append(decision("one", 5), LoggedReward(id="one", reward=1.0, time=6))
    assert hosts[0].flusher.flush().error is None
    assert order == ["rewards", "decisions"]


def test_the_watermark_is_before_the_oldest_segment_that_is_not_in_the_lake(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    with a.open() as log:
        before = clock.now()
        log.append(decision("one", before))
        a.mark._published = None  # as after `REFRESH` seconds
        a.flusher.flush(now=before + DAY)
        assert a.published.open
        assert before <= a.published.time <= clock.now()
        log.rotate()
        a.flusher.flush(now=before + DAY)
        assert a.published.time == before + DAY
    assert a.flusher.flush(now=before + DAY).watermark == before + DAY
    assert not a.published.open


def test_a_log_is_registered_before_it_accepts_events(hosts: tuple[Host, Host]) -> None:
    a, _ = hosts
    with a.open():
        assert a.published.open
    a.flusher.flush()
    assert not a.published.open
    first = a.published.log
    with a.open():
        assert a.published.open
        assert a.published.log == first


def test_a_log_that_cannot_be_registered_accepts_nothing(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    from potstill.storage import StorageUnavailable

    def away(*_: object) -> None:
        raise StorageUnavailable("the store is away")

    a, _ = hosts
    with monkeypatch.context() as patch:
        patch.setattr(type(a.storage), "replace", away)
        with pytest.raises(StorageUnavailable, match="away"):
            a.open()
    with a.open():  # it is registered now, so that a restart needs no store
        monkeypatch.setattr(type(a.storage), "read", away)
        a.open().close()


def test_a_log_is_passed_after_its_lease_or_when_it_is_declared_gone(hosts: tuple[Host, Host]) -> None:
    a, b = hosts
    marks, now = Watermarks(a.storage), clock.now()
    with a.open(), b.open():
        later = now + 2 * DAY
        a.flusher.flush(now=later)
        assert marks.horizon(later, lease=0).held_by == b.published
        expired = marks.horizon(later + DAY, lease=24 * HOUR)
        assert {mark.log for mark in expired.expired} == {a.published.log, b.published.log}
        assert "longer than log.lease" in expired.words(later)[0]
        with pytest.raises(UnknownLog, match="names 0 logs"):
            marks.declare_gone("nothing", "ann", "")
        marks.declare_gone(b.published.log[:8], "ann", "its disk is lost")
        assert marks.horizon(later, lease=0) == (later, None, ())
        assert b.published.gone is not None
        assert b.published.gone.reason == "its disk is lost"
        b.flusher.flush(now=now + DAY)
        assert b.published.gone is None
        assert marks.horizon(later, lease=0).held_by == b.published


def test_a_machine_whose_clock_was_set_keeps_its_time_and_does_not_update(
    hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = hosts
    with a.open() as log:
        log.append(decision("one", clock.now()))
    a.flusher.flush()
    a.mark.check_clock()
    right = clock.wall
    monkeypatch.setattr(clock, "wall", lambda: right() + 2 * DAY)
    try:
        CLOCK.reset()  # a process that starts with the wrong clock
        with pytest.raises(ImplausibleClock, match="2 d ahead of what it should be"):
            a.mark.check_clock()
        a.mark.keep_clock()
        assert abs(clock.now() - right()) < SECOND
        a.flusher.flush()
        assert a.published.step == pytest.approx(2 * DAY, abs=SECOND)
        assert a.published.time <= right() + SECOND
        assert "--trust-clock" in a.published.notices(clock.now())[0]
        a.mark.trust_clock()
        a.mark.check_clock()
        assert abs(clock.now() - right() - 2 * DAY) < SECOND
    finally:
        monkeypatch.undo()
        CLOCK.reset()


def test_a_clock_that_differs_from_the_stores_stops_the_update(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host(tmp_path / "a", s3)
    marks = Watermarks(host.storage)
    with host.open():
        marks.check_clocks()
        host.mark._published = None
        host.flusher.flush()
        assert abs(host.published.offset) < 5 * SECOND
        with monkeypatch.context() as patch:
            ahead = CLOCK.now
            patch.setattr(CLOCK, "now", lambda: ahead() + 2 * DAY)
            with pytest.raises(
                ImplausibleClock, match=r"this machine's clock is (2 d|1 d 23 h).* ahead of that of s3://"
            ):
                marks.check_clocks()
        marks.write(msgspec.structs.replace(host.published, offset=2 * DAY))
        with pytest.raises(ImplausibleClock, match=r"the clock of log .* is 2 d behind that of s3://"):
            marks.check_clocks()


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [
        (0, "0 s"),
        (59 * SECOND, "59 s"),
        (-61 * SECOND, "1 min 1 s"),
        (2 * DAY, "2 d"),
        (2 * DAY + 7200 * SECOND, "2 d 2 h"),
    ],
)
def test_durations_in_words(microseconds: int, words: str) -> None:
    assert in_words(microseconds) == words
