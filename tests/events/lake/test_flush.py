import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import polars as pl
import pytest
from events.proxy import Proxy

import potstill as ps
from potstill.clock import now
from potstill.events import Event, EventLog, LoggedDecision, LoggedObservation, LoggedReward
from potstill.events.join import join
from potstill.events.lake import Flusher, FlushReport, FlushState, Lake, delta, flush, last_flush
from potstill.events.reward_keys import OBSERVATION
from potstill.events.wal import QUARANTINE, Spool, segment
from potstill.problem import Feature
from potstill.storage import open_storage

NOON = 1_700_000_000_000_000
QUICK = {
    "max_retries": "2",
    "retry_timeout": "2s",
    "timeout": "400ms",
    "connect_timeout": "1s",
    "backoff_config.init_backoff": "10ms",
}


class Crash(BaseException):
    """The process ends here, as far as what is tested can tell."""


class World:
    """A spool, a lake, and what was logged."""

    def __init__(self, folder: Path, lake: str | Path, problem: ps.Problem) -> None:
        self.spool, self.problem = Spool(folder / "spool"), problem
        self.lake = Lake(lake, problem, QUICK)
        self.logged: list[str] = []

    def log(self, *names: str, segments: int = 1, problem: ps.Problem | None = None) -> str:
        """A decision and a reward of each name, in segments of one writer that then ends."""
        with EventLog(self.spool.path, problem or self.problem) as log:
            for _ in range(segments):
                for name in names:
                    log.append(*_pair(f"{name}{len(self.logged)}", problem or self.problem))
                    self.logged.append(f"{name}{len(self.logged)}")
                log.rotate()
            return log.writer

    def flush(self, **options: bool) -> FlushReport:
        return Flusher(self.spool, self.lake).flush(**options)

    def check(self) -> None:
        """Everything that was logged is in the lake once, and no longer in the log."""
        once = Counter(self.logged)
        assert self.ids("decisions") == self.ids("rewards") == once
        assert max(once.values(), default=1) == 1
        assert self.spool.pending().segments == 0

    def ids(self, table: str) -> Counter[str]:
        return Counter(self.lake.scan(table).collect()["id"])


def _pair(name: str, problem: ps.Problem, **context: object) -> tuple[Event, Event]:
    context = {feature.name: feature.example for feature in problem.context} | context
    decision = LoggedDecision(id=name, context=context, action="360p", propensity=0.25, policy=1, time=NOON)
    return decision, LoggedReward(id=name, reward=1.0, time=NOON + 1)


def _changed(problem: ps.Problem, *features: Feature, actions: ps.Discrete | None = None) -> ps.Problem:
    return ps.Problem(name=problem.name, context=features, actions=actions or problem.actions)


@pytest.fixture
def world(tmp_path: Path, problem: ps.Problem) -> World:
    return World(tmp_path, tmp_path / "lake", problem)


def test_events_arrive_as_they_were_logged(tmp_path: Path, place: str, problem: ps.Problem) -> None:
    world = World(tmp_path, f"{place}/lake", problem)
    context = {"bandwidth_kbps": 900, "connection": None, "hd_screen": False}
    full = LoggedDecision(
        id="ü",
        context=context,
        action="480p",
        propensity=0.5,
        policy=7,
        eligible=("360p", "480p"),
        floor=0.1,
        unit="user-7",
        mode="apprentice",
        arm="hd:treatment",
        would="720p",
        own_propensity=0.25,
        time=NOON + 86_400_000_000,
    )
    seen = LoggedObservation(decision=_pair("o", problem)[0], reward=2.0, reward_time=NOON + 5)
    unseen = LoggedObservation(decision=_pair("u", problem)[0])
    with EventLog(world.spool.path, problem) as log:
        log.append(
            full, LoggedReward(id="r", reward=-1.5, key="k", metrics={"b": 1, "a": -0.5}, time=NOON), seen, unseen
        )
    report = world.flush()
    assert (report.segments, report.decisions, report.rewards, report.error, report.cut) == (1, 3, 2, None, [])
    assert report.bytes > 0
    decisions = world.lake.scan("decisions").collect()
    assert decisions.filter(id="ü").drop("time", "day").row(0, named=True) == {
        "id": "ü",
        "action": "480p",
        "propensity": 0.5,
        "policy": 7,
        "eligible": ["360p", "480p"],
        "floor": 0.1,
        "unit": "user-7",
        "mode": "apprentice",
        "arm": "hd:treatment",
        "would": "720p",
        "own_propensity": 0.25,
        "problem": problem.hash,
        "context_bandwidth_kbps": 900.0,
        "context_connection": None,
        "context_hd_screen": False,
    }
    assert dict(decisions.select("id", pl.col("time").dt.epoch("us")).iter_rows()) == {
        "ü": NOON + 86_400_000_000,
        "o": NOON,
        "u": NOON,
    }
    rewards = world.lake.scan("rewards").select("id", pl.col("time").dt.epoch("us"), "reward", "key").collect()
    assert sorted(rewards.rows()) == [("o", NOON + 5, 2.0, "observation"), ("r", NOON, -1.5, "k")]
    metrics = dict(world.lake.scan("rewards").select("id", "metrics").collect().iter_rows())
    assert metrics == {"o": None, "r": [{"name": "a", "value": -0.5}, {"name": "b", "value": 1.0}]}


