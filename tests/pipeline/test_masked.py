"""Requests with `eligible` through a workspace: a student of masks, and the warning without one."""

import msgspec
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner
from worlds import CONFIG, LATER, NOON, SETTINGS, contexts, made, reward

import potstill as ps
from potstill.cli import app
from potstill.distill import student_from_config
from potstill.events import LoggedDecision, LoggedReward
from potstill.pipeline import run_update
from potstill.pipeline.audit import run_audit
from potstill.pipeline.health_report import read_health
from potstill.pipeline.labels import LabelStore
from potstill.pipeline.reproduce import reproduce_version
from potstill.pipeline.status import read_status
from potstill.policy import Layer
from potstill.teachers import LinearTS
from potstill.workspace.adapt import adapt

MASKED = b'[teacher]\ntype = "linear-ts"\n' + SETTINGS.replace(b"steps = 200", b"steps = 400\nmasked = true")
SOME = ["720p", "1080p"]


def log_restricted(workspace, n, seed=0, every=2):
    """Decisions of the serving policy; of every second request only some actions are eligible."""
    policy, events = workspace.serving(), []
    for i, context in enumerate(contexts(n, seed)):
        eligible = None if i % every else SOME
        decision = policy.decide(context, id=f"r-{seed}-{i}", eligible=eligible)
        at = NOON + seed * 10_000_000 + i * 1000
        events.append(LoggedDecision.of(decision, context, time=at))
        events.append(LoggedReward(id=decision.id, reward=reward(context, decision.action), time=at + 60_000_000))
    with workspace.event_log() as opened:
        opened.append(*events)


def updated(workspace, seed):
    log_restricted(workspace, 300, seed)
    return run_update(workspace, now=LATER)


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    workspace = made(str(tmp_path_factory.mktemp("masked")), MASKED)
    workspace.start()
    for seed in range(2):
        assert updated(workspace, seed).outcome == "published"
    return workspace


def test_a_workspace_trains_on_masks_and_everything_agrees(masked):
    """The audit recomputes every propensity under its mask; a version is reproduced to the byte."""
    policy = masked.serving()
    assert policy.masked
    assert policy.metadata.lineage.student["masked"] is True
    log_restricted(masked, 60, seed=2)
    report = run_update(masked, now=LATER)
    assert report.version == 3
    found = run_audit(masked)
    assert found.clean
    assert found.checked == 660
    again = reproduce_version(masked, 3)
    assert again.identical, again.differs


def test_streamed_contexts_are_labelled_under_masks(tmp_path, monkeypatch):
    """One mask for each context, in shards; held-out contexts are measured without masks, and again by size."""
    monkeypatch.setattr("potstill.pipeline.shards.SHARD_ROWS", 200)
    streamed = b'contexts = "contexts.parquet"\ncontexts_at_most = 900\ncontexts_in_memory = 0\nlabels_kept = 1\n'
    workspace = made(str(tmp_path), MASKED + streamed)
    pl.DataFrame(contexts(900, seed=8)).write_parquet(tmp_path / "contexts.parquet")
    workspace.start()
    assert updated(workspace, 0).outcome == "published"
    policy = workspace.serving()
    assert policy.masked
    assert policy.metadata.fidelity["tv_mean"] < 0.1
    assert policy.metadata.fidelity["eligible"][0]["actions"] == 2
    _, labels = LabelStore(str(tmp_path / "labels"), 1).read(1)
    assert set((labels >= 0).sum(axis=1).tolist()) == {2, 3}
    again = reproduce_version(workspace, 1)
    assert again.identical, again.differs


def test_nothing_is_said_of_a_policy_that_was_trained_on_masks(masked):
    assert read_health(masked, LATER).renormalised == 0
    assert not any("eligible" in notice for notice in read_status(masked, LATER).notices)


def test_status_warns_where_requests_state_eligible_and_policies_renormalise(tmp_path):
    workspace = made(str(tmp_path), CONFIG)
    workspace.start()
    updated(workspace, 0)  # the uniform policy is right for every mask
    assert read_health(workspace, LATER).renormalised == 0
    updated(workspace, 1)
    health = read_health(workspace, LATER)
    assert (health.decided, health.renormalised) == (600, 150)
    [notice] = [one for one in read_status(workspace, LATER).notices if "eligible" in one]
    assert "25.0% of the last 600 decisions state eligible" in notice
    assert "total variation" in notice
    assert "Set masked = true in [student]" in notice
    shown = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert "was not trained for it" in " ".join(shown.output.split())
    assert "among 2" in shown.output


