"""A repeated request finds the first decision: after a restart, under a new version, and on another worker."""

import asyncio
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack
from functools import partial

import pytest
import worlds
from service_examples import Asker, opened, publish

from potstill.events.lake import Flusher
from potstill.service import shared_ids
from potstill.service.shared_ids import SharedIds
from potstill.workspace import Workspace

CONTEXT = {"bandwidth_kbps": 900.0, "connection": "4g"}
IDS = [f"r{i}" for i in range(40)]
ALL = {"requests": [{"id": name, "context": CONTEXT} for name in IDS]}
FALLBACK = worlds.CONFIG + b'[serve]\nfallback = "720p"\n'


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    made = worlds.made(str(tmp_path / "video"), FALLBACK)
    publish(made)
    return made


@pytest.fixture
def memory() -> Iterator[int]:
    descriptor = shared_ids.create_memory(2)
    yield descriptor
    os.close(descriptor)


def serve(workspace: Workspace, work, **options):
    """The result of `work(asker)` on a worker that starts and ends."""

    async def run():
        async with opened(workspace, **options) as asker:
            return await work(asker)

    return asyncio.run(run())


async def decide_all(asker: Asker) -> list[dict]:
    return (await asker.post("decide/batch", ALL)).json["decisions"]


def flush(workspace: Workspace) -> int:
    """Flush as the service does; the number of decisions that went to the lake."""
    report = Flusher(workspace.segments, workspace.lake).flush()
    assert report.error is None
    return report.decisions


@pytest.mark.parametrize("in_lake", [False, True])
def test_a_restarted_worker_answers_as_before_under_a_new_version(workspace, in_lake):
    first = serve(workspace, decide_all)
    assert flush(workspace) == 40 if in_lake else True
    publish(workspace)

    async def again(asker: Asker) -> list[dict]:
        for name in IDS[:3]:
            assert (await asker.post("decide", {"id": name, "context": CONTEXT})).json in first
        other = await asker.post("decide", {"id": "r0", "context": {**CONTEXT, "connection": "wifi"}})
        assert (other.status, "another context" in other.json["error"]) == (409, True)
        restricted = await asker.post("decide", {"id": "r0", "context": CONTEXT, "eligible": ["720p"]})
        assert restricted.status == 409
        fresh = await asker.post("decide", {"id": "new", "context": CONTEXT})
        assert fresh.json["policy"] == 2
        return await decide_all(asker)

    assert serve(workspace, again) == first
    flush(workspace)
    assert len(workspace.lake.scan("decisions").collect()) == 41


def test_every_kind_of_answer_is_given_again(workspace):
    kinds = [
        {"id": "restricted", "context": CONTEXT, "eligible": ["1080p", "360p"]},
        {"id": "partial", "context": {"bandwidth_kbps": 1}, "unit": "user-7"},
        {"id": "日本", "context": CONTEXT},
    ]

    async def in_modes(asker: Asker) -> list[dict]:
        answers = [(await asker.post("decide", one)).json for one in kinds]
        await asker.post("admin/mode", {"mode": "log-only"})
        answers.append((await asker.post("decide", {"id": "fixed", "context": CONTEXT})).json)
        await asker.post("admin/mode", {"mode": "online"})
        return answers

    first = serve(workspace, in_modes)
    assert [one["mode"] for one in first] == ["online"] * 3 + ["log-only"]
    publish(workspace)
    asked = [*kinds, {"id": "fixed", "context": CONTEXT}]
    assert serve(workspace, lambda asker: asker.post("decide/batch", {"requests": asked})).json["decisions"] == first


def test_decisions_are_forgotten_after_the_stated_time(workspace):
    first = serve(workspace, decide_all)
    flush(workspace)
    (kept,) = workspace.spool.glob("*/*.done")
    os.utime(kept, (0, 0))
    publish(workspace)
    assert {one["policy"] for one in serve(workspace, decide_all)} == {2} != {one["policy"] for one in first}
    flush(workspace)
    assert not kept.exists()


def test_nothing_is_kept_where_nothing_is_to_be_remembered(tmp_path):
    workspace = worlds.made(str(tmp_path / "video"), worlds.CONFIG + b'[serve]\nremember = "0s"\n')
    publish(workspace)
    serve(workspace, decide_all)
    flush(workspace)
    assert list(workspace.spool.glob("*/*")) == []
    publish(workspace)
    assert {one["policy"] for one in serve(workspace, decide_all)} == {2}


