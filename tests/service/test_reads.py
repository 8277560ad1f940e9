"""What pages show, as JSON: versions, comparisons, decisions, expected rewards, experiments and evaluations."""

import asyncio
import json
import os
import signal
from urllib.parse import quote

import experiment_examples
import numpy as np
import pytest
import worlds
from service_examples import flushed, opened, publish

from potstill.events import LoggedDecision, LoggedReward, now
from potstill.experiments.analysis import Options, effect_rows, report_of
from potstill.keys import Key
from potstill.pipeline.resume import start
from potstill.pipeline.update import run_update
from potstill.service.auth import Guard
from potstill.service.tokens import TokenFile

SECOND = 1_000_000
TAMPERED = 0.123


def asked(workspace, *paths, **options):
    """JSON of some GET requests, in order."""

    async def work():
        async with opened(workspace, **options) as asker:
            return [await asker.get(path) for path in paths]

    replies = asyncio.run(work())
    return replies[0] if len(replies) == 1 else replies


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    """A workspace that has learnt once, with a staged version of random weights, and events in its log."""
    workspace = worlds.made(str(tmp_path_factory.mktemp("learnt") / "video"))
    worlds.log(workspace, workspace.start(), 300)
    assert run_update(workspace, now=worlds.LATER).outcome == "published"
    return workspace


# ---- versions


def test_versions_are_those_of_the_registry(learnt):
    reply = asked(learnt, "versions").json
    assert [one["version"] for one in reply["versions"]] == [1, 0]
    assert [one["state"] for one in reply["versions"]] == ["serving", "served before"]
    assert reply["versions"][0]["observations"] == 300
    compared, stored = reply["versions"][0]["comparison"], json.loads(learnt.registry.report(1))["compared"]
    assert compared["against"] == 0
    assert compared["effective"] == stored["effective"] <= compared["rows"] == 300
    assert compared["value_low"] < compared["value"] < compared["value_high"]
    assert [one["event"] for one in reply["changes"]] == ["published", "published"]
    one = asked(learnt, "version?version=1").json
    assert one["ancestors"] == [0]
    assert one["fidelity"]["kl_mean"] == learnt.registry.policy(1).metadata.fidelity["kl_mean"]
    assert one["joined"]["decisions"] == 300


def test_what_does_not_fit_is_refused(learnt):
    replies = asked(
        learnt,
        "version?version=9",
        "version?version=x",
        "version",
        "versions?limit=0",
        "versions?limt=3",
        "version?version=",
    )
    assert [reply.status for reply in replies] == [404, 422, 422, 422, 422, 422]
    assert all(reply.json["error"] for reply in replies)


def test_a_damaged_version_is_said(tmp_path):
    workspace = worlds.made(str(tmp_path))
    workspace.start()
    publish(workspace)
    file = workspace.registry.versions()[1].files.policy.name
    (tmp_path / "registry" / file).write_bytes(b"damaged")
    listed, one = asked(workspace, "versions", "version?version=1")
    assert listed.status == 200
    assert one.status == 409
    assert "damaged" in one.json["error"]


# ---- comparisons


def test_a_version_does_not_differ_from_itself(learnt):
    reply = asked(learnt, "compare?first=1&second=1").json
    assert reply["differ"] == 0.0
    assert reply["contexts"] == 300
    assert all(group["differ"] == 0.0 for one in reply["features"] for group in one["groups"])


def test_two_versions_differ_as_their_probabilities_do(learnt):
    reply = asked(learnt, "compare?first=0&second=1").json
    rows = worlds.contexts(300)
    p, q = (learnt.registry.policy(version).probabilities_many(rows) for version in (0, 1))
    each = np.abs(p - q).sum(axis=1) / 2
    assert reply["differ"] == pytest.approx(each.mean(), abs=1e-6)
    assert reply["after"] == pytest.approx(q.mean(axis=0), abs=1e-6)
    found = {one["feature"]: one["groups"] for one in reply["features"]}
    connections = np.array([row["connection"] for row in rows])
    for group in found["connection"]:
        chosen = connections == group["group"]
        assert group["contexts"] == chosen.sum()
        assert group["differ"] == pytest.approx(each[chosen].mean(), abs=1e-6)
        change = (q[chosen] - p[chosen]).mean(axis=0)
        assert group["more"] == ("360p", "720p", "1080p")[int(change.argmax())]
        assert group["more_by"] == pytest.approx(change.max(), abs=1e-6)
    assert sum(group["contexts"] for group in found["bandwidth_kbps"]) == 300


