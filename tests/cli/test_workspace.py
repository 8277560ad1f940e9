"""A workspace and its versions, as a newcomer types it."""

import json
import re
from pathlib import Path

import pytest
from examples import random_layers
from typer.testing import CliRunner

import potstill as ps
from potstill.cli import app
from potstill.events.wal import Spool
from potstill.workspace import Workspace, template


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def workspace(tmp_path):
    """Version 2 serves, 3 was refused."""
    made = Workspace.create(tmp_path / "w", template.PROBLEM.encode(), template.CONFIG.encode())
    made.start()
    publish(made, fidelity={"kl_mean": 0.0123})
    publish(made, reasons=("held-out KL 0.9 is above 0.5",), fidelity={"kl_mean": 0.9})
    return made


def publish(workspace, reasons=(), fidelity=None):
    head = workspace.registry.head()
    version = head.latest + 1
    layers = random_layers(workspace.problem, seed=version)
    policy = ps.Policy.build(workspace.problem, layers, version=version, parent=version - 1)
    policy = policy.with_fidelity(fidelity) if fidelity else policy
    workspace.registry.publish(policy, teacher=None, report=b"{}", reasons=reasons, expected=head.number)


def run(*arguments, **options):
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, [str(argument) for argument in arguments], **options)


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


# init


def test_init_makes_a_workspace_and_says_what_to_do_next(place):
    printed = done("init", f"{place}/video")
    workspace = Workspace(f"{place}/video")
    assert workspace.problem.name == "video-upload"
    assert "created a workspace for 'video-upload'" in printed
    assert f"potstill update {place}/video" in printed


def test_the_python_that_init_prints_works(tmp_path):
    printed = done("init", tmp_path / "video")
    code = "\n".join(line.removeprefix("       ") for line in printed.splitlines() if line.startswith("       "))
    names = {}
    exec(code, names)
    assert names["decision"].propensity == 0.25
    assert Spool(Workspace(tmp_path / "video").spool).pending().segments == 1


def test_init_takes_a_problem_from_a_file_as_it_is_written(tmp_path):
    text = template.PROBLEM.replace("video-upload", "mine") + "# a remark\n"
    (tmp_path / "mine.toml").write_text(text)
    done("init", tmp_path / "w", "--problem", tmp_path / "mine.toml")
    assert (tmp_path / "w" / "problem.toml").read_text() == text


def test_init_takes_a_problem_from_a_policy(tmp_path, problem):
    ps.Policy.uniform(problem).save(tmp_path / "video.policy")
    figures = json.loads(done("init", tmp_path / "w", "--problem", tmp_path / "video.policy", "--json"))
    assert figures == {"workspace": str(tmp_path / "w"), "problem": problem.name, "hash": problem.hash, "events": 0}
    assert Workspace(tmp_path / "w").problem == problem


def test_the_example_has_events_to_update_on(tmp_path):
    printed = done("init", tmp_path / "w", "--example")
    events = int(re.search(r"logged ([\d,]+) events", printed)[1].replace(",", ""))
    assert events > 3_000
    assert Spool(Workspace(tmp_path / "w").spool).pending().segments == 1


# versions


