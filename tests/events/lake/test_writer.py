"""Files that are written first and added later: the same table as appending the rows makes, once."""

import json
import os
import re
from pathlib import Path

import polars as pl
import pytest
from deltalake import DeltaTable
from events.join_oracle import DAY, MINUTE, D, R
from events.worlds import BASE, Workspace, reward_frame, world

import potstill as ps
from potstill.events.lake import Lake, LakeUnavailable, Overtaken
from potstill.events.lake.writer import add_files, write_files

#: Over midnight, and with everything that a column may hold.
ROWS = reward_frame(
    [
        R("a", BASE, 0.1, "k", (("clicks", 1.0), ("watched", 0.5))),
        R("b", BASE + 3 * MINUTE + 1, -1.0),
        R("ü", BASE + DAY),
    ]
)


@pytest.fixture
def lake(place: str, problem: ps.Problem) -> Lake:
    return Lake(place, problem)


def rows(lake: Lake, table: str = "rewards") -> pl.DataFrame:
    return lake.scan(table).sort("time").collect()


def test_files_that_are_added_are_as_if_their_rows_had_been_appended(place, lake, problem):
    appended = Lake(f"{place}/other", problem)
    appended.append("rewards", ROWS, writer="w", number=1)
    files = write_files(lake, "rewards", ROWS)
    assert lake.version("rewards") is None
    assert add_files(lake, "rewards", files, writer="w", number=1)
    assert rows(lake).equals(rows(appended))
    assert len(rows(lake)) == 3
    found, expected = ([(f.day, f.rows, f.first, f.last) for f in one.files("rewards")] for one in (lake, appended))
    assert found == expected
    assert [file.bytes for file in lake.files("rewards")] == [file.size for file in files]


def test_files_are_added_once(lake):
    files = write_files(lake, "rewards", ROWS)
    assert add_files(lake, "rewards", files, writer="w", number=2)
    for number in (1, 2):
        assert not add_files(lake, "rewards", write_files(lake, "rewards", ROWS), writer="w", number=number)
    assert len(rows(lake)) == 3
    assert lake.transaction("rewards", "w") == 2


def test_no_files_count_as_well(lake):
    assert write_files(lake, "rewards", ROWS.clear()) == []
    assert add_files(lake, "rewards", [], writer="w", number=7)
    assert lake.transaction("rewards", "w") == 7


def test_the_commit_is_on_disk_when_files_are_added(tmp_path, problem, monkeypatch):
    lake, synced, sync = Lake(tmp_path, problem), set(), os.fsync

    def fsync(descriptor):
        synced.add(os.fstat(descriptor).st_ino)
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    add_files(lake, "rewards", write_files(lake, "rewards", ROWS), writer="w", number=1)
    log = tmp_path / "rewards" / "_delta_log"
    written = [*log.glob("*.json"), log, *(tmp_path / "rewards").rglob("*.parquet")]
    assert len(written) >= 4
    assert {path.stat().st_ino for path in written} <= synced


def test_files_that_are_gone_are_not_added(tmp_path, problem):
    lake = Lake(tmp_path, problem)
    files = write_files(lake, "rewards", ROWS)
    (tmp_path / "rewards" / files[0].path).unlink()
    with pytest.raises(FileNotFoundError, match="parquet"):
        add_files(lake, "rewards", files, writer="w", number=1)
    assert lake.transaction("rewards", "w") is None


def test_a_writer_that_was_overtaken_adds_nothing(tmp_path, problem):
    lake = Lake(tmp_path, problem)
    add_files(lake, "rewards", [], writer="w", number=2)
    with pytest.raises(Overtaken, match="writer w is at 2, not at 1 any more"):
        add_files(lake, "rewards", write_files(lake, "rewards", ROWS), writer="w", number=3, after=1)
    assert add_files(lake, "rewards", write_files(lake, "rewards", ROWS), writer="w", number=3, after=2)


