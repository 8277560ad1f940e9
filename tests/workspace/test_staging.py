"""A new workspace is there whole, or not at all."""

import signal
import subprocess
import sys

import pytest

from potstill.workspace import CONFIG, PROBLEM, Workspace, WorkspaceExists, recover, staging, template


def make(place, config=template.CONFIG):
    with staging(str(place)) as staged:
        Workspace.create(staged, template.PROBLEM.encode(), config.encode()).event_log().close()


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_it_is_moved_to_its_place(tmp_path):
    make(tmp_path / "new")
    (tmp_path / "old").mkdir()
    (tmp_path / "old/decisions.csv").write_text("a")
    (tmp_path / "old" / CONFIG).write_text(template.CONFIG + "# mine\n")
    make(tmp_path / "old")
    assert names(tmp_path / "new") == ["events", CONFIG, PROBLEM]
    assert names(tmp_path / "old") == ["decisions.csv", "events", CONFIG, PROBLEM]
    assert (tmp_path / "old" / CONFIG).read_text().endswith("# mine\n")
    with pytest.raises(WorkspaceExists, match="is a workspace already"):
        make(tmp_path / "new")


def test_an_error_leaves_what_was_there(tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "old/decisions.csv").write_text("a")
    for place in ("new", "old"):
        with pytest.raises(ValueError, match="invalid"):
            make(tmp_path / place, template.CONFIG + "\n[invalid]\n")
    assert not (tmp_path / "new").exists()
    assert names(tmp_path / "old") == ["decisions.csv"]


def test_files_of_others_are_not_replaced(tmp_path):
    (tmp_path / "w/events").mkdir(parents=True)
    with pytest.raises(WorkspaceExists, match="has 'events', which a workspace has too"):
        make(tmp_path / "w")
    assert names(tmp_path / "w") == ["events"]


def test_two_at_once(tmp_path):
    with staging(str(tmp_path / "w")) as staged:
        Workspace.create(staged, template.PROBLEM.encode(), template.CONFIG.encode())
        with pytest.raises(WorkspaceExists, match="another process makes a workspace here"):
            make(tmp_path / "w")
    assert Workspace(tmp_path / "w").problem


def killed(place, before):
    """A process that is killed while it makes a workspace, by the first call of a function of `os`."""
    code = f"""
import os, signal, pathlib
from potstill.workspace import Workspace, staging, template
kill = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
with staging({str(place)!r}) as staged:
    Workspace.create(staged, template.PROBLEM.encode(), template.CONFIG.encode())
    pathlib.Path.{before} = kill
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL


def test_a_process_that_is_killed_while_it_makes_one(tmp_path):
    place = tmp_path / "w"
    killed(place, "rename")
    assert PROBLEM not in names(place)
    recover(str(place))
    assert PROBLEM not in names(place)
    make(place)
    assert names(place) == ["events", CONFIG, PROBLEM]


def test_a_process_that_is_killed_while_it_moves_one(tmp_path):
    place = tmp_path / "w"
    killed(place, "replace")
    assert PROBLEM not in names(place)
    recover(str(place))
    assert set(names(place)) >= {CONFIG, PROBLEM}
    assert Workspace(place).problem
    killed(tmp_path / "x", "replace")
    with pytest.raises(WorkspaceExists, match="is a workspace already"):
        make(tmp_path / "x")
    assert Workspace(tmp_path / "x").problem
