"""Actions are added, retired and removed under requests: none is lost, and every propensity is what was logged."""

import asyncio
import os
import signal

import pytest
import worlds
from service_examples import Asker, experiment, flushed, opened, publish
from service_process import Load, serving, until

from potstill.client import Client
from potstill.pipeline import run_audit
from potstill.service.auth import Guard
from potstill.service.tokens import TokenFile
from potstill.storage import open_storage
from potstill.workspace import Workspace, add_action, list_actions, remove_action, retire_action

WORKER = "potstill.service.process.worker"
CONTEXT = {"bandwidth_kbps": 900.0, "connection": "4g"}


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    found = worlds.made(str(tmp_path / "video"))
    found.start()
    publish(found)
    return found


def asking(workspace: Workspace, work, **options) -> None:
    async def run() -> None:
        async with opened(workspace, **options) as asker:
            await work(asker)

    asyncio.run(run())


def names(answer) -> dict[str, str]:
    return {one["action"]: one["state"] for one in answer.json["actions"]}


def test_changes_are_followed_at_once_with_author_and_reason(workspace):
    async def work(asker: Asker) -> None:
        added = await asker.post("admin/actions", {"change": "add", "action": "4k", "by": "ann", "reason": "screens"})
        assert (added.status, added.json["serving"], added.json["changed"]) == (200, 2, True)
        assert names(added) == {"360p": "chosen", "720p": "chosen", "1080p": "chosen", "4k": "new"}
        only = await asker.post("decide", {"context": CONTEXT, "eligible": ["4k"], "id": "a"})
        assert (only.json["action"], only.json["propensity"], only.json["policy"]) == ("4k", 1.0, 2)
        assert (await asker.get("problem")).json["actions"]["names"][-1] == "4k"
        again = await asker.post("admin/actions", {"change": "add", "action": "4k"})
        assert (again.json["changed"], again.json["serving"]) == (False, 2)
        retired = await asker.post("admin/actions", {"change": "retire", "action": "360p"})
        assert names(retired)["360p"] == "retired"
        assert names(await asker.get("actions")) == names(retired)
        for number in range(50):
            decided = await asker.post("decide", {"context": CONTEXT, "id": f"b{number}"})
            assert decided.json["action"] != "360p"
        alone = await asker.post("decide", {"context": CONTEXT, "eligible": ["360p"], "id": "c"})
        assert (alone.json["action"], alone.json["propensity"]) == ("360p", 1.0)
        removed = await asker.post("admin/actions", {"change": "remove", "action": "720p"})
        assert (removed.status, removed.json["left_out"]) == (200, 0)
        refused = await asker.post("decide", {"context": CONTEXT, "eligible": ["720p"]})
        assert refused.status == 422

    asking(workspace, work)
    entry = workspace.registry.entries()[2]
    assert entry.by == "ann"
    assert entry.note.endswith(": screens")
    flushed(workspace)
    found = run_audit(Workspace(workspace.url))
    assert (found.clean, found.decisions, found.checked) == (True, 52, 52)


def test_a_repeated_request_gets_its_decision_across_a_change(workspace):
    async def work(asker: Asker) -> None:
        first = await asker.post("decide", {"context": CONTEXT, "id": "once"})
        await asker.post("admin/actions", {"change": "add", "action": "4k"})
        again = await asker.post("decide", {"context": CONTEXT, "id": "once"})
        assert again.json == first.json

    asking(workspace, work)

    async def after_a_restart(asker: Asker) -> None:
        found = await asker.post("decide", {"context": CONTEXT, "id": "once"})
        assert found.json["policy"] == 1

    asking(Workspace(workspace.url), after_a_restart)
    assert flushed(Workspace(workspace.url)).scan("decisions").collect().height == 1


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"change": "retire", "action": "36p"}, 422, "did you mean '360p'?"),
        ({"change": "add", "action": "4k", "like": "1081p"}, 422, "did you mean '1080p'?"),
        ({"change": "add", "action": "4k", "share": 1}, 422, "share"),
        ({"change": "swap", "action": "4k"}, 422, "change"),
        ({"change": "add", "action": ""}, 422, "action"),
        ({"change": "retire", "action": "720p"}, 422, "control of experiment 'hd' takes it"),
        ({"change": "remove", "action": "1080p"}, 422, "it is serve.fallback"),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(workspace, body, status, said):
    text = workspace.storage.read("potstill.toml") + experiment() + b'[serve]\nfallback = "1080p"\n'
    workspace.storage.replace("potstill.toml", text)

    async def work(asker: Asker) -> None:
        before = workspace.storage.read("problem.toml"), workspace.registry.head()
        answer = await asker.post("admin/actions", body)
        assert (answer.status, said in answer.json["error"]) == (status, True), answer.json
        assert (workspace.storage.read("problem.toml"), workspace.registry.head()) == before

    asking(Workspace(workspace.url), work)


def test_only_admins_change_actions(workspace, tmp_path):
    file = TokenFile(open_storage(tmp_path))
    reader = {"authorization": f"Bearer {file.create('reader', ['read'])}"}

    async def work(asker: Asker) -> None:
        assert (await asker.get("actions", **reader)).status == 200
        assert (await asker.post("admin/actions", {"change": "add", "action": "4k"}, **reader)).status == 403

    asking(workspace, work, guards={"video-upload": Guard(file)})