def test_every_acknowledged_reward_is_counted_whatever_its_key(world: World, tmp_path: Path) -> None:
    """A thousand without key or time, and a caller's key that is the lake's own word for the reward of a device."""
    decision, _ = _pair("a", world.problem)
    keyless = [LoggedReward(id="a", reward=1.0) for _ in range(1000)]
    seen = LoggedObservation(decision=msgspec.structs.replace(decision, id="o", time=now()), reward=2.0)
    with EventLog(world.spool.path, world.problem) as log:
        log.append(msgspec.structs.replace(decision, time=None), *keyless)
        log.append(seen, seen, *[LoggedReward(id="o", reward=1.0, key=OBSERVATION)] * 2)
    world.flush()
    cuts = open_storage(str(tmp_path / "cuts"))
    report = join(world.lake, cuts, world.problem, aggregate="sum", settle=0, now=now() + 10**11)
    assert (report.rewards.matched, report.rewards.duplicates) == (1002, 2)
    assert dict(world.lake.scan("observations").select("id", "reward").collect().iter_rows()) == {"a": 1000, "o": 3}


def test_rows_keep_the_order_in_which_they_were_logged(world: World) -> None:
    names = [f"{i * 7919 % 1000}" for i in range(1000)]
    with EventLog(world.spool.path, world.problem) as log:
        for start in range(0, 1000, 100):
            log.append(*(_pair(name, world.problem)[0] for name in names[start : start + 100]))
            log.rotate()
    world.flush()
    (file,) = world.lake.files("decisions")
    assert pl.read_parquet(file.uri)["id"].to_list() == names


def test_small_segments_go_in_one_commit(world: World) -> None:
    writer = world.log("a", "b", segments=7)
    report = world.flush()
    assert (report.segments, report.decisions, report.rewards) == (7, 14, 14)
    assert world.lake.transaction("decisions", writer) == world.lake.transaction("rewards", writer) == 7
    assert world.lake.version("decisions") == 1
    world.check()


def test_large_segments_do_not(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "GROUP_BYTES", 1)
    world.log("a", segments=3)
    world.flush()
    assert world.lake.version("decisions") == 3
    world.check()


def test_nothing_to_do_is_no_error(world: World) -> None:
    assert world.flush() == FlushReport()
    assert world.lake.version("decisions") is None


MOMENTS = [
    "before decisions",
    "after decisions",
    "after rewards",
    "between removals",
    "after removals",
]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_crash_at_any_moment_loses_and_doubles_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    writer = world.log("a", "b", segments=3)
    with monkeypatch.context() as patch:
        _crash_at(moment, patch)
        with pytest.raises(Crash):
            world.flush()
    # The same writer has gone on meanwhile: its next segment would join the others in one commit.
    _another_segment(world, writer, 4)
    assert world.flush().error is None
    world.check()


def _crash_at(moment: str, patch: pytest.MonkeyPatch) -> None:
    append, remove, removed = Lake.append, Spool.remove, []

    def crashing_append(lake: Lake, table: str, frame: pl.DataFrame, **options: object) -> bool:
        if moment == f"before {table}":
            raise Crash
        added = append(lake, table, frame, **options)
        if moment == f"after {table}":
            raise Crash
        return added

    def crashing_remove(spool: Spool, writer: str, segment: Path) -> None:
        remove(spool, writer, segment)
        removed.append(segment)
        if (moment, len(removed)) in {("between removals", 1), ("after removals", 3)}:
            raise Crash

    patch.setattr(Lake, "append", crashing_append)
    patch.setattr(Spool, "remove", crashing_remove)