def test_a_list_of_all_actions_is_no_restriction(tmp_path):
    workspace = made(str(tmp_path), CONFIG)
    workspace.start()
    updated(workspace, 0)
    policy = workspace.serving()
    names = list(policy.problem.actions.names)
    decisions = [
        LoggedDecision.of(policy.decide(context, id=f"all-{i}", eligible=names), context, time=NOON + 20_000_000 + i)
        for i, context in enumerate(contexts(20, 5))
    ]
    with workspace.event_log() as opened:
        opened.append(*decisions)
    run_update(workspace, now=LATER)
    health = read_health(workspace, LATER)
    assert (health.decided, health.renormalised) == (320, 0)


def test_show_says_that_a_policy_was_trained_on_masks(masked, tmp_path):
    file = tmp_path / "masked.policy"
    masked.serving().save(file)
    shown = CliRunner().invoke(app, ["show", str(file)])
    assert shown.exit_code == 0, shown.output
    assert "trained on masks" in shown.output
    assert "total variation" in shown.output


def test_options_of_a_workspace_are_checked():
    assert student_from_config({"masked": True}, LinearTS()).masked
    with pytest.raises(ValueError, match=r"Expected `bool`, got `str` - at `\$.masked`"):
        student_from_config({"masked": "yes"}, LinearTS())


def test_an_adapted_policy_treats_a_removed_action_as_never_eligible(masked):
    policy = masked.serving()
    names = ["1080p", "360p", "4k"]
    problem = msgspec.structs.replace(policy.problem, actions=ps.Discrete(names))
    adapted = adapt(policy, problem, version=9, seed=1, floor=0.0, share=0.3)
    assert adapted.masked
    rows = contexts(40, 3)
    kept = policy.probabilities_many(rows, eligible=np.array([True, False, True]))  # 360p and 1080p
    without_new = adapted.probabilities_many(rows, eligible=np.array([True, True, False]), floor=0.0)
    np.testing.assert_allclose(without_new[:, 0], kept[:, 2], atol=1e-6)
    np.testing.assert_allclose(without_new[:, 1], kept[:, 0], atol=1e-6)
    everything = adapted.probabilities_many(rows)
    np.testing.assert_allclose(everything[:, 2], 0.1, atol=1e-6)  # the new action has its share of the floor


def test_a_retired_action_of_a_policy_of_masks_is_not_eligible_until_it_comes_back(masked):
    policy, rows = masked.serving(), contexts(40, 3)
    retired = msgspec.structs.replace(policy.problem, actions=ps.Discrete(["360p", "720p", "1080p"], retired=["720p"]))
    adapted = adapt(policy, retired, version=9, seed=1, floor=0.0, share=0.3)
    others = policy.probabilities_many(rows, eligible=np.array([True, False, True]))
    np.testing.assert_allclose(adapted.probabilities_many(rows), others, atol=1e-6)
    back = adapt(adapted, policy.problem, version=10, seed=1, floor=0.0, share=0.3)
    np.testing.assert_array_equal(back.probabilities_many(rows), policy.probabilities_many(rows))
    # Distilled while it was retired, a policy knows nothing of its mask: it counts as not eligible when it is back.
    distilled = ps.Policy.build(retired, policy.layers, version=9, masked=True)
    again = adapt(distilled, policy.problem, version=10, seed=1, floor=0.0, share=0.3)
    without = again.probabilities_many(rows, eligible=np.array([True, False, True]), floor=0.0)
    np.testing.assert_allclose(without, others, atol=1e-6)
    np.testing.assert_allclose(again.probabilities_many(rows)[:, 1], 0.1, atol=1e-6)


def test_a_linear_policy_of_masks_is_adapted_in_its_only_layer():
    problem = ps.Problem(name="p", context=[ps.Numeric("x", low=0, high=1)], actions=ps.Discrete(["a", "b", "c"]))
    rng = np.random.default_rng(3)
    layer = Layer(rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=3).astype(np.float32))
    policy = ps.Policy.build(problem, [layer], version=1, masked=True)
    fewer = msgspec.structs.replace(problem, actions=ps.Discrete(["c", "a"]))
    adapted = adapt(policy, fewer, version=2, seed=0, floor=0.0, share=0.1)
    wanted = policy.probabilities({"x": 0.3}, eligible=["a", "c"])
    np.testing.assert_allclose(adapted.probabilities({"x": 0.3}), wanted[[2, 0]], atol=1e-6)