@pytest.mark.parametrize("same", [True, False])
def test_of_two_that_add_at_once_both_are_seen_and_a_number_is_taken_once(tmp_path, problem, monkeypatch, same):
    """The other commits when this one has looked already what the table has."""
    lake, other = Lake(tmp_path, problem), Lake(tmp_path, problem)
    add_files(lake, "rewards", [], writer="w", number=1)
    files, commit, faster = write_files(lake, "rewards", ROWS[:1]), DeltaTable.create_write_transaction, [True]

    def outrun(handle, *arguments, **named):
        if faster and faster.pop():
            assert add_files(
                other, "rewards", write_files(other, "rewards", ROWS[1:]), writer="w" if same else "x", number=2
            )
        commit(handle, *arguments, **named)

    monkeypatch.setattr(DeltaTable, "create_write_transaction", outrun)
    assert add_files(lake, "rewards", files, writer="w", number=2) is not same
    assert rows(lake)["id"].to_list() == (["b", "ü"] if same else ["a", "b", "ü"])


def test_a_table_that_got_another_column_takes_files_of_before(tmp_path, problem):
    lake = Lake(tmp_path, problem)
    wider = ps.Problem(
        name="wider", context=[*problem.context, ps.Boolean("more")], actions=problem.actions, reward=problem.reward
    )
    decided = pl.DataFrame({"id": ["a"], "time": ROWS["time"][:1], "context_hd_screen": [True]})
    files = write_files(lake, "decisions", decided)
    add_files(Lake(tmp_path, wider), "decisions", [], writer="w", number=1)
    assert add_files(lake, "decisions", files, writer="w", number=2)
    (row,) = Lake(tmp_path, wider).scan("decisions").collect().iter_rows(named=True)
    assert (row["id"], row["context_hd_screen"], row["context_more"]) == ("a", True, None)


def test_other_readers_read_them_and_a_compaction_changes_nothing(tmp_path):
    workspace = Workspace(tmp_path, world())
    for i in range(2):
        workspace.add(
            D("a", BASE + i * DAY, eligible=("l",), unit="u"), R("a", BASE + i * DAY, 1.0, None, (("m", 2.0),))
        )
        workspace.add(D(f"b{i}", BASE))
        workspace.join(BASE + 10 * DAY)
    lake, before = workspace.lake, workspace.lake.scan("observations").sort("id", "time").collect()
    assert pl.scan_delta(lake.url("observations")).sort("id", "time").collect().equals(before)
    workspace.compact()
    assert len(lake.files("observations")) == 1
    assert lake.scan("observations").sort("id", "time").collect().equals(before)


def test_files_are_on_disk_before_they_are_added(tmp_path: Path, problem, monkeypatch):
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    write_files(Lake(tmp_path, problem), "rewards", ROWS)
    files = list((tmp_path / "rewards").glob("day=*/*.parquet"))
    assert len(files) == 2
    assert {path.stat().st_ino for path in [*files, *(path.parent for path in files)]} <= synced


def test_storage_that_is_full_or_away_is_said(tmp_path, problem, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("potstill.storage.write_atomically", full)
    with pytest.raises(LakeUnavailable, match=re.escape(f"{tmp_path}/rewards cannot be used now: [Errno 28] No space")):
        write_files(Lake(tmp_path, problem), "rewards", ROWS)


def test_statistics_are_as_the_library_has_them(tmp_path, problem):
    """Readers skip files by them, and `arrivals` reads them from the log."""
    lake, frame = Lake(tmp_path, problem), reward_frame([R("a", BASE + 123_999), R("b", BASE + 456_001)])
    lake.append("rewards", frame, writer="w", number=1)
    add_files(lake, "rewards", write_files(lake, "rewards", frame), writer="w", number=2)
    logs = [(tmp_path / "rewards" / "_delta_log" / f"{version:020}.json").read_text() for version in (1, 2)]
    added = [json.loads(line).get("add") for log in logs for line in log.splitlines()]
    one, other = (json.loads(add["stats"]) for add in added if add)
    assert one == other