def test_versions_are_listed_with_what_became_of_them(workspace):
    rows = [re.split(r"\s*│\s*", line)[1:-1] for line in done("versions", workspace.url).splitlines() if "│" in line]
    assert [row[:2] for row in rows] == [["0", "served before"], ["1", "serving"], ["2", "refused"]]
    assert [row[3:] for row in rows] == [
        ["", "0", "", ""],
        ["0", "0", "0.012", ""],
        ["1", "0", "0.9", "held-out KL 0.9 is above 0.5"],
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", row[2]) for row in rows)


def test_versions_as_json(workspace):
    figures = json.loads(done("versions", workspace.url, "--json"))
    assert (figures["serving"], figures["latest"], figures["damage"]) == (1, 2, [])
    assert [version["state"] for version in figures["versions"]] == ["served before", "serving", "refused"]


def test_only_the_latest_versions_are_listed_unless_all_are_asked_for(workspace):
    for _ in range(20):
        publish(workspace, reasons=("no",))
    printed = done("versions", workspace.url)
    assert printed.count("refused") == 20
    assert "the latest 20" in printed
    assert "version 1 serves" in printed
    assert done("versions", workspace.url, "--all").count("refused") == 21
    assert json.loads(done("versions", workspace.url, "--json"))["serving"] == 1


def test_an_empty_workspace_says_how_to_get_a_version(tmp_path):
    done("init", tmp_path / "w")
    assert f"potstill update {tmp_path}/w makes the first" in done("versions", tmp_path / "w")
    assert json.loads(done("versions", tmp_path / "w", "--json"))["versions"] == []


def test_a_version_of_another_problem_is_marked(workspace):
    path = Path(workspace.url) / "problem.toml"
    path.write_text(template.PROBLEM.replace('"1080p"]', '"1080p", "4k"]'))
    assert done("versions", workspace.url).count(", other problem") == 3


# rollback and promote


def test_rollback_and_promote_move_what_serves(workspace):
    printed = done("rollback", workspace.url, "--note", "worse on 2g", "--by", "ann")
    assert printed.startswith("version 0 serves now\nversion 0 is pinned by ann since ")
    head = workspace.registry.head()
    assert (head.serving, head.note, head.by) == (0, "worse on 2g", "ann")
    assert "version 0 serves: worse on 2g\nversion 0 is pinned by ann" in done("versions", workspace.url)
    printed = done("promote", workspace.url, 2, "--note", "looked at it")
    assert printed == "version 2 serves now\nit had been refused: held-out KL 0.9 is above 0.5\n"
    assert workspace.registry.policy().version == 2
    assert json.loads(done("rollback", workspace.url, "--to", 1, "--json"))["serving"] == 1


def test_a_damaged_registry_is_shown_and_rolled_back(workspace):
    (last,) = (Path(workspace.url) / "registry" / "entries").glob("*3.json")
    last.write_bytes(last.read_bytes()[:-9])
    result = run("versions", workspace.url)
    assert result.exit_code == 0
    assert "0000000003.json: truncated or altered" in result.stderr
    assert "version 1 serves" in result.stdout
    assert done("rollback", workspace.url).startswith("version 1 serves now\nversion 1 is pinned by ")
    assert workspace.registry.policy().version == 1


def test_pins_and_pauses_are_made_shown_and_released(workspace):
    assert "version 1 is pinned by ann" in done("pin", workspace.url, "--by", "ann", "--reason", "holidays")
    assert "version 0 is pinned by ann" in done("pin", workspace.url, "--version", 0, "--by", "ann")
    assert "updates are paused by bob" in done("pause", workspace.url, "--by", "bob", "--reason", "late rewards")
    shown = done("versions", workspace.url)
    assert "version 0 is pinned by ann" in shown
    assert "updates are paused by bob" in shown
    status = done("status", workspace.url)
    assert "pinned     by ann since" in status
    assert "late rewards; no update is made until potstill resume" in status
    assert json.loads(done("status", workspace.url, "--json"))["paused"]["by"] == "bob"
    assert "is pinned" not in done("unpin", workspace.url)
    assert done("resume", workspace.url) == "version 0 serves now\n"
    entry = json.loads(done("pause", workspace.url, "--json"))
    assert entry["by"] == entry["paused"]["by"] != ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["init", "HERE"], "is a workspace already"),
        (["init", "HERE/new", "--problem", "nowhere.toml"], "nowhere.toml"),
        (["init", "HERE/new", "--problem", "HERE/potstill.toml"], "problem.toml: "),
        (["init", "HERE/new", "--problem", "HERE"], "HERE"),
        (["init", "HERE/new", "--problem", "x.toml", "--example"], "remove --problem"),
        (["versions", "HERE/nowhere"], "is not a workspace"),
        (["versions", "HERE/problem.toml"], "Not a directory"),
        (["versions", "gopher://x"], "gopher://x"),
        (["rollback", "HERE", "--to", "9"], "has no version 9; potstill versions lists those it has"),
        (["promote", "HERE", "7"], "has no version 7"),
    ],
)
def test_mistakes_are_named_in_one_line(workspace, arguments, message):
    result = run(*(argument.replace("HERE", workspace.url) for argument in arguments))
    assert result.exit_code == 1
    assert message.replace("HERE", workspace.url) in result.stderr
    assert result.stderr.startswith("potstill: ")
    assert result.stderr.count("\n") == 1
    assert not (Path(workspace.url) / "new").exists()


