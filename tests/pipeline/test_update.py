"""The update of a workspace: the circle closed, again and again, and never lost."""

import msgspec
import numpy as np
import pytest
import tomli_w
from worlds import CONFIG, LATER, NOON, PROBLEM, SETTINGS, contexts, log, made, rate

import potstill as ps
from potstill.events.lake import read_observations
from potstill.pipeline.audit import run_audit
from potstill.pipeline.reproduce import reproduce_version
from potstill.pipeline.status import read_status
from potstill.pipeline.update import STEPS, Busy, only_updater, preview_update, run_update
from potstill.registry import Conflict
from potstill.teachers import LinearTS, from_config
from potstill.workspace import Workspace


def test_a_workspace_learns_from_its_log(place):
    workspace = made(place)
    uniform = workspace.start()
    assert uniform.version == 0
    for seed in range(3):
        log(workspace, workspace.serving(), 400, seed=seed, at=NOON + seed * 10_000_000)
        report = run_update(workspace, now=LATER)
        assert (report.outcome, report.version, report.serving) == ("published", seed + 1, seed + 1)
        assert report.observations == 400
    policy = workspace.serving()
    assert policy.metadata.lineage.observations == 1200
    assert policy.metadata.parent == 2
    assert rate(policy) > rate(uniform) + 0.15


def test_the_same_log_gives_the_same_policy_wherever_it_is(tmp_path, s3):
    files = []
    for place in (str(tmp_path / "one"), s3):
        workspace = made(place)
        for seed in range(2):
            log(workspace, workspace.start(), 200, seed=seed)
            run_update(workspace, now=LATER)
        files.append(workspace.serving().to_bytes())
    assert files[0] == files[1]


def test_it_learns_what_a_still_would(tmp_path):
    workspace = made(str(tmp_path))
    log(workspace, workspace.start(), 300)
    report = run_update(workspace, now=LATER)
    still = ps.Still(workspace.problem, LinearTS(), student=ps.Student(hidden=(16,), steps=200), seed=0)
    [observations] = read_observations(workspace.lake, workspace.problem, 0, report.cut)
    still.update(observations)
    served = workspace.serving()
    for ours, theirs in zip(still.policy.layers, served.layers, strict=True):
        assert (ours.weight == theirs.weight).all()


def test_a_teacher_that_wants_all_observations_again_reads_them_in_the_lake(tmp_path, monkeypatch):
    """What it learns is what it learns when it keeps them; and its state has none."""
    monkeypatch.setattr("potstill.events.lake.observations.observation_chunks.__defaults__", (60,))  # rows of a chunk
    options = {"type": "neural-linear-ts", "hidden": [8], "recipe": {"steps": 50, "batch": 32}}
    workspace = made(str(tmp_path), SETTINGS + tomli_w.dumps({"teacher": options}).encode())
    still = ps.Still(workspace.problem, from_config(options), student=ps.Student(hidden=(16,), steps=200), seed=0)
    for seed in range(2):
        log(workspace, workspace.start(), 150, seed=seed)
        report = run_update(workspace, now=LATER)
        still.update(list(read_observations(workspace.lake, workspace.problem, report.cut - 1, report.cut)))
    served, rows = workspace.serving(), contexts(300, seed=9)
    np.testing.assert_allclose(served.probabilities_many(rows), still.policy.probabilities_many(rows), atol=1e-3)
    kept = ps.Still(workspace.problem, still.teacher)
    kept.recall(served, workspace.registry.teacher(2))
    assert (len(kept.state.memory.actions), int(kept.state.learnt)) == (0, 300)
    assert len(still.state.memory.actions) == 300


def test_a_decision_counts_when_its_window_has_closed(tmp_path):
    workspace = made(str(tmp_path))
    log(workspace, workspace.start(), 100)
    early = run_update(workspace, now=NOON + 1_800_000_000)
    assert (early.outcome, early.joined.decisions, early.joined.pending) == ("waiting", 0, 100)
    assert "0 new observations; update.min_observations = 50" in early.why
    assert run_update(workspace, now=LATER).observations == 100


def test_few_observations_wait_and_are_not_lost(tmp_path):
    workspace = made(str(tmp_path))
    log(workspace, workspace.start(), 30)
    assert run_update(workspace, now=LATER).outcome == "waiting"
    log(workspace, workspace.serving(), 30, seed=1)
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.observations) == ("published", 60)


