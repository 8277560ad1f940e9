"""Settings compared on the log: learnt from the past, judged on what followed, and said of the winner what is fair."""

import itertools
import json
import re
import shlex
from pathlib import Path

import msgspec
import numpy as np
import pytest
import worlds
from typer.testing import CliRunner

from potstill.cli import app
from potstill.cli.tune import TEACHERS, _verdict, _with_interval
from potstill.distill.still import Still
from potstill.errors import InvalidLog
from potstill.evaluate import LakeLog, evaluate
from potstill.pipeline.candidates import Candidate, make_candidates
from potstill.pipeline.resume import configured
from potstill.pipeline.tune import IntervalEstimate, _bounds, _observations, run_tuning
from potstill.pipeline.update import run_update
from potstill.teachers import available
from potstill.workspace import InvalidConfig

ROWS = 1200
HASTY = "student.learning_rate=[1e-9]"  # a student that learns nothing: its policy stays uniform


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    made = worlds.made(str(tmp_path_factory.mktemp("tune") / "video"))
    worlds.log(made, made.start(), ROWS)
    run_update(made, now=worlds.LATER)
    return made


@pytest.fixture(scope="module")
def tried(workspace):
    return make_candidates(workspace, [], [HASTY])


@pytest.fixture(scope="module")
def found(workspace, tried):
    return run_tuning(workspace, tried, parts=3)


def test_combinations_of_teachers_and_values(workspace):
    found = make_candidates(workspace, ["linear-ts", "neural-linear-ts"], ["student.hidden=[[8], [16]]"])
    names = ["present", "linear-ts hidden=[8]", "neural-linear-ts hidden=[8]", "neural-linear-ts hidden=[16]"]
    assert [one.name for one in found] == names  # linear-ts with 16 units is what there is
    assert found[1].student == {"hidden": [8], "steps": 200}
    assert found[2].teacher == {"type": "neural-linear-ts"}


@pytest.mark.parametrize(
    ("teachers", "alternatives", "refusal"),
    [
        (["cubic-ts"], [], "candidate 'cubic-ts': unknown teacher 'cubic-ts'; must be one of"),
        ([], ["hidden=[1]"], "--set must look like student.hidden=[[50], [100, 100]]"),
        ([], ["log.rotate_bytes=[1]"], "--set must look like"),
        ([], ["student.hidden=8"], "the values must be in brackets"),
        ([], ["student.hidden=[8"], "is not a TOML array"),
        ([], ["student.steps=[0]"], "steps must be"),
        ([], ["teacher.colour=['red']"], "teacher 'linear-ts': unknown key 'colour'; must be one of: precision"),
        ([], ["student.hiden=[[8]]"], "unknown key 'hiden' (did you mean 'hidden'"),
    ],
)
def test_settings_that_do_not_exist_are_refused(workspace, teachers, alternatives, refusal):
    with pytest.raises(InvalidConfig, match=re.escape(refusal)):
        make_candidates(workspace, teachers, alternatives)


def test_a_student_that_learns_nothing_loses(found):
    assert [one.candidate.name for one in found.tried] == ["present", "learning_rate=1e-9"]
    assert found.difference is None
    lost = found.tried[1].difference
    assert lost.high < 0
    assert found.tried[1].kl > found.tried[0].kl


def test_what_is_said_of_the_winner_comes_from_the_last_part_alone(workspace, found):
    """Done again by hand: learn from the first two thirds, and evaluate on the last."""
    teacher, student = configured(workspace)
    still = Still(workspace.problem, teacher, student=student)
    first, second, third, end = _bounds(LakeLog(workspace), 3)
    still.update(_observations(LakeLog(workspace, since=first, until=second)))
    still.update(_observations(LakeLog(workspace, since=second, until=third)))
    last = evaluate(LakeLog(workspace, since=third, until=end), still.policy, estimators=("dr",))
    assert found.earned.value == pytest.approx(last.estimate.value, rel=1e-12)
    assert (found.earned.low, found.earned.high) == pytest.approx(last.estimate.intervals["likelihood"].ends, rel=1e-12)


