"""Verification and repair of a workspace: what is damaged is named, and restored from what is left."""

import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import worlds
from examples import random_layers
from typer.testing import CliRunner

from potstill.cli import app
from potstill.events.join import join
from potstill.events.lake import CorruptFile, File, Flusher, compact, count_observations, read_observations
from potstill.events.lake import repair as repairing
from potstill.events.wal import Spool
from potstill.policy import Policy
from potstill.workspace import Workspace, repair, verify

_seeds = itertools.count()


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A workspace with 60 decisions in three segments, and observations of two cuts."""
    workspace = worlds.made(str(tmp_path / "video"))
    policy = workspace.start()
    for seed in range(3):
        worlds.log(workspace, policy, 20, seed=seed, at=worlds.NOON + seed * worlds.HOUR)
    flush(workspace)
    for now in (worlds.NOON + 2 * worlds.HOUR, worlds.NOON + 5 * worlds.HOUR):
        joined(workspace, now)
    return workspace


def flush(workspace: Workspace) -> None:
    assert Flusher(Spool(workspace.spool), workspace.lake).flush().error is None


def joined(workspace: Workspace, now: int) -> int:
    rules = workspace.config.join
    report = join(
        workspace.lake,
        workspace.cuts,
        workspace.problem,
        aggregate=rules.aggregate,
        settle=rules.settle_seconds,
        now=now,
    )
    return report.decisions


def rows(workspace: Workspace, table: str) -> pl.DataFrame:
    return workspace.lake.scan(table).collect().sort("time", "id")


def flip(file: File, at: float = 0.5) -> None:
    path = Path(file.uri)
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 1
    path.write_bytes(data)


def publish(workspace: Workspace) -> int:
    head, version = workspace.registry.head(), workspace.registry.next_version()
    policy = Policy.build(workspace.problem, random_layers(workspace.problem, seed=next(_seeds)), version=version)
    workspace.registry.publish(policy, teacher=b"state", report=b"{}", expected=head.number if head else 0)
    return version


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner(env={"COLUMNS": "1000", "NO_COLOR": "1"}).invoke(app, [str(one) for one in arguments])
    return result.exit_code, result.output


def test_an_intact_workspace_has_no_damage(workspace: Workspace) -> None:
    publish(workspace)
    report = verify(workspace)
    assert report.damage == []
    assert [(table.table, table.unchecked) for table in report.tables] == [
        ("decisions", 0),
        ("rewards", 0),
        ("observations", 0),
    ]
    code, said = run("verify", workspace.url)
    assert code == 0
    assert "no damage found" in said


@pytest.mark.parametrize("table", ["decisions", "rewards", "observations"])
def test_a_flipped_bit_stops_readers_and_is_named(workspace: Workspace, table: str) -> None:
    worlds.log(workspace, workspace.serving(), 10, seed=9, at=worlds.NOON + 4 * worlds.HOUR)
    flush(workspace)
    file = workspace.lake.files(table)[-1]
    flip(file)

    def read() -> object:
        if table == "observations":
            return list(read_observations(workspace.lake, workspace.problem, 0, 99))
        return joined(workspace, worlds.NOON + 9 * worlds.HOUR)

    with pytest.raises(CorruptFile, match="potstill verify"):
        read()
    (damage,) = next(one for one in verify(workspace).tables if one.table == table).damaged
    assert (damage.uri, damage.rows, damage.day) == (file.uri, file.rows, file.day)
    code, said = run("verify", workspace.url, "--json")
    assert code == 2
    assert file.uri in json.loads(said[said.index("{") :])["damage"][0]


def test_every_flip_that_matters_is_found(workspace: Workspace) -> None:
    drawn = random.Random(2)
    for table in ("decisions", "rewards", "observations"):
        for _ in range(10):
            file = drawn.choice(workspace.lake.files(table))
            where = drawn.random()
            flip(file, where)
            assert [one.uri for report in verify(workspace).tables for one in report.damaged] == [file.uri]
            flip(file, where)
    assert verify(workspace).damage == []


def test_a_missing_file_and_a_shifted_time_in_the_commit_are_found(workspace: Workspace) -> None:
    decisions, rewards = workspace.lake.files("decisions")[0], workspace.lake.files("rewards")[0]
    Path(decisions.uri).unlink()
    log = Path(workspace.lake.url("rewards"), "_delta_log")
    (commit,) = [path for path in log.glob("*.json") if Path(rewards.uri).name in path.read_text()]
    commit.write_text(commit.read_text().replace('numRecords\\":', 'numRecords\\":1'))
    said = "\n".join(verify(Workspace(workspace.url)).damage)
    assert f"{decisions.uri}: it is missing" in said
    assert "rows, but its commit says" in said


@pytest.mark.parametrize("table", ["decisions", "rewards"])
def test_rows_are_restored_from_segments_that_are_still_there(
    workspace: Workspace, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        # Killed before it was deleted, or kept for a while.
        suffix = ".log" if table == "rewards" else ".done"
        patch.setattr(Spool, "remove", lambda _, __, path: path.rename(path.with_suffix(suffix)))
        worlds.log(workspace, workspace.serving(), 15, seed=7, at=worlds.NOON)
        flush(workspace)
    before = rows(workspace, table)
    (file,) = [
        one for one in workspace.lake.files(table) if "upload-7-0" in workspace.lake.read(table, [one]).collect()["id"]
    ]
    flip(file)
    report = repair(workspace, by="ann")
    assert report.damage == []
    assert f"{file.rows} of {file.rows} rows were restored from the log" in report.repaired[0]
    assert rows(workspace, table).equals(before)
    assert not Path(file.uri).exists()
    flush(workspace)
    assert rows(workspace, table).equals(before)


def test_rows_are_restored_from_the_files_before_a_compaction(workspace: Workspace) -> None:
    worlds.log(workspace, workspace.serving(), 15, seed=7, at=worlds.NOON)
    flush(workspace)
    before = {table: rows(workspace, table) for table in ("decisions", "rewards", "observations")}
    compact(workspace.lake)
    for table in before:
        (file,) = workspace.lake.files(table)
        flip(file)
    report = repair(workspace)
    assert report.damage == []
    assert sum("restored from the files before compaction" in line for line in report.repaired) == 3
    for table, frame in before.items():
        assert rows(workspace, table).equals(frame)


def test_observations_are_made_again_from_decisions_and_rewards(workspace: Workspace) -> None:
    before = rows(workspace, "observations")
    assert before["cut"].unique().to_list() == [1, 2]
    for file in workspace.lake.files("observations"):
        flip(file)
        report = repair(workspace)
        assert report.damage == []
        assert f"{file.rows} of {file.rows} rows were restored from decisions and rewards" in report.repaired[0]
        assert rows(workspace, "observations").equals(before)
    assert joined(workspace, worlds.NOON + 9 * worlds.HOUR) == 0
    assert count_observations(workspace.lake, 0, 1) == 20


def test_what_cannot_be_restored_is_named_and_kept(workspace: Workspace) -> None:
    file = workspace.lake.files("decisions")[0]
    data = Path(file.uri).read_bytes()
    flip(file, 0.9)
    (line,) = repair(workspace).repaired
    assert f"0 of {file.rows} rows were restored; the others are lost unless a backup has this file" in line
    kept = Path(line.rpartition("kept at ")[2])
    assert len(kept.read_bytes()) == len(data)
    assert verify(workspace).damage == []
    # Joins go on: nothing is observed twice, and what arrives is observed.
    assert joined(workspace, worlds.NOON + 9 * worlds.HOUR) == 0
    worlds.log(workspace, workspace.serving(), 5, seed=8, at=worlds.NOON)
    flush(workspace)
    assert joined(workspace, worlds.NOON + 10 * worlds.HOUR) == 5


def test_restored_rows_are_joined_once(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that no cut has seen, although the change feed does not know which these are."""
    with monkeypatch.context() as patch:
        patch.setattr(Spool, "remove", lambda *_: None)
        for seed in (0, 1, 2, 7):  # the first three as before
            worlds.log(workspace, workspace.serving(), 20, seed=seed, at=worlds.NOON + seed % 3 * worlds.HOUR)
        flush(workspace)
    for file in workspace.lake.files("decisions"):
        flip(file)
    repair(workspace)
    assert joined(workspace, worlds.NOON + 9 * worlds.HOUR) == 20
    assert joined(workspace, worlds.NOON + 10 * worlds.HOUR) == 0
    found = rows(workspace, "observations")
    assert len(found) == found["id"].n_unique() == 80