def test_nothing_new_can_still_be_distilled_by_force(tmp_path):
    workspace = made(str(tmp_path))
    log(workspace, workspace.start(), 100)
    run_update(workspace, now=LATER)
    assert run_update(workspace, now=LATER).outcome == "waiting"
    report = run_update(workspace, now=LATER, force=True)
    assert (report.outcome, report.version, report.observations) == ("published", 2, 0)


def test_a_dry_run_says_what_an_update_does_and_does_none_of_it(tmp_path):
    workspace = made(str(tmp_path))
    log(workspace, workspace.start(), 100)
    run_update(workspace, now=NOON)  # flushes only
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    foreseen = preview_update(workspace, now=LATER)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before
    assert (foreseen.outcome, foreseen.observations) == ("due", 100)
    done = run_update(workspace, now=LATER)
    assert done.observations == foreseen.observations
    assert done.joined.rewarded == foreseen.joined.rewarded


def test_a_staged_version_does_not_serve_until_it_is_told_to(tmp_path):
    workspace = made(str(tmp_path))
    log(workspace, workspace.start(), 100)
    report = run_update(workspace, now=LATER, stage=True)
    assert (report.outcome, report.version, report.serving) == ("staged", 1, 0)
    assert workspace.serving().version == 0
    workspace.registry.serve(1)
    assert workspace.serving().version == 1


def test_a_policy_that_a_gate_is_against_is_kept_with_the_reasons(tmp_path):
    workspace = made(str(tmp_path), CONFIG + b"max_kl = 1e-9\n")
    log(workspace, workspace.start(), 100)
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.serving) == ("refused", 0)
    [reason] = report.reasons
    assert "above update.max_kl = 1e-09" in reason
    [_, kept] = workspace.registry.versions()
    assert (kept.version, kept.state, kept.reasons) == (1, "refused", (reason,))
    again = run_update(workspace, now=LATER, force=True)
    assert (again.version, again.observations) == (2, 100)


def updated(place, times: int) -> Workspace:
    """A workspace after some updates, each with a hundred observations."""
    workspace = made(str(place))
    for seed in range(times):
        log(workspace, workspace.start(), 100, seed=seed)
        assert run_update(workspace, now=LATER).version == seed + 1
    return workspace


def test_a_rollback_holds_and_the_same_observations_are_not_published_again(tmp_path):
    workspace = updated(tmp_path, 2)
    workspace.registry.rollback(note="worse on 2g", by="ann")
    for look in (preview_update, run_update):
        report = look(workspace, now=LATER)
        assert (report.outcome, report.version, report.serving) == ("waiting", None, 1)
        assert "0 new observations" in report.why
        assert "version 2, which does not serve, has learnt from 100 others" in report.why
    assert not read_status(workspace, now=LATER).next.due
    workspace.registry.unpin()
    assert run_update(workspace, now=LATER).outcome == "waiting"  # version 2 would be made again


def test_while_a_version_is_pinned_updates_stage_theirs(tmp_path):
    workspace = updated(tmp_path, 2)
    workspace.registry.rollback(note="worse on 2g", by="ann")
    log(workspace, workspace.serving(), 60, seed=5)
    run_update(workspace, now=NOON)  # flushes only
    foreseen = preview_update(workspace, now=LATER)
    assert (foreseen.outcome, foreseen.observations) == ("due", 160)
    assert "stage its version: version 1 is pinned by ann" in foreseen.why
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.version, report.serving) == ("staged", 3, 1)
    assert "pinned by ann since" in report.why
    assert workspace.registry.policy(3).metadata.parent == 1
    assert workspace.registry.policy(3).metadata.lineage.observations == 260
    assert run_update(workspace, now=LATER).outcome == "waiting"
    forced = run_update(workspace, now=LATER, force=True)
    assert (forced.outcome, forced.version, forced.serving) == ("staged", 4, 1)
    assert read_status(workspace, now=LATER).pinned.reason == "worse on 2g"
    workspace.registry.serve(4)
    log(workspace, workspace.serving(), 60, seed=6)
    assert run_update(workspace, now=LATER).outcome == "published"


def test_while_updates_are_paused_none_is_made(tmp_path):
    workspace = updated(tmp_path, 1)
    workspace.registry.pause(note="rewards are late", by="ann")
    log(workspace, workspace.serving(), 100, seed=5)
    before = sorted(path for path in tmp_path.rglob("*") if path.is_file())
    for report in (run_update(workspace, now=LATER, force=True), preview_update(workspace, now=LATER)):
        assert (report.outcome, report.version, report.joined) == ("paused", None, None)
        assert "paused by ann since" in report.why
        assert ": rewards are late; potstill resume" in report.why
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == before
    status = read_status(workspace, now=LATER)
    assert (status.paused.by, status.next.due) == ("ann", False)
    workspace.registry.resume()
    assert run_update(workspace, now=LATER).outcome == "published"