def test_parts_follow_one_another_and_hold_every_decision_once(workspace):
    bounds = _bounds(LakeLog(workspace), 4)
    parts = [LakeLog(workspace, since=a, until=b).times for a, b in itertools.pairwise(bounds)]
    assert [len(part) for part in parts] == [ROWS // 4] * 4
    np.testing.assert_array_equal(np.concatenate(parts), LakeLog(workspace).times)


def test_equal_results_for_any_number_of_jobs(workspace, tried, found):
    again = run_tuning(workspace, tried, parts=3, jobs=2)
    said = [
        msgspec.structs.replace(one, tried=[msgspec.structs.replace(each, seconds=0.0) for each in one.tried])
        for one in (found, again)
    ]
    assert said[0] == said[1]


def test_too_little_to_tell(workspace, tried):
    with pytest.raises(InvalidLog, match=re.escape("1,200 decisions with exact propensities, too few for 13 parts")):
        run_tuning(workspace, tried, parts=13)
    with pytest.raises(ValueError, match="parts must be at least 3"):
        run_tuning(workspace, tried, parts=2)
    with pytest.raises(ValueError, match="unknown estimator 'best'; there are replay"):
        run_tuning(workspace, tried, estimator="best")


def test_the_command_says_who_has_won_and_what_to_write(workspace):
    run = CliRunner().invoke(app, ["tune", workspace.url, "--set", HASTY, "--parts", "3", "--jobs", "1"])
    assert run.exit_code == 0, run.output
    assert "The present settings are the best" in run.output
    assert "learning_rate=1e-9" in run.output


@pytest.mark.parametrize(
    ("value", "half", "shown"),
    [
        (0.0295, 0.0035, "+0.0295 (+0.0260 to +0.0330)"),
        (-0.0295, 0.0035, "−0.0295 (−0.0330 to −0.0260)"),
        (-0.00001234, 0.00000567, "−0.0000123 (−0.0000180 to −0.0000067)"),
        (-0.00001, 0.0035, "+0.0000 (−0.0035 to +0.0035)"),
        (-1e-18, 1e-19, "0"),
        (0.0, 0.0, "0"),
        (0.5, np.inf, "+0.5000 (no interval)"),
    ],
)
def test_differences_have_as_many_digits_as_their_interval_deserves(value, half, shown):
    assert _with_interval(IntervalEstimate(value=value, low=value - half, high=value + half), "+") == shown


def test_rounding_makes_nothing_worse(found):
    same = IntervalEstimate(value=-2e-18, low=-3e-18, high=-1e-18)
    assert "it is no different: 0 against" in _verdict(msgspec.structs.replace(found, difference=same))[0]


def test_the_how_to_compares_every_combination(workspace, monkeypatch):
    text = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text(encoding="utf-8")
    every, some = [shlex.split(line, comments=True)[1:] for line in re.findall(r"^\$ (potstill tune .*)$", text, re.M)]
    assert every == ["tune", "video"]
    assert set(TEACHERS) <= set(available())
    monkeypatch.chdir(Path(workspace.url).parent)
    run = CliRunner().invoke(app, [*some, "--parts", "3", "--json"])
    assert run.exit_code == 0, run.output
    names = [one["candidate"]["name"] for one in json.loads(run.stdout)["tried"]]
    assert sorted(names) == ["hidden=[100,100]", "hidden=[8]", "present"]


def test_the_command_refuses_in_one_line(workspace):
    run = CliRunner().invoke(app, ["tune", workspace.url, "--set", "student.hidden=8"])
    assert run.exit_code == 1
    assert "must be in brackets" in run.output


def test_candidates_are_checked_before_anything_is_read(tmp_path):
    with pytest.raises(InvalidConfig, match="candidate 'x'"):
        Candidate(name="x", teacher={"type": "linear-ts", "precision": -1.0}, student={}).check(
            worlds.made(str(tmp_path))
        )