def test_fidelity_by_segment_is_the_divergence_from_the_teacher(learnt):
    """Beside the teacher's exact propensities, which this test weighs by hand."""
    reply = asked(learnt, "fidelity?version=1").json
    rows, policy = worlds.contexts(300), learnt.registry.policy(1)
    still = start(learnt, policy).still
    encoded = np.stack([learnt.problem.encode(row) for row in rows])
    p = np.asarray(still.teacher.propensities(still.state, encoded, Key(0)), np.float64)
    q = policy.probabilities_many(rows)
    tv, kl = np.abs(p - q).sum(axis=1) / 2, (p * np.log(np.maximum(p, 1e-30) / q)).sum(axis=1)
    assert (reply["version"], reply["contexts"]) == (1, 300)
    assert reply["tv"] == pytest.approx(tv.mean(), rel=1e-3)
    assert reply["kl"] == pytest.approx(kl.mean(), rel=1e-2)
    found = {one["feature"]: one["groups"] for one in reply["features"]}
    connections = np.array([row["connection"] for row in rows])
    for group in found["connection"]:
        chosen = connections == group["group"]
        assert group["contexts"] == chosen.sum()
        assert group["tv"] == pytest.approx(tv[chosen].mean(), rel=1e-3)
        assert group["kl"] == pytest.approx(kl[chosen].mean(), rel=1e-2)
    assert sum(group["contexts"] for group in found["bandwidth_kbps"]) == 300


def test_fidelity_of_a_version_without_a_teacher_is_refused(learnt):
    refused, unknown = asked(learnt, "fidelity?version=0", "fidelity?version=7")
    assert (refused.status, unknown.status) == (409, 404)
    assert "no teacher of its own" in refused.json["error"]


def test_nothing_is_compared_without_decisions_or_for_another_problem(tmp_path):
    workspace = worlds.made(str(tmp_path))
    workspace.start()
    publish(workspace)
    reply = asked(workspace, "compare?first=0&second=1")
    assert (reply.status, "no decision is logged yet" in reply.json["error"]) == (409, True)
    assert asked(workspace, "compare?first=0&second=7").status == 404


# ---- decisions


@pytest.fixture
def both(tmp_path):
    """Twenty decisions in the lake and twenty in the log, of two units."""
    workspace = worlds.made(str(tmp_path / "video"))
    policy, time = workspace.start(), now() - 7200 * SECOND
    rows = worlds.contexts(40)
    for half in (range(20), range(20, 40)):
        with workspace.event_log() as log:
            for i in half:
                decision = policy.decide(rows[i], id=f"d{i}")
                log.append(LoggedDecision.of(decision, rows[i], time=time + i * SECOND, unit=f"u{i % 2}"))
            log.append(LoggedReward(id=f"d{half[0]}", reward=0.5, time=time + half[0] * SECOND + 60 * SECOND))
        if half[0] == 0:
            flushed(workspace)
    return workspace


def test_decisions_are_those_of_the_lake_and_of_the_log(both):
    async def work():
        async with opened(both) as asker:
            pages, before = [], ""
            while True:
                reply = (await asker.get(f"decisions?limit=15{before}")).json
                pages += reply["decisions"]
                if reply["older"] is None:
                    return pages, (await asker.get("decisions?unit=u1&limit=1000")).json["decisions"]
                before = f"&before={reply['older']}"

    found, of_unit = asyncio.run(work())
    assert [one["id"] for one in found] == [f"d{i}" for i in reversed(range(40))]
    assert [one["log"] for one in found] == [True] * 20 + [False] * 20
    assert {one["id"]: one["reward"] for one in found if one["rewards"]} == {"d0": 0.5, "d20": 0.5}
    assert [one["id"] for one in of_unit] == [f"d{i}" for i in reversed(range(40)) if i % 2]
    flushed(both)
    again = asked(both, "decisions?limit=100").json["decisions"]
    assert [one["id"] for one in again] == [one["id"] for one in found]
    assert not any(one["log"] for one in again)


def test_the_story_of_a_decision(both):
    policy, context = both.registry.policy(0), worlds.contexts(40)[0]
    in_lake, in_log, unknown = asked(both, "decision?id=d0", "decision?id=d20", "decision?id=nobody")
    told = in_lake.json
    assert told["decisions"][0]["context"] == context
    assert told["probabilities"] == pytest.approx(policy.probabilities(context).tolist())
    assert told["draws"] == pytest.approx(policy.uniforms(["d0"]).tolist())
    assert told["audit"].startswith("clean")
    assert [(one["reward"], one["delay"], one["counts"]) for one in told["rewards"]] == [(0.5, 60.0, "in the window")]
    assert told["observation"] is None
    assert told["final"] > 0
    assert in_log.json["decisions"][0]["log"] is True
    assert in_log.json["audit"].startswith("clean")
    assert unknown.status == 404
    run_update(both)
    joined = asked(both, "decision?id=d0").json
    assert joined["observation"]["reward"] == 0.5
    assert joined["observation"]["cut"] == 1
    assert joined["final"] is None


