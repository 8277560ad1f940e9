"""Reports that an update stores: apprentice, features and health, beside hand calculations on the rows."""

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner
from worlds import CONFIG, HOUR, LATER, NOON, contexts, log, made
from worlds import reward as mean

import potstill as ps
from potstill.cli import app
from potstill.events import LoggedDecision, LoggedReward
from potstill.keys import Key
from potstill.pipeline import run_update
from potstill.pipeline.apprentice import read_apprentice
from potstill.pipeline.feature_report import read_features
from potstill.pipeline.health_report import read_health
from potstill.pipeline.status import read_status
from potstill.summaries import ApprenticeReport, FeatureReport, HealthReport, read_report

NEVER = CONFIG.replace(b"min_observations = 50", b"min_observations = 1000000")
WIDE = b"""
name = "wide"
[[context]]
type = "numeric"
name = "useful"
low = 0
high = 1
[[context]]
type = "numeric"
name = "noise"
low = 0
high = 1
[[context]]
type = "numeric"
name = "drifts"
low = 0
high = 10
[[context]]
type = "boolean"
name = "constant"
[[context]]
type = "numeric"
name = "missing"
low = 0
high = 1
missing = "flag"
[[context]]
type = "categorical"
name = "colour"
values = ["red", "green"]
[[context]]
type = "hashed"
name = "user"
size = 8
[actions]
type = "discrete"
names = ["a", "b"]
[reward]
window = "1h"
"""


@pytest.fixture
def workspace(tmp_path):
    return made(str(tmp_path), NEVER)


def apprentice(workspace, n, *, agree, own=None, reward=lambda at, action: 1.0):
    """Decisions of mode apprentice; `agree` says whether the policy would have done the same."""
    policy, events = workspace.serving(), []
    for at, context in enumerate(contexts(n)):
        action = "360p"
        p = float(policy.probabilities(context)[0])
        decision = LoggedDecision(
            id=f"d{at}", context=context, action=action, propensity=p, policy=0, mode="apprentice",
            would=action if agree(at) else "720p", own_propensity=own, time=NOON + at * 1000,
        )  # fmt: skip
        events += [decision, LoggedReward(id=f"d{at}", reward=reward(at, action), time=NOON + at * 1000)]
    with workspace.event_log() as opened:
        opened.append(*events)
    run_update(workspace, now=LATER)


def test_agreement_and_reward_are_those_of_the_last_thousand(workspace):
    apprentice(workspace, 1200, agree=lambda at: at % 4 == 0, reward=lambda at, _: 2.0 if at % 4 == 0 else 1.0)
    found = read_report(workspace.storage, ApprenticeReport)
    assert found == msgspec.structs.replace(read_apprentice(workspace, 0), made=found.made)
    assert (found.rows, found.agreement.value, found.expected) == (1000, 0.25, pytest.approx(1 / 3))
    assert found.reward.value == pytest.approx(1.25)
    assert found.agreed_reward.value == pytest.approx(2.0)
    assert found.achieved == pytest.approx(0.4)
    assert found.agreement.low < 0.25 < found.agreement.high
    assert {one.feature for one in found.segments} == {"bandwidth_kbps", "connection"}
    assert sum(one.rows for one in found.segments if one.feature == "bandwidth_kbps") == 1000
    assert found.ready == "not yet"
    assert "25%" in found.words
    assert read_status(workspace).apprentice == found
    shown = CliRunner().invoke(app, ["evaluate", workspace.url], env={"COLUMNS": "400"})
    assert found.words in shown.output.replace("\n", " ")


def test_a_policy_that_agrees_is_ready(workspace):
    apprentice(workspace, 300, agree=lambda at: at % 10 > 0)
    assert read_apprentice(workspace, 0).ready == "yes"


def test_few_decisions_say_nothing(workspace):
    assert read_apprentice(workspace, 0).ready == "no data"
    apprentice(workspace, 50, agree=lambda _: True)
    found = read_apprentice(workspace, 0)
    assert (found.ready, found.rows) == ("no data", 50)
    assert read_status(workspace).apprentice.rows == 50


def test_stated_propensities_tell_which_is_better(workspace):
    """The caller draws uniformly; the policy that always takes the best action earns more, though it rarely agrees."""
    rng, policy, events = Key(0).generator(), workspace.serving(), []
    for at, context in enumerate(contexts(600)):
        action = ("360p", "720p", "1080p")[int(rng.integers(3))]
        decision = LoggedDecision(
            id=f"d{at}", context=context, action=action, propensity=float(policy.probabilities(context)[0]), policy=0,
            mode="apprentice", would="1080p", own_propensity=1 / 3, time=NOON + at * 1000,
        )  # fmt: skip
        value = float(rng.random() < (0.9 if action == "1080p" else 0.2))
        events += [decision, LoggedReward(id=f"d{at}", reward=value, time=NOON + at * 1000)]
    with workspace.event_log() as opened:
        opened.append(*events)
    run_update(workspace, now=LATER)
    best = ps.Policy.build(
        workspace.problem,
        [_always(workspace.problem, 2)],
        version=0,
    )
    found = read_apprentice(workspace, 0, best)
    assert (found.stated, found.ready) == (1.0, "yes")
    assert found.gain.low < 0.9 - 0.4333 < found.gain.high
    worst = ps.Policy.build(workspace.problem, [_always(workspace.problem, 0)], version=0)
    assert read_apprentice(workspace, 0, worst).ready == "no"


def _always(problem, action):
    bias = np.full(len(problem.actions), -30.0, np.float32)
    bias[action] = 0.0
    return ps.policy.network.Layer(np.zeros((problem.width, len(bias)), np.float32), bias)