def test_a_lost_version_is_noticed_by_its_decisions(workspace: Workspace, tmp_path: Path) -> None:
    shutil.copytree(Path(workspace.url) / "registry", tmp_path / "backup")
    publish(workspace)
    worlds.log(workspace, workspace.registry.policy(), 5, seed=8, at=worlds.NOON)
    flush(workspace)
    shutil.rmtree(Path(workspace.url) / "registry")
    shutil.copytree(tmp_path / "backup", Path(workspace.url) / "registry")
    (fault,) = verify(workspace).registry
    assert "its latest version is 0, but version 1 has decided" in fault
    assert run("verify", workspace.url, "--repair")[0] == 0
    assert workspace.registry.next_version() == 2


def test_a_deleted_entry_is_restored_by_command(workspace: Workspace) -> None:
    assert (publish(workspace), publish(workspace)) == (1, 2)
    path = Path(workspace.url) / "registry/entries/0000000003.json"
    data = path.read_bytes()
    path.unlink()
    assert run("verify", workspace.url)[0] == 2
    code, said = run("verify", workspace.url, "--repair")
    assert code == 0
    assert "entries 3 were restored from the files of versions" in said
    assert path.read_bytes() == data
    assert workspace.registry.policy().version == 2


def test_a_loss_that_cannot_be_restored_is_recorded_by_command(workspace: Workspace) -> None:
    assert (publish(workspace), publish(workspace)) == (1, 2)
    (Path(workspace.url) / "registry/entries/0000000003.json").unlink()
    (Path(workspace.url) / "registry/versions/2/entry.json").unlink()
    code, said = run("verify", workspace.url)
    assert code == 2
    assert "entry 3 was written" in said
    code, said = run("verify", workspace.url, "--repair")
    assert code == 0
    assert "version 1 serves, and the next version is 3" in said
    assert workspace.registry.policy().version == 1


