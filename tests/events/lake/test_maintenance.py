import datetime as dt
import os
import re
import shutil
import threading
from pathlib import Path

import polars as pl
import pytest

import potstill as ps
from potstill.events.lake import Lake
from potstill.events.lake.maintenance import CompactReport, ExpireReport, compact, expire, vacuum

NOON = 1_700_000_000_000_000  # of 14 November 2023, nearly
DAY = 86_400_000_000
HOUR = 3600


def rewards(*ids: str, time: int = NOON) -> pl.DataFrame:
    times = pl.Series([time] * len(ids), dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
    return pl.DataFrame({"id": list(ids), "time": times, "reward": [1.0] * len(ids)})


def ids(lake: Lake, table: str = "rewards") -> list[str]:
    return sorted(lake.scan(table).collect()["id"])


def filled(lake: Lake, count: int = 5) -> list[str]:
    names = [f"{number}" for number in range(1, count + 1)]
    for name in names:
        frame = pl.concat([rewards(name), rewards(f"{name}'", time=NOON + DAY)])
        assert lake.append("rewards", frame, writer="w", number=int(name))
    return sorted(names + [f"{name}'" for name in names])


def test_a_lake_without_tables_needs_none(tmp_path: Path, problem: ps.Problem) -> None:
    lake = Lake(tmp_path, problem)
    assert compact(lake) == vacuum(lake, HOUR) == expire(lake, HOUR) == []


def test_compaction_leaves_one_file_a_day_and_every_row_once(place: str, problem: ps.Problem) -> None:
    lake = Lake(place, problem)
    names = filled(lake)
    (report,) = compact(lake)
    assert isinstance(report, CompactReport)
    assert (report.table, report.files_before, report.files_after) == ("rewards", 10, 2)
    assert report.bytes_after == sum(file.bytes for file in lake.files("rewards")) < report.bytes_before
    assert ids(lake) == names
    assert ids(Lake(place, problem)) == names
    assert not Lake(place, problem).append("rewards", rewards("again"), writer="w", number=5)
    assert lake.scan("rewards", version=5).collect().height == 10
    (again,) = compact(lake)
    assert (again.files_before, again.files_after) == (2, 2)


def test_compaction_reads_files_from_before_a_column_came(tmp_path: Path, problem: ps.Problem) -> None:
    frame = rewards("a").drop("reward")
    Lake(tmp_path, problem).append("decisions", frame, writer="w", number=1)
    wider = ps.Problem(name="wider", context=[*problem.context, ps.Boolean("new")], actions=problem.actions)
    lake = Lake(tmp_path, wider)
    lake.append("decisions", frame.with_columns(id=pl.lit("b"), context_new=True), writer="w", number=2)
    compact(lake)
    assert len(lake.files("decisions")) == 1
    assert sorted(lake.scan("decisions").select("id", "context_new").collect().rows()) == [("a", None), ("b", True)]


def test_appends_and_compactions_at_the_same_time(tmp_path: Path, problem: ps.Problem) -> None:
    errors: list[Exception] = []

    def append(writer: str) -> None:
        lake = Lake(tmp_path, problem)
        for number in range(1, 8):
            try:
                assert lake.append("rewards", rewards(f"{writer}{number}"), writer=writer, number=number)
            except Exception as error:
                errors.append(error)

    Lake(tmp_path, problem).append("rewards", rewards("first"), writer="w", number=1)
    threads = [threading.Thread(target=append, args=(writer,)) for writer in "ab"]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        compact(Lake(tmp_path, problem))
    assert not errors
    assert ids(Lake(tmp_path, problem)) == sorted(["first", *(f"{w}{n}" for w in "ab" for n in range(1, 8))])


class TestVacuum:
    def test_files_in_use_or_just_out_of_use_stay(self, tmp_path: Path, problem: ps.Problem) -> None:
        lake = Lake(tmp_path, problem)
        names = filled(lake)
        compact(lake)
        being_written = _copy_of_one(tmp_path, "being-written")
        assert [report.files for report in vacuum(lake, HOUR)] == [[]]
        assert being_written.exists()
        assert len(list(tmp_path.glob("rewards/day=*/part-*"))) == 13
        assert ids(lake) == names

    def test_what_was_compacted_away_goes(self, tmp_path: Path, problem: ps.Problem) -> None:
        names = filled(Lake(tmp_path, problem))
        compact(Lake(tmp_path, problem))
        _age(tmp_path, hours=3)
        lake = Lake(tmp_path, problem)
        assert [len(report.files) for report in vacuum(lake, 4 * HOUR)] == [0]
        (report,) = vacuum(lake, 2 * HOUR, dry_run=True)
        assert len(report.files) == 10
        assert len(list(tmp_path.glob("rewards/day=*/*"))) == 12
        (done,) = vacuum(lake, 2 * HOUR)
        assert sorted(done.files) == sorted(report.files)
        assert len(list(tmp_path.glob("rewards/day=*/*"))) == 2
        assert ids(lake) == names

    def test_what_a_crash_left_goes(self, tmp_path: Path, problem: ps.Problem) -> None:
        lake = Lake(tmp_path, problem)
        names = filled(lake)
        left = _copy_of_one(tmp_path, "left")
        three_hours_ago = left.stat().st_mtime - 3 * HOUR
        os.utime(left, (three_hours_ago, three_hours_ago))
        assert [len(report.files) for report in vacuum(lake, 2 * HOUR)] == [1]
        assert not left.exists()
        assert ids(lake) == names

    def test_too_soon_is_refused(self, tmp_path: Path, problem: ps.Problem) -> None:
        with pytest.raises(ValueError, match="at least 3600 seconds, got 3599"):
            vacuum(Lake(tmp_path, problem), 3599)


def _copy_of_one(folder: Path, name: str) -> Path:
    original = next(folder.glob("rewards/day=*/*.parquet"))
    return Path(shutil.copy(original, original.with_name(f"part-{name}.parquet")))


def _age(folder: Path, hours: int) -> None:
    """Have everything in a table's log happen hours earlier; checkpoints, which say the same, are dropped."""
    log = folder / "rewards" / "_delta_log"
    for path in [*log.glob("*.checkpoint.parquet"), *log.glob("_last_checkpoint")]:
        path.unlink()
    for path in log.glob("*.json"):
        path.write_text(_earlier(path.read_text(), hours * HOUR * 1000))


def _earlier(text: str, milliseconds: int) -> str:
    def moved(match: re.Match[str]) -> str:
        return f'"deletionTimestamp":{int(match[1]) - milliseconds}'

    return re.sub(r'"deletionTimestamp":(\d+)', moved, text)


def test_old_days_of_decisions_and_rewards_go_and_observations_stay(tmp_path: Path, problem: ps.Problem) -> None:
    lake = Lake(tmp_path, problem)
    days = [rewards(f"{day}", time=NOON + day * DAY) for day in range(4)]
    for number, frame in enumerate(days, 1):
        lake.append("rewards", frame, writer="w", number=number)
        lake.append("decisions", frame.drop("reward"), writer="w", number=number)
        lake.append("observations", frame, writer="w", number=number)
    midnight = dt.datetime(2023, 11, 16, tzinfo=dt.UTC)
    now = int(midnight.timestamp() * 1e6) + 10 * DAY
    reports = expire(lake, 10 * 86_400, now=now)
    assert reports == [
        ExpireReport(table="decisions", before=midnight.date(), rows=2, files=2),
        ExpireReport(table="rewards", before=midnight.date(), rows=2, files=2),
    ]
    assert ids(lake, "rewards") == ids(lake, "decisions") == ["2", "3"]
    assert ids(lake, "observations") == ["0", "1", "2", "3"]
    assert not lake.append("rewards", days[3], writer="w", number=4)
    assert [report.rows for report in expire(lake, 10 * 86_400, now=now + DAY - 1)] == [0, 0]
    assert [report.rows for report in expire(lake, 10 * 86_400, now=now + DAY)] == [1, 1]