def test_features_that_matter_and_that_are_broken_are_named(tmp_path):
    workspace = made(str(tmp_path), NEVER, WIDE)
    rng, policy, events = Key(1).generator(), workspace.serving(), []
    for at in range(1500):
        context = {
            "useful": float(rng.random()),
            "noise": float(rng.random()),
            "drifts": float(rng.random() + (5.0 if at > 750 else 0.0)),
            "constant": True,
            "missing": float(rng.random()) if at % 10 == 0 else None,
            "colour": "blue" if at % 20 == 0 else "red",
            "user": f"user-{at}",
        }
        decision = policy.decide(context, id=f"d{at}")
        events.append(LoggedDecision.of(decision, context, time=NOON + at * 1000))
        value = (1 if decision.action == "a" else -1) * (context["useful"] - 0.5) + 0.05 * rng.normal()
        events.append(LoggedReward(id=f"d{at}", reward=float(value), time=NOON + at * 1000))
    with workspace.event_log() as opened:
        opened.append(*events)
    run_update(workspace, now=LATER)
    found = read_report(workspace.storage, FeatureReport)
    rows = {row.name: row for row in found.features}
    assert rows["useful"].reward > 0.5
    assert abs(rows["noise"].reward) < 0.05
    assert found.explained > 0.8
    assert all(row.policy == 0.0 for row in found.features)  # the policy is uniform
    warned = {name: " ".join(row.warnings) for name, row in rows.items() if row.warnings}
    assert warned.keys() == {"drifts", "constant", "missing", "colour", "user"}
    for name, word in (("drifts", "drifting"), ("constant", "constant"), ("missing", "missing"), ("user", "unique")):
        assert word in warned[name]
    assert rows["colour"].unseen == pytest.approx(0.05)


def test_what_matters_to_the_policy_is_what_it_goes_by(workspace):
    log(workspace, workspace.serving(), 200)
    run_update(workspace, now=LATER)
    layer = _always(workspace.problem, 0)
    layer.bias[:] = 0.0
    layer.weight[0, 2] = 8.0  # 1080p by bandwidth, and nothing else
    policy = ps.Policy.build(workspace.problem, [layer], version=0)
    rows = {row.name: row.policy for row in read_features(workspace, policy, 0).features}
    assert rows["bandwidth_kbps"] > 0.1
    assert rows["connection"] == 0.0


def test_what_a_feature_is_worth_is_what_the_policy_loses_without_it(workspace):
    """The policy goes by bandwidth alone. Without it, it draws by its mean shares; the world's means give the truth.

    A false alarm at four standard errors has a probability of 6e-5; the seed is fixed.
    """
    log(workspace, workspace.serving(), 4000)
    run_update(workspace, now=LATER)
    layer = _always(workspace.problem, 0)
    layer.bias[:] = (1.0, 0.0, -1.0)
    layer.weight[0, :] = (0.0, 2.0, 4.0)
    policy = ps.Policy.build(workspace.problem, [layer], version=0)
    rows = contexts(4000)
    p = policy.probabilities_many(rows)
    means = np.array([[mean(row, action) for action in workspace.problem.actions.names] for row in rows])
    rewarded = 0.8  # the others have the default, 0
    truth = rewarded * ((p - p.mean(axis=0)) * means).sum(axis=1).mean()
    found = {row.name: row.worth for row in read_features(workspace, policy, 0).features}
    bandwidth = found["bandwidth_kbps"]
    error = (bandwidth.high - bandwidth.low) / (2 * 1.96)
    assert truth > 0.05
    assert 0 < error < 0.05
    assert abs(bandwidth.value - truth) < 4 * error
    assert (found["connection"].value, found["connection"].low, found["connection"].high) == (0.0, 0.0, 0.0)


def test_a_log_without_exact_propensities_does_not_tell_what_a_feature_is_worth(workspace):
    apprentice(workspace, 300, agree=lambda at: at % 2 == 0)
    assert all(row.worth is None for row in read_report(workspace.storage, FeatureReport).features)


def test_a_sound_log_is_healthy_and_a_tampered_one_is_not(workspace):
    log(workspace, workspace.serving(), 400)
    run_update(workspace, now=LATER)
    found = read_report(workspace.storage, HealthReport)
    assert found.clean
    assert (found.checked, found.decisions) == (400, 400)
    [version] = found.versions
    assert (version.version, version.rows, version.broken) == (0, 400, False)
    assert version.entropy == pytest.approx(1.0)
    assert sum(one.taken for one in version.actions) == 400


def test_too_few_decisions_break_no_sample_ratio(workspace):
    log(workspace, workspace.serving(), 20)
    run_update(workspace, now=LATER)
    [version] = read_health(workspace, 0).versions
    assert (version.rows, version.actions, version.p, version.broken) == (20, [], 1.0, False)


def test_decisions_that_are_lost_by_action_break_the_sample_ratio(workspace):
    """A third of the decisions with one action is lost: z is about -5.8 on 1,200 decisions."""
    policy, events = workspace.serving(), []
    for at, context in enumerate(contexts(1200)):
        decision = policy.decide(context, id=f"d{at}")
        if decision.action == "720p" and at % 3:
            continue
        events.append(LoggedDecision.of(decision, context, time=NOON + at * 1000))
    with workspace.event_log() as opened:
        opened.append(*events)
    run_update(workspace, now=LATER + HOUR)
    [version] = read_health(workspace, 0).versions
    assert version.broken
    assert min(version.actions, key=lambda one: one.z).action == "720p"
