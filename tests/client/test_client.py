"""The client against a service that fails on demand."""

import gzip
import json
import logging
import subprocess
import sys
import threading
from datetime import UTC, datetime

import numpy as np
import pytest
from fake_service import CUT, LOST_REPLY, SLOW

import potstill as ps
from potstill.client import Client, QueueFull, Refused, Retry, ServiceError, Unreachable, http


@pytest.fixture
def client(service, quick):
    with Client(service.url, "pst_secret", reward_every=1000, **quick) as client:
        yield client


def test_a_decision(client, service, policy, context):
    answer = client.decide(context, id="a", eligible=["360p", "720p"], unit="user-1")
    decision = policy.decide(context, id="a", eligible=["360p", "720p"])
    assert (answer.id, answer.action, answer.policy, answer.mode) == ("a", decision.action, 3, "online")
    assert answer.propensity == decision.propensity
    told = {"context": context, "id": "a", "eligible": ["360p", "720p"], "unit": "user-1"}
    assert service.bodies == [told]
    assert service.requests[0][2]["authorization"] == "Bearer pst_secret"


def test_without_an_id_each_decision_gets_one(client, service, context):
    ids = {client.decide(context).id for _ in range(3)}
    assert [len(name) for name in ids] == [32, 32, 32]
    assert ids == {told["id"] for told in service.bodies}


def test_a_batch_keeps_the_order(client, policy, context):
    others = [context | {"bandwidth_kbps": 1000 * i} for i in range(5)]
    answers = client.decide_batch([{"context": one, "id": str(i)} for i, one in enumerate(others)])
    assert [a.action for a in answers] == [policy.decide(one, id=str(i)).action for i, one in enumerate(others)]


@pytest.mark.parametrize("fault", [CUT, LOST_REPLY, 503, (429, {"Retry-After": "0.5"})])
def test_a_failure_is_tried_again_under_the_same_id(client, service, pauses, context, fault):
    service.faults = [fault, fault]
    answer = client.decide(context)
    assert pauses == ([0.5, 0.5] if isinstance(fault, tuple) else [0.05, 0.1])
    assert {told["id"] for told in service.bodies} == {answer.id}


def test_numpy_values_are_sent_as_plain_ones(client, service, policy):
    context = {"bandwidth_kbps": np.float32(900), "connection": np.str_("4g"), "hd_screen": np.True_}
    assert client.decide(context, id="a").action == policy.decide(context, id="a").action
    assert service.bodies[0]["context"] == {"bandwidth_kbps": 900.0, "connection": "4g", "hd_screen": True}


def test_what_json_cannot_say_is_refused_before_it_is_sent(client, service, context):
    with pytest.raises(ps.InvalidContext, match="expected a plain value, got <object"):
        client.decide(context | {"connection": object()})
    assert service.bodies == []


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), np.float32("nan")])
def test_not_a_number_is_no_missing_value(client, service, context, value):
    bad = context | {"bandwidth_kbps": value}
    wanted = r"expected a finite number, got .*; send None if .* may be missing - at `\$.*context.bandwidth_kbps`"
    with pytest.raises(ps.InvalidContext, match=wanted):
        client.decide(bad)
    with pytest.raises(ps.InvalidContext, match=wanted):
        client.decide_batch([{"context": context}, {"context": bad}])
    with pytest.raises(ps.InvalidContext, match=wanted):
        client.observe([{"id": "a", "context": bad, "action": "360p", "propensity": 0.5, "policy": 0}])
    with pytest.raises(ps.InvalidContext, match="cannot be sent as JSON"):
        client.decide(context | {"bandwidth_kbps": 10**5000})
    assert service.bodies == []
    client.decide(context | {"connection": None})
    assert service.bodies[0]["context"]["connection"] is None


def test_a_reply_that_is_compressed_or_too_large_is_refused(client, service, context, monkeypatch):
    monkeypatch.setattr(http, "MAX_REPLY", 10_000)
    packed = gzip.compress(bytes(1_000_000))
    service.faults = [(200, {"Content-Encoding": "gzip"}, packed)] * 4
    with pytest.raises(Unreachable, match=r"compressed \(gzip\)"):
        client.decide(context)
    service.faults = [(200, {}, bytes(10_001))] * 4
    with pytest.raises(Unreachable, match="larger than"):
        client.decide(context)
    assert client.decide(context).action in ("360p", "480p", "720p", "1080p")
    assert service.requests[-1][2]["accept-encoding"] == "identity"


def test_a_refusal_is_raised_with_the_services_words(client, service, context):
    service.faults = [(422, {})]
    with pytest.raises(Refused, match="decide: the service answered 422: on demand") as caught:
        client.decide(context)
    assert caught.value.status == 422


def test_a_login_page_is_no_answer(client, service, context):
    service.faults = [(200, {"Content-Type": "text/html"})]
    with pytest.raises(Unreachable, match="the reply is not from the service"):
        client.decide(context)


