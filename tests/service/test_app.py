import asyncio
import errno
import os
import signal
import threading
import time
from collections import Counter

import httpx
import polars as pl
import pytest
import worlds
from service_examples import Asker, flushed, opened, publish, server

from potstill.events.lake import Flusher
from potstill.events.wal import Spool, segment_writer
from potstill.events.wal.segment_writer import SegmentWriter
from potstill.policy import InvalidPolicy, Policy
from potstill.service import endpoints, status
from potstill.service.app import App, create_app
from potstill.service.auth import Guard
from potstill.service.decide import Decider
from potstill.service.limits import Options
from potstill.service.tokens import TokenFile
from potstill.storage import open_storage
from potstill.workspace import InvalidConfig, Workspace

CONTEXT = {"bandwidth_kbps": 900.0, "connection": "4g"}
DECIDE = {"context": CONTEXT}
SEEN = {"id": "z", "context": CONTEXT, "action": "360p", "propensity": 0.5, "policy": 0, "time": 1_763_200_000}
SECRET = "a-secret-value"
FALLBACK = worlds.CONFIG + b'[serve]\nfallback = "720p"\n'


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return worlds.made(str(tmp_path / "video"))


@pytest.fixture
def with_fallback(tmp_path) -> Workspace:
    return worlds.made(str(tmp_path / "video"), FALLBACK)


def asking(workspace: Workspace, work, **options) -> None:
    """Run `work(asker)` against an application that serves a workspace."""

    async def run() -> None:
        async with opened(workspace, **options) as asker:
            await work(asker)

    asyncio.run(run())


def decisions(workspace: Workspace) -> pl.DataFrame:
    return flushed(workspace).scan("decisions").sort("time", "id").collect()


def rewards(workspace: Workspace) -> pl.DataFrame:
    return flushed(workspace).scan("rewards").sort("time").collect()


VALID = [
    ("decide", DECIDE, 200, {"id", "action", "propensity", "policy", "mode"}),
    ("decide", {"context": {**CONTEXT, "bandwidth_kbps": 900}, "id": None, "unit": None}, 200, {"id", "action"}),
    ("decide", {**DECIDE, "id": "a", "eligible": ["720p"], "unit": "user-1"}, 200, {"action"}),
    ("decide/batch", {"requests": [DECIDE, {**DECIDE, "id": "b"}]}, 200, {"decisions"}),
    ("decide/batch", {"requests": []}, 200, {"decisions"}),
    ("reward", {"id": "a", "reward": 1}, 202, {"id"}),
    ("reward", {"id": "rewards", "reward": 1.5, "key": "rewards", "time": "2026-01-31T12:00:00+02:00"}, 202, {"id"}),
    ("reward", {"rewards": [{"id": "a", "reward": 1, "time": 1_763_200_000.25}]}, 202, {"accepted"}),
    ("reward", {"rewards": []}, 202, {"accepted"}),
    ("observe", {"observations": [SEEN, {**SEEN, "id": "y", "reward": 1, "floor": 0.1}]}, 202, {"accepted"}),
    ("observe", {"observations": [{**SEEN, "eligible": ["360p"], "rewards": [{"reward": 2}]}]}, 202, {"accepted"}),
    ("admin/mode", {"mode": "online"}, 200, {"serving", "mode", "notice"}),
]


@pytest.mark.parametrize(("path", "body", "status", "fields"), VALID)
def test_valid_requests_are_answered(workspace, path, body, status, fields):
    async def work(asker: Asker) -> None:
        answer = await asker.post(path, body)
        assert answer.status == status
        assert answer.headers["content-type"] == "application/json"
        assert fields <= answer.json.keys()

    asking(workspace, work)