def test_a_floor_is_no_reason_to_refuse_and_a_changed_one_says_when_it_takes_effect(tmp_path):
    """Held-out divergence was measured with the floor, so that a floor of 0.2 was refused at every update."""
    workspace = updated(tmp_path, 1)
    workspace.storage.replace("potstill.toml", CONFIG + b"max_kl = 0.2\n[policy]\nfloor = 0.2\n")
    workspace = Workspace(str(tmp_path))
    log(workspace, workspace.serving(), 20, seed=5)
    for report in (run_update(workspace, now=LATER), preview_update(workspace, now=LATER)):
        [notice] = report.notices
        assert (report.outcome, notice[:45]) == ("waiting", "policy.floor = 0.2 in potstill.toml takes eff")
    assert "version 1 serves with 0" in notice
    assert read_status(workspace, now=LATER).notices == [notice]
    log(workspace, workspace.serving(), 200, seed=6)
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.notices) == ("published", [])
    assert workspace.serving().floor == 0.2
    status = read_status(workspace, now=LATER)
    assert status.notices == []
    assert status.fidelity["floor_tv"] > 0.01


def test_another_teacher_may_learn_from_what_a_refused_version_has_seen(tmp_path):
    workspace = updated(tmp_path, 1)
    log(workspace, workspace.serving(), 60, seed=5)
    assert run_update(workspace, now=LATER, stage=True).outcome == "staged"
    assert run_update(workspace, now=LATER).outcome == "waiting"
    workspace.storage.replace("potstill.toml", SETTINGS + b'[teacher]\ntype = "linear-ts"\nprecision = 1.0\n')
    report = run_update(Workspace(str(tmp_path)), now=LATER)
    assert (report.outcome, report.observations) == ("published", 160)


def test_a_changed_teacher_learns_anew_from_everything(tmp_path):
    workspace = made(str(tmp_path))
    log(workspace, workspace.start(), 100)
    run_update(workspace, now=LATER)
    workspace.storage.replace("potstill.toml", SETTINGS + b'[teacher]\ntype = "linear-ts"\nprecision = 1.0\n')
    workspace = Workspace(str(tmp_path))
    log(workspace, workspace.serving(), 60, seed=1)
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.observations) == ("published", 160)
    why = "the teacher's state of version 1 does not fit: its teacher differs from the configured teacher in precision"
    assert report.why_anew == why


def changed(workspace: Workspace, before: bytes, after: bytes) -> Workspace:
    """The workspace after a change of its problem."""
    workspace.storage.replace("problem.toml", PROBLEM.replace(before, after))
    return Workspace(workspace.url)


def test_an_added_action_is_explored_and_then_learnt(tmp_path):
    workspace = changed(updated(tmp_path, 3), b'"1080p"', b'"1080p", "4k"')
    status = read_status(workspace, now=LATER)
    assert (status.serving, status.next.observations, status.next.due) == (3, 0, True)  # what was learnt is kept
    [notice] = status.notices
    assert "action '4k' was added; restart potstill serve to follow" in notice
    assert "'4k': 2.5 % of decisions each" in notice
    adapted = workspace.start()
    assert (adapted.version, adapted.metadata.lineage.observations) == (4, 300)
    assert adapted.metadata.lineage.origin["cut"] == 3
    before = workspace.registry.policy(3).probabilities_many(contexts(50))
    np.testing.assert_allclose(adapted.probabilities_many(contexts(50))[:, :3], 0.9 * before + 0.025, rtol=2e-6)
    log(workspace, adapted, 300, seed=7)
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.version, report.observations, report.unfit) == ("published", 5, 300, 0)
    assert workspace.serving().metadata.lineage.observations == 600
    assert not report.still.warm  # untrained scores are no place to start from
    assert report.still.fidelity.kl_mean < 0.2
    assert workspace.serving().problem.actions.names[-1] == "4k"
    assert run_audit(workspace).clean
    for version in (4, 5):
        assert reproduce_version(workspace, version).identical
    assert read_status(workspace, now=LATER).notices == []


