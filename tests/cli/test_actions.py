"""`potstill actions`: what it prints, asks and refuses."""

import json

import pytest
import worlds
from typer.testing import CliRunner

from potstill.cli import app
from potstill.pipeline import run_update
from potstill.workspace import Workspace


@pytest.fixture
def place(tmp_path) -> str:
    workspace = worlds.made(str(tmp_path / "video"))
    worlds.log(workspace, workspace.start(), 100)
    run_update(workspace, now=worlds.LATER)
    return workspace.url


def run(*arguments: object, code: int = 0, given: str | None = None) -> str:
    result = CliRunner().invoke(app, ["actions", *map(str, arguments)], input=given, env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output


def test_actions_are_listed_added_retired_and_removed(place):
    listed = run(place)
    assert "smallest propensity" in listed
    assert listed == run("list", place)
    assert "version 2 serves; running services follow within seconds" in run("add", place, "4k", "--share", 0.3)
    assert "'360p' is retired" in run("retire", place, "360p", "--reason", "old", "--by", "ann")
    assert Workspace(place).registry.head().by == "ann"
    shown = json.loads(run(place, "--json"))
    assert [one["state"] for one in shown["actions"]] == ["retired", "chosen", "chosen", "new"]
    assert sum(one["observations"] for one in shown["actions"]) == 100
    assert [one["least"] for one in shown["actions"]] == pytest.approx([0, 0.1, 0.1, 0.1])
    again = json.loads(run("add", place, "4k", "--json"))
    assert (again["changed"], again["text"]) == (False, "'4k' is chosen already; nothing was changed")


def test_a_removal_says_how_many_observations_it_leaves_out_and_asks(place):
    count = next(one["observations"] for one in json.loads(run(place, "--json"))["actions"] if one["action"] == "720p")
    assert count > 10
    before = Workspace(place).storage.read("problem.toml")
    asked = run("remove", place, "720p", given="n\n", code=1)
    assert f"{count} observations of '720p' will be left out of learning and evaluation" in asked
    assert "confirm it with --yes" in run("remove", place, "720p", "--json", code=1)
    assert Workspace(place).storage.read("problem.toml") == before
    removed = run("remove", place, "720p", "--yes")
    assert f"{count} observations of it are left out from now on" in removed
    assert f"{count} observations of '720p', which is no action any more, are left out" in run(place)
    assert "nothing was changed" in run("remove", place, "720p")  # and nothing is asked


def test_nothing_is_asked_where_nothing_is_left_out(place):
    run("add", place, "4k")
    assert "'4k' is removed" in run("remove", place, "4k")


def test_refusals_are_one_line_with_the_way_out(place):
    said = run("retire", place, "36p", code=1)
    assert "did you mean '360p'?" in said
    assert said.count("\n") == 1
    assert "is not a workspace" in run("add", f"{place}-none", "4k", code=1)


def test_the_help_teaches():
    for command, words in (("add", "--share"), ("retire", "still teach"), ("remove", "retire it first")):
        shown = " ".join(run(command, "--help").split())
        assert words in shown
        assert f"Example: potstill actions {command} video" in shown