def _another_segment(world: World, writer: str, number: int) -> None:
    """Of a writer that has ended, made from one of another's."""
    other = world.log("later")
    (path,) = world.spool.closed(other)
    (world.spool.path / writer).mkdir(exist_ok=True)
    path.rename(world.spool.path / writer / f"{number:010}.log")


def test_flushers_of_one_spool_take_turns(world: World) -> None:
    for _ in range(3):
        world.log("a", "b", segments=2)
    reports: list[FlushReport] = []
    threads = [threading.Thread(target=lambda: reports.append(world_flush(world))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [report.error for report in reports] == [None] * 3
    assert sum(report.segments for report in reports) == 6
    world.check()


def world_flush(world: World) -> FlushReport:
    """With a lake of its own, as another process would have."""
    return Flusher(Spool(world.spool.path), Lake(world.lake.root, world.problem)).flush()


def test_a_flusher_need_not_wait_for_another(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.log("a")
    inner: list[FlushReport] = []
    append = Lake.append

    def meanwhile(lake: Lake, *arguments: object, **options: object) -> bool:
        inner.append(world.flush(wait=False))
        return append(lake, *arguments, **options)

    monkeypatch.setattr(Lake, "append", meanwhile)
    assert not world.flush().busy
    assert inner == [FlushReport(busy=True)] * 2
    world.check()


@pytest.mark.parametrize("taken", [1, 2])
def test_flushers_that_do_not_see_each_others_lock_double_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    """As on a network file system: one takes segments while the other has read them and not yet committed."""
    writer = world.log("a", "b", segments=2)
    segments = world.spool.closed(writer)
    append, others = Lake.append, [Lake(world.lake.root, world.problem)]

    def overtaken(lake: Lake, *arguments: object, **options: object) -> bool:
        if others:
            batch = flush._Batch(others.pop(), writer, taken)
            for segment in segments[:taken]:
                batch.add(flush._Closed(segment, int(segment.stem), 0, ""))
            assert batch.append("decisions") == 2 * taken
        return append(lake, *arguments, **options)

    monkeypatch.setattr(Lake, "append", overtaken)
    first = world.flush()
    assert ("Overtaken" in (first.error or "")) == (taken == 1)
    world.flush()
    world.check()


def test_two_machines_share_a_lake(tmp_path: Path, place: str, problem: ps.Problem) -> None:
    worlds = [World(tmp_path / name, f"{place}/lake", problem) for name in ("one", "two")]
    for i, world in enumerate(worlds):
        world.log(f"machine {i} ", segments=2)
    threads = [threading.Thread(target=world.flush) for world in worlds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    worlds[0].logged += worlds[1].logged
    worlds[0].check()


def test_a_living_writer_keeps_its_open_segment(world: World) -> None:
    with EventLog(world.spool.path, world.problem) as log:
        log.append(*_pair("a0", world.problem))
        assert world.flush().segments == 0
    world.logged.append("a0")
    world.flush()
    world.check()


class TestChangedProblem:
    def test_segments_of_the_problem_before_are_read_by_their_own(self, world: World) -> None:
        old = _changed(world.problem, ps.Boolean("gone"), ps.Categorical("connection", ["4g"]))
        world.log("old", problem=old)
        new = _changed(
            world.problem, ps.Categorical("connection", ["4g", "6g"]), ps.Numeric("age", low=0, high=1),
            actions=ps.Discrete(["360p", "8k"]),
        )  # fmt: skip
        world.lake = Lake(world.lake.root, new)
        assert world.flush().error is None
        world.log("new", problem=new)
        assert world.flush().error is None
        world.check()
        rows = world.lake.scan("decisions").select("id", "context_connection", "context_age", "problem").collect()
        assert sorted(rows.rows()) == [("new1", "4g", 0.5, new.hash), ("old0", "4g", None, old.hash)]
        assert Lake(world.lake.root, old).scan("decisions").collect().sort("id")["context_gone"].to_list() == [
            None,
            True,
        ]

    def test_a_feature_of_another_type_waits_and_the_others_go_on(self, world: World) -> None:
        world.log("old")
        world.flush()
        other = _changed(world.problem, ps.Numeric("connection", low=0, high=1))
        stuck = World(world.spool.path.parent, world.lake.root, other)
        writer = stuck.log("stuck", segments=2)
        for _ in range(3):
            world.log("good")
        report = world.flush()
        assert report.segments == 3
        assert report.error is not None
        assert "SchemaMismatch: column 'context_connection' is Float64" in report.error
        assert "give the changed feature a new name" in report.error
        assert writer in report.error
        assert len(world.spool.closed(writer)) == 2
        assert world.ids("decisions") == Counter(world.logged)
        # Rewards may be of other logs' decisions, so that they do not wait.
        assert world.ids("rewards") == Counter(world.logged) + Counter(stuck.logged)
        Path(world.lake.url("decisions")).rename(Path(world.lake.root) / "decisions-before")
        again = Flusher(world.spool, Lake(world.lake.root, other)).flush()
        assert (again.segments, again.decisions, again.rewards, again.error) == (2, 2, 0, None)

    def test_a_table_that_was_moved_away_is_begun_anew(self, world: World) -> None:
        """While the flusher lives: it must not take the numbers of the old table for those of the new one."""
        writer = world.log("old", segments=3)
        world.flush()
        for table in ("decisions", "rewards"):
            Path(world.lake.url(table)).rename(Path(world.lake.root) / f"{table}-before")
        world.logged.clear()
        _another_segment(world, writer, 2)
        assert world.flush().error is None
        world.check()

    def test_segments_before_the_change_are_taken(self, world: World) -> None:
        """The change comes in the middle of a writer's segments: in one folder only by hand, yet nothing is lost."""
        writer = world.log("old", segments=2)
        other = _changed(world.problem, ps.Numeric("connection", low=0, high=1))
        stuck = World(world.spool.path.parent, world.lake.root, other)
        _another_segment(stuck, writer, 3)
        report = world.flush()
        assert (report.segments, report.decisions) == (2, 2)
        assert [path.stem for path in world.spool.closed(writer)] == [f"{3:010}"]


def test_the_folder_of_a_new_day_is_on_disk_before_its_segment_is_deleted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.log("a")
    world.flush()
    steps: list[object] = []
    sync, remove = delta._sync, Spool.remove
    monkeypatch.setattr(delta, "_sync", lambda path: steps.append(path) or sync(path))
    monkeypatch.setattr(Spool, "remove", lambda *given: steps.append("deleted") or remove(*given))
    with EventLog(world.spool.path, world.problem) as log:
        log.append(LoggedReward(id="other", reward=1.0, time=1_600_000_000_000_000))
    world.flush()
    if "://" not in world.lake.root:
        table = Path(world.lake.url("rewards"))
        synced = steps[: steps.index("deleted")]
        assert {table, table / "day=2020-09-13", table / "_delta_log"} <= set(synced)


class TestDamage:
    def test_it_is_kept_and_what_is_before_and_behind_it_is_taken(self, world: World) -> None:
        writer = world.log("a", "b", "c")
        (path,) = world.spool.closed(writer)
        data = bytearray(path.read_bytes())
        data[data.rindex(b"b1")] ^= 255  # in the reward of b1
        path.write_bytes(data)
        report = world.flush()
        assert report.error is None
        assert len(report.cut) == 1
        assert "its checksum is wrong" in report.cut[0]
        assert world.ids("decisions") == Counter(["a0", "b1", "c2"])
        assert world.ids("rewards") == Counter(["a0", "c2"])
        (kept,) = (world.spool.path / QUARANTINE).iterdir()
        assert kept.read_bytes() in bytes(data)
        assert b"c2" not in kept.read_bytes()
        assert kept.name in report.cut[0]
        assert world.flush() == FlushReport()

    def test_it_is_kept_once_however_often_the_lake_is_away(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer = world.log("a")
        with world.spool.closed(writer)[0].open("ab") as file:
            file.write(b"torn")
        monkeypatch.setattr(Lake, "append", _away)
        for _ in range(3):
            assert world.flush().error == "away"
        monkeypatch.undo()
        assert len(world.flush().cut) == 1
        assert [path.read_bytes() for path in (world.spool.path / QUARANTINE).iterdir()] == [b"torn"]
        world.check()

    def test_a_segment_that_cannot_be_read_is_put_aside(self, world: World) -> None:
        writer = world.log("a", segments=3)
        broken = world.spool.closed(writer)[1]
        broken.write_bytes(b"no segment")
        del world.logged[1]
        report = world.flush()
        assert report.error is None
        assert report.segments == 2
        assert "is not a segment" in report.cut[0]
        assert [path.read_bytes() for path in (world.spool.path / QUARANTINE).iterdir()] == [b"no segment"]
        world.check()

    @pytest.mark.parametrize("left_open", [False, True])
    def test_segments_of_a_later_format_wait_for_it(
        self, world: World, monkeypatch: pytest.MonkeyPatch, left_open: bool
    ) -> None:
        monkeypatch.setattr(segment, "FORMAT", 3)
        writer = world.log("a", "b", segments=2)
        if left_open:
            last = world.spool.closed(writer)[-1]
            last.rename(last.with_suffix(".open"))
        monkeypatch.undo()
        others = world.log("c")
        report = world.flush()
        assert report.cut == []
        assert "has format 3; this version of Potstill reads 1 to 2: it waits for a later one" in report.error
        assert len(report.errors) == report.segments == 1
        assert [path.stem for path in world.spool.closed(writer)] == [f"{1:010}", f"{2:010}"]
        assert world.spool.pending().segments == 2
        assert world.spool.pending().oldest is not None
        assert others not in world.spool.writers()
        monkeypatch.setattr(segment, "FORMAT", 3)
        assert world.flush().error is None
        world.check()

    def test_a_writer_that_cannot_be_read_does_not_stop_the_others(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writers = [world.log("a") for _ in range(3)]
        bad = sorted(writers)[0]
        closed = Spool.closed

        def failing(spool: Spool, writer: str) -> list[Path]:
            if writer == bad:
                raise PermissionError("not yours")
            return closed(spool, writer)

        monkeypatch.setattr(Spool, "closed", failing)
        report = world.flush()
        assert report.segments == 2
        assert report.error == f"writer {bad}: PermissionError: not yours"


def test_the_last_flush_is_on_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert last_flush(world.spool) is None
    world.log("a")
    times = iter([10, 10, 20, 20, 30, 30])
    monkeypatch.setattr(flush, "clock", lambda: next(times))
    with monkeypatch.context() as patch:
        patch.setattr(Lake, "append", _away)
        world.flush()
    assert last_flush(world.spool) == FlushState(time=10, error="away", last_error="away", last_error_time=10)
    world.flush()
    assert last_flush(world.spool) == FlushState(time=20, last_error="away", last_error_time=10)
    (world.spool.path / "flush.json").write_bytes(b"{")
    world.flush()
    assert last_flush(world.spool) == FlushState(time=30)


def _away(*_: object, **__: object) -> bool:
    raise flush.LakeUnavailable("away")


class TestStorageAway:
    @pytest.fixture
    def proxy(self, s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
        with Proxy(os.environ["AWS_ENDPOINT_URL"]) as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
            yield proxy

    @pytest.mark.parametrize("mode", ["refuse", "hang", "deafen"])
    def test_nothing_is_lost_and_appends_go_on(
        self, tmp_path: Path, s3: str, problem: ps.Problem, proxy: Proxy, mode: str
    ) -> None:
        world = World(tmp_path, s3, problem)
        world.log("a")
        world.flush()
        proxy.mode = mode
        world.log("b", segments=2)
        report = world.flush()
        assert report.error is not None
        assert s3 in report.error
        assert report.segments == 0
        world.log("c")
        proxy.mode = "pass"
        assert world.flush().error is None
        world.check()

    def test_a_commit_whose_answer_is_lost_is_not_made_twice(
        self, tmp_path: Path, s3: str, problem: ps.Problem, proxy: Proxy
    ) -> None:
        """The server has it, the client does not know, and tries again."""
        world = World(tmp_path, s3, problem)
        world.log("a")
        world.flush()
        world.log("b")
        proxy.deafen_once = f"decisions/_delta_log/{2:020}.json HTTP".encode()
        report = world.flush()
        assert proxy.deafen_once is None
        assert report.error is None
        assert (report.segments, report.decisions, report.rewards) == (1, 0, 1)
        world.check()
