"""The clients against the real service, down to the tables that are learnt from."""

import asyncio

import pytest

import potstill as ps
from potstill.client import AsyncClient, Client, EdgeClient, Refused

pytest.importorskip("starlette", reason="needs the service")
pytest.importorskip("polars", reason="needs the lake")

from service_examples import running

from potstill.events.lake import Flusher
from potstill.events.wal import Spool
from potstill.experiments.assignment import arm_of
from potstill.workspace import Workspace, template

CONTEXT = {"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True}


def rows(workspace, table):
    """What is in the lake, by id, if each is there once."""
    frame = workspace.lake.scan(table).collect()
    assert frame["id"].is_unique().all()
    return {row["id"]: row for row in frame.iter_rows(named=True)}


def test_decisions_and_rewards_reach_the_lake_once(tmp_path):
    workspace = Workspace.create(tmp_path / "video", template.PROBLEM.encode(), template.CONFIG.encode())
    with running(workspace.url) as address:
        url = f"{address}/v1/{workspace.problem.name}"
        made = {**over_http(url), **asyncio.run(over_asyncio(url)), **on_a_device(url, tmp_path / "edge")}
    Flusher(Spool(workspace.spool), workspace.lake).flush()
    decisions, rewards = rows(workspace, "decisions"), rows(workspace, "rewards")
    assert decisions.keys() == rewards.keys() == made.keys()
    for name, (action, propensity) in made.items():
        assert (decisions[name]["action"], decisions[name]["propensity"]) == (action, propensity)
        assert rewards[name]["time"] >= decisions[name]["time"]


def over_http(url):
    with Client(url) as client:
        answers = [client.decide(CONTEXT, id=f"http-{i}") for i in range(3)]
        assert client.decide(CONTEXT, id="http-0") == answers[0]
        answers += client.decide_batch([{"context": CONTEXT, "id": "batch-1", "eligible": ["360p"], "unit": "u"}])
        with pytest.raises(Refused, match="answered 422") as caught:
            client.decide({**CONTEXT, "hd_screen": 3})
        assert caught.value.status == 422
        for answer in answers:
            client.reward(answer.id, 0.5)
        status = client.status()
        assert status["problem"] == client.policy().problem.name
    return {answer.id: (answer.action, answer.propensity) for answer in answers}


def test_arms_and_metrics_reach_the_lake(tmp_path):
    experiment = b'[experiment]\nname = "hd"\ncontrol = { action = "360p" }\n'
    workspace = Workspace.create(tmp_path / "video", template.PROBLEM.encode(), experiment)
    with running(workspace.url) as address, Client(f"{address}/v1/{workspace.problem.name}") as client:
        answers = [client.decide(CONTEXT, id=f"d{i}", unit=f"u{i}") for i in range(8)]
        outside = client.decide(CONTEXT, id="outside")
        for answer in answers:
            client.reward(answer.id, 0.5, metrics={"watched": 3.2})
    Flusher(Spool(workspace.spool), workspace.lake).flush()
    decisions, rewards = rows(workspace, "decisions"), rows(workspace, "rewards")
    expected = {f"d{i}": f"hd:{arm_of('hd', f'u{i}', 0.5)}" for i in range(8)}
    assert {answer.id: answer.arm for answer in answers} == expected
    assert len(set(expected.values())) == 2
    assert {name: row["arm"] for name, row in decisions.items()} == {**expected, "outside": None}
    assert outside.arm is None
    assert all(rewards[name]["metrics"] == [{"name": "watched", "value": 3.2}] for name in expected)


async def over_asyncio(url):
    async with AsyncClient(url) as client:
        answers = await asyncio.gather(*(client.decide(CONTEXT, id=f"async-{i}") for i in range(5)))
        for answer in answers:
            await client.reward(answer.id, 0.5)
    return {answer.id: (answer.action, answer.propensity) for answer in answers}


def on_a_device(url, folder):
    with EdgeClient(url, folder, survives="process") as client:
        made = [client.decide(CONTEXT, id=f"edge-{i}", unit="u") for i in range(50)]
        made.append(client.decide(CONTEXT, id="edge-few", eligible=["360p", "720p"], floor=0.1))
        for decision in made:
            client.reward(decision.id, 0.5)
        client.reward("edge-0", 0.5e300)  # does not fit, which only the service knows
        done = client.sync()
        assert (done.decisions, done.rewards, done.refused, client.queued) == (51, 51, 1, 0)
        [aside] = client.refused()
        assert (aside.kind, aside.id) == ("reward", "edge-0")
        assert client.sync().policy_error is None
        assert ps.Policy.load(folder / "current.policy").version == client.policy.version
    return {decision.id: (decision.action, decision.propensity) for decision in made}
