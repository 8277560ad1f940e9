import datetime as dt
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

import potstill as ps
from potstill.events import EventLog
from potstill.events.lake import Lake, LakeUnavailable, Overtaken, SchemaMismatch, VersionGone, delta
from potstill.problem import Feature

TIME = pl.Datetime("us", "UTC")
NOON = 1_700_000_000_000_000
DAY = 86_400_000_000
QUICK = {"max_retries": "1", "retry_timeout": "1s", "timeout": "2s", "connect_timeout": "1s"}


def rewards(*ids: str, time: int = NOON) -> pl.DataFrame:
    times = pl.Series([time + i for i in range(len(ids))], dtype=pl.Int64)
    return pl.DataFrame({"id": list(ids), "time": times.cast(TIME), "reward": [1.0] * len(ids)})


def decisions(*ids: str, **contexts: object) -> pl.DataFrame:
    frame = rewards(*ids).drop("reward").with_columns(action=pl.lit("360p"), propensity=pl.lit(0.25))
    return frame.with_columns(policy=pl.lit(3, pl.Int64), **{name: pl.lit(value) for name, value in contexts.items()})


def ids(lake: Lake, table: str = "rewards", **options: object) -> list[str]:
    return sorted(lake.scan(table, **options).collect()["id"])


def at_once(*acts: Callable[[], object]) -> list[object]:
    """What each returned, or raised."""
    results: list[object] = [None] * len(acts)
    gate = threading.Barrier(len(acts))

    def do(i: int) -> None:
        gate.wait()
        try:
            results[i] = acts[i]()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=do, args=(i,)) for i in range(len(acts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def changed(problem: ps.Problem, *features: Feature) -> ps.Problem:
    return ps.Problem(name=problem.name, context=features, actions=problem.actions)


def test_a_lake_without_tables_is_empty(place: str, problem: ps.Problem) -> None:
    lake = Lake(place, problem)
    assert lake.version("decisions") is None
    assert lake.transaction("decisions", "w") is None
    assert lake.files("decisions") == []
    frame = lake.scan("decisions").collect()
    assert frame.height == 0
    assert frame.schema == lake.schema("decisions")


def test_columns_are_typed_from_the_problem(problem: ps.Problem) -> None:
    schema = Lake("anywhere", problem).schema("observations")
    assert schema["context_bandwidth_kbps"] == pl.Float64
    assert schema["context_connection"] == pl.String
    assert schema["context_hd_screen"] == pl.Boolean
    assert "context_connection" not in Lake("anywhere", problem).schema("rewards")


def test_rows_come_back_as_they_were(place: str, problem: ps.Problem) -> None:
    lake = Lake(place, problem)
    frame = pl.DataFrame(
        {
            "id": ["b", "a", "ü 'x'"],
            "time": pl.Series([0, DAY - 1, DAY], dtype=pl.Int64).cast(TIME),
            "action": ["360p", "480p", "360p"],
            "propensity": [0.25, 1e-300, 1.0],
            "policy": [0, 2**60, 1],
            "eligible": [["360p"], None, ["360p", "480p"]],
            "floor": [None, 0.1, None],
            "context_bandwidth_kbps": [1 / 3, None, -0.0],
            "context_connection": ["", None, "4g"],
            "context_hd_screen": [True, None, False],
        }
    )
    assert lake.append("decisions", frame, writer="w", number=1)
    found = lake.scan("decisions").collect()
    days = [dt.date(1970, 1, 1), dt.date(1970, 1, 1), dt.date(1970, 1, 2)]
    assert found.select(frame.columns).equals(frame)
    assert found["day"].to_list() == days
    assert found["problem"].null_count() == 3
    assert found.schema == lake.schema("decisions")


def test_a_number_is_taken_once(tmp_path: Path, problem: ps.Problem) -> None:
    lake = Lake(tmp_path, problem)
    assert lake.append("rewards", rewards("a"), writer="w", number=2)
    assert not lake.append("rewards", rewards("a"), writer="w", number=2)
    assert not Lake(tmp_path, problem).append("rewards", rewards("older"), writer="w", number=1)
    assert lake.append("rewards", rewards("b"), writer="other", number=1)
    assert lake.append("rewards", rewards("c"), writer="w", number=3)
    assert ids(lake) == ["a", "b", "c"]
    assert lake.transaction("rewards", "w") == 3


def test_of_many_that_append_the_same_number_one_does(place: str, problem: ps.Problem) -> None:
    Lake(place, problem).append("rewards", rewards("first"), writer="w", number=1)
    lakes = [Lake(place, problem) for _ in range(4)]
    for lake in lakes:
        lake.version("rewards")  # all have seen the table without number 2
    results = at_once(*(lambda lake=lake: lake.append("rewards", rewards("a"), writer="w", number=2) for lake in lakes))
    assert sorted(results, key=bool) == [False, False, False, True]
    assert ids(lakes[0]) == ["a", "first"]


def test_many_writers_make_one_table_at_the_same_time(place: str, problem: ps.Problem) -> None:
    names = ["a", "b", "c", "d"]
    acts = [lambda n=n: Lake(place, problem).append("rewards", rewards(n), writer=n, number=1) for n in names]
    assert at_once(*acts) == [True] * 4
    assert ids(Lake(place, problem)) == names


def test_rows_that_were_put_together_before_another_came_are_refused(tmp_path: Path, problem: ps.Problem) -> None:
    lake = Lake(tmp_path, problem)
    lake.append("rewards", rewards("a"), writer="w", number=1, after=0)
    lake.append("rewards", rewards("b"), writer="w", number=2, after=1)
    with pytest.raises(Overtaken, match="w is at 2, not at 1"):
        lake.append("rewards", rewards("b", "c"), writer="w", number=3, after=1)
    assert not lake.append("rewards", rewards("b"), writer="w", number=2, after=1)
    assert ids(lake) == ["a", "b"]


def test_a_new_feature_becomes_a_column(tmp_path: Path, problem: ps.Problem) -> None:
    Lake(tmp_path, problem).append("decisions", decisions("old", context_connection="4g"), writer="w", number=1)
    wider = Lake(tmp_path, changed(problem, *problem.context, ps.Numeric("age", low=0, high=1)))
    assert wider.scan("decisions").collect()["context_age"].to_list() == [None]
    wider.append("decisions", decisions("new", context_age=0.5), writer="w", number=2)
    assert dict(wider.scan("decisions").collect().select("id", "context_age").iter_rows()) == {"old": None, "new": 0.5}
    assert "context_age" not in Lake(tmp_path, problem).scan("decisions").collect().columns


def test_two_processes_add_columns_at_the_same_time(tmp_path: Path, problem: ps.Problem) -> None:
    Lake(tmp_path, problem).append("decisions", decisions("old"), writer="w", number=1)

    def widen(name: str) -> bool:
        own = Lake(tmp_path, changed(problem, ps.Boolean(name), ps.Boolean("both")))
        frame = decisions(name, **{f"context_{name}": True, "context_both": True})
        return own.append("decisions", frame, writer=name, number=1)

    assert at_once(*(lambda n=n: widen(n) for n in "xyz")) == [True] * 3
    lake = Lake(tmp_path, changed(problem, *(ps.Boolean(name) for name in ("x", "y", "z", "both"))))
    found = {row["id"]: row for row in lake.scan("decisions").collect().iter_rows(named=True)}
    assert all(found[name][f"context_{name}"] and found[name]["context_both"] for name in "xyz")
    assert found["x"]["context_y"] is found["old"]["context_both"] is None


def test_a_feature_that_changed_its_type_is_refused_with_a_way_out(tmp_path: Path, problem: ps.Problem) -> None:
    lake = Lake(tmp_path, problem)
    lake.append("decisions", decisions("old", context_connection="4g"), writer="w", number=1)
    other = Lake(tmp_path, changed(problem, ps.Numeric("connection", low=0, high=1)))
    with pytest.raises(SchemaMismatch, match=r"'context_connection' is Float64 .* as String; .* new name"):
        other.append("decisions", decisions("new", context_connection=0.5), writer="w", number=2)
    with pytest.raises(SchemaMismatch, match="context_connection"):
        other.scan("decisions")
    assert lake.append("decisions", decisions("next", context_connection="3g"), writer="w", number=2)
    assert ids(lake, "decisions") == ["next", "old"]


def test_names_that_differ_only_in_case_are_refused(tmp_path: Path, problem: ps.Problem) -> None:
    alike = changed(problem, ps.Boolean("age"), ps.Boolean("Age"))
    for refused in (lambda: Lake(tmp_path, alike), lambda: EventLog(tmp_path, alike)):
        with pytest.raises(ps.InvalidProblem, match="'age' and 'Age'"):
            refused()
    lake = Lake(tmp_path, problem)
    lake.append("decisions", decisions("a"), writer="w", number=1)
    with pytest.raises(SchemaMismatch, match=r"'context_Connection' .* has 'context_connection'"):
        lake.append("decisions", decisions("b", context_Connection="4g"), writer="w", number=2)


def test_features_may_have_any_name(tmp_path: Path, problem: ps.Problem) -> None:
    names = ["a b", "x.y", "tab\t,;={}()", "ß`'\"%20"]
    lake = Lake(tmp_path, changed(problem, *map(ps.Boolean, names)))
    frame = decisions("a", **{f"context_{name}": True for name in names})
    lake.append("decisions", frame, writer="w", number=1)
    lake.append("decisions", decisions("b"), writer="w", number=2)
    found = lake.scan("decisions").collect().sort("id")
    assert [found[f"context_{name}"].to_list() for name in names] == [[True, None]] * 4


def test_a_scan_takes_a_version_or_what_came_since_or_days(place: str, problem: ps.Problem) -> None:
    lake = Lake(place, problem)
    lake.append("rewards", rewards("a"), writer="w", number=1)
    first = lake.version("rewards")
    lake.append("rewards", rewards("b", time=NOON + DAY), writer="w", number=2)
    assert ids(lake, version=first) == ["a"]
    assert ids(lake, since=first) == ["b"]
    assert ids(lake, since=first, version=first) == []
    assert ids(lake, days={dt.date(2023, 11, 14)}) == ["a"]
    assert ids(lake, since=99) == ["a", "b"]
    with pytest.raises(VersionGone, match="no version 99"):
        lake.scan("rewards", version=99)


def test_files_say_what_is_in_them(tmp_path: Path, problem: ps.Problem) -> None:
    lake = Lake(tmp_path, problem)
    lake.append("rewards", rewards(*"abc", time=NOON + 1_999), writer="w", number=1)
    lake.append("rewards", rewards("z", time=NOON - 5 * DAY), writer="w", number=2)
    early, late = lake.files("rewards")
    assert (early.day, early.rows, late.day, late.rows) == (dt.date(2023, 11, 9), 1, dt.date(2023, 11, 14), 3)
    assert NOON + 1_000 <= late.first <= NOON + 1_999
    assert NOON + 2_001 <= late.last <= NOON + 2_999
    assert lake.read("rewards", [late]).collect()["id"].to_list() == ["a", "b", "c"]
    assert late.bytes > 100


def test_a_stream_is_one_commit(place: str, problem: ps.Problem) -> None:
    lake = Lake(place, problem)
    frames = [rewards(f"{i}", f"{i}'", time=NOON + i * DAY) for i in range(5)]
    assert lake.append_stream("rewards", iter(frames), writer="cuts", number=1)
    version = lake.version("rewards")
    assert not lake.append_stream("rewards", _never(), writer="cuts", number=1)
    assert lake.version("rewards") == version == 1
    assert lake.scan("rewards").collect()["id"].to_list() == [i for frame in frames for i in frame["id"]]


def test_an_empty_stream_counts(tmp_path: Path, problem: ps.Problem) -> None:
    lake = Lake(tmp_path, problem)
    assert lake.append_stream("observations", iter([]), writer="cuts", number=7)
    assert lake.transaction("observations", "cuts") == 7
    assert ids(lake, "observations") == []


def test_a_stream_that_breaks_off_adds_nothing(tmp_path: Path, problem: ps.Problem) -> None:
    lake = Lake(tmp_path, problem)

    def frames() -> Iterator[pl.DataFrame]:
        yield rewards("a")
        raise KeyError("in the middle")

    with pytest.raises(KeyError, match="in the middle"):
        lake.append_stream("rewards", frames(), writer="cuts", number=1)
    assert ids(lake) == []
    assert lake.transaction("rewards", "cuts") is None


def test_of_two_streams_with_one_number_one_is_taken(tmp_path: Path, problem: ps.Problem) -> None:
    """The second begins while the first has not been committed."""
    lake, other = Lake(tmp_path, problem), Lake(tmp_path, problem)

    def frames() -> Iterator[pl.DataFrame]:
        yield rewards("slow")
        assert other.append_stream("rewards", iter([rewards("fast")]), writer="cuts", number=1)
        yield rewards("slower")

    assert not lake.append_stream("rewards", frames(), writer="cuts", number=1)
    assert ids(lake) == ["fast"]


def test_checkpoints_keep_the_numbers_and_the_log_short(tmp_path: Path, problem: ps.Problem) -> None:
    lake = Lake(tmp_path, problem)
    for number in range(1, 26):
        lake.append("rewards", rewards(f"{number}"), writer="w", number=number)
    log = tmp_path / "rewards" / "_delta_log"
    (checkpoint,) = log.glob("*.checkpoint.parquet")
    for path in log.glob("*.json"):
        if path.name < checkpoint.name:
            path.unlink()
    assert Lake(tmp_path, problem).transaction("rewards", "w") == 25
    assert len(ids(Lake(tmp_path, problem))) == 25


def test_other_readers_of_delta_tables_read_it(tmp_path: Path, problem: ps.Problem) -> None:
    lake = Lake(tmp_path, problem)
    lake.append("decisions", decisions("a", "b", context_connection="4g"), writer="w", number=1)
    assert pl.scan_delta(lake.url("decisions")).collect().equals(lake.scan("decisions").collect())


def test_what_was_appended_is_on_disk(tmp_path: Path, problem: ps.Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    Lake(tmp_path, problem).append("rewards", rewards("a"), writer="w", number=1)
    table = tmp_path / "rewards"
    files = [*table.glob("day=*/*.parquet"), *(table / "_delta_log").glob("*.json")]
    folders = {path.parent for path in files}
    assert len(files) == 3
    assert {path.stat().st_ino for path in [*files, *folders]} <= synced


def test_storage_that_is_away_is_said_in_one_line(
    s3: str, problem: ps.Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    lake = Lake(s3, problem, QUICK)
    acts = [
        lambda: lake.version("rewards"),
        lambda: lake.scan("rewards"),
        lambda: lake.append("rewards", rewards("a"), writer="w", number=1),
        lambda: lake.append_stream("rewards", iter([rewards("a")]), writer="w", number=1),
    ]
    for act in acts:
        with pytest.raises(LakeUnavailable, match=re.escape(s3)) as caught:
            act()
        assert "Connection refused" in str(caught.value)
        assert "\n" not in str(caught.value)
        assert "\x1b" not in str(caught.value)


def test_statistics_of_commits_are_of_time_alone(tmp_path: Path, problem: ps.Problem) -> None:
    """They would otherwise be most of a commit's bytes."""
    Lake(tmp_path, problem).append("decisions", decisions("a", context_connection="4g"), writer="w", number=1)
    text = (tmp_path / "decisions" / "_delta_log" / f"{1:020}.json").read_text()
    assert "context_connection" not in text
    assert "minValues" in text
    assert delta.PROPERTIES["delta.dataSkippingStatsColumns"] == "time"


@pytest.mark.parametrize("sign", "%[]^|\\")
def test_paths_that_delta_cannot_use_are_refused(tmp_path: Path, problem: ps.Problem, sign: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"a path with {sign} in it")):
        Lake(tmp_path / f"a{sign}b", problem)


def test_paths_may_have_other_signs(tmp_path: Path, problem: ps.Problem) -> None:
    lake = Lake(tmp_path / "a b#c=1" / "day=ü {*?}", problem)
    lake.append("rewards", rewards("a"), writer="w", number=1)
    assert ids(lake) == ["a"]


def test_a_panic_of_the_library_is_storage_that_is_away() -> None:
    class PanicException(BaseException):
        pass

    with pytest.raises(LakeUnavailable, match="the lake at x cannot be used now: oh"), delta.storage_errors("x"):
        raise PanicException("oh")


def _never() -> Iterator[pl.DataFrame]:
    raise AssertionError("no batch was to be taken")
    yield
