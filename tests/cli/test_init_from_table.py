"""`potstill init --from`, as a newcomer types it."""

import json

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.workspace import Workspace


@pytest.fixture(autouse=True)
def _own_state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng, rows = np.random.default_rng(0), 2_000
    age, p = rng.integers(18, 80, rows), rng.uniform(0.3, 0.7, rows)
    big = rng.random(rows) < p
    place = tmp_path_factory.mktemp("table") / "decisions.csv"
    pl.DataFrame(
        {
            "order": [f"o{i:05d}" for i in range(rows)],
            "age": age,
            "offer": np.where(big, "big", "small"),
            "p": np.where(big, p, 1 - p),
            "profit": ((age > 40) == big) + 0.3 * rng.normal(size=rows),
        }
    ).write_csv(place)
    return str(place)


def run(*arguments):
    runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})
    return runner.invoke(app, [str(argument) for argument in arguments])


NAMES = ("--action", "offer", "--reward", "profit", "--teacher", "linear-ts")


def test_a_table_becomes_a_workspace_that_has_learnt(tmp_path, table):
    place = tmp_path / "My Shop"
    result = run("init", place, "--from", table, *NAMES, "--propensity", "p")
    assert result.exit_code == 0, result.output
    assert "an identifier?" in result.output
    assert "It would have been better." in result.output
    assert "learnt from the first 1,600 rows, compared on the last 400" in result.output
    workspace = Workspace(place)
    assert workspace.problem.name == "my-shop"
    assert [feature.name for feature in workspace.problem.context] == ["age"]
    policy = workspace.registry.policy()
    assert (policy.version, policy.metadata.lineage.observations) == (1, 2_000)
    assert policy.probabilities({"age": 70})[workspace.problem.actions.index("big")] > 0.9
    assert "<html" in (place / "first-look.html").read_text()
    assert "# order: nearly every row differs: an identifier?" in (place / "problem.toml").read_text()
    assert 'type = "linear-ts"' in (place / "potstill.toml").read_text()
    again = run("init", place, "--from", table, *NAMES, "--propensity", "p")
    assert again.exit_code == 1
    assert "is a workspace already; to add history to it: potstill warm-start" in again.output


def test_without_propensities_and_as_json(tmp_path, table):
    result = run("init", tmp_path / "w", "--from", table, *NAMES, "--without", "p", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["first_look"]["propensities"]["model"] in ("shares", "logistic", "trees")
    assert found["first_look"]["evaluation"]["target"]["trust"]["grade"] == "caution"
    assert found["update"]["outcome"] == "published"
    assert [column["name"] for column in found["columns"] if column["feature"]] == ["age"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--action", "nope"), "no column 'nope'; name the right one with --action"),
        (("--reward", "order"), "column 'order' holds no numbers"),
        (("--reward", "offer"), "column 'offer' cannot be both --action and --reward"),
        (("--propensity", "p", "--density", "p"), "not both"),
        (("--teacher", "linear"), "teacher"),
        (("--example",), "remove --example, --problem and --items"),
        (("--without", "age,p"), "no column is a feature"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_created(tmp_path, table, options, message):
    result = run("init", tmp_path / "w", "--from", table, "--action", "offer", "--reward", "profit", *options)
    assert result.exit_code == 1
    assert message in result.output
    assert not (tmp_path / "w").exists()


def test_options_of_tables_need_a_table(tmp_path):
    result = run("init", tmp_path / "w", "--reward", "profit")
    assert result.exit_code == 1
    assert "--reward is about a table of past decisions; name the table with --from" in result.output


def test_evaluate_estimates_propensities(table):
    options = ("--action", "offer", "--reward", "profit", "--policy", "action:big", "--estimators", "dr")
    result = run("evaluate", table, *options, "--propensity", "estimated", "--context", "age")
    assert result.exit_code == 0, result.output
    assert "propensities are estimated by" in result.output
    assert "Take it with caution." in result.output
    assert "name these columns with --context" in run("evaluate", table, *options, "--propensity", "estimated").output


def test_what_the_lake_cannot_hold_is_left_out(tmp_path, table):
    frame = pl.read_csv(table).with_columns(pl.col("age").shuffle(seed=0).alias("AGE"))
    frame.write_csv(tmp_path / "t.csv")
    result = run("init", tmp_path / "w", "--from", tmp_path / "t.csv", *NAMES, "--propensity", "p")
    assert result.exit_code == 0, result.output
    assert "called as 'age' but for upper and lower case" in result.output
    assert [feature.name for feature in Workspace(tmp_path / "w").problem.context] == ["age"]


def test_a_failure_leaves_nothing(tmp_path, table, monkeypatch):
    result = run(
        "init", tmp_path / "w", "--from", table, "--action", "p", "--reward", "profit", "--teacher", "linear-ts"
    )
    assert result.exit_code == 1
    assert "LinearTS does not support Continuous" in result.output
    assert not (tmp_path / "w").exists()

    def fails(*_, **__):
        raise ValueError("the disk is full")

    monkeypatch.setattr("potstill.pipeline.run_update", fails)
    result = run("init", tmp_path / "w", "--from", table, *NAMES, "--propensity", "p")
    assert result.exit_code == 1
    assert "the disk is full" in result.output
    assert not (tmp_path / "w").exists()
