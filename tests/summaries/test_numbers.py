"""Summaries of a problem whose action is a number: tenths of the scale, objectives, densities and agreement."""

import numpy as np
import pytest
from worlds import CONFIG, HOUR, LATER, NOON, made

from potstill.events import LoggedDecision, LoggedReward
from potstill.pipeline import run_update
from potstill.pipeline.apprentice import read_apprentice
from potstill.pipeline.feature_report import read_features
from potstill.pipeline.health_report import read_health
from potstill.summaries import mean_of, off_policy, read_summary

NEVER = CONFIG.replace(b"min_observations = 50", b"min_observations = 1000000").replace(
    b"linear-ts", b"continuous-linear-ts"
)
PRICES = b"""
name = "prices"
[[context]]
type = "boolean"
name = "new"
[actions]
type = "continuous"
name = "price"
low = 1.0
high = 9.0
%s
[reward]
window = "1h"
objective = "price * sold"
"""


def logged(workspace, n=300, eligible=None):
    policy, events = workspace.serving(), []
    for at in range(n):
        context = {"new": at % 2 == 0}
        decision = policy.decide(context, id=f"d{at}", eligible=eligible if at % 3 == 0 else None)
        events.append(LoggedDecision.of(decision, context, time=NOON + at * 1000))
        events.append(LoggedReward(id=f"d{at}", reward=float(at % 2), time=NOON + at * 1000))
    with workspace.event_log() as opened:
        opened.append(*events)
    run_update(workspace, now=LATER + HOUR)
    return workspace.lake.scan("observations").collect()


def test_the_uniform_policy_is_its_own_uniform_target(tmp_path):
    """Every weight is 1 where a uniform density was drawn from, also within an interval."""
    workspace = made(str(tmp_path), NEVER, PRICES % b"")
    rows = logged(workspace, eligible=[2.0, 6.0])
    cell = read_summary(workspace.storage, "observations").total
    values = rows["action"].to_numpy() * rows["reward"].to_numpy()
    assert cell.uniform.w == pytest.approx(len(rows))
    assert mean_of(cell.joined).value == pytest.approx(values.mean())
    assert off_policy(cell.uniform, cell.exact).value == pytest.approx(values.mean())
    assert cell.always.keys() <= set(read_summary(workspace.storage, "decisions").total.actions)


def test_actions_are_counted_by_tenths_of_the_scale(tmp_path):
    workspace = made(str(tmp_path), NEVER, PRICES % b'scale = "log"')
    rows = logged(workspace)
    actions = read_summary(workspace.storage, "decisions").total.actions
    places = np.floor(10 * np.log(rows["action"].to_numpy()) / np.log(9)).clip(0, 9).astype(int)
    assert sorted(actions.values()) == sorted(np.bincount(places)[np.bincount(places) > 0].tolist())
    assert sum(actions.values()) == 300
    cell = read_summary(workspace.storage, "observations").total
    # The density is constant within a bin, and the target within the scale: they differ within bins only.
    assert cell.uniform.w == pytest.approx(300, rel=0.02)


def test_a_number_agrees_within_a_twentieth_of_the_scale(tmp_path):
    workspace = made(str(tmp_path), NEVER, PRICES % b"")
    events = []
    for at, would in enumerate((5.0, 5.39, 5.41, 4.61, 1.0, 9.0)):
        decision = LoggedDecision(
            id=f"d{at}", context={"new": True}, action=5.0, propensity=0.125, policy=0, mode="apprentice", would=would,
            time=NOON + at,
        )  # fmt: skip
        events += [decision, LoggedReward(id=f"d{at}", reward=1.0, time=NOON + at)]
    with workspace.event_log() as opened:
        opened.append(*events)
    run_update(workspace, now=LATER)
    cell = read_summary(workspace.storage, "decisions").total
    assert (cell.compared, cell.agreed) == (6, 3)
    found = read_apprentice(workspace, 0)
    assert (found.rows, found.agreement.value, found.expected) == (6, 0.5, None)
    assert found.reward.value == pytest.approx(5.0)


def test_reports_take_numbers(tmp_path):
    workspace = made(str(tmp_path), NEVER, PRICES % b"")
    logged(workspace)
    features = read_features(workspace, workspace.serving(), 0)
    assert [row.name for row in features.features] == ["new"]
    health = read_health(workspace, 0)
    assert health.clean
    [version] = health.versions
    assert version.entropy == pytest.approx(1.0)
    assert (version.rows, version.actions, version.broken) == (300, [], False)  # too few in each part of the scale


def test_numbers_that_are_lost_break_the_sample_ratio(tmp_path):
    """Every second number in one part of the scale is lost; z is about −6 of 1,600 decisions."""
    workspace = made(str(tmp_path), NEVER, PRICES % b"")
    policy, events = workspace.serving(), []
    for at in range(1600):
        decision = policy.decide({"new": True}, id=f"d{at}")
        if decision.action > 5.0 or at % 2:
            events.append(LoggedDecision.of(decision, {"new": True}, time=NOON + at))
    with workspace.event_log() as opened:
        opened.append(*events)
    run_update(workspace, now=LATER)
    [version] = read_health(workspace, 0).versions
    assert version.broken
    assert float(min(version.actions, key=lambda one: one.z).action.split(" to ")[0]) < 5.0