def test_a_service_that_is_away(service, context):
    service.stop()
    pauses = []
    client = Client(service.url, retry=Retry(timeout=5.0, retries=2), sleep=pauses.append)
    with pytest.raises(Unreachable, match=r"POST decide: ConnectError.*; 3 attempts"):
        client.decide(context)
    assert len(pauses) == 2


def test_a_reply_that_drips_is_cut_off(service, context):
    service.faults = [SLOW]
    client = Client(service.url, timeout=0.2, retries=0)
    with pytest.raises(Unreachable, match=r"no complete reply in 0\.2 s"):
        client.decide(context)


class TestFallback:
    @pytest.fixture
    def away(self, service, quick):
        service.stop()
        with Client(service.url, fallback="480p", reward_every=1000, **quick) as client:
            yield client

    def test_the_product_gets_an_answer(self, away, context):
        answer = away.decide(context, id="a")
        assert (answer.id, answer.action, answer.propensity, answer.mode) == ("a", "480p", 1.0, "fallback")
        assert answer.policy is None
        assert [a.mode for a in away.decide_batch([{"context": context}] * 2)] == ["fallback"] * 2

    def test_only_if_it_is_eligible(self, away, context):
        with pytest.raises(Unreachable):
            away.decide(context, eligible=["360p"])
        assert away.decide(context, eligible=["360p", "480p"]).action == "480p"

    def test_an_apprentices_own_choice_goes_first(self, away, context):
        assert away.decide(context, action="1080p").action == "1080p"

    def test_its_reward_is_not_sent(self, away, service, context):
        """The service may have logged another action under that id before the reply was lost."""
        away.decide(context, id="a")
        away.reward("a", 1.0)
        away.reward("b", 1.0)
        service.start()
        away.flush()
        assert [name for name, _ in service.rewards] == ["b"]

    def test_a_refusal_is_no_reason_for_it(self, service, quick, context):
        service.faults = [(422, {})]
        with Client(service.url, fallback="480p", **quick) as client, pytest.raises(Refused):
            client.decide(context)


class TestRewards:
    def test_they_go_together(self, client, service):
        for i in range(3):
            client.reward(f"d{i}", i)
        assert service.bodies == []
        client.flush()
        assert len(service.bodies) == 1
        assert [told["reward"] for told in service.bodies[0]["rewards"]] == [0.0, 1.0, 2.0]

    def test_their_time_is_that_of_the_report(self, client, service):
        before = datetime.now(UTC)
        client.reward("a", 1)
        after = datetime.now(UTC)
        stated = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
        client.reward("b", 1, time=stated)
        client.flush()
        first, second = (datetime.fromisoformat(told["time"]) for told in service.bodies[0]["rewards"])
        assert before <= first <= after
        assert second == stated

    def test_two_without_keys_are_two_and_two_of_one_key_are_one(self, client, service):
        for key in (None, None, "k", "k"):
            client.reward("a", 1, key=key)
        client.flush()
        assert len(service.rewards) == 3

    def test_a_lost_reply_counts_once(self, client, service):
        client.reward("a", 1)
        service.faults = [LOST_REPLY]
        client.flush()
        [(_, told)] = service.rewards.items()
        assert len(told) == 2
        assert told[0] == told[1]

    def test_a_full_batch_is_sent_at_once(self, service, quick):
        arrived = threading.Event()
        take = service._take
        service._take = lambda *args: (arrived.set(), take(*args))[1]
        with Client(service.url, reward_every=1000, reward_batch=3, **quick) as client:
            for i in range(3):
                client.reward(f"d{i}", 1)
            assert arrived.wait(10)
        assert len(service.rewards) == 3

    def test_a_single_one_is_sent_soon(self, service, quick):
        arrived = threading.Event()
        take = service._take
        service._take = lambda *args: (arrived.set(), take(*args))[1]
        with Client(service.url, reward_every=0.01, **quick) as client:
            client.reward("a", 1)
            assert arrived.wait(10)

    def test_they_wait_for_a_service_that_is_away(self, client, service):
        service.stop()
        client.reward("a", 1)
        with pytest.raises(Unreachable):
            client.flush()
        service.start()
        client.flush()
        client.flush()
        assert [len(told) for told in service.rewards.values()] == [1]

    def test_there_is_room_for_so_many(self, service, quick):
        with Client(service.url, reward_every=1000, max_pending=2, **quick) as client:
            client.reward("a", 1)
            client.reward("b", 1)
            with pytest.raises(QueueFull, match="2 rewards are pending"):
                client.reward("c", 1)
        assert {name for name, _ in service.rewards} == {"a", "b"}

    def test_a_bad_one_does_not_hold_up_the_others(self, client, service, caplog):
        service.bad_ids = {"d5"}
        for i in range(9):
            client.reward(f"d{i}", 1)
        with caplog.at_level(logging.WARNING):
            client.flush()
        assert {name for name, _ in service.rewards} == {f"d{i}" for i in range(9)} - {"d5"}
        assert "refused reward of decision 'd5'" in caplog.text

    @pytest.mark.parametrize("reward", [float("nan"), float("inf"), "1", None, True])
    def test_what_is_no_number_is_refused_at_once(self, client, reward):
        with pytest.raises(ValueError, match="reward must be a"):
            client.reward("a", reward)

    def test_metrics_go_along_as_they_are_now(self, client, service):
        metrics = {"watched": np.float32(0.5), "clicks": 2}
        client.reward("a", 1, metrics=metrics)
        metrics["clicks"] = 3
        client.reward("b", 1, metrics={})
        client.reward("c", 1)
        client.flush()
        sent = {told["id"]: told.get("metrics") for [told] in service.rewards.values()}
        assert sent == {"a": {"watched": 0.5, "clicks": 2.0}, "b": None, "c": None}

    @pytest.mark.parametrize(
        ("metrics", "message"),
        [
            ({"watched": float("nan")}, "metric 'watched' must be a finite number, got nan"),
            ({"watched": "long"}, "metric 'watched' must be a number, got 'long'"),
            ({"watched": True}, "metric 'watched' must be a number"),
            ({"": 1.0}, "a metric's name must be a string that is not empty"),
            ({1: 1.0}, "a metric's name must be a string"),
            ([1.0], "metrics must be a mapping of names to numbers"),
        ],
    )
    def test_metrics_that_are_no_numbers_are_refused_at_once(self, client, metrics, message):
        with pytest.raises(ValueError, match=message):
            client.reward("a", 1, metrics=metrics)

    def test_ids_keys_and_times_are_checked(self, client):
        with pytest.raises(ValueError, match="id must be a string"):
            client.reward("", 1)
        with pytest.raises(ValueError, match="key must be a string"):
            client.reward("a", 1, key="")
        with pytest.raises(ValueError, match="time needs a time zone"):
            client.reward("a", 1, time=datetime(2026, 1, 1))

    def test_closing_sends_them(self, service, quick):
        client = Client(service.url, reward_every=1000, **quick)
        client.reward("a", 1)
        client.close()
        client.close()
        assert len(service.rewards) == 1
        with pytest.raises(ValueError, match="closed"):
            client.reward("b", 1)

    def test_closing_says_what_could_not_be_sent(self, service, quick):
        client = Client(service.url, reward_every=1000, **quick)
        client.reward("a", 1)
        service.stop()
        with pytest.raises(ServiceError):
            client.close()

    def test_the_end_of_the_program_sends_them(self, service):
        code = f"from potstill.client import Client; Client({service.url!r}, reward_every=1000).reward('a', 1)"
        subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
        assert [name for name, _ in service.rewards] == ["a"]


