"""Clients of a problem whose action is a number."""

import asyncio

import numpy as np
import pytest
from fake_service import LOST_REPLY

import potstill as ps
from potstill.client import AsyncClient, Client, EdgeClient, Unreachable
from potstill.errors import InvalidAction, InvalidContext
from potstill.policy import Layer

CONTEXT = {"demand": 0.5}
NARROW = [6, 6.5]


@pytest.fixture
def problem():
    context = [ps.Numeric("demand", low=0, high=1)]
    return ps.Problem(name="pricing", context=context, actions=ps.Continuous("price", 2, 14, bins=16))


@pytest.fixture
def policy(problem):
    scores = np.linspace(-1, 1, 16, dtype=np.float32)
    return ps.Policy.build(problem, [Layer(scores[None], 0 * scores)], version=3)


@pytest.fixture
def client(service, quick):
    with Client(service.url, reward_every=1000, **quick) as client:
        yield client


def test_a_decision_is_a_number_with_its_density_also_on_a_retry(client, service, policy):
    service.faults = [LOST_REPLY]
    answer = client.decide(CONTEXT, id="a", eligible=NARROW)
    expected = policy.decide(CONTEXT, id="a", eligible=NARROW)
    assert (answer.action, answer.propensity) == (expected.action, expected.propensity)
    assert answer.propensity > 1  # a density
    assert service.bodies == [{"context": CONTEXT, "id": "a", "eligible": NARROW}] * 2
    (batch,) = client.decide_batch([{"context": CONTEXT, "id": "a", "eligible": np.array(NARROW).tolist()}])
    assert batch.action == expected.action


@pytest.mark.parametrize("fallback", [8, 8.0, np.float32(8)])
def test_the_fallback_is_a_number_within_the_interval(service, quick, fallback):
    service.stop()
    with Client(service.url, fallback=fallback, **quick) as client:
        assert client.decide(CONTEXT).action == 8
        assert client.decide(CONTEXT, eligible=[7, 9]).mode == "fallback"
        assert client.decide(CONTEXT, eligible=(8, 9)).action == 8
        for eligible in ([9, 10], [2, 7.5], [8], ["7", "9"], [7, 8, 9]):
            with pytest.raises(Unreachable):
                client.decide(CONTEXT, eligible=eligible)


def test_the_fallback_of_an_async_client_is_a_number_too(service):
    async def decide():
        async with AsyncClient(service.url, fallback=8.0, timeout=0.2, retries=0) as client:
            online = await client.decide(CONTEXT, id="a", eligible=NARROW)
            service.stop()
            return online, await client.decide(CONTEXT, eligible=[7, 9])

    online, down = asyncio.run(decide())
    assert online.action == service.policy.decide(CONTEXT, id="a", eligible=NARROW).action
    assert (down.action, down.mode) == (8.0, "fallback")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), np.float64("nan")])
def test_numbers_that_are_not_finite_are_refused_before_they_are_sent(client, service, bad):
    for options, place in (({"eligible": [bad, 8]}, "eligible"), ({"action": bad}, "action")):
        with pytest.raises(InvalidContext, match=rf"expected a finite number, got \S+ \(float\d*\) - at `\$.{place}"):
            client.decide(CONTEXT, **options)
    assert service.bodies == []
    with pytest.raises(ValueError, match="fallback must be an action, such as a finite number, got"):
        Client(service.url, fallback=bad)


def test_a_device_decides_numbers_repeats_them_by_id_and_sends_them_exactly(service, policy, tmp_path, quick):
    with EdgeClient(service.url, tmp_path / "edge", survives="process", **quick) as device:
        decision = device.decide(CONTEXT, id="a", eligible=NARROW, floor=0.2)
        assert decision == policy.decide(CONTEXT, id="a", eligible=NARROW, floor=0.2)
        assert device.decide(CONTEXT, id="a", eligible=np.array(NARROW), floor=0.2) == decision
        with pytest.raises(ValueError, match="taken in another context or with other eligible actions"):
            device.decide(CONTEXT, id="a", eligible=[6, 7])
        for eligible in ([7, 6], [1, 7], [float("nan"), 7], ["6", 7], [6], "6"):
            with pytest.raises(InvalidAction, match=r"price|\[from, to\]"):
                device.decide(CONTEXT, eligible=eligible)
        assert device.queued == 1
        device.sync()
    (told,) = service.observations["a"]
    assert (told["action"], told["propensity"]) == (decision.action, decision.propensity)
    assert (told["eligible"], told["floor"]) == ([6.0, 6.5], 0.2)
