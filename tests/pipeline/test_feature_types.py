"""The later feature types through the whole circle: service, log, lake, join, update, audit."""

import asyncio

import numpy as np
import pytest
from service_examples import opened
from worlds import LATER, NOON, SETTINGS, made

import potstill as ps
from potstill.evaluate import LakeLog
from potstill.events import LoggedDecision, LoggedReward
from potstill.pipeline.audit import run_audit
from potstill.pipeline.reproduce import reproduce_version
from potstill.pipeline.update import run_update

LINEAR = (
    SETTINGS
    + b"""
[teacher]
type = "linear-ts"
"""
)
PROBLEM = b"""
name = "offer"
[[context]]
type = "hashed"
name = "merchant"
size = 8
missing = "flag"
[[context]]
type = "text"
name = "title"
size = 16
missing = "flag"
[[context]]
type = "timestamp"
name = "local"
parts = ["hour", "week"]
offset = "own"
missing = "flag"
[[context]]
type = "timestamp"
name = "joined"
parts = ["year"]
unit = "ms"
[[context]]
type = "vector"
name = "embedding"
size = 3
norm = "unit"
missing = "flag"
[[context]]
type = "numeric"
name = "amount"
low = 0
high = 1000
scale = "quantile"
knots = [1, 10, 100]
[actions]
type = "discrete"
names = ["none", "5%"]
[reward]
default = 0.0
window = "1h"
"""


def contexts(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {
            "merchant": None if rng.random() < 0.1 else f"m{rng.integers(5)}\0",
            "title": None if rng.random() < 0.1 else f"{['Red', 'BLUE'][rng.integers(2)]} shoes, {rng.integers(99)} €",
            "local": None
            if rng.random() < 0.1
            else f"2026-01-{rng.integers(10, 32)}T12:{rng.integers(10, 60)}:00+05:30",
            "joined": int(rng.integers(10**12)),
            "embedding": None if rng.random() < 0.1 else rng.standard_normal(3).tolist(),
            "amount": float(np.exp(3 * rng.standard_normal())),
        }
        for _ in range(count)
    ]


def reward(context, action):
    """5 % pays for what is red."""
    good = (context["title"] or "").startswith("Red")
    return float(good == (action == "5%"))


def test_a_workspace_learns_and_every_propensity_is_audited(tmp_path):
    workspace = made(str(tmp_path / "w"), LINEAR, PROBLEM)
    policy = workspace.start()
    with workspace.event_log() as log:
        for i, context in enumerate(contexts(400)):
            decision, at = policy.decide(context, id=f"d{i}"), NOON + i * 1000
            log.append(LoggedDecision.of(decision, context, time=at))
            log.append(LoggedReward(id=decision.id, reward=reward(context, decision.action), time=at + 1))
    report = run_update(workspace, now=LATER)
    assert (report.outcome, report.observations) == ("published", 400)
    served = workspace.serving()
    assert served.metadata.format == 2
    rows = contexts(500, seed=1)
    actions = [served.decide(row).action for row in rows]
    assert np.mean([reward(row, action) for row, action in zip(rows, actions, strict=True)]) > 0.7
    assert reproduce_version(workspace, 1).identical
    assert run_audit(workspace).clean


def test_the_service_takes_lists_and_knows_a_repeated_request(tmp_path):
    workspace = made(str(tmp_path / "w"), LINEAR, PROBLEM)
    workspace.start()
    asyncio.run(ask(workspace))


async def ask(workspace):
    request = {
        "id": "a",
        "context": {"merchant": "東京", "title": "Größe 38, rot", "embedding": [1, 2, 3.5], "amount": 7},
    }
    request["context"] |= {"local": "2026-01-31T12:00:00.5+01:00", "joined": 1_700_000_000_000}
    async with opened(workspace) as service:
        first, again = await service.post("decide", request), await service.post("decide", request)
        assert first.status == 200
        assert first.json == again.json
        batch = await service.post("decide/batch", {"requests": [request | {"id": "b"}, request | {"id": "c"}]})
        assert len(batch.json["decisions"]) == 2
        for value in ([1, 2], [1, 2, "3"], [1, 2, 1e39], "x", {}):
            wrong = {"id": "d", "context": request["context"] | {"embedding": value}}
            answer = await service.post("decide", wrong)
            assert answer.status == 422, value
            assert "embedding" in answer.json["error"]
        for value in ("x" * 4097, 3, ["red"]):
            answer = await service.post("decide", {"id": "e", "context": request["context"] | {"title": value}})
            assert answer.status == 422
            assert "title" in answer.json["error"]
        for name, value in (("local", "noon"), ("local", 5), ("joined", 1e300), ("joined", "2026-01-31")):
            answer = await service.post("decide", {"id": "f", "context": request["context"] | {name: value}})
            assert answer.status == 422
            assert name in answer.json["error"]
            assert value != "noon" or "of RFC 3339, such as 2026-01-31T12:00:00Z" in answer.json["error"]
        described = (await service.get("/openapi.json")).json
        (title,) = [c["properties"]["title"] for n, c in described["components"]["schemas"].items() if "Context" in n]
        assert "4096" in title["description"]
        assert 4096 in [part.get("maxLength") for part in (title, *title.get("anyOf", []))]
    async with opened(workspace) as service:  # what a restart recalls from the log has lists too
        assert (await service.post("decide", request)).json["action"] == first.json["action"]


def test_rows_cannot_be_segmented_by_a_list(tmp_path):
    workspace = made(str(tmp_path / "w"), LINEAR, PROBLEM)
    with pytest.raises(ps.PotstillError, match="list of numbers"):
        LakeLog(workspace, by=["embedding"])