def test_observations(client, service, context):
    rows = [
        {"id": f"d{i}", "context": context, "action": "360p", "propensity": 0.5, "policy": 1, "time": 1.0}
        for i in range(3)
    ]
    assert client.observe(rows) == 3
    assert client.observe([]) == 0
    assert service.bodies == [{"observations": rows}]


def test_the_policy(client, service, policy, context):
    assert client.policy().decide(context, id="a") == policy.decide(context, id="a")
    service.policy_file = service.policy_file[:-1]
    with pytest.raises(ps.InvalidPolicy):
        client.policy()
    service.etag = '"0123"'
    with pytest.raises(Unreachable, match="SHA-256"):
        client.policy()


def test_the_status(client):
    assert client.status() == {"problem": "video-upload", "ready": True}


@pytest.mark.parametrize(
    "url",
    ["", "host/v1/p", "ftp://h/v1/p", "http:///v1/p", "http://h", "http://h/v1/", "http://h/p", "http://h/v1/p?x=1"],
)
def test_an_address_that_is_none(url):
    with pytest.raises(ValueError, match="url must"):
        Client(url)


def test_secrets_do_not_belong_into_addresses():
    with pytest.raises(ValueError, match="url must not carry") as caught:
        Client("http://user:secret@h/v1/p")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("token", ["", "pst_secret\n", "pst secret", "pst_sécret"])
def test_a_token_that_is_none_is_refused_and_not_shown(token):
    with pytest.raises(ValueError, match="token must be printable ASCII") as caught:
        Client("http://h/v1/p", token)
    assert "cret" not in str(caught.value)


def test_without_httpx_the_way_out_is_named():
    code = """
import json, sys
sys.modules["httpx"] = None
from potstill.client import Client
try:
    Client("http://127.0.0.1:1/v1/p")
except ImportError as error:
    print(json.dumps(str(error)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'potstill[client]'" in json.loads(done.stdout)


def test_importing_brings_nothing_heavy():
    code = """
import sys
import potstill.client
heavy = {"polars", "deltalake", "jax", "scipy", "starlette", "uvicorn", "httpx", "obstore"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
