"""The asynchronous client: the same logic, so the tests are about what waits and what goes on meanwhile."""

import asyncio
import gzip

import pytest
from fake_service import CUT, SLOW

from potstill.client import AsyncClient, QueueFull, Refused, Retry, ServiceError, Unreachable, http


@pytest.fixture
def unhurried(pauses):
    async def sleep(seconds):
        pauses.append(seconds)

    return {"retry": Retry(timeout=5.0, jitter=lambda: 0.0), "sleep": sleep}


def test_decisions_and_rewards(service, policy, context, unhurried):
    async def play():
        async with AsyncClient(service.url, reward_every=1000, **unhurried) as client:
            answers = await asyncio.gather(*(client.decide(context, id=f"d{i}") for i in range(20)))
            for answer in answers:
                await client.reward(answer.id, 1.0, metrics={"watched": 2.5})
            assert service.rewards == {}
            batch = await client.decide_batch([{"context": context, "id": "x"}])
            assert (await client.policy()).version == 3
            assert (await client.status())["ready"]
            assert await client.observe([]) == 0
            return [*answers, *batch]

    answers = asyncio.run(play())
    expected = [policy.decide(context, id=name) for name in [*(f"d{i}" for i in range(20)), "x"]]
    assert [(a.action, a.propensity) for a in answers] == [(d.action, d.propensity) for d in expected]
    assert {name for name, _ in service.rewards} == {f"d{i}" for i in range(20)}
    assert all(told["metrics"] == {"watched": 2.5} for [told] in service.rewards.values())


def test_failures_are_tried_again(service, context, pauses, unhurried):
    async def play():
        async with AsyncClient(service.url, **unhurried) as client:
            service.faults = [CUT, 503]
            await client.decide(context)
            service.faults = [422]
            with pytest.raises(Refused):
                await client.decide(context)

    asyncio.run(play())
    assert pauses == [0.05, 0.1]


def test_a_reply_that_is_compressed_or_too_large_is_refused(service, context, unhurried, monkeypatch):
    monkeypatch.setattr(http, "MAX_REPLY", 10_000)

    async def play():
        async with AsyncClient(service.url, **unhurried) as client:
            service.faults = [(200, {"Content-Encoding": "gzip"}, gzip.compress(bytes(1_000_000)))] * 4
            with pytest.raises(Unreachable, match=r"compressed \(gzip\)"):
                await client.decide(context)
            service.faults = [(200, {}, bytes(10_001))] * 4
            with pytest.raises(Unreachable, match="larger than"):
                await client.decide(context)
            await client.decide(context)

    asyncio.run(play())


def test_the_deadline_and_the_fallback(service, context):
    async def play():
        async with AsyncClient(service.url, timeout=0.1, retries=0) as client:
            service.faults = [SLOW]
            with pytest.raises(Unreachable, match=r"no complete reply in 0\.1 s"):
                await client.decide(context)
        async with AsyncClient(service.url, timeout=0.1, retries=0, fallback="360p") as client:
            service.faults = [SLOW]
            return await client.decide(context)

    assert asyncio.run(play()).mode == "fallback"


@pytest.mark.parametrize("options", [{"reward_every": 0.01}, {"reward_every": 1000, "reward_batch": 3}])
def test_rewards_are_sent_in_the_background(service, unhurried, options):
    async def play():
        async with AsyncClient(service.url, **options, **unhurried) as client:
            for i in range(3):
                await client.reward(f"d{i}", 1)
            while len(service.rewards) < 3:
                await asyncio.sleep(0.005)
            await client.reward("later", 1)

    asyncio.run(asyncio.wait_for(play(), 10))
    assert len(service.rewards) == 4


def test_rewards_wait_for_a_service_that_is_away(service, unhurried):
    async def play():
        async with AsyncClient(service.url, reward_every=0.01, max_pending=2, **unhurried) as client:
            service.stop()
            await client.reward("a", 1)
            with pytest.raises(Unreachable):
                await client.flush()
            await client.reward("b", 1)
            with pytest.raises(QueueFull):
                await client.reward("c", 1)
            service.start()

    asyncio.run(play())
    assert sorted(name for name, _ in service.rewards) == ["a", "b"]


def test_a_client_that_is_closed(service, unhurried):
    async def play():
        client = AsyncClient(service.url, reward_every=1000, **unhurried)
        await client.reward("a", 1)
        service.stop()
        with pytest.raises(ServiceError):
            await client.close()
        with pytest.raises(ValueError, match="closed"):
            await client.reward("a", 1)

    asyncio.run(play())
