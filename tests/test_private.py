"""Contexts, ids and units are personal data: what holds them is for its owner alone, for any umask."""

import os
import stat
from pathlib import Path

import pytest
import worlds
from service_examples import flushed, publish

from potstill.client.device_store import FolderLock, PolicyStore
from potstill.client.queue import Queue, Row
from potstill.events import LoggedDecision, LoggedReward
from potstill.events.lake import write_files
from potstill.events.wal import Spool
from potstill.service.snapshot import write_mode
from potstill.workspace import Workspace


@pytest.fixture
def _open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_to_others(folder: Path) -> list[str]:
    """What others can reach in a folder, for which they need every folder on the way."""
    found = []
    for path in folder.iterdir():
        if mode(path) & 0o077:
            found.append(str(path))
        if path.is_dir() and mode(path) & 0o011:
            found += open_to_others(path)
    return found


@pytest.mark.usefixtures("_open_umask")
def test_a_workspace_is_private_also_in_a_folder_that_is_not(tmp_path):
    (tmp_path / "video").mkdir()
    workspace = worlds.made(str(tmp_path / "video"))
    decision = LoggedDecision(
        id="a", context={"bandwidth_kbps": 1.0, "connection": "4g"}, action="360p", propensity=0.5, policy=0
    )
    with workspace.event_log() as log:
        log.append(decision, LoggedReward(id="a", reward=0.5))
        (writer,) = Spool(workspace.spool).writers()
        (segment,) = (workspace.spool / writer).glob("*.open")
        assert mode(segment) == 0o600
        assert mode(segment.parent) == 0o700
    lake = flushed(workspace)
    write_files(lake, "rewards", lake.scan("rewards").collect())
    publish(workspace)
    write_mode(workspace.storage, workspace.config.serve, "apprentice")
    workspace.cuts.create("1.json", b"{}")
    Spool(workspace.spool).quarantine(tmp_path / "video" / "mode.json")
    assert open_to_others(tmp_path / "video") == []
    assert [mode(tmp_path / "video" / "events" / table) for table in ("decisions", "rewards")] == [0o700] * 2


@pytest.mark.usefixtures("_open_umask")
def test_a_device_is_private(tmp_path, problem):
    FolderLock(tmp_path / "device").release()
    queue = Queue(tmp_path / "device" / "queue.db", limit=10)
    queue.append(Row("decision", "a", b"{}"))
    assert {mode(path) for path in (tmp_path / "device").iterdir()} == {0o600}  # SQLite's files too
    queue.close()
    (tmp_path / "device").chmod(0o755)
    store = PolicyStore(tmp_path / "device" / "policy", worlds.made(str(tmp_path / "video")).problem.name, None)
    store.replace(publish(Workspace(tmp_path / "video")).to_bytes())
    assert open_to_others(tmp_path / "device") == []


def test_what_exists_keeps_its_permissions(tmp_path):
    workspace = worlds.made(str(tmp_path / "video"))
    (tmp_path / "video").chmod(0o755)
    publish(workspace)
    assert mode(tmp_path / "video") == 0o755
