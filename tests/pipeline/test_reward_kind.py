"""A workspace whose rewards are 0 and 1, from its log to a policy that is made again to the bit."""

import msgspec
import pytest
from worlds import LATER, PROBLEM, SETTINGS, log, made, rate

import potstill as ps
from potstill.events import LoggedReward
from potstill.events.validate import InvalidEvent
from potstill.pipeline.check import check_learning
from potstill.pipeline.reproduce import reproduce_version
from potstill.pipeline.update import run_update
from potstill.teachers import LogisticTS
from potstill.workspace import InvalidConfig

LOGISTIC = SETTINGS.replace(b"[update]", b"[update]\nstates_kept = 1") + b'[teacher]\ntype = "logistic-ts"\n'
YES_NO = PROBLEM + b'kind = "yes/no"\n'


def test_a_workspace_learns_rates_and_every_version_comes_out_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr("potstill.events.lake.observations.observation_chunks.__defaults__", (60,))  # rows of a chunk
    workspace = made(str(tmp_path), LOGISTIC, YES_NO)
    uniform = workspace.start()
    for seed in range(3):
        log(workspace, workspace.serving(), 300, seed=seed, yes_no=True)
        report = run_update(workspace, now=LATER)
        assert (report.outcome, report.observations) == ("published", 300)
    assert rate(workspace.serving()) > rate(uniform) + 0.15
    found = reproduce_version(workspace, 3)
    assert (found.identical, found.replayed) == (True, [1, 2])
    still = ps.Still(workspace.problem, LogisticTS())
    still.recall(workspace.serving(), workspace.registry.teacher(3))
    assert (len(still.state.memory.actions), int(still.state.learnt)) == (0, 900)


def test_other_rewards_do_not_reach_the_log(tmp_path):
    workspace = made(str(tmp_path), LOGISTIC, YES_NO)
    with workspace.event_log() as opened, pytest.raises(InvalidEvent, match=r"reward must be 0 or 1, got 0\.6"):
        opened.append(LoggedReward(id="upload-1", reward=0.6))


def test_a_teacher_of_other_rewards_is_refused_before_an_update(tmp_path):
    workspace = made(str(tmp_path), LOGISTIC, PROBLEM + b'kind = "number"\n')
    message = r"potstill.toml: \[teacher\]: LogisticTS learns from rewards of kind yes/no, and the problem states"
    with pytest.raises(InvalidConfig, match=message):
        check_learning(workspace)
    assert msgspec.to_builtins(workspace.problem.reward)["kind"] == "number"
