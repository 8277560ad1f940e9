"""Metrics that come with rewards: from a request to the lake, or refused."""

import asyncio

import polars as pl
import pytest
import worlds
from service_examples import Asker, flushed, opened

from potstill.workspace import Workspace

CONTEXT = {"bandwidth_kbps": 900.0, "connection": "4g"}
SEEN = {"id": "o", "context": CONTEXT, "action": "360p", "propensity": 0.5, "policy": 0, "time": 1_763_200_000}


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return worlds.made(str(tmp_path / "video"))


def asking(workspace: Workspace, work) -> None:
    async def run() -> None:
        async with opened(workspace) as asker:
            await work(asker)

    asyncio.run(run())


def test_metrics_of_rewards_arrive(workspace):
    async def work(asker: Asker) -> None:
        await asker.post("decide", {"id": "a", "context": CONTEXT})
        one = {"id": "a", "reward": 1, "key": "k", "metrics": {"watched": 3.2, "clicks": 1}}
        assert (await asker.post("reward", one)).status == 202
        many = [{"id": "b", "reward": 1, "metrics": {"watched": 1}}, {"id": "c", "reward": 1, "metrics": None}]
        assert (await asker.post("reward", {"rewards": many})).status == 202
        observed = [
            {**SEEN, "reward": 1, "metrics": {"watched": 2}},
            {**SEEN, "id": "p", "rewards": [{"reward": 1, "metrics": {"watched": 4}}, {"reward": 2}]},
        ]
        assert (await asker.post("observe", {"observations": observed})).status == 202

    asking(workspace, work)
    rewards = flushed(workspace).scan("rewards").select("id", "reward", "metrics").collect()
    found = {(name, reward): metrics for name, reward, metrics in rewards.iter_rows()}
    assert found == {
        ("a", 1.0): [{"name": "clicks", "value": 1.0}, {"name": "watched", "value": 3.2}],
        ("b", 1.0): [{"name": "watched", "value": 1.0}],
        ("c", 1.0): None,
        ("o", 1.0): [{"name": "watched", "value": 2.0}],
        ("p", 1.0): [{"name": "watched", "value": 4.0}],
        ("p", 2.0): None,
    }


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("reward", {"id": "a", "reward": 1, "metrics": {"watched": "long"}}, "`$.metrics[...]`"),
        ("reward", {"id": "a", "reward": 1, "metrics": {"": 1}}, "length >= 1"),
        ("reward", {"id": "a", "reward": 1, "metrics": [1]}, "`$.metrics`"),
        ("reward", {"id": "a", "reward": 1, "metrics": {"watched": 1e300}}, "metric watched must be a finite number"),
        ("observe", {"observations": [{**SEEN, "metrics": {"watched": 1}}]}, "metrics need a reward"),
    ],
)
def test_metrics_that_make_no_sense_are_refused_and_nothing_is_logged(workspace, path, body, message):
    async def work(asker: Asker) -> None:
        answer = await asker.post(path, body)
        assert answer.status == 422
        assert message in answer.json["error"]

    asking(workspace, work)
    assert flushed(workspace).scan("rewards").select(pl.len()).collect().item() == 0
