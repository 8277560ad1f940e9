"""Backups: consistent while everything runs, verified, incremental, and restored to a point in time."""

import threading
from pathlib import Path

import msgspec
import pytest
import worlds
from worlds import LATER, log

from potstill.clock import now
from potstill.events.join import join
from potstill.policy import Policy
from potstill.workspace import CorruptBackup, NoBackup, Workspace, WorkspaceExists, back_up, list_backups, restore


def joined(workspace: Workspace, seed: int, n: int = 60) -> None:
    """Log decisions with rewards, flush and join them, and publish a version."""
    log(workspace, workspace.start(), n, seed=seed)
    workspace.flusher().flush(now=LATER)
    rules = workspace.config.join
    join(workspace.lake, workspace.cuts, workspace.problem, aggregate=rules.aggregate, settle=60, now=LATER + seed)
    head = workspace.registry.head()
    assert head is not None
    policy = Policy.uniform(workspace.problem, version=workspace.registry.next_version(), seed=seed)
    workspace.registry.publish(policy, teacher=b"state", report=b"{}", expected=head.number)


def contents(workspace: Workspace) -> dict[str, object]:
    return {
        "serving": workspace.registry.policy().to_bytes(),
        "entries": [entry.number for entry in workspace.registry.entries()],
        **{
            table: sorted(workspace.lake.scan(table).select("id").collect()["id"].to_list())  # type: ignore[arg-type]
            for table in ("decisions", "rewards", "observations")
        },
    }


def test_a_restored_workspace_is_the_one_that_was_backed_up(place: str, tmp_path: Path) -> None:
    workspace = worlds.made(f"{place}/w")
    joined(workspace, 1)
    report = back_up(workspace, f"{place}/backups")
    before = contents(workspace)
    joined(workspace, 2)
    manifest = restore(f"{place}/backups", tmp_path / "restored")
    restored = Workspace(tmp_path / "restored")
    assert contents(restored) == before
    assert (manifest.entry, manifest.tables) == (report.entry, report.tables)
    joined(restored, 3)  # and it goes on
    assert restored.registry.head().latest == workspace.registry.head().latest  # type: ignore[union-attr]


def test_the_second_backup_copies_only_what_is_new_and_either_can_be_restored(tmp_path: Path) -> None:
    workspace = worlds.made(str(tmp_path / "w"))
    joined(workspace, 1)
    first = back_up(workspace, tmp_path / "b")
    at, before = now(), contents(workspace)
    assert back_up(workspace, tmp_path / "b").new_files == 0
    joined(workspace, 2)
    second = back_up(workspace, tmp_path / "b")
    assert 0 < second.new_files < second.files
    assert second.new_bytes < second.bytes
    assert list_backups(tmp_path / "b")[0].time == first.time
    restore(tmp_path / "b", tmp_path / "early", at=at)
    assert contents(Workspace(tmp_path / "early")) == before
    restore(tmp_path / "b", tmp_path / "late")
    assert contents(Workspace(tmp_path / "late")) == contents(workspace)


def test_a_backup_while_events_and_versions_come_is_consistent(tmp_path: Path) -> None:
    """Every cut that a version names is complete, and every observation has its decision."""
    workspace = worlds.made(str(tmp_path / "w"))
    joined(workspace, 1)
    ended = threading.Event()

    def go_on() -> None:
        seed = 2
        while not ended.is_set():
            joined(Workspace(tmp_path / "w"), seed, n=10)
            seed += 1

    busy = threading.Thread(target=go_on)
    busy.start()
    try:
        for _ in range(3):
            back_up(workspace, tmp_path / "b")
    finally:
        ended.set()
        busy.join()
    for i, manifest in enumerate(list_backups(tmp_path / "b")):
        restore(tmp_path / "b", tmp_path / f"r{i}", at=manifest.time)
        found = contents(Workspace(tmp_path / f"r{i}"))
        assert set(found["observations"]) <= set(found["decisions"])  # type: ignore[call-overload]
        assert set(found["rewards"]) <= set(workspace.lake.scan("rewards").collect()["id"])  # type: ignore[call-overload]
        assert Workspace(tmp_path / f"r{i}").registry.damage() == []


def test_damage_of_a_backup_is_noticed(tmp_path: Path) -> None:
    workspace = worlds.made(str(tmp_path / "w"))
    joined(workspace, 1)
    back_up(workspace, tmp_path / "b")
    largest = max((path for path in (tmp_path / "b/data").rglob("*") if path.is_file()), key=lambda p: p.stat().st_size)
    sound = largest.read_bytes()
    largest.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    with pytest.raises(CorruptBackup, match="its SHA-256 differs"):
        restore(tmp_path / "b", tmp_path / "r")
    with pytest.raises(FileNotFoundError):
        Workspace(tmp_path / "r")
    largest.unlink()
    with pytest.raises(CorruptBackup, match="is missing"):
        restore(tmp_path / "b", tmp_path / "r2")
    [manifest] = (tmp_path / "b/backups").iterdir()
    manifest.write_bytes(manifest.read_bytes().replace(b'"entry":', b'"entrz":'))
    with pytest.raises(CorruptBackup, match="delete it"):
        restore(tmp_path / "b", tmp_path / "r3")


def test_what_cannot_be_restored_is_said(tmp_path: Path) -> None:
    with pytest.raises(NoBackup, match="has no backup"):
        restore(tmp_path / "nothing", tmp_path / "r")
    workspace = worlds.made(str(tmp_path / "w"))
    back_up(workspace, tmp_path / "b")  # of an empty workspace
    with pytest.raises(NoBackup, match="from before 1970-01-01"):
        restore(tmp_path / "b", tmp_path / "r", at=5)
    with pytest.raises(WorkspaceExists, match="is not empty"):
        restore(tmp_path / "b", tmp_path / "w")
    restore(tmp_path / "b", tmp_path / "r")
    assert Workspace(tmp_path / "r").registry.head() is None


def test_events_that_are_not_flushed_are_named(tmp_path: Path) -> None:
    workspace = worlds.made(str(tmp_path / "w"))
    with workspace.event_log():
        report = back_up(workspace, tmp_path / "b")
    [waiting] = report.waiting
    assert waiting.host
    assert waiting.since <= now()
    assert msgspec.json.decode(msgspec.json.encode(report))["waiting"]