def test_a_wrong_propensity_late_and_orphaned_rewards_are_said(tmp_path):
    workspace = worlds.made(str(tmp_path))
    policy, context, time = workspace.start(), worlds.contexts(1)[0], now() - 7200 * SECOND
    decision = LoggedDecision.of(policy.decide(context, id="a"), context, time=time)
    hostile = "<b>" + "\u202e" + "x" * 900
    with workspace.event_log() as log:
        wrong = {**{name: getattr(decision, name) for name in decision.__struct_fields__}, "propensity": TAMPERED}
        log.append(LoggedDecision(**wrong))
        log.append(LoggedReward(id="a", reward=1.0, time=time + 5400 * SECOND))
        log.append(LoggedReward(id=hostile, reward=1.0))
    told, orphan, too_long = asked(
        workspace, "decision?id=a", f"decision?id={quote(hostile)}", f"decision?id={'x' * 5000}"
    )
    assert told.json["audit"].startswith(f"wrong: the log says propensity {TAMPERED}")
    assert told.json["rewards"][0]["counts"].startswith("late")
    assert orphan.json["decisions"] == []
    assert orphan.json["rewards"][0]["counts"].startswith("orphan")
    assert too_long.status == 422


# ---- expected rewards


def test_expected_rewards_are_those_of_the_teacher(learnt):
    rows = worlds.contexts(5, seed=3)

    async def work(contexts):
        async with opened(learnt) as asker:
            return await asker.post("expect", {"contexts": contexts})

    reply = asyncio.run(work(rows)).json
    still = start(learnt, learnt.registry.policy(1)).still
    encoded = np.stack([learnt.problem.encode(row) for row in rows])
    location, scale, _ = still.teacher.marginals(still.state, encoded)
    assert reply["version"] == 1
    assert np.array(reply["mean"]) == pytest.approx(location)
    # A t quantile of 0.975 is 1.96 or more, and little more with 300 observations.
    assert (np.array(reply["high"]) - location >= 1.95 * scale).all()
    assert (np.array(reply["high"]) - location <= 2.3 * scale).all()
    refused = asyncio.run(work([{"bandwidth_kbps": "fast"}]))
    assert refused.status == 422
    assert asyncio.run(work([])).status == 422


def test_a_version_that_has_learnt_nothing_expects_nothing(tmp_path):
    workspace = worlds.made(str(tmp_path))
    workspace.start()

    async def work():
        async with opened(workspace) as asker:
            return await asker.post("expect", {"contexts": worlds.contexts(1)})

    reply = asyncio.run(work()).json
    assert reply["mean"] == []
    assert "learnt nothing" in reply["why"]


# ---- experiments


def test_the_experiment_is_the_report_of_the_command(tmp_path):
    workspace = experiment_examples.workspace(
        str(tmp_path), experiment_examples.log(experiment_examples.World(units=300, effect=0.2))
    )
    workspace.start()
    reply, unknown = asked(workspace, "experiment?by=connection", "experiment?by=nothing")
    expected = report_of(workspace, None, Options(by="connection"), now())
    told = reply.json
    assert told["sentence"] == expected.verdict.sentence
    assert told["kind"] == "better"
    header, rows = effect_rows(expected)
    assert told["effects"] == {"header": [*header], "rows": [[*row] for row in rows]}
    assert {row[0] for row in told["segments"]["rows"]} == {"2g", "3g", "4g", "wifi"}
    assert unknown.status == 404
    assert "nothing" in unknown.json["error"]


# ---- evaluation


async def evaluated(asker):
    begun = await asker.post("admin/evaluate", {"reason": "why not", "by": "ann"})
    assert begun.status == 202
    for _ in range(600):
        found = (await asker.get("evaluation")).json
        if found["state"] != "running":
            return found
        await asyncio.sleep(0.1)
    raise AssertionError("it did not end")