def on_two_workers(workspace: Workspace, memory: int, work, **options):
    """The result of `work(one, other)`."""

    async def run():
        async with AsyncExitStack() as stack:
            shared = [partial(SharedIds, memory, number, 2) for number in range(2)]
            workers = [opened(workspace, shared_ids=one, **options) for one in shared]
            return await work(*[await stack.enter_async_context(worker) for worker in workers])

    return asyncio.run(run())


def test_another_worker_gives_the_first_answer(workspace, memory):
    async def work(one: Asker, other: Asker) -> None:
        first = await decide_all(one)
        single = (await other.post("decide", {"id": "single", "context": CONTEXT})).json
        publish(workspace)
        await asyncio.sleep(0.1)
        assert (await one.post("decide", {"id": "x", "context": CONTEXT})).json["policy"] == 2
        assert (await one.post("decide", {"id": "single", "context": CONTEXT})).json == single
        conflict = await other.post("decide", {"id": "r3", "context": {**CONTEXT, "bandwidth_kbps": 1}})
        assert conflict.status == 409
        mixed = {"requests": [{"id": "r7", "context": CONTEXT}, {"context": CONTEXT}, *ALL["requests"][:2]]}
        answers = (await other.post("decide/batch", mixed)).json["decisions"]
        assert [answers[0], *answers[2:]] == [first[7], *first[:2]]
        assert answers[1]["policy"] == 2
        assert await decide_all(other) == first

    on_two_workers(workspace, memory, work, reload_seconds=0.02)
    assert flush(workspace) == 43


def test_decisions_that_left_a_workers_memory_are_found_on_disk(workspace, memory):
    async def work(one: Asker, _: Asker) -> None:
        first = await decide_all(one)
        for i in range(9):
            await one.post("decide", {"id": f"other-{i}", "context": CONTEXT})
        publish(workspace)
        assert await decide_all(one) == first

    on_two_workers(workspace, memory, work, reload_seconds=0.02, idempotency_size=4)


def test_two_workers_that_get_a_request_at_once_log_one_action(workspace, memory):
    """The second waits for the first; where neither knew of the other, both draw alike."""

    async def work(one: Asker, other: Asker) -> None:
        asked = [asker.post("decide", {"id": f"r{i}", "context": CONTEXT}) for i in range(20) for asker in (one, other)]
        answers = [answer.json for answer in await asyncio.gather(*asked)]
        assert answers[::2] == answers[1::2]

    on_two_workers(workspace, memory, work)


def test_ids_are_shared_between_workers_and_not_between_problems(memory):
    one, other = (SharedIds(memory, number, 2, "video") for number in range(2))
    names = [f"id-{i}" for i in range(5000)]
    assert one.seen(names) == []
    one.add(names[:1000])
    for name in names[1000:1100]:
        one.add([name])
    assert other.seen(names) == list(range(1100))
    assert [name for name in names if other.seen([name])] == names[:1100]
    assert other.seen([None, "id-1", None]) == [1]
    assert SharedIds(memory, 1, 2, "another").seen(names) == []
    assert SharedIds(memory, 0, 2, "video").seen(["id-1"]) == [0]  # a replacement


def test_ids_without_a_name_are_not_shared(memory):
    one = SharedIds(memory, 0, 2, "video")
    one.add([None])
    one.add([None, "a"])
    assert (one.seen([None]), one.seen([None, "a", None]), one.seen(["a"])) == ([], [1], [0])


def test_ids_of_one_set_are_all_found_until_it_is_full(memory, monkeypatch):
    monkeypatch.setattr(shared_ids, "SETS", 1)
    monkeypatch.setattr(shared_ids, "REGION", 4 * shared_ids.WAYS)
    shared = SharedIds(memory, 0, 2, "video")
    names = [f"id-{i}" for i in range(20)]
    shared.add(names[:12])
    for name in names[12:16]:
        shared.add([name])
    assert shared.seen(names) == list(range(16))
    shared.add(names[16:])
    assert len(shared.seen(names)) == 16
    assert shared.seen(names[16:]) == [0, 1, 2, 3]