def test_a_removed_action_leaves_out_its_observations_and_says_how_many(tmp_path):
    workspace = updated(tmp_path, 2)
    [taken] = read_observations(workspace.lake, workspace.problem, 0, 9)
    of_it = int((taken.actions == 1).sum())
    workspace = changed(workspace, b'"720p", ', b"")
    foreseen = preview_update(workspace, now=LATER)
    # The posterior of the others is kept.
    assert (foreseen.outcome, foreseen.observations, foreseen.unfit) == ("due", 0, of_it)
    text = workspace.storage.read("potstill.toml").replace(b'"linear-ts"', b'"linear-ts"\nprecision = 1.0')
    workspace.storage.replace("potstill.toml", text)
    workspace = Workspace(workspace.url)  # with another teacher, which learns from all observations again
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.observations, report.unfit) == ("published", 200 - of_it, of_it)
    assert workspace.serving().metadata.lineage.observations == 200 - of_it
    assert reproduce_version(workspace, report.version).identical


def test_changed_features_are_learnt_again_and_nothing_uniform_serves_meanwhile(tmp_path):
    workspace = updated(tmp_path, 2)
    workspace = changed(workspace, b'"wifi"', b'"wifi", "5g"')
    [notice] = preview_update(workspace, now=LATER).notices
    assert "feature 'connection' was changed" in notice
    assert "--fresh" in notice
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.version, report.observations) == ("published", 3, 200)
    assert [version.version for version in workspace.registry.versions()] == [0, 1, 2, 3]
    assert workspace.start().version == 3
    assert reproduce_version(workspace, 3).identical


def test_where_nothing_fits_an_update_waits_and_the_version_before_stays(tmp_path):
    workspace = changed(updated(tmp_path, 1), b'"bandwidth_kbps"', b'"speed"')
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.observations, report.unfit, report.serving) == ("waiting", 0, 100, 1)
    assert workspace.registry.head().latest == 1


def test_further_contexts_are_distilled_on(tmp_path):
    workspace = made(str(tmp_path), CONFIG + b'contexts = "contexts.csv"\ncontexts_at_most = 250\n')
    rows = contexts(400, seed=5)
    lines = [f"{row['bandwidth_kbps']},{row['connection']},x" for row in rows]
    (tmp_path / "contexts.csv").write_text("\n".join(["bandwidth_kbps,connection,other", *lines]))
    log(workspace, workspace.start(), 100)
    report = run_update(workspace, now=LATER)
    assert report.still.contexts == 350
    described = workspace.serving().metadata.lineage.origin["contexts"]
    assert (described["table"], described["rows"]) == ("contexts.csv", 250)


def test_a_second_updater_leaves_with_a_message(tmp_path):
    workspace = made(str(tmp_path))
    with only_updater(workspace, wait=False), pytest.raises(Busy, match=r"another update of .* is running"):
        run_update(workspace)


def test_who_was_overtaken_by_another_machine_publishes_nothing(tmp_path):
    workspace = made(str(tmp_path))
    log(workspace, workspace.start(), 100)

    def overtake(step, done, of):
        if step == "check":
            workspace.registry.publish(
                ps.Policy.uniform(workspace.problem, version=1), teacher=None, report=b"{}", expected=1
            )

    with pytest.raises(Conflict):
        run_update(workspace, now=LATER, on_step=overtake)
    assert [version.version for version in workspace.registry.versions()] == [0, 1]
    assert run_update(workspace, now=LATER).version == 2


def test_steps_are_told_in_order(tmp_path):
    workspace = made(str(tmp_path))
    log(workspace, workspace.start(), 100)
    told = []
    report = run_update(workspace, now=LATER, on_step=lambda step, done, of: told.append(step))
    assert list(dict.fromkeys(told)) == list(STEPS)
    assert list(report.seconds) == list(STEPS[:-1])


def test_status_says_how_things_stand(tmp_path):
    workspace = made(str(tmp_path))
    fresh = read_status(workspace, now=LATER)
    assert (fresh.serving, fresh.published, fresh.fidelity) == (0, False, None)
    log(workspace, workspace.start(), 100)
    logged = read_status(workspace, now=LATER)
    assert logged.log.segments == 1
    assert "bytes of the log into the lake" in logged.next.why
    run_update(workspace, now=LATER)
    after = read_status(workspace, now=LATER)
    assert (after.serving, after.published, after.learnt, after.log.segments) == (1, True, 100, 0)
    assert after.fidelity["kl_mean"] >= 0
    assert not after.next.due
    msgspec.json.encode(after)