def test_an_evaluation_runs_and_its_worst_candidate_is_not_applied(tmp_path):
    workspace = worlds.made(str(tmp_path))
    worlds.log(workspace, workspace.start(), 600)
    assert run_update(workspace, now=worlds.LATER).outcome == "published"
    bad = publish(workspace, seed=4)  # random weights
    workspace.registry.rollback(1, "it is random", "ann")
    refused = publish_refused(workspace)

    async def work():
        async with opened(workspace) as asker:
            found = await evaluated(asker)
            by_gates = await asker.post("admin/promote", {"version": refused, "gates": True})
            forced = await asker.post("admin/promote", {"version": refused, "reason": "I know", "by": "ann"})
            return found, by_gates, forced

    found, by_gates, forced = asyncio.run(work())
    rows = {row["name"]: row for row in found["result"]["rows"]}
    assert found["result"]["decisions"] == 600
    assert found["by"] == "ann"
    assert {row["kind"] for row in rows.values()} == {"logged", "serving", "candidate", "uniform", "fixed"}
    # The log is uniform, so that what was done is what the uniform policy earns.
    assert rows["uniform"]["value"] == pytest.approx(rows["what was done"]["value"], abs=0.03)
    assert rows["policy 1"]["value"] > rows["uniform"]["value"] + 0.1
    assert rows["uniform"]["difference_high"] < 0
    assert bad.version != refused
    assert by_gates.status == 409
    assert "too far from its teacher" in by_gates.json["error"]
    assert forced.status == 200
    assert workspace.registry.head().serving == refused


def publish_refused(workspace):
    """A version that the gates refused."""
    from examples import random_layers

    from potstill.policy import Policy

    version, head = workspace.registry.next_version(), workspace.registry.head()
    policy = Policy.build(workspace.problem, random_layers(workspace.problem, seed=9), version=version)
    workspace.registry.publish(
        policy, teacher=None, report=b"{}", expected=head.number, reasons=("too far from its teacher",)
    )
    return version


def test_an_evaluation_of_nothing_says_so(tmp_path):
    workspace = worlds.made(str(tmp_path))
    workspace.start()

    async def work():
        async with opened(workspace) as asker:
            return await evaluated(asker)

    found = asyncio.run(work())
    assert found["state"] == "failed"
    assert "no observations" in found["error"]


# ---- staging


async def settled(asker):
    """The last update, once it has ended."""
    for _ in range(600):
        last = (await asker.get("overview")).json["update"]
        if last is not None and last.get("outcome", "running") != "running":
            return last
        await asyncio.sleep(0.1)
    raise AssertionError("it did not end")


def test_an_update_that_is_asked_for_stages_a_version_with_its_author(tmp_path):
    workspace = worlds.made(str(tmp_path))
    worlds.log(workspace, workspace.start(), 300)

    async def work():
        async with opened(workspace) as asker:
            begun = await asker.post("admin/stage", {"reason": "a look first", "by": "ann"})
            again = await asker.post("admin/stage", {"reason": "twice"})
            shown = (await asker.get("/p/video-upload/versions")).body
            assert b"An update runs" in shown
            assert b'hx-trigger="load delay:2s"' in shown
            last = await settled(asker)
            applied = await asker.post("admin/promote", {"version": 1, "reason": "it is good", "by": "bob"})
            return begun, again, last, applied

    begun, again, last, applied = asyncio.run(work())
    assert (begun.status, begun.json["running"]) == (202, True)
    assert (again.status, "runs already" in again.json["error"]) == (409, True)
    assert (last["outcome"], last["version"], last["serving"]) == ("staged", 1, 0)
    staged, served = workspace.registry.entries(1)
    assert (staged.event, staged.version, staged.serving) == ("published", 1, 0)
    assert (staged.by, staged.note) == ("ann", "a look first")
    assert (applied.status, served.serving, served.by) == (200, 1, "bob")


# ---- the process behind them


def test_a_query_survives_the_death_of_its_process(both):
    async def work():
        async with opened(both) as asker:
            assert (await asker.get("decisions")).status == 200
            (service,) = asker.app._problems
            os.kill(service.queries._process.pid, signal.SIGKILL)
            await asyncio.sleep(0.2)
            statuses = [(await asker.get("decisions")).status for _ in range(2)]
            process = service.queries._process
        return statuses, process.returncode

    statuses, code = asyncio.run(work())
    assert statuses[1] == 200
    assert statuses[0] in (200, 503)
    assert code is not None  # closing the service ends it


def test_changes_of_the_mode_are_in_the_journal(tmp_path):
    workspace = worlds.made(str(tmp_path))
    workspace.start()
    file = TokenFile(workspace.storage)
    token = file.create("boss", ["admin"])

    async def work():
        async with opened(workspace, guards={"video-upload": Guard(file)}) as asker:
            sent = {"mode": "apprentice", "reason": "to learn", "by": "ann"}
            return await asker.post("admin/mode", sent, authorization=f"Bearer {token}")

    assert asyncio.run(work()).json["mode"] == "apprentice"
    head = workspace.registry.head()
    assert (head.event, head.by, head.note) == ("mode", "ann (token boss)", "apprentice: to learn")
    assert head.serving == 0