INVALID = [
    ("decide", b"", 400, "not JSON"),
    ("decide", b"{", 400, "not JSON"),
    ("decide", b'{"id": "\xff"}', 400, "not JSON"),
    ("decide", b'{"id": "\\ud800"}', 400, "not JSON"),
    ("decide", b"[" * 100_000, 422, "Expected `object`"),
    ("decide", {}, 422, "`context`"),
    ("decide", {"context": {"connection": "4g"}}, 422, "`bandwidth_kbps` - at `$.context`"),
    ("decide", {"context": {**CONTEXT, "bandwidth_kbps": SECRET}}, 422, "`$.context.bandwidth_kbps`"),
    ("decide", {"context": {**CONTEXT, "bandwidth_kbps": True}}, 422, "`$.context.bandwidth_kbps`"),
    ("decide", {"context": {**CONTEXT, "bandwidth_kbps": None}}, 422, "`$.context.bandwidth_kbps`"),
    ("decide", b'{"context": {"bandwidth_kbps": 1e999, "connection": "4g"}}', 422, "out of range"),
    ("decide", {"context": {**CONTEXT, "colour": SECRET}}, 422, "unknown key 'colour'"),
    ("decide", {**DECIDE, "eligible": []}, 422, "`$.eligible`"),
    ("decide", {**DECIDE, "eligible": ["8k"]}, 422, "'8k' - at `$.eligible[0]`"),
    ("decide", {**DECIDE, "eligible": "360p"}, 422, "`$.eligible`"),
    ("decide", {**DECIDE, "id": ""}, 422, "`$.id`"),
    ("decide", {**DECIDE, "id": 7}, 422, "`$.id`"),
    ("decide", {**DECIDE, "id": "x" * 1001}, 422, "`$.id`"),
    ("decide", {**DECIDE, "id": "ß" * 900}, 422, "1000 bytes"),
    ("decide", {**DECIDE, "unit": "ß" * 900}, 422, "1000 bytes"),
    ("decide", {**DECIDE, "action": "360p"}, 422, "apprentice"),
    ("decide", {**DECIDE, "colour": 1}, 422, "unknown key 'colour'"),
    ("decide/batch", {"requests": [DECIDE, {"context": {}}]}, 422, "`$.requests[1].context`"),
    ("decide/batch", {"requests": [{**DECIDE, "id": "a"}] * 2}, 422, "`$.requests[1].id`"),
    ("decide/batch", {"requests": [DECIDE] * 11}, 413, "at most 10"),
    ("decide/batch", {"requests": [{"context": {**CONTEXT, "connection": "x" * 2**21}}]}, 422, "1048576 bytes"),
    ("decide", {"context": {**CONTEXT, "connection": "x" * 2**21}}, 413, "at most 1048576 bytes"),
    ("decide/batch", [DECIDE], 422, "Expected `object`"),
    ("reward", {"id": "a"}, 422, "`reward`"),
    ("reward", {"id": "a", "reward": "1"}, 422, "`$.reward`"),
    ("reward", {"id": "a", "reward": 1e300}, 422, "reward must be"),
    ("reward", {"id": "a", "reward": 1, "time": "yesterday"}, 422, "`$.time`"),
    ("reward", {"id": "a", "reward": 1, "time": "2026-01-01T00:00:00"}, 422, "timezone"),
    ("reward", {"id": "a", "reward": 1, "time": -1}, 422, "`$.time`"),
    ("reward", {"id": "a", "reward": 1, "time": 1e308}, 422, "`$.time`"),
    ("reward", {"rewards": [{"id": "a", "reward": 1}, {"id": "b"}]}, 422, "`$.rewards[1]`"),
    ("reward", {"rewards": [{"id": "a", "reward": 1}] * 11}, 413, "at most 10"),
    ("observe", {"observations": [{**SEEN, "propensity": 0}]}, 422, "`$.observations[0].propensity`"),
    ("observe", {"observations": [{**SEEN, "action": "8k"}]}, 422, "`$.observations[0].action`"),
    ("observe", {"observations": [{**SEEN, "eligible": ["720p"]}]}, 422, "'360p'"),
    ("observe", {"observations": [{key: SEEN[key] for key in SEEN.keys() - {"time"}}]}, 422, "`time`"),
    ("observe", {"observations": [{**SEEN, "policy": 2**63}]}, 422, "policy"),
    ("observe", {"observations": [{**SEEN, "time": 1e11}]}, 422, "`$.observations[0].time`"),
    ("admin/mode", {"mode": "offline"}, 422, "`$.mode`"),
    ("admin/mode", {"mode": "log-only"}, 422, "serve.fallback"),
    ("admin/rollback", {"to": "1"}, 422, "`$.to`"),
    ("admin/rollback", {"to": 5}, 404, "version 5"),
    ("admin/rollback", {}, 404, "no version served before"),
]