def test_damage_of_versions_cuts_and_segments_is_named(workspace: Workspace) -> None:
    publish(workspace)
    root = Path(workspace.url)
    (report,) = root.glob("registry/versions/1/*.report")
    report.write_bytes(b"[]")
    (root / "events/cuts/0000000001.json").write_text("{")
    worlds.log(workspace, workspace.serving(), 3, seed=8)
    (segment,) = Path(workspace.spool).glob("*/*.log")
    data = bytearray(segment.read_bytes())
    data[-3] ^= 1
    segment.write_bytes(data)
    found = verify(workspace)
    assert "altered" in found.registry[0]
    assert "is not a cut" in found.cuts[0]
    assert "its checksum is wrong" in found.log[0]
    assert len(found.damage) == 3


def test_damage_in_an_object_store_is_found_and_repaired(s3: str) -> None:
    workspace = worlds.made(s3)
    worlds.log(workspace, workspace.start(), 20)
    flush(workspace)
    joined(workspace, worlds.NOON + 5 * worlds.HOUR)
    before = rows(workspace, "observations")
    (file,) = workspace.lake.files("observations")
    name = file.uri.removeprefix(f"{s3}/")
    data = bytearray(workspace.storage.read(name))
    data[len(data) // 2] ^= 4
    workspace.storage.replace(name, bytes(data))
    assert run("verify", s3)[0] == 2
    code, said = run("verify", s3, "--repair")
    assert code == 0, said
    assert "20 of 20 rows were restored from decisions and rewards" in said
    assert rows(workspace, "observations").equals(before)
    assert bytes(data) in [
        workspace.storage.read(f"events/observations/_quarantine/{kept}") for kept in quarantined(workspace)
    ]


def quarantined(workspace: Workspace) -> list[str]:
    return workspace.storage.names("events/observations/_quarantine")


def test_a_repair_survives_others_that_commit_at_the_same_time(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit that another process makes first is kept, and so is the next one of the library."""
    file = workspace.lake.files("rewards")[0]
    flip(file)
    other, actions, left = Workspace(workspace.url), repairing._actions, [9, 8]

    def late(*arguments: Any) -> Any:
        if left:
            worlds.log(other, other.serving(), 5, seed=left.pop(), at=worlds.NOON)
            flush(other)
        return actions(*arguments)

    monkeypatch.setattr(repairing, "_actions", late)
    repair(workspace)
    worlds.log(workspace, workspace.serving(), 5, seed=7, at=worlds.NOON)
    flush(workspace)
    compact(workspace.lake)
    found = set(rows(workspace, "rewards")["id"].str.split("-").list.get(1))
    assert {"7", "8", "9"} <= found
    assert verify(workspace).damage == []
