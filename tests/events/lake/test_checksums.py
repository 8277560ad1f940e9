"""Checksums of data files: every flipped bit is noticed before a value of the file is used."""

import random
import time
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake

import potstill as ps
from potstill.events.lake import CorruptFile, File, Lake, compact, delta, vacuum
from potstill.events.lake.checksums import FOLDER, checked_name, crc_in_name

NOON = 1_700_000_000_000_000
DAY = 86_400_000_000


def rewards(*ids: str, time: int = NOON) -> pl.DataFrame:
    times = pl.Series([time] * len(ids), dtype=pl.Int64).cast(pl.Datetime("us", "UTC"))
    return pl.DataFrame({"id": list(ids), "time": times, "reward": [1.0] * len(ids)})


def append(lake: Lake, *numbers: int) -> None:
    for number in numbers:
        lake.append("rewards", rewards(f"{number}", f"{number}'"), writer="w", number=number)


def flip(file: File, bit: int) -> None:
    """Flip a bit of a file."""
    path = Path(file.uri)
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def append_as_the_library(lake: Lake, *ids: str) -> None:
    """Append as earlier versions did: the Delta library writes the file and gives it its name."""
    lake.prepare("rewards")
    frame = rewards(*ids).with_columns(day=pl.col("time").dt.date())
    schema = delta.schema_of(lake.tables["rewards"].current())
    rows = frame.select(
        pl.col(name) if name in frame.columns else pl.lit(None, dtype).alias(name) for name, dtype in schema.items()
    )
    write_deltalake(lake.url("rewards"), rows, mode="append")


@pytest.fixture
def lake(tmp_path: Path, problem: ps.Problem) -> Lake:
    return Lake(tmp_path, problem)


def test_a_name_holds_the_checksum_of_the_contents() -> None:
    name = checked_name("part-1", b"123456789", ".zstd.parquet")
    assert name == "part-1-crc32-cbf43926.zstd.parquet"  # the check value of CRC-32
    assert crc_in_name(f"day=2026-01-01/{name}") == 0xCBF43926
    assert crc_in_name("day=2026-01-01/part-00000-1b4e28ba-c000.zstd.parquet") is None


@pytest.mark.parametrize("compacted", [False, True])
def test_every_flipped_bit_is_noticed_on_reading(lake: Lake, compacted: bool) -> None:
    append(lake, 1, 2, 3)
    if compacted:
        compact(lake)
    file = lake.files("rewards")[0]
    expected = lake.read("rewards", [file]).collect()
    drawn = random.Random(7)
    for _ in range(150):
        bit = drawn.randrange(8 * file.bytes)
        flip(file, bit)
        with pytest.raises(CorruptFile, match=r"CRC-32 is \w{8} instead of \w{8}; potstill verify"):
            lake.read("rewards", [file])
        flip(file, bit)
    assert lake.read("rewards", [file]).collect().equals(expected)


def test_a_shorter_file_is_noticed(lake: Lake) -> None:
    append(lake, 1)
    (file,) = lake.files("rewards")
    with Path(file.uri).open("r+b") as stream:
        stream.truncate(file.bytes - 1)
    with pytest.raises(CorruptFile, match=f"it has {file.bytes - 1} bytes instead of {file.bytes}"):
        lake.scan("rewards")


def test_an_intact_file_is_read_for_its_checksum_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    append(lake, 1)
    checksums, measured = lake.tables["rewards"].checksums, []
    measure = checksums.measure
    monkeypatch.setattr(checksums, "measure", lambda file: measured.append(file) or measure(file))
    lake.scan("rewards")
    lake.scan("rewards")
    assert len(measured) == 1
    later = time.monotonic() + 3601
    monkeypatch.setattr(time, "monotonic", lambda: later)
    lake.scan("rewards")
    assert len(measured) == 2


def test_compaction_refuses_a_damaged_file_and_changes_nothing(place: str, problem: ps.Problem) -> None:
    lake = Lake(place, problem)
    append(lake, 1, 2)
    damaged = lake.files("rewards")[0]
    _replace_byte(lake, damaged)
    before = lake.version("rewards")
    with pytest.raises(CorruptFile, match="is damaged: its CRC-32"):
        compact(lake)
    assert lake.version("rewards") == before


def _replace_byte(lake: Lake, file: File) -> None:
    from potstill.storage import open_storage

    storage, path = open_storage(lake.url("rewards")), file.uri.removeprefix(lake.url("rewards") + "/")
    data = bytearray(storage.read(path))
    data[len(data) // 2] ^= 1
    storage.replace(path, bytes(data))


def test_files_of_earlier_versions_are_read_and_can_be_given_checksums(lake: Lake) -> None:
    append_as_the_library(lake, "old")
    (file,) = lake.files("rewards")
    checksums = lake.tables["rewards"].checksums
    assert checksums.of(file) is None
    assert lake.scan("rewards").collect()["id"].to_list() == ["old"]
    assert checksums.record([file]) == 1
    assert checksums.record([file]) == 0
    flip(file, 400)
    with pytest.raises(CorruptFile):
        Lake(lake.root, lake.problem).scan("rewards")


def test_a_damaged_record_of_checksums_is_named_and_not_used(lake: Lake) -> None:
    append_as_the_library(lake, "old")
    lake.tables["rewards"].checksums.record(lake.files("rewards"))
    (record,) = Path(lake.url("rewards"), FOLDER).iterdir()
    record.write_bytes(record.read_bytes().replace(b"crc32", b"crc23"))
    checksums = Lake(lake.root, lake.problem).tables["rewards"].checksums
    assert checksums.of(lake.files("rewards")[0]) is None
    assert record.name in checksums.damage()[0]


def test_vacuum_keeps_the_checksums_of_what_it_keeps(place: str, problem: ps.Problem) -> None:
    lake = Lake(place, problem)
    append(lake, 1, 2)
    compact(lake)
    vacuum(lake, 3600)
    (file,) = lake.files("rewards")
    assert Lake(place, problem).tables["rewards"].checksums.of(file) is not None
    lake.tables["rewards"].checksums.prune([file])
    assert Lake(place, problem).tables["rewards"].checksums.of(file) is not None


def test_checksums_of_deleted_files_are_deleted(lake: Lake) -> None:
    append(lake, 1, 2)
    compact(lake)
    for file in lake.files("rewards"):
        Path(file.uri).unlink()
    lake.tables["rewards"].checksums.prune([])
    assert list(Path(lake.url("rewards"), FOLDER).iterdir()) == []


def test_the_folder_of_a_new_day_is_on_disk_before_an_append_returns(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(lake, 1)
    synced: list[Path] = []
    sync = delta._sync
    monkeypatch.setattr(delta, "_sync", lambda path: synced.append(path) or sync(path))
    lake.append("rewards", rewards("next", time=NOON + DAY), writer="w", number=2)
    table, path = Path(lake.url("rewards")), Path(lake.files("rewards")[-1].uri)
    assert {path, path.parent, table, table / "_delta_log"} <= set(synced)
    assert synced.index(path) < synced.index(path.parent) < synced.index(table)