@pytest.mark.parametrize(("path", "body", "status", "told"), INVALID)
def test_invalid_requests_are_refused_by_field_and_place_and_leave_nothing(workspace, path, body, status, told, caplog):
    async def work(asker: Asker) -> None:
        sent = {"body": body} if isinstance(body, bytes) else {"value": body}
        answer = await asker.post(path, **sent)
        assert answer.status == status, answer.body
        assert told in answer.json["error"]
        assert SECRET not in answer.json["error"]

    asking(workspace, work, max_batch=10)
    assert SECRET not in caplog.text
    assert not list(workspace.spool.glob("*/*.log"))


def test_paths_methods_and_types_that_there_are_not(workspace):
    async def work(asker: Asker) -> None:
        assert (await asker.get("nothing")).status == 404
        assert (await asker.post("/v1/another/decide", DECIDE)).status == 404
        answer = await asker.get("decide")
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        assert (await asker.post("policy", {})).status == 405
        for stated in ("text/plain", "application/x-www-form-urlencoded", ""):
            assert (await asker.post("decide", DECIDE, content_type=stated)).status == 415
        assert (await asker.ask("POST", "decide", b"{}", {})).status == 415
        assert (await asker.post("decide", DECIDE, content_type="Application/JSON; charset=utf-8")).status == 200
        assert (await asker.ask("HEAD", "policy", b"", {})).status == 200

    asking(workspace, work)


def test_what_fails_unexpectedly_is_our_fault_and_tells_nothing(workspace, monkeypatch, caplog):
    def fail(*_: object) -> None:
        raise KeyError(SECRET)

    async def work(asker: Asker) -> None:
        monkeypatch.setattr(Decider, "decide_one", fail)
        answer = await asker.post("decide", DECIDE)
        assert answer.status == 500
        assert SECRET not in answer.json["error"]

    asking(workspace, work)
    assert "KeyError" in caplog.text
    assert "test_app.py" in caplog.text
    assert SECRET not in caplog.text