def test_a_store_that_is_not_there_is_named_in_one_line(s3):
    result = run("init", s3.replace("s3://bucket", "s3://no-such-bucket"))
    assert result.exit_code == 1
    assert "no-such-bucket" in result.stderr
    assert result.stderr.count("\n") == 1


# with a broken problem or configuration


@pytest.mark.parametrize("broken", ["problem.toml", "potstill.toml", "no problem"])
def test_an_operator_can_pause_and_roll_back_while_a_file_is_broken(workspace, broken):
    if broken == "no problem":
        (Path(workspace.url) / "problem.toml").unlink()
    else:
        (Path(workspace.url) / broken).write_text("name = [[[")
    assert "updates are paused by bob" in done("pause", workspace.url, "--by", "bob")
    assert "version 0 is pinned by ann" in done("rollback", workspace.url, "--by", "ann")
    assert "version 0 serves" in done("versions", workspace.url)
    assert "other problem" not in done("versions", workspace.url)
    assert "version 1 is pinned by ann" in done("pin", workspace.url, "--version", 1, "--by", "ann")
    assert "updates are paused by bob" in done("unpin", workspace.url)
    assert done("resume", workspace.url) == "version 1 serves now\n"
    assert done("promote", workspace.url, 2).startswith("version 2 serves now\n")
    result = run("versions", workspace.url)
    if broken == "potstill.toml":
        assert result.stderr == ""
    else:
        assert "problem.toml" in result.stderr
        assert "until that is corrected, the serving version's problem holds here" in result.stderr
    result = run("status", workspace.url)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    if broken != "no problem":
        assert "potstill versions, pause, pin and rollback work nevertheless" in result.stderr


def test_without_a_problem_only_versions_of_the_serving_ones_problem_serve(workspace):
    path = Path(workspace.url) / "problem.toml"
    path.write_text(template.PROBLEM.replace('"1080p"]', '"1080p", "4k"]'))
    Workspace(workspace.url).start()
    path.write_text("broken")
    result = run("rollback", workspace.url)
    assert result.exit_code == 1
    assert "version 1 cannot serve: it decides another problem than version 3, which serves" in result.stderr
    assert done("versions", workspace.url).count(", other problem") == 3
    assert "version 3 is pinned" in done("pin", workspace.url)


def test_nothing_is_released_where_nothing_is_held(workspace):
    assert done("unpin", workspace.url) == "no version is pinned: nothing to release; version 1 serves\n"
    assert done("resume", workspace.url) == "updates are not paused: nothing to release; version 1 serves\n"
    done("pin", workspace.url, "--by", "ann")
    printed = done("resume", workspace.url)
    assert printed.startswith("updates are not paused: nothing to release; version 1 serves\nversion 1 is pinned by")
    assert done("unpin", workspace.url) == "version 1 serves now\n"


def test_status_refuses_a_student_that_an_update_would_refuse(workspace):
    path = Path(workspace.url) / "potstill.toml"
    path.write_text(template.CONFIG.replace("# hidden = [100, 100]", "hidden = [0]"))
    result = run("status", workspace.url)
    assert result.exit_code == 1
    assert "potstill.toml: Student: hidden must be whole numbers above 0" in result.stderr
    path.write_text(template.CONFIG.replace("# hidden = [100, 100]", "hiden = [10]"))
    assert "did you mean 'hidden'" in run("status", workspace.url).stderr
