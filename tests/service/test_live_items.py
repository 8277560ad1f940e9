"""Items of a catalogue change under requests: none is lost, and every propensity is what was logged."""

import asyncio

import pytest
from catalog_examples import CONFIG, HOUR, NOON, item, log, shop
from service_examples import Asker, flushed, opened

from potstill.pipeline import run_audit
from potstill.pipeline.update import run_update
from potstill.workspace import Workspace

CONTEXT = {"likes": "rock"}
OBSERVED = {"id": "o", "context": CONTEXT, "propensity": 1, "policy": 0, "reward": 1, "time": "2024-10-04T12:00:00Z"}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory) -> Workspace:
    found = shop(str(tmp_path_factory.mktemp("live") / "shop"), count=8)
    log(found, 100)
    run_update(found, now=NOON + 3 * HOUR)
    return Workspace(found.url)


def asking(workspace: Workspace, work) -> None:
    async def run() -> None:
        async with opened(workspace) as asker:
            await work(asker)

    asyncio.run(run())


def test_items_change_between_two_requests(workspace):
    """30 changes under 600 decisions: no error, and an audit that recomputes all of them."""

    async def deciding(asker: Asker, name: str, done: asyncio.Event) -> int:
        number = 0
        while number < 300 or not done.is_set():
            answer = await asker.post("decide", {"context": CONTEXT, "id": f"{name}-{number}"})
            assert answer.status == 200, answer.json
            number += 1
        return number

    async def changing(asker: Asker, done: asyncio.Event) -> None:
        for number in range(8, 38):
            body = {"items": [item(number)], "remove": [f"i{number - 8}"], "by": "ann"}
            answer = await asker.post("admin/items", body)
            assert answer.status == 200, answer.json
            assert (answer.json["added"], answer.json["removed"]) == ([f"i{number}"], [f"i{number - 8}"])
            only = await asker.post("decide", {"context": CONTEXT, "eligible": [f"i{number}"], "id": f"only-{number}"})
            assert (only.json["action"], only.json["propensity"]) == (f"i{number}", 1.0)
        done.set()

    async def work(asker: Asker) -> None:
        done = asyncio.Event()
        *counts, _ = await asyncio.gather(deciding(asker, "a", done), deciding(asker, "b", done), changing(asker, done))
        listed = await asker.get("actions")
        assert [one["action"] for one in listed.json["actions"]] == [f"i{number}" for number in range(30, 38)]
        assert (await asker.get("problem")).json["actions"]["items"][-1]["id"] == "i37"
        total.append(sum(counts) + 30)

    total: list[int] = []
    asking(workspace, work)
    flushed(workspace)
    found = run_audit(Workspace(workspace.url))
    assert (found.clean, found.decisions) == (True, total[0] + 100)


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("admin/items", {"items": [item(3, price="low")]}, "item 'i3': feature 'price': expected a number, got 'low'"),
        ("admin/items", {"items": [{"id": "x"}]}, "item 'x': feature 'price' is missing"),
        ("admin/items", {"items": [item(1)], "whole": True}, "at least two items"),
        ("admin/items", {"items": {}}, "$.items"),
        ("admin/actions", {"change": "add", "action": "x"}, "see potstill items"),
        ("decide", {"context": CONTEXT, "eligible": ["nothing"]}, "unknown action 'nothing'"),
        ("decide", {"context": CONTEXT, "eligible": []}, "eligible"),
        ("observe", {"observations": [{**OBSERVED, "action": "nothing"}]}, "unknown action 'nothing'"),
    ],
)
def test_what_does_not_fit_is_refused(workspace, path, body, said):
    async def work(asker: Asker) -> None:
        answer = await asker.post(path, body)
        assert (answer.status, said in str(answer.json)) == (422, True), answer.json

    asking(workspace, work)


def test_a_list_has_no_items(tmp_path):
    import worlds

    found = worlds.made(str(tmp_path / "video"), CONFIG)
    found.start()

    async def work(asker: Asker) -> None:
        answer = await asker.post("admin/items", {"items": [item(1)]})
        assert (answer.status, "the actions are no catalogue" in str(answer.json)) == (422, True)

    asking(found, work)
