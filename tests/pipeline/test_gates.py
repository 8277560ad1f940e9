"""Gates: what keeps a policy from serving, and the off-policy comparison that one of them asks for."""

import msgspec
import numpy as np
import pytest
import worlds

import potstill as ps
from potstill.cli.update_terminal import _lines
from potstill.evaluate.diagnostics import Trust
from potstill.events.join.cuts import last_cut
from potstill.pipeline.gates import Comparison, compare, objections
from potstill.pipeline.update import run_update
from potstill.policy import Layer
from potstill.workspace import UpdateConfig

ROWS = 2000


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A workspace after its first update, and the report."""
    made = worlds.made(str(tmp_path_factory.mktemp("gates") / "video"))
    worlds.log(made, made.start(), ROWS, rewarded=1.0)
    return made, run_update(made, now=worlds.LATER)


def always(problem, action):
    """A policy that nearly always takes one action."""
    bias = np.where(np.array(problem.actions.names) == action, 6.0, 0.0).astype(np.float32)
    return ps.Policy.build(problem, [Layer(np.zeros((problem.width, 3), np.float32), bias)], version=9, seed=0)


def compared(low, high, grade="good"):
    return Comparison(
        against=3,
        rows=100,
        value=1.0,
        difference=(low + high) / 2,
        low=low,
        high=high,
        level=0.95,
        trust=Trust(grade, "Because."),
    )


def test_the_comparison_is_right_on_a_log_of_uniform_decisions(learnt):
    """The truth of this world is known: the difference lies within three standard errors (false alarms: 0.3 %)."""
    workspace, _ = learnt
    bad, uniform = always(workspace.problem, "360p"), workspace.registry.policy(0)
    found = compare(workspace, bad, uniform, 0, last_cut(workspace.lake))
    truth = worlds.rate(bad, ROWS) - worlds.rate(uniform, ROWS)
    error = (found.high - found.low) / 3.92
    assert found.rows == ROWS
    assert abs(found.difference - truth) < 3 * error + 0.01  # the contexts of the truth are others
    assert error < 0.02


def test_the_comparison_reads_as_in_other_places(learnt):
    workspace, report = learnt
    doubted = msgspec.structs.replace(report, compared=compared(-0.2, 0.1, grade="caution"))
    assert _lines(doubted, workspace.problem.actions)["by the log"] == (
        "−0.05 per decision (95 % interval −0.2 to +0.1, from 100 decisions that it learnt from) against version 3; "
        "because"
    )


def test_an_update_reports_what_its_policy_would_have_earned(learnt):
    workspace, report = learnt
    assert report.outcome == "published"
    assert report.compared.low > 0  # better than uniform, and surely so
    assert report.compared.against == 0
    assert compare(workspace, workspace.serving(), workspace.registry.policy(0), 0, report.cut) == report.compared


def test_a_policy_is_refused_if_by_the_log_it_is_worse(learnt):
    workspace, report = learnt
    bad = always(workspace.problem, "360p")
    found = compare(workspace, bad, workspace.serving(), 0, report.cut)
    reasons = objections(bad, report.still, UpdateConfig(), found)
    assert reasons == [f"by the log it earns less than version 1: {found.in_words}"]


@pytest.mark.parametrize(
    ("found", "max_loss", "refusal"),
    [
        (None, None, None),
        (compared(-0.2, 0.1), None, None),
        (compared(-0.2, -0.1), None, "by the log it earns less than version 3: −0.15 per decision (95 % interval −0.2"),
        (compared(-0.2, -0.1, "no"), None, None),
        (compared(-0.2, 0.1), 0.3, None),
        (compared(-0.2, 0.1), 0.1, "it may earn less than version 3 by more than update.max_loss = 0.1: −0.05 per"),
        (compared(0.1, 0.2), 0.0, None),
        (None, 0.1, "update.max_loss = 0.1 is set, and no logged decision can tell"),
        (compared(0.1, 0.2, "no"), 0.1, "the log cannot tell: Because."),
    ],
)
def test_what_the_log_says_is_weighed_as_configured(learnt, found, max_loss, refusal):
    _, report = learnt
    policy = always(worlds_problem(learnt), "360p")
    reasons = objections(policy, report.still, UpdateConfig(max_loss=max_loss), found)
    assert len(reasons) == (refusal is not None)
    assert refusal is None or refusal in reasons[0]


def worlds_problem(learnt):
    return learnt[0].problem


def test_a_strict_workspace_serves_on_until_the_log_is_sure(tmp_path):
    made = worlds.made(str(tmp_path / "video"), worlds.CONFIG + b"max_loss = 0.0\n")
    worlds.log(made, made.start(), 60)
    report = run_update(made, now=worlds.LATER)
    assert report.outcome == "refused"
    assert made.serving().version == 0
    assert "max_loss" in report.reasons[0]
