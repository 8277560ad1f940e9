"""The service and its tokens, as a newcomer types it."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from service_process import PATIENCE, serving, until
from typer.testing import CliRunner

from potstill.cli import app
from potstill.service.tokens import FILE
from potstill.workspace import Workspace, template

PAGE = Path(__file__).parents[2] / "docs" / "service.md"
CONTEXT = {"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True}
DECIDE = "/v1/video-upload/decide"


@pytest.fixture
def place(tmp_path):
    return Workspace.create(tmp_path / "video", template.PROBLEM.encode(), template.CONFIG.encode()).url


def run(*arguments):
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, [str(argument) for argument in arguments])


def done(*arguments):
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments):
    result = run(*arguments)
    assert result.exit_code == 1, result.output
    return result.stderr


# ---- tokens


def test_a_token_is_shown_once(place):
    made = run("token", "create", place, "web", "--scope", "decide", "--scope", "reward")
    (token,) = made.stdout.split()
    assert re.fullmatch(r"pst_[\w-]{43}", token)
    assert "not shown again" in made.stderr
    listed, as_json = done("token", "list", place), done("token", "list", place, "--json")
    assert re.search(r"web +decide, reward +\d{4}-\d\d-\d\d \d\d:\d\d UTC", listed)
    assert [(kept["name"], kept["scopes"]) for kept in json.loads(as_json)["tokens"]] == [("web", ["decide", "reward"])]
    kept = json.loads((Workspace(place).storage.folder / FILE).read_text())["tokens"][0]
    for text in (listed, as_json):
        assert token not in text
        assert kept["sha256"] not in text


def test_without_scopes_a_token_may_do_all_but_administer(place):
    made = json.loads(done("token", "create", place, "web", "--json"))
    assert made["scopes"] == ["decide", "reward", "read"]
    assert made["token"].startswith("pst_")


def test_what_there_is_before_the_first_token_and_after_the_last(place):
    assert "no tokens: the service is open on loopback" in done("token", "list", place)
    assert json.loads(done("token", "list", place, "--json")) == {"open": True, "tokens": []}
    done("token", "create", place, "web")
    assert "revoked 'web'" in done("token", "revoke", place, "web")
    assert "all tokens are revoked" in done("token", "list", place)
    assert json.loads(done("token", "list", place, "--json")) == {"open": False, "tokens": []}


def test_a_file_for_several_workspaces(place, tmp_path):
    done("token", "create", place, "web", "--tokens", tmp_path / "shared.json")
    assert "web" in done("token", "list", place, "--tokens", tmp_path / "shared.json")
    assert "no tokens" in done("token", "list", place)


def test_mistakes_are_one_line_with_a_way_out(place, tmp_path):
    assert "has no token 'web'; its tokens: none" in refused("token", "revoke", place, "web")
    assert "scopes are decide, reward, read, admin, got 'write'" in refused(
        "token", "create", place, "x", "--scope", "write"
    )
    assert "is not a workspace" in refused("token", "create", tmp_path, "x")
    assert "is not a workspace" in refused("serve", tmp_path)
    said = refused("serve", place, "--host", "0.0.0.0")
    assert f"potstill token create {place} NAME" in said
    assert "--update-every must look like" in refused("serve", place, "--port", 0, "--update-every", "often")


@pytest.mark.parametrize(
    ("control", "message"),
    [
        ('{ action = "4k" }', "experiment.control: unknown action '4k' (str); the actions are 360p, 480p"),
        ("{ policy = 7 }", "experiment.control: "),
        ('{ rules = "rules.toml" }', "there is no file 'rules.toml' in the workspace"),
    ],
)
def test_an_experiment_that_makes_no_sense_is_one_line_and_nothing_is_started(place, control, message):
    config = Path(place) / "potstill.toml"
    config.write_text(f'[experiment]\nname = "hd"\ncontrol = {control}\n', encoding="utf-8")
    said = refused("serve", place, "--port", 0)
    assert said.startswith("potstill: ")
    assert len(said.splitlines()) == 1
    assert message in said


# ---- the service


def test_the_service_from_its_first_line_to_a_revoked_token(place, tmp_path):
    with serving(tmp_path / "out", place, port=0) as running:
        assert f"serves on http://127.0.0.1:{running.port}" in running.printed
        assert "video-upload: policy 0 (uniform: it has learnt nothing), mode online, open" in running.printed
        assert "Ctrl-C" in running.printed
        command = shlex.split(running.printed.partition("try:")[2].replace("\\\n", ""))
        assert command[0] == "curl"
        tried = subprocess.run(["curl", "-sS", *command[1:]], capture_output=True, timeout=PATIENCE, check=True)
        assert json.loads(tried.stdout)["propensity"] == 0.25

        token = done("token", "create", place, "web", "--scope", "decide").strip()
        until(lambda: running.ask("POST", DECIDE, {"context": CONTEXT})[0] == 401)
        status, reply = running.ask("POST", DECIDE, {"context": CONTEXT, "id": "x"}, token)
        assert (status, reply["id"]) == (200, "x")
        assert running.ask("POST", "/v1/video-upload/reward", {"id": "x", "reward": 1}, token)[0] == 403
        assert running.ask("GET", "/metrics", None, token)[0] == 403
        assert running.ask("GET", "/health")[0] == 200
        done("token", "revoke", place, "web")
        until(lambda: running.ask("POST", DECIDE, {"context": CONTEXT}, token)[0] == 401, seconds=5)
        assert running.stop() == 0
    assert running.errors == ""
    assert token not in running.printed + running.errors


def test_a_closed_service_says_so(place, tmp_path):
    token = done("token", "create", place, "web").strip()
    with serving(tmp_path / "out", place, "--host", "0.0.0.0") as running:
        assert "tokens needed" in running.printed
        assert '-H "Authorization: Bearer $POTSTILL_TOKEN"' in running.printed
        assert running.ask("GET", "/openapi.json")[0] == 401
        status, api = running.ask("GET", "/openapi.json", None, token)
        assert (status, api["paths"][DECIDE]["post"]["security"]) == (200, [{"token": ["decide"]}])


def test_a_workspace_is_opened_by_a_command_only(place):
    done("token", "create", place, "web")
    (Path(place) / FILE).unlink()
    assert "potstill token open" in refused("token", "list", place)
    assert "let every caller in?" in run("token", "open", place).output  # nobody says yes
    assert "potstill token open" in refused("token", "list", place)
    assert "until they are restarted" in done("token", "open", place, "--yes")
    assert "no tokens: the service is open" in done("token", "list", place)


def test_what_the_how_to_says_to_type_works(place, tmp_path, monkeypatch):
    """Its calls with curl, and its Python, one after another."""
    monkeypatch.chdir(tmp_path)
    page = PAGE.read_text(encoding="utf-8")
    calls = [call.replace("\\\n", "") for call in re.findall(r"^\$ (curl (?:.*\\\n)*.*)$", page, re.M)]
    programs = re.findall(r"^```py\n(.*?)^```", page, re.M | re.S)
    assert (len(calls), len(programs)) == (8, 2)
    with serving(tmp_path / "out", place) as running:
        for call in calls:
            command = shlex.split(call.replace(":8080", f":{running.port}"))
            subprocess.run([*command, "-sS", "--fail-with-body"], capture_output=True, timeout=PATIENCE, check=True)
        assert running.ask("POST", "/v1/video-upload/admin/mode", {"mode": "online"})[1]["mode"] == "online"
        for program in programs:
            exec(program.replace(":8080", f":{running.port}"), {})
        assert running.stop() == 0
    decided = Workspace(place).lake.scan("decisions").select("id", "mode").collect()
    assert decided.height == 4
    assert decided["mode"].to_list().count("apprentice") == 1