def test_a_single_request_falls_back_if_the_policy_cannot_decide(with_fallback, monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise InvalidPolicy("scores are not finite")

    async def work(asker: Asker) -> None:
        monkeypatch.setattr(Policy, "decide_row", fail)
        for decision_id in ("a", "a", "b"):
            answer = await asker.post("decide", {**DECIDE, "id": decision_id})
            assert (answer.json["mode"], answer.json["action"], answer.json["propensity"]) == ("fallback", "720p", 1.0)

    asking(with_fallback, work)
    assert decisions(with_fallback)["id"].to_list() == ["a", "b"]


def test_asking_again_gives_the_same_decision_and_logs_it_once(workspace):
    async def work(asker: Asker) -> None:
        first = await asker.post("decide", {**DECIDE, "id": "a"})
        publish(workspace)
        await asker.app._problems[0].reload()
        second = await asker.post("decide", {**DECIDE, "id": "a"})
        assert first.body == second.body
        batch = await asker.post("decide/batch", {"requests": [{**DECIDE, "id": "b"}, {**DECIDE, "id": "a"}]})
        fresh, again = batch.json["decisions"]
        assert again == first.json
        assert (fresh["policy"], again["policy"]) == (1, 0)

    asking(workspace, work)
    assert decisions(workspace)["id"].sort().to_list() == ["a", "b"]


@pytest.mark.parametrize(
    "other",
    [
        {"context": {**CONTEXT, "connection": "wifi"}},
        {"context": {**CONTEXT, "bandwidth_kbps": 900.5}},
        {**DECIDE, "eligible": ["360p"]},
    ],
)
def test_an_id_for_another_question_is_a_conflict(workspace, other):
    async def work(asker: Asker) -> None:
        await asker.post("decide", {**DECIDE, "id": "a"})
        assert (await asker.post("decide", {**other, "id": "a"})).status == 409
        asked = {"requests": [{**DECIDE, "id": "new"}, {**other, "id": "a"}]}
        assert (await asker.post("decide/batch", asked)).status == 409

    asking(workspace, work)
    assert decisions(workspace)["id"].to_list() == ["a"]


def test_only_the_last_decisions_are_remembered(workspace):
    async def work(asker: Asker) -> None:
        for name in ("a", "b", "c", "d", "e"):
            await asker.post("decide", {**DECIDE, "id": name})
        other = {"context": {**CONTEXT, "connection": "wifi"}}
        for name in ("d", "e"):
            assert (await asker.post("decide", {**other, "id": name})).status == 409
        assert (await asker.post("decide", {**other, "id": "a"})).status == 200

    asking(workspace, work, idempotency_size=2)


def test_a_batch_that_is_sent_again_is_answered_and_logged_as_before(workspace):
    batch = {"requests": [{**DECIDE, "id": f"id-{i}"} for i in range(20)]}
    other = {"requests": [*batch["requests"][:3], {**DECIDE, "id": "new"}, *batch["requests"][9:5:-1]]}

    async def work(asker: Asker) -> None:
        first = await asker.post("decide/batch", batch)
        publish(workspace)
        await asker.app._problems[0].reload()
        assert (await asker.post("decide/batch", batch)).body == first.body
        told = {decision["id"]: decision for decision in first.json["decisions"]}
        again = (await asker.post("decide/batch", other)).json["decisions"]
        assert [decision["id"] for decision in again] == [request["id"] for request in other["requests"]]
        assert [told.get(decision["id"], decision) for decision in again] == again
        alone = await asker.post("decide", {**DECIDE, "id": "id-7"})
        assert alone.json == told["id-7"]

    asking(workspace, work)
    assert sorted(decisions(workspace)["id"]) == sorted([*(f"id-{i}" for i in range(20)), "new"])


def test_those_who_ask_the_same_at_once_are_told_the_same(workspace):
    async def work(asker: Asker) -> None:
        answers = await asyncio.gather(*[asker.post("decide", {**DECIDE, "id": "a"}) for _ in range(20)])
        assert len({answer.body for answer in answers}) == 1

    asking(workspace, work)
    assert decisions(workspace)["id"].to_list() == ["a"]


def test_apprentice_and_log_only_are_kept_over_a_restart_and_logged_as_what_they_are(with_fallback):
    publish(with_fallback)

    async def watch(asker: Asker) -> None:
        assert (await asker.post("admin/mode", {"mode": "apprentice"})).json == {"serving": 1, "mode": "apprentice"}
        told = (await asker.post("decide", {**DECIDE, "action": "1080p", "id": "a"})).json
        assert (told["action"], told["mode"]) == ("1080p", "apprentice")
        assert told["would"] == with_fallback.registry.policy().decide(CONTEXT, id="a").action

    async def fixed(asker: Asker) -> None:
        assert (await asker.post("decide", DECIDE)).status == 422  # still apprentice
        await asker.post("admin/mode", {"mode": "log-only"})
        told = (await asker.post("decide", {**DECIDE, "id": "b"})).json
        assert told == {"id": "b", "action": "720p", "propensity": 1.0, "policy": 1, "mode": "log-only"}

    asking(with_fallback, watch)
    asking(with_fallback, fixed)
    logged = decisions(with_fallback)
    assert logged["mode"].to_list() == ["apprentice", "log-only"]
    p = with_fallback.registry.policy(1).probabilities(CONTEXT)
    assert logged["propensity"].to_list() == pytest.approx([float(p[2]), 1.0])


def test_the_policy_is_sent_once_to_those_who_have_it(workspace):
    policy = publish(workspace)

    async def work(asker: Asker) -> None:
        answer = await asker.get("policy")
        assert (answer.status, answer.headers["x-potstill-version"]) == (200, "1")
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.body == policy.to_bytes()
        etag = answer.headers["etag"]
        same = await asker.get("policy", if_none_match=f'W/"x", {etag}')
        assert (same.status, same.body, same.headers["etag"]) == (304, b"", etag)
        publish(workspace)
        await asker.app._problems[0].reload()
        assert (await asker.get("policy", if_none_match=etag)).headers["x-potstill-version"] == "2"

    asking(workspace, work)


def test_problem_status_and_readiness(workspace):
    async def work(asker: Asker) -> None:
        problem = (await asker.get("problem")).json
        assert problem.pop("hash") == workspace.problem.hash
        assert problem["actions"]["names"] == ["360p", "720p", "1080p"]
        await asker.post("decide/batch", {"requests": [DECIDE] * 3})
        await asker.post("reward", {"id": "a", "reward": 1})
        status = (await asker.get("status")).json
        assert {key: status[key] for key in ("problem", "serving", "mode", "decisions", "rewards", "ready")} == {
            "problem": "video-upload",
            "serving": 0,
            "mode": "online",
            "decisions": 3,
            "rewards": 1,
            "ready": True,
        }
        assert status["log"]["segments"] == 1
        assert status["log"]["bytes"] > 0
        assert (await asker.get("/health")).status == (await asker.get("/ready")).status == 200

    asking(workspace, work)


def test_rolling_back_takes_effect_at_once(workspace):
    publish(workspace)
    publish(workspace)

    async def work(asker: Asker) -> None:
        answer = await asker.post("admin/rollback", {"note": "complaints"})
        assert (answer.json["serving"], answer.json["mode"]) == (1, "online")
        assert (await asker.post("decide", DECIDE)).json["policy"] == 1
        assert (await asker.post("admin/rollback", {"to": 2})).json["serving"] == 2

    asking(workspace, work)
    assert workspace.registry.entries()[-2].note == "complaints"


def test_a_rollback_is_pinned_until_it_is_unpinned(workspace):
    publish(workspace)
    publish(workspace)

    async def work(asker: Asker) -> None:
        answer = (await asker.post("admin/rollback", {"reason": "complaints", "by": "ann"})).json
        assert (answer["serving"], answer["pinned"]["by"], answer["pinned"]["reason"]) == (1, "ann", "complaints")
        publish(workspace)
        status = (await asker.get("status")).json
        assert (status["serving"], status["pinned"]["by"], status["paused"]) == (1, "ann", None)
        assert (await asker.post("admin/unpin", {})).json == {"serving": 1, "mode": "online"}
        publish(workspace)
        assert (await asker.post("admin/pin", {"by": "bob"})).json["serving"] == 4
        assert (await asker.post("admin/pin", {"version": 3})).json["serving"] == 3
        assert (await asker.post("admin/pin", {"version": 9})).status == 404

    asking(workspace, work)


def test_updates_are_paused_and_resumed(workspace):
    async def work(asker: Asker) -> None:
        answer = (await asker.post("admin/pause", {"reason": "late rewards"})).json
        assert (answer["paused"]["by"], answer["paused"]["reason"]) == ("an open service", "late rewards")
        assert (await asker.get("status")).json["paused"]["reason"] == "late rewards"
        uniform = "version 0 is uniform: it has learnt nothing"
        assert (await asker.post("admin/resume", {})).json == {"serving": 0, "mode": "online", "notice": uniform}

    asking(workspace, work)


def test_the_author_of_a_change_is_the_token(workspace, tmp_path):
    file = TokenFile(open_storage(tmp_path))
    token = {"authorization": f"Bearer {file.create('ops', ['admin'])}"}

    async def work(asker: Asker) -> None:
        assert (await asker.post("admin/pause", {})).status == 401
        assert (await asker.post("admin/pause", {}, **token)).json["paused"]["by"] == "ops"
        answer = await asker.post("admin/pause", {"by": "ann"}, **token)
        assert answer.json["paused"]["by"] == "ann (token ops)"

    asking(workspace, work, guards={"video-upload": Guard(file)})
    assert [entry.by for entry in workspace.registry.entries()][1:] == ["ops", "ann (token ops)"]


def test_rewards_and_observations_reach_the_lake_as_they_were_sent(workspace):
    async def work(asker: Asker) -> None:
        await asker.post("reward", {"id": "a", "reward": 1, "key": "k", "time": "2026-01-31T12:00:00.5+02:00"})
        await asker.post("reward", {"rewards": [{"id": "b", "reward": 2.5, "time": 1_800_000_000.25}]})
        seen = {**SEEN, "unit": "phone", "floor": 0.1, "eligible": ["360p", "720p"], "reward": 0.5}
        seen |= {"reward_time": SEEN["time"] + 60, "rewards": [{"reward": 2, "key": "later", "time": 1_900_000_000}]}
        await asker.post("observe", {"observations": [seen, {**SEEN, "id": "y"}]})

    asking(workspace, work)
    told = rewards(workspace)
    assert told["id"].to_list() == ["z", "a", "b", "z"]
    assert told["reward"].to_list() == [0.5, 1.0, 2.5, 2.0]
    assert told["key"].to_list() == ["observation", "k", None, "later"]
    seconds = [1_763_200_060, 1_769_853_600.5, 1_800_000_000.25, 1_900_000_000]
    assert told["time"].dt.epoch("us").to_list() == [round(s * 1e6) for s in seconds]
    logged = decisions(workspace).sort("id", descending=True)
    assert logged["id"].to_list() == ["z", "y"]
    assert logged.row(0, named=True)["unit"] == "phone"
    assert logged["time"].dt.epoch("s").to_list() == [SEEN["time"]] * 2


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_disk_that_hangs_takes_no_threads_from_others(workspace, monkeypatch):
    mended = threading.Event()
    monkeypatch.setattr(status, "TIMEOUT", 0.05)
    monkeypatch.setattr(status, "is_ready", lambda _: mended.wait(60))
    monkeypatch.setattr(endpoints, "is_ready", status.is_ready)

    async def work(asker: Asker) -> None:
        answers = await asyncio.gather(*[asker.get("/ready") for _ in range(40)])
        assert {(answer.status, answer.headers["retry-after"]) for answer in answers} == {(503, "1")}
        assert (await asker.get("status")).status == 503
        await asyncio.wait_for(asker.app._problems[0].reload(), 10)
        assert (await asker.post("decide", DECIDE)).status == 200
        mended.set()
        monkeypatch.setattr(status, "TIMEOUT", 30.0)
        assert (await asker.get("/ready")).status == 200

    asking(workspace, work)


def test_a_full_disk_acknowledges_nothing_and_recovers(workspace, monkeypatch):
    async def work(asker: Asker) -> None:
        with monkeypatch.context() as disk:
            disk.setattr(SegmentWriter, "commit", full)
            disk.setattr(status, "write_atomically", full)
            for path, body in [
                ("decide", {**DECIDE, "id": "a"}),
                ("decide/batch", {"requests": [DECIDE] * 2}),
                ("reward", {"id": "a", "reward": 1}),
                ("observe", {"observations": [SEEN]}),
            ]:
                answer = await asker.post(path, body)
                assert (answer.status, answer.headers["retry-after"]) == (503, "1")
            assert (await asker.get("/ready")).status == 503
        assert (await asker.get("/ready")).status == 200
        assert (await asker.post("decide", {**DECIDE, "id": "a"})).status == 200
        assert (await asker.post("reward", {"id": "a", "reward": 1})).status == 202

    asking(workspace, work)
    assert decisions(workspace)["id"].to_list() == ["a"]
    assert rewards(workspace)["id"].to_list() == ["a"]


def test_of_those_who_ask_the_same_at_once_none_is_told_what_did_not_reach_the_disk(workspace, monkeypatch):
    async def work(asker: Asker) -> None:
        with monkeypatch.context() as disk:
            disk.setattr(SegmentWriter, "commit", full)
            answers = await asyncio.gather(*[asker.post("decide", {**DECIDE, "id": "a"}) for _ in range(5)])
            assert {answer.status for answer in answers} == {503}

    asking(workspace, work)
    assert len(decisions(workspace)) == 0


def test_a_full_disk_is_answered_with_the_fallback_if_there_is_one(with_fallback, monkeypatch):
    async def work(asker: Asker) -> None:
        with monkeypatch.context() as disk:
            disk.setattr(SegmentWriter, "commit", full)
            told = (await asker.post("decide", {**DECIDE, "id": "a"})).json
            assert told == {"id": "a", "action": "720p", "propensity": 1.0, "policy": 0, "mode": "fallback"}
            batch = await asker.post("decide/batch", {"requests": [DECIDE, {**DECIDE, "eligible": ["360p"]}]})
            assert [one["action"] for one in batch.json["decisions"]] == ["720p", "360p"]
            assert (await asker.post("reward", {"id": "a", "reward": 1})).status == 503
        assert (await asker.post("decide", {**DECIDE, "id": "a"})).json == told
        assert (await asker.post("decide", {**DECIDE, "id": "b"})).json["mode"] == "online"

    asking(with_fallback, work)
    assert decisions(with_fallback)["id"].to_list() == ["b"]


def test_a_disk_that_is_too_slow_is_answered_with_the_fallback_which_the_join_then_counts(with_fallback, monkeypatch):
    going_on = threading.Event()
    sync = segment_writer.sync_data

    def slow(descriptor: int) -> None:
        going_on.wait(20)
        sync(descriptor)

    async def work(asker: Asker) -> None:
        monkeypatch.setattr(segment_writer, "sync_data", slow)
        told = (await asker.post("decide", {**DECIDE, "id": "a"})).json
        assert (told["mode"], told["action"]) == ("fallback", "720p")
        going_on.set()

    asking(with_fallback, work, log_timeout=0.05)
    logged = decisions(with_fallback)  # by time
    assert logged["id"].to_list() == ["a", "a"]
    assert logged["mode"].to_list() == ["fallback", None]


def test_without_a_sound_policy_the_fallback_answers_and_is_logged(with_fallback, monkeypatch):
    publish(with_fallback)
    path = with_fallback.storage.folder / "registry" / with_fallback.registry.head().files.policy.name
    path.write_bytes(path.read_bytes()[:-1])

    async def work(asker: Asker) -> None:
        assert (await asker.post("decide", DECIDE)).json["mode"] == "fallback"
        assert (await asker.get("policy")).status == (await asker.get("/ready")).status == 503
        publish(with_fallback)
        await asker.app._problems[0].reload()
        assert (await asker.post("decide", DECIDE)).json["policy"] == 2

    asking(with_fallback, work)
    assert decisions(with_fallback)["mode"].to_list() == ["fallback", None]


def test_without_a_sound_policy_or_a_fallback_there_is_no_answer(workspace):
    publish(workspace)
    path = workspace.storage.folder / "registry" / workspace.registry.head().files.policy.name
    path.write_bytes(path.read_bytes()[:-1])

    async def work(asker: Asker) -> None:
        answer = await asker.post("decide", DECIDE)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert (await asker.post("reward", {"id": "a", "reward": 1})).status == 202

    asking(workspace, work)


def test_tokens_are_asked_for_where_there_is_a_guard(workspace):
    file = TokenFile(workspace.storage)
    deciding, reading = file.create("product", ["decide"]), file.create("dashboard", ["read"])

    async def work(asker: Asker) -> None:
        none = await asker.post("decide", DECIDE)
        assert (none.status, none.headers["www-authenticate"]) == (401, "Bearer")
        assert (await asker.post("decide", DECIDE, authorization=f"Bearer {reading}")).status == 403
        assert (await asker.post("decide", DECIDE, authorization=f"Bearer {deciding}")).status == 200
        assert (await asker.get("status", authorization=f"Bearer {reading}")).status == 200
        for path in ("/openapi.json", "/metrics"):
            assert (await asker.get(path)).status == 401
            assert (await asker.get(path, authorization=f"Bearer {deciding}")).status == 403
        assert (await asker.get("/openapi.json", authorization=f"Bearer {reading}")).status == 200
        for path in ("/health", "/ready", "/docs"):
            assert (await asker.get(path)).status == 200
        file.revoke("product")
        await asker.app._reload_tokens()
        assert (await asker.post("decide", DECIDE, authorization=f"Bearer {deciding}")).status == 401

    asking(workspace, work, guards={"video-upload": Guard(file)})


def test_pages_of_other_origins_may_call_only_if_configured(workspace):
    asked = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    closed, open_ = create_app([workspace]), create_app([workspace], Options(cors=("https://shop.example",)))

    async def allowed(app, origin: str) -> str | None:
        answer = await Asker(app, "").ask("OPTIONS", "/v1/video-upload/decide", b"", {**asked, "origin": origin})
        return answer.headers.get("access-control-allow-origin")

    assert asyncio.run(allowed(closed, "https://shop.example")) is None
    assert asyncio.run(allowed(open_, "https://shop.example")) == "https://shop.example"
    assert asyncio.run(allowed(open_, "https://other.example")) is None


def test_several_problems_are_served_side_by_side_with_any_names(tmp_path):
    names = ["a b/ß", "plain"]
    made = [
        worlds.made(str(tmp_path / str(i)), problem=worlds.PROBLEM.replace(b"video-upload", name.encode()))
        for i, name in enumerate(names)
    ]
    for workspace in made:
        publish(workspace)
    publish(made[1])
    with server(*(workspace.url for workspace in made)) as started, httpx.Client(base_url=started.url) as client:
        assert client.post("/v1/a%20b%2F%C3%9F/decide", json=DECIDE).json()["policy"] == 1
        assert client.post("/v1/plain/decide", json=DECIDE).json()["policy"] == 2
        assert client.get("/ready").status_code == 200


def test_what_cannot_be_served_is_said_before_it_is(workspace, tmp_path):
    with pytest.raises(ValueError, match="both have the problem name 'video-upload'"):
        App([workspace, workspace], Options())
    wrong = worlds.made(str(tmp_path / "other"), worlds.CONFIG + b'[serve]\nfallback = "8k"\n')
    with pytest.raises(InvalidConfig, match=r"'8k'"):
        App([wrong], Options())


class Caller(threading.Thread):
    """Decides and rewards until it is cut off; what was acknowledged."""

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__()
        self._url, self._prefix = url, prefix
        self.decided: list[str] = []
        self.rewarded: list[str] = []
        self.refused: list[str] = []

    def run(self) -> None:
        with httpx.Client(base_url=f"{self._url}/v1/video-upload/", timeout=30) as client:
            for i in range(100_000):
                names = [f"{self._prefix}-{i}-{j}" for j in range(1 + i % 3)]
                asked = {"requests": [{**DECIDE, "id": name} for name in names]}
                told = {"rewards": [{"id": name, "reward": 1.0, "key": "only"} for name in names]}
                try:
                    self._note(client.post("decide/batch", json=asked), names, self.decided)
                    self._note(client.post("reward", json=told), names, self.rewarded)
                except httpx.TransportError:
                    return

    def _note(self, reply: httpx.Response, names: list[str], acknowledged: list[str]) -> None:
        (acknowledged if reply.is_success else self.refused).extend(names)


def under_load(workspace: Workspace, stop: signal.Signals, count: int) -> list[Caller]:
    """Callers of a server that gets a signal after a number of acknowledged decisions."""
    with server(workspace.url, log_timeout=30) as started:
        callers = [Caller(started.url, f"{started.pid}-{number}") for number in range(4)]
        for caller in callers:
            caller.start()
        while sum(len(caller.decided) for caller in callers) < count:
            time.sleep(0.005)
        os.kill(started.pid, stop)
        for caller in callers:
            caller.join()
    return callers


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_acknowledged_is_in_the_lake_once_however_the_server_ends(workspace, stop):
    callers = [caller for _ in range(2) for caller in under_load(workspace, stop, 300)]
    assert [caller.refused for caller in callers] == [[]] * len(callers)
    assert Flusher(Spool(workspace.spool), workspace.lake).flush().error is None
    for table, acknowledged in [("decisions", "decided"), ("rewards", "rewarded")]:
        found = Counter(workspace.lake.scan(table).collect()["id"].to_list())
        told = [name for caller in callers for name in getattr(caller, acknowledged)]
        assert len(told) >= 300
        assert {found[name] for name in told} == {1}
        assert set(found.values()) == {1}
