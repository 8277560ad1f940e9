"""How the experiment of a workspace stands: whether a service would follow it, and why not."""

import pytest
from experiment_examples import CONFIG, START, workspace

from potstill.workspace import experiment_status


def stands(tmp_path, config=CONFIG, now=START):
    return experiment_status(workspace(tmp_path / "w", config=config), now)


def test_without_an_experiment_there_is_nothing_to_say(tmp_path):
    assert stands(tmp_path, config="") is None


def test_it_runs_from_its_start_on(tmp_path):
    made = workspace(tmp_path / "w")
    assert experiment_status(made, START).in_words == "running"
    assert experiment_status(made, START - 1).in_words == "not started: it starts at 2026-11-16 00:00 UTC"


@pytest.mark.parametrize(
    ("control", "why"),
    [
        ('{ action = "4k" }', "experiment.control: unknown action '4k'"),
        ('{ rules = "none.toml" }', "experiment.control: there is no file 'none.toml'"),
        ("{ policy = 3 }", "experiment.control: "),
    ],
)
def test_what_a_service_would_refuse_is_refused_before_the_start_too(tmp_path, control, why):
    found = stands(tmp_path, CONFIG.replace('{ action = "360p" }', control), START - 1)
    assert (found.name, found.state) == ("hd-first", "refused")
    assert found.in_words.startswith(f"refused: {why}")


def test_the_first_version_may_be_control_before_a_service_has_published_it(tmp_path):
    assert stands(tmp_path, CONFIG.replace('{ action = "360p" }', "{ policy = 0 }")).state == "running"
