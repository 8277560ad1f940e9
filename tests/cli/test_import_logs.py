"""`potstill import dsjson`, as somebody types it who leaves Personalizer or Vowpal Wabbit."""

import json

import polars as pl
import pytest
from dsjson_examples import DRINKS, event, log, write
from typer.testing import CliRunner

from potstill.cli import app
from potstill.workspace import Workspace


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run(*arguments):
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, ["import", "dsjson", *map(str, arguments), "--teacher", "linear-ts"])


def test_logs_become_a_workspace_that_has_learnt(tmp_path):
    lines = [*log(600), '{"cut', event(0, 0, -1.0, 0.5), event(700, 1, -1.0, 0.5, _skipLearn=True)]
    lines[5]["pdrop"] = 0.5
    lines[6]["c"]["_multi"] = lines[6]["c"]["_multi"][:2]
    lines[6].update(_label_Action=1, _labelIndex=0, a=[1, 2])
    path, place = write(tmp_path / "log.json", lines), tmp_path / "Coffee Bar"
    result = run(path, "--into", place)
    assert result.exit_code == 0, result.output
    assert "603 lines of 1 file: 600 events\n" in result.output
    assert f"left out: 1 line, damaged or truncated: not JSON ({path}:601)" in result.output
    assert "3 actions, named by their _tag; not all were offered in 1 event" in result.output
    assert "On these 120 decisions, the new policy would have earned" in result.output
    workspace = Workspace(place)
    assert workspace.problem.name == "coffee-bar"
    policy = workspace.registry.policy()
    assert (policy.version, policy.metadata.lineage.observations) == (1, 600)
    best = policy.probabilities({"time": "Evening", "user.age": 30})
    assert best[workspace.problem.actions.index("Tea")] > 0.9
    rows = workspace.lake.scan("observations").sort("time").collect()
    assert set(rows["id"]) == {f"e{i}" for i in range(600)}
    assert rows["weight"].sum() == 601
    assert rows.filter(pl.col("eligible").is_not_null())["eligible"].to_list() == [[*DRINKS[:2]]]
    assert f"as inferred from {path}." in (place / "problem.toml").read_text()
    assert "is a workspace already; name a new folder with --into" in run(path, "--into", place).output


def test_a_short_log_is_imported_without_a_comparison(tmp_path):
    result = run(write(tmp_path / "a.json", log(20)), write(tmp_path / "b.json", log(30)), "--into", tmp_path / "w")
    assert result.exit_code == 0, result.output
    assert "not known: there are 30 rows, and a comparison needs at least 50" in result.output
    assert "20 lines, the event was logged before" in result.output
    assert "all rows are imported; no version serves yet: 30 new observations" in result.output
    assert len(Workspace(tmp_path / "w").lake.scan("observations").collect()) == 30


def test_events_that_do_not_fit_are_counted_and_left_out(tmp_path):
    lines = log(80)
    lines[3].update(_label_cost=-1e300, _original_label_cost=-1e300)
    for number, line in enumerate(lines):
        line["c"]["FromUrl"].append({"title": f"the title of {number} " * (1_000 if number in (7, 8) else 1)})
    result = run(write(tmp_path / "a.json", lines), "--into", tmp_path / "w", "--json")
    assert result.exit_code == 0, result.output
    unfit = json.loads(result.stdout)["unfit"]
    assert sorted(unfit.values()) == [1, 2]
    assert {reason.split(" must ")[0] for reason in unfit} == {"_reward", "title"}
    assert "left out: 2 events, title must be" in result.stderr
    assert len(Workspace(tmp_path / "w").lake.scan("observations").collect()) == 77


def test_as_json(tmp_path):
    result = run(
        write(tmp_path / "a.json", [*log(80), "nonsense"]), "--into", tmp_path / "w", "--json", "--name", "bar"
    )
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["problem"], found["logs"]["events"], found["logs"]["lines"]) == ("bar", 80, 81)
    ((reason, left),) = found["logs"]["left_out"].items()
    assert (reason, left) == ("damaged or truncated: not JSON", {"lines": 1, "places": [f"{tmp_path / 'a.json'}:81"]})
    assert [column["name"] for column in found["columns"]] == ["time", "user.age"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--names", "name"), "--names must be one of tag, id, features, index, got 'name'"),
        (("--context", "nope"), "there is no column 'nope'"),
        (("--without", "time,user.age"), "no column is a feature"),
        (("--teacher", "linear"), "teacher"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_created(tmp_path, options, message):
    path = write(tmp_path / "log.json", log(80))
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    result = runner.invoke(app, ["import", "dsjson", path, "--into", str(tmp_path / "w"), *options])
    assert result.exit_code == 1
    assert message in result.output
    assert not (tmp_path / "w").exists()


def test_a_log_with_one_reward_is_refused_by_its_name(tmp_path):
    path = write(tmp_path / "log.json", [event(i, i % 3, -1.0, 0.5) for i in range(9)])
    result = run(path, "--into", tmp_path / "w")
    assert result.exit_code == 1
    assert f"{path}: column '_reward' is always 1; with one reward there is nothing to learn" in result.output


def test_several_slots_are_counted_and_nothing_else_is_there(tmp_path):
    lines = [{"Version": "1", "c": {"_multi": [{}], "_slots": [{}]}, "_outcomes": [{}]}] * 4
    result = run(write(tmp_path / "ccb.json", lines), "--into", tmp_path / "w")
    assert result.exit_code == 1
    assert "no line is an event that can be imported: 4 × several slots" in result.output
