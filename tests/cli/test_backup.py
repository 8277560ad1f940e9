"""Backups, forgetting, and the logs of machines, as a newcomer types it."""

import json

import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.events import LoggedDecision
from potstill.workspace import Workspace, template

CONTEXT = {"bandwidth_kbps": 900.0, "connection": "4g", "hd_screen": True}


@pytest.fixture
def workspace(tmp_path):
    return Workspace.create(tmp_path / "w", template.PROBLEM.encode(), template.CONFIG.encode())


def run(*arguments, **options):
    runner = CliRunner(env={"COLUMNS": "1000", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, [str(argument) for argument in arguments], **options)


def done(*arguments, **options):
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result.stdout


def figures(*arguments):
    return json.loads(done(*arguments, "--json"))


def decided(workspace, unit):
    decision = workspace.start().decide(CONTEXT, id=f"of {unit}")
    with workspace.event_log() as log:
        log.append(LoggedDecision.of(decision, CONTEXT, unit=unit))


def test_a_workspace_is_backed_up_listed_and_restored(workspace, tmp_path):
    decided(workspace, "ann")
    assert "were copied and read back" in done("backup", workspace.url, tmp_path / "b")
    assert figures("backup", workspace.url, tmp_path / "b")["new_files"] == 0
    assert "video-upload, entry 1 of the registry" in done("restore", tmp_path / "b", "--list")
    assert len(figures("restore", tmp_path / "b", "--list")) == 2
    assert "next: potstill status" in done("restore", tmp_path / "b", tmp_path / "r")
    assert "1 pending" in done("status", tmp_path / "r")
    assert figures("restore", tmp_path / "b", tmp_path / "r2", "--at", "2100-01-01")["tables"]["decisions"] == 1
    for arguments, said in (
        ((tmp_path / "b", tmp_path / "r"), "is not empty"),
        ((tmp_path / "b",), "state where to restore to"),
        ((tmp_path / "b", tmp_path / "r3", "--at", "1999-12-31"), "has no backup from before 1999-12-31"),
        ((tmp_path / "nothing", tmp_path / "r3"), "has no backup"),
    ):
        result = run("restore", *arguments)
        assert (result.exit_code, said in result.stderr) == (1, True), result.stderr
    assert "no backup yet" in done("restore", tmp_path / "nothing", "--list")


def test_a_unit_is_forgotten_after_a_confirmation(workspace):
    for unit in ("ann", "bob"):
        decided(workspace, unit)
    assert run("forget", workspace.url, "--unit", "ann", input="n\n").exit_code == 1
    shown = done("forget", workspace.url, "--unit", "ann", input="y\n")
    assert "erased 1 decisions, 0 rewards, 0 observations; 1 segment of the log deleted" in shown
    assert "backups made before still hold these events" in shown
    found = figures("forget", workspace.url, "--unit", "bob", "--yes")
    assert found["rows"] == {"decisions": 1, "rewards": 0, "observations": 0}
    assert figures("forget", workspace.url, "--unit", "nobody", "--yes")["rows"]["decisions"] == 0


def test_logs_are_listed_and_declared_gone(workspace):
    assert "no log yet" in done("events", "logs", workspace.url)
    with workspace.event_log():
        [mark] = figures("events", "logs", workspace.url)
        assert "open; everything before" in done("events", "logs", workspace.url)
        assert "1 open log" in done("status", workspace.url)
        shown = done("events", "logs", workspace.url, "--gone", mark["log"][:6], "--reason", "disk lost", "--by", "ann")
        assert "declared gone by ann" in shown
        assert "disk lost" in shown
        result = run("events", "logs", workspace.url, "--gone", "nothing")
        assert (result.exit_code, "names 0 logs" in result.stderr) == (1, True)
    workspace.flusher().flush()
    assert "closed at" in done("events", "logs", workspace.url)
