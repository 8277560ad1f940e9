"""Commands on a policy file, as a newcomer types them."""

import json
import re

import numpy as np
import pytest
from examples import random_layers
from typer.testing import CliRunner

import potstill as ps
from potstill.cli import app
from potstill.pipeline import run_update
from potstill.workspace import Workspace

CONTEXT = '{"bandwidth_kbps": 900, "connection": "4g", "hd_screen": true}'


@pytest.fixture
def file(problem, tmp_path):
    path = tmp_path / "video.policy"
    ps.Policy.build(problem, random_layers(problem), version=3).save(path)
    return path


def run(*arguments, **options):
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, [str(argument) for argument in arguments], **options)


def test_decide_shows_bars_and_the_decision(file):
    result = run("decide", file, CONTEXT, "--id", "upload-123")
    decision = ps.Policy.load(file).decide(json.loads(CONTEXT), id="upload-123")
    assert result.exit_code == 0, result.output
    assert f"{decision.action} with probability {decision.propensity:.4f}, by policy version 3" in result.stdout
    assert len(re.findall(r"^ (360p|480p|720p|1080p) +0\.\d{4}  [█▏]", result.stdout, re.M)) == 4


def test_decide_as_json_and_from_standard_input(file):
    options = ("--id", "a", "--eligible", "360p", "--eligible", "720p", "--floor", "0.1", "--json")
    printed = run("decide", file, "-", *options, input=CONTEXT)
    figures = json.loads(printed.stdout)
    decision = ps.Policy.load(file).decide(json.loads(CONTEXT), id="a", eligible=["360p", "720p"], floor=0.1)
    assert (figures["action"], figures["propensity"]) == (decision.action, decision.propensity)
    assert figures["eligible"] == ["360p", "720p"]
    assert sum(figures["probabilities"].values()) == pytest.approx(1)


def test_explain_names_the_features(file):
    result = run("explain", file, CONTEXT)
    assert result.exit_code == 0, result.output
    assert "mass moved" in result.stdout
    effects = json.loads(run("explain", file, CONTEXT, "--json").stdout)["effects"]
    assert {effect["feature"] for effect in effects} == {"bandwidth_kbps", "connection", "hd_screen"}
    assert effects == sorted(effects, key=lambda effect: -round(effect["moved"], 3))


def test_explain_tells_features_apart_where_probabilities_saturate(problem, tmp_path):
    layers = random_layers(problem)
    layers[-1] = layers[-1]._replace(weight=100 * layers[-1].weight)
    ps.Policy.build(problem, layers, version=1).save(tmp_path / "sure.policy")
    found = json.loads(run("explain", tmp_path / "sure.policy", CONTEXT, "--json").stdout)
    p = np.sort(list(found["probabilities"].values()))
    assert p[-1] > 0.999
    assert found["log_odds"] == pytest.approx(np.log(p[-1] / p[-2]), rel=1e-5)
    assert found["rewards"] is None  # a file has no teacher
    assert all(np.isfinite(effect["log_odds"]) for effect in found["effects"])
    shown = run("explain", tmp_path / "sure.policy", CONTEXT).stdout
    assert f"log-odds of {found['best']} over {found['runner_up']}" in shown
    assert re.search(r"\de-\d\d", shown)  # small probabilities by their size


def test_versions_of_a_workspace(problem, file, tmp_path):
    from potstill.workspace import template

    made = Workspace.create(tmp_path / "w", template.PROBLEM.encode(), template.CONFIG.encode())
    made.start()
    assert "version 0" in run("show", tmp_path / "w", "--version", "0").stdout
    assert "has no version 7" in run("explain", tmp_path / "w", CONTEXT, "--version", "7").output
    assert "--version is for a workspace's folder" in run("decide", file, CONTEXT, "--version", "1").output


def test_explain_shows_the_rewards_that_the_serving_teacher_expects(tmp_path):
    from potstill.workspace import log_example, template

    config = template.config_text("linear-ts")
    made = Workspace.create(tmp_path / "w", template.PROBLEM.encode(), config.encode())
    log_example(made, uploads=300)
    run_update(made)
    found = json.loads(run("explain", tmp_path / "w", CONTEXT, "--json").stdout)
    assert list(found["rewards"]) == list(found["probabilities"])
    assert all(low < mean < high for mean, low, high in found["rewards"].values())
    assert "expected reward" in run("explain", tmp_path / "w", CONTEXT).stdout
    assert json.loads(run("explain", tmp_path / "w", CONTEXT, "--version", "0", "--json").stdout)["rewards"] is None


def test_show_says_what_the_file_is_and_gives_a_context_that_works(file):
    printed = run("show", file).stdout
    assert "video-upload, version 3" in printed
    example = printed.split("example", 1)[1].strip()
    assert run("decide", file, example).exit_code == 0
    assert json.loads(run("show", file, "--json").stdout)["version"] == 3


@pytest.mark.parametrize(
    ("to", "written"), [("c", "video_upload.c"), ("js", "video_upload.js"), ("onnx", "video_upload.onnx")]
)
def test_export(file, tmp_path, to, written):
    result = run("export", file, "--to", to, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / written).stat().st_size > 0
    assert str(tmp_path / "out" / written) in result.stdout


def test_status_says_which_runtime_decides(monkeypatch):
    monkeypatch.setenv("POTSTILL_RUNTIME", "numpy")
    assert re.search(r"^decisions +numpy", run("status").stdout, re.M)
    figures = json.loads(run("status", "--json").stdout)
    assert (figures["version"], figures["runtime"]) == (ps.__version__, "numpy")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["decide", "FILE", "{}"], "feature 'bandwidth_kbps' is missing"),
        (["decide", "FILE", "nonsense"], "the context must be a JSON object"),
        (["decide", "FILE", "[1]"], "the context must be a JSON object"),
        (["decide", "FILE", CONTEXT, "--eligible", "8k"], "unknown action '8k'"),
        (["decide", "FILE", CONTEXT, "--floor", "0.9"], "floor must be a number from 0 to 1/4"),
        (["decide", "nowhere.policy", CONTEXT], "nowhere.policy: there is no such file; name a policy file or a work"),
        (["show", "FOLDER"], "is not a workspace: it has no problem.toml"),
        (["export", "FOLDER", "--to", "c"], "is not a workspace: it has no problem.toml"),
        (["explain", "FILE", '{"speed": 1}'], "is missing"),
        (["export", "FILE", "--to", "cobol"], "cannot export to 'cobol'; the targets are c, js, onnx"),
    ],
)
def test_mistakes_are_named_in_one_line(file, arguments, message):
    places = {"FILE": file, "FOLDER": file.parent}
    result = run(*(places.get(a, a) for a in arguments))
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.startswith("potstill: ")
    assert result.stderr.count("\n") == 1


def test_a_workspace_stands_for_what_serves_there(tmp_path):
    assert run("init", tmp_path / "video").exit_code == 0
    assert "no version serves yet" in run("show", tmp_path / "video").stderr
    Workspace(tmp_path / "video").start()
    assert "version 0" in run("show", tmp_path / "video").stdout
    assert run("export", tmp_path / "video", "--to", "js", "--out", tmp_path / "js").exit_code == 0


def test_a_damaged_file_is_refused(file):
    file.write_bytes(file.read_bytes()[:-5])
    result = run("show", file)
    assert result.exit_code == 1
    assert "truncated" in result.stderr