def test_requests_and_changes_at_once_lose_nothing(workspace):
    """50 tasks decide and reward while 12 changes are made; every answer is a success, and the audit is clean."""
    refusals: list[object] = []

    async def work(asker: Asker) -> None:
        ended = asyncio.Event()

        async def decide(task: int) -> None:
            number = 0
            while not ended.is_set():
                number += 1
                name = f"{task}-{number}"
                for answer in (
                    await asker.post("decide", {"context": CONTEXT, "id": name}),
                    await asker.post("reward", {"id": name, "reward": 1.0}),
                    await asker.post("decide/batch", {"requests": [{"context": CONTEXT, "id": f"{name}/a"}]}),
                ):
                    if answer.status not in (200, 202):
                        refusals.append(answer.json)

        tasks = [asyncio.create_task(decide(task)) for task in range(50)]
        for change, action in 3 * [("add", "4k"), ("retire", "360p"), ("add", "360p"), ("remove", "4k")]:
            answer = await asker.post("admin/actions", {"change": change, "action": action})
            assert answer.status == 200, answer.json
            await asyncio.sleep(0.05)
        ended.set()
        await asyncio.gather(*tasks)

    asking(workspace, work)
    assert refusals == []
    lake = flushed(Workspace(workspace.url))
    assert lake.scan("decisions").collect()["id"].is_unique().all()
    found = run_audit(Workspace(workspace.url))
    assert found.clean, found
    assert found.decisions > 500
    assert lake.scan("decisions").collect()["policy"].n_unique() > 6


def test_workers_follow_changes_of_the_command_line_and_survive_a_restart(workspace, tmp_path):
    """Two workers; one is killed after a change, and its replacement decides the present actions at once."""
    with serving(tmp_path / "service", workspace.url, "--workers", 2) as running:
        client = Client(f"http://127.0.0.1:{running.port}/v1/video-upload")
        with Load(running, "video-upload", CONTEXT, threads=2) as load, client:
            assert client.decide(CONTEXT, id="before").policy == 1
            add_action(workspace.url, "4k")

            def all_follow():
                bodies = [{"context": CONTEXT, "eligible": ["4k"]} for _ in range(8)]
                return all(running.ask("POST", "/v1/video-upload/decide", body)[0] == 200 for body in bodies)

            until(all_follow)
            assert client.decide(CONTEXT, eligible=["4k"]).action == "4k"
            assert client.decide(CONTEXT, id="before").policy == 1
            retire_action(workspace.url, "720p")
            until(lambda: len(load.rewarded) > 100)
        assert load.failures == []
        workers = running.children()[WORKER]
        os.kill(workers[0], signal.SIGKILL)
        until(lambda: len({*running.children().get(WORKER, [])} - {*workers}) == 1)
        until(all_follow)  # the replacement was started with the problem of the service's start
        assert running.stop() == 0
    flushed(Workspace(workspace.url))
    assert run_audit(Workspace(workspace.url)).clean


def test_an_experiment_goes_on(workspace):
    """Its control is a fixed action; treatment gets the new action, and control never does."""
    text = workspace.storage.read("potstill.toml") + experiment()
    workspace.storage.replace("potstill.toml", text)
    seen: dict[str, set[str]] = {"hd:control": set(), "hd:treatment": set()}

    async def work(asker: Asker) -> None:
        for change in ({"change": "add", "action": "4k", "share": 0.9}, {"change": "retire", "action": "360p"}):
            assert (await asker.post("admin/actions", change)).status == 200
            for unit in range(60):
                request = {"context": CONTEXT, "unit": f"u{unit}", "id": f"{change['change']}-{unit}"}
                answer = (await asker.post("decide", request)).json
                seen[answer["arm"]].add(answer["action"])
        assert (await asker.get("status")).json["experiment_state"] == "running"

    asking(Workspace(workspace.url), work)
    assert seen["hd:control"] == {"720p"}
    assert "4k" in seen["hd:treatment"]
    flushed(Workspace(workspace.url))
    assert run_audit(Workspace(workspace.url)).clean


def test_devices_with_an_earlier_policy_are_heard(workspace):
    policy = workspace.registry.policy()
    decided = [policy.decide(CONTEXT, id=f"device-{number}") for number in range(20)]

    async def work(asker: Asker) -> None:
        for body in ({"change": "add", "action": "4k"}, {"change": "retire", "action": "360p"}):
            await asker.post("admin/actions", body)
        rows = [
            {
                "id": one.id,
                "context": CONTEXT,
                "action": one.action,
                "propensity": one.propensity,
                "policy": 1,
                "time": 9,
            }
            for one in decided
        ]
        assert (await asker.post("observe", {"observations": rows})).status == 202

    asking(workspace, work)
    flushed(Workspace(workspace.url))
    found = run_audit(Workspace(workspace.url))
    assert (found.clean, found.checked) == (True, 20)


def test_a_change_that_was_made_by_hand_is_followed_after_it_is_published(workspace):
    async def work(asker: Asker) -> None:
        text = worlds.PROBLEM.replace(b'"1080p"]', b'"1080p", "4k"]')
        workspace.storage.replace("problem.toml", text)
        before = await asker.post("decide", {"context": CONTEXT, "eligible": ["4k"]})
        assert before.status == 422
        Workspace(workspace.url).start()  # what potstill update does too
        await asker.app.routes[f"{asker.prefix}decide"]["POST"].service.follow()
        after = await asker.post("decide", {"context": CONTEXT, "eligible": ["4k"]})
        assert after.status == 200

    asking(workspace, work)


def test_actions_that_serve_are_listed(workspace):
    add_action(workspace.url, "4k", share=0.2)
    retire_action(workspace.url, "720p")
    found = list_actions(Workspace(workspace.url))
    assert [(one.action, one.state) for one in found.actions] == [
        ("360p", "chosen"),
        ("720p", "retired"),
        ("1080p", "chosen"),
        ("4k", "new"),
    ]
    assert [one.least for one in found.actions] == pytest.approx([0.2 / 3, 0, 0.2 / 3, 0.2 / 3])
    assert remove_action(workspace.url, "4k").changed
