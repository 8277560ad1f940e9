"""The events of a workspace, as a newcomer types it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.cli.format import duration, plural, size, timestamp
from potstill.events import LoggedDecision, LoggedReward
from potstill.workspace import Workspace, template
from potstill.workspace.template import log_example


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def make(place):
    return Workspace.create(place, template.PROBLEM.encode(), template.CONFIG.encode())


@pytest.fixture
def workspace(tmp_path):
    return make(tmp_path / "w")


def run(*arguments, **options):
    runner = CliRunner(env={"COLUMNS": "1000", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, [str(argument) for argument in arguments], **options)


def done(*arguments, **options):
    result = run(*arguments, **options)
    assert result.exit_code == 0, result.output
    return result.stdout


def figures(*arguments):
    return json.loads(done(*arguments, "--json"))


def shown(url):
    lines = (line.strip().split("  ", 1) for line in done("events", url).splitlines())
    return {name: text.strip() for name, text in lines}


def test_events_are_followed_from_the_log_to_the_lake(place):
    workspace = make(f"{place}/w")
    assert shown(workspace.url)["log"] == f"empty: all events are in the lake ({workspace.spool})"
    events = log_example(workspace, uploads=60)
    before = shown(workspace.url)
    assert before["log"].startswith("1 segment not in the lake yet, ")
    assert (before["decisions"], before["last flush"]) == ("0 in the lake", "never")
    moved = done("events", "flush", workspace.url)
    assert moved == f"moved 60 decisions and {events - 60} rewards in 1 segment from the log into the lake\n"
    after = shown(workspace.url)
    assert (after["decisions"], after["rewards"]) == ("60 in the lake", f"{events - 60} in the lake")
    assert after["last flush"].endswith("UTC")
    assert "last error" not in after


def test_show_is_what_is_meant_when_nothing_else_is_said(workspace):
    assert done("events", workspace.url) == done("events", "show", workspace.url)
    assert figures("events", workspace.url) == figures("events", "show", workspace.url)
    assert done("events", "--json", workspace.url) == done("events", workspace.url, "--json")
    for help_text in (run("events").output, done("events", "--help")):
        assert "compact" in help_text
        assert "vacuum" in help_text


def test_an_open_segment_is_said_to_be_left(workspace):
    with workspace.event_log() as log:
        log_example(workspace, uploads=3)
        log.append(LoggedReward(id="a", reward=0.5))
        assert "1 segment still in the log" in done("events", "flush", workspace.url)


def test_a_schema_that_does_not_fit_is_an_error_and_the_log_stays(workspace):
    log_example(workspace, uploads=5)
    done("events", "flush", workspace.url)
    (Path(workspace.url) / "problem.toml").write_text(
        template.PROBLEM.replace('type = "boolean"', 'type = "categorical"\nvalues = ["no", "yes"]')
    )
    changed = Workspace(workspace.url)
    context = {"bandwidth_kbps": 900, "connection": "4g", "hd_screen": "yes"}
    with changed.event_log() as log:
        log.append(LoggedDecision.of(changed.start().decide(context), context))
    result = run("events", "flush", workspace.url)
    assert result.exit_code == 1
    assert "stay in the log" in result.stderr
    assert "hd_screen" in result.stderr
    after = shown(workspace.url)
    assert after["log"].startswith("1 segment not in the lake yet")
    assert "hd_screen" in after["last error"]


def test_damage_is_reported_and_counted(workspace):
    log_example(workspace, uploads=5)
    (segment,) = workspace.spool.glob("*/*.log")
    segment.write_bytes(segment.read_bytes()[:-3])
    result = run("events", "flush", workspace.url)
    assert result.exit_code == 0
    assert "quarantine" in result.stderr
    assert shown(workspace.url)["quarantine"].startswith("1 file, ")


def test_compaction_makes_few_files_of_many_and_vacuum_deletes_the_rest(workspace):
    for _ in range(3):
        log_example(workspace, uploads=5)
        done("events", "flush", workspace.url)
    before = figures("events", workspace.url)["rows"]
    printed = done("events", "compact", workspace.url)
    assert "decisions: " in printed
    assert "→" in printed
    assert figures("events", workspace.url)["rows"] == before
    again = {one["table"]: one for one in figures("events", "compact", workspace.url)}
    assert again["decisions"]["files_before"] == again["decisions"]["files_after"] <= 2
    assert "decisions: 0 files would be deleted" in done("events", "vacuum", workspace.url, "--dry-run")
    tables = {one["table"] for one in figures("events", "vacuum", workspace.url)}
    assert tables == {"decisions", "rewards", "registry"}


@pytest.mark.parametrize("dry", [True, False])
def test_vacuum_names_what_it_deletes_in_the_registry_and_a_dry_run_what_it_would(workspace, dry):
    workspace.start()
    stray = "versions/0/0123456789abcdef.policy"
    workspace.registry.storage.create(stray, b"of a publisher that was killed")
    options = ["--dry-run"] if dry else []
    assert figures("events", "vacuum", workspace.url, *options)[-1] == {"table": "registry", "files": [stray]}
    assert (stray.rpartition("/")[2] in workspace.registry.storage.names("versions/0")) == dry
    if dry:
        printed = done("events", "vacuum", workspace.url, "--dry-run")
        assert "registry: 1 file of publications that did not take place would be deleted" in printed


def test_old_days_are_dropped_when_that_is_confirmed(workspace):
    log_example(workspace, uploads=20)
    done("events", "flush", workspace.url)
    assert run("events", "expire", workspace.url, "--older-than", "400d", input="n\n").exit_code == 1
    done("events", "expire", workspace.url, "--older-than", "400d", input="y\n")
    assert figures("events", workspace.url)["rows"]["decisions"] == 20
    printed = done("events", "expire", workspace.url, "--older-than", "400d", "--yes")
    assert "decisions: dropped 0 rows of days before" in printed


def test_an_empty_lake_needs_no_upkeep(workspace):
    assert "nothing to compact" in done("events", "compact", workspace.url)
    assert "nothing to delete" in done("events", "vacuum", workspace.url)
    assert "nothing to drop" in done("events", "expire", workspace.url, "--older-than", "1d", "--yes")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not a workspace"),
        (["compact", "nowhere"], "nowhere is not a workspace"),
        (["vacuum", "HERE", "--older-than", "soon"], "--older-than must look like '30s', '15m', '1h' or '7d'"),
        (["vacuum", "HERE", "--older-than", "5m"], "at least"),
        (["expire", "HERE", "--older-than", "1h"], "must exceed 61 minutes, within which rewards"),
    ],
)
def test_mistakes_are_named_in_one_line(workspace, arguments, message):
    result = run("events", *(workspace.url if argument == "HERE" else argument for argument in arguments))
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_times_and_sizes_in_words():
    assert timestamp(1_794_801_160_000_000) == "2026-11-16 03:52 UTC"
    assert [duration(seconds) for seconds in (0, 119, 120, 5400, 7200, 86400 * 10)] == [
        "0 seconds",
        "119 seconds",
        "2 minutes",
        "90 minutes",
        "2 hours",
        "10 days",
    ]
    assert [size(count) for count in (0, 999, 1000, 1_234_567, 5e9)] == [
        "0 bytes",
        "999 bytes",
        "1 KB",
        "1.23 MB",
        "5 GB",
    ]
    assert [plural(number, "file") for number in (0, 1, 1200)] == ["0 files", "1 file", "1,200 files"]
