"""Control's decisions, kept out of what is learnt: exactly as if they had not been logged, and for good."""

import msgspec
import numpy as np
import pytest
from worlds import CONFIG, LATER, NOON, SETTINGS, contexts, made, reward

from potstill.events import LoggedDecision, LoggedReward
from potstill.pipeline.audit import run_audit
from potstill.pipeline.origin import Origin
from potstill.pipeline.reproduce import reproduce_version
from potstill.pipeline.update import preview_update, run_update
from potstill.workspace import CONFIG as CONFIG_FILE
from potstill.workspace import Workspace

OUT = ("hd:control",)


def experiment(name: str = "hd", *, train: bool, config: bytes = CONFIG) -> bytes:
    text = f'[experiment]\nname = "{name}"\ncontrol = {{ action = "360p" }}\ntrain_on_control = {str(train).lower()}\n'
    return config + text.encode()


def configured(workspace: Workspace, config: bytes) -> Workspace:
    workspace.storage.replace(CONFIG_FILE, config)
    return Workspace(workspace.url)


def log(workspace: Workspace, n: int, *, seed: int = 0, control: bool = True, policy: int | None = None) -> None:
    """Every other decision is control's: a fixed action, or that of an older version. It can be left out of the log."""
    serving = workspace.start()
    older = None if policy is None else workspace.registry.policy(policy)
    events = []
    for i, context in enumerate(contexts(n, seed)):
        name, time = f"upload-{seed}-{i}", NOON + i * 1000
        if i % 2:
            decision = LoggedDecision.of(serving.decide(context, id=name), context, time, unit=f"u{i}")
            decision = msgspec.structs.replace(decision, arm="hd:treatment")
        elif older is not None:
            decision = LoggedDecision.of(older.decide(context, id=name), context, time, unit=f"u{i}")
            decision = msgspec.structs.replace(decision, arm="hd:control")
        else:
            decision = LoggedDecision(
                id=name, context=context, action="360p", propensity=1.0, policy=serving.version, mode="control",
                arm="hd:control", time=time,
            )  # fmt: skip
        if i % 3 == 0 and i % 2:
            decision = msgspec.structs.replace(decision, arm=None)  # such as of a request that names no unit
        if control or i % 2:
            events += [decision, LoggedReward(id=name, reward=reward(context, decision.action), time=time + 1)]
    with workspace.event_log() as opened:
        opened.append(*events)


def test_what_is_kept_out_is_as_if_it_had_not_been_logged(tmp_path):
    out, never = made(str(tmp_path / "out"), experiment(train=False)), made(str(tmp_path / "never"))
    for seed in range(2):
        log(out, 120, seed=seed)
        log(never, 120, seed=seed, control=False)
        reports = [run_update(workspace, now=LATER) for workspace in (out, never)]
        assert [report.observations for report in reports] == [60, 60]
        assert reports[0].joined.decisions == 120
        layers = [workspace.serving().layers for workspace in (out, never)]
        assert all(
            np.array_equal(a, b) for one, other in zip(*layers, strict=True) for a, b in zip(one, other, strict=True)
        )
    assert Origin.of(out.serving()).without == OUT
    assert "without" not in (never.serving().metadata.lineage.origin or {})


def test_unless_it_is_asked_for_control_is_learnt_from(tmp_path):
    workspace = made(str(tmp_path), experiment(train=True))
    log(workspace, 120)
    assert run_update(workspace, now=LATER).observations == 120
    assert Origin.of(workspace.serving()).without == ()


@pytest.mark.parametrize("later", [CONFIG, experiment(train=True), experiment("other", train=False)])
def test_versions_come_out_the_same_whatever_the_configuration_says_later(tmp_path, later):
    workspace = made(str(tmp_path), experiment(train=False))
    for seed in range(2):
        log(workspace, 120, seed=seed)
        run_update(workspace, now=LATER)
    changed = configured(workspace, later)
    assert all(reproduce_version(changed, version).identical for version in (1, 2))


def test_what_was_kept_out_stays_out_when_the_experiment_is_over(tmp_path):
    workspace = made(str(tmp_path), experiment(train=False))
    log(workspace, 120)
    run_update(workspace, now=LATER)
    another = b'[teacher]\ntype = "linear-ts"\ndiscount = 0.9\n' + SETTINGS
    over = configured(workspace, another)
    report = run_update(over, now=LATER)
    assert report.why_anew is not None
    assert report.observations == 60
    assert Origin.of(over.serving()).without == OUT
    back = configured(over, experiment(train=True, config=another))
    assert run_update(back, now=LATER, force=True).version == 3
    assert Origin.of(back.serving()).without == ()


def test_observations_that_are_kept_out_are_not_waited_for(tmp_path):
    workspace = made(str(tmp_path), experiment(train=False))
    log(workspace, 98)
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.observations) == ("waiting", 49)
    assert preview_update(workspace, now=LATER).observations == 49


@pytest.mark.parametrize(("older", "checked", "fixed"), [(None, 240, 120), (0, 360, 0)])
def test_an_audit_computes_what_was_drawn_and_no_more(tmp_path, older, checked, fixed):
    workspace = made(str(tmp_path))
    log(workspace, 120)
    run_update(workspace, now=LATER)
    for seed in (1, 2):
        log(workspace, 120, seed=seed, policy=older)
    run_update(workspace, now=LATER)
    found = run_audit(workspace)
    assert found.clean
    assert (found.decisions, found.checked, found.fixed) == (360, checked - 60, fixed + 60)


def test_an_older_policy_that_drew_otherwise_is_found(tmp_path):
    workspace = made(str(tmp_path))
    log(workspace, 120)
    run_update(workspace, now=LATER)
    context = contexts(1, seed=5)[0]
    stated = LoggedDecision.of(workspace.registry.policy(0).decide(context, id="a"), context, NOON)
    wrong = msgspec.structs.replace(stated, propensity=0.9, arm="hd:control")
    with workspace.event_log() as opened:
        opened.append(wrong)
    run_update(workspace, now=LATER)
    found = run_audit(workspace)
    assert (found.propensities, found.mismatches[0].id, found.mismatches[0].policy) == (1, "a", 0)
