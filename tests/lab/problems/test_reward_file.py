"""Rewards by class and action, from a file."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from potstill.cli import app
from potstill.errors import LabError
from potstill.lab.problems.reward_file import read_rewards
from potstill.lab.problems.scenarios import OwnTable, own_scenario

GOOD = "class,eat,abstain\nedible,5,0\npoisonous,5|-35,0\n"


@pytest.fixture
def mushrooms(tmp_path):
    path = tmp_path / "mushrooms.csv"
    path.write_text("size,kind\n" + "\n".join(f"{i},{'edible' if i % 2 else 'poisonous'}" for i in range(40)))
    return path


def written(tmp_path, text):
    path = tmp_path / "rewards.csv"
    path.write_text(text)
    return path


def test_cells_are_numbers_or_equally_likely_ones(tmp_path):
    assert read_rewards(written(tmp_path, GOOD)) == {
        "edible": {"eat": [5.0], "abstain": [0.0]},
        "poisonous": {"eat": [5.0, -35.0], "abstain": [0.0]},
    }


def test_a_table_earns_them(tmp_path, mushrooms):
    own = OwnTable(label="kind", rewards=str(written(tmp_path, GOOD)))
    one = own_scenario(mushrooms, own)
    environment = one.environment()
    assert one.problem.actions.labels == ("eat", "abstain")
    means = environment.means({"row": np.array([0, 1])})
    np.testing.assert_allclose(means, [[-15, 0], [5, 0]])
    assert one.options == ("--label", "kind", "--rewards", own.rewards)


def test_other_rewards_are_another_problem(tmp_path, mushrooms):
    own = OwnTable(label="kind", rewards=str(written(tmp_path, GOOD)))
    one = own_scenario(mushrooms, own).problem.hash
    other = tmp_path / "other.csv"
    other.write_text(GOOD.replace("-35", "-36"))
    assert own_scenario(mushrooms, OwnTable(label="kind", rewards=str(other))).problem.hash != one
    assert own_scenario(mushrooms, OwnTable(label="kind")).problem.hash != one


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class,eat\nedible,5\n", "a column for each of two or more actions; the columns are class, eat"),
        ("class,eat,abstain\nedible,5,\npoisonous,1,0", "reward of 'abstain' on class 'edible' must be .*got nothing"),
        ("class,eat,abstain\nedible,much,0\npoisonous,1,0", "reward of 'eat' on class 'edible' must be .*got 'much'"),
        ("class,eat,abstain\nedible,1,0\nedible,2,0", "class 'edible' has two rows"),
        ("class,eat,abstain\n,1,0\nedible,2,0", "row 0 names no class"),
    ],
)
def test_bad_files_are_refused(tmp_path, text, said):
    with pytest.raises(LabError, match=said):
        read_rewards(written(tmp_path, text))


def test_the_command_line_takes_them(tmp_path, mushrooms):
    path = written(tmp_path, GOOD)
    start = ["lab", "run", "--problem", str(mushrooms), "--jobs", "1", "--trials", "1", "--algorithms", "uniform"]
    label = ["--label", "kind", "--rewards", str(path)]
    done = CliRunner().invoke(app, [*start, *label, "--batch", "25", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    (trial,) = (tmp_path / "out").glob("mushrooms.csv/potstill/uniform/0000.json")
    assert json.loads(trial.read_text())["decisions"] == [25, 15]
    for options, said in (
        (["--target", "size", "--rewards", str(path)], "is for a class; name its column with --label"),
        (["--label", "kind", "--rewards", "no.csv"], "no.csv: there is no such file"),
        (["--label", "size", "--rewards", str(path)], "rewards must name each class once"),
    ):
        refused = CliRunner().invoke(app, [*start, *options, "--out", str(tmp_path / "other")])
        assert refused.exit_code == 1
        assert said in " ".join(refused.output.split())
