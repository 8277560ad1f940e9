"""A device: decides without a network, and loses nothing."""

import json
import logging
import threading
import time
from datetime import UTC, datetime

import msgspec
import numpy as np
import pytest
from examples import random_layers
from fake_service import CUT, LOST_REPLY

import potstill as ps
from potstill.client import EdgeClient, FolderInUse, NoPolicy, QueueFull, Refused, Unreachable


@pytest.fixture
def device(service, tmp_path, quick):
    """Opens the client of one device, again and again."""
    opened = []

    def start(**options):
        for client in opened:
            client.close()
        opened.append(EdgeClient(service.url, tmp_path / "edge", **{"survives": "process", **quick, **options}))
        return opened[-1]

    yield start
    for client in opened:
        client.close()


def once(arrived):
    """What the service has, if what it was told twice was the same."""
    assert all(told[0] == other for told in arrived.values() for other in told[1:])
    return {key: told[0] for key, told in arrived.items()}


class TestDeciding:
    def test_decisions_are_the_policys_own_and_arrive_exactly(self, device, service, policy, context):
        client = device()
        options = [{}, {"eligible": ["360p", "1080p"]}, {"floor": 0.1}]
        made = [client.decide(context, id=f"d{i}", **one) for i, one in enumerate(options)]
        assert made == [policy.decide(context, id=f"d{i}", **one) for i, one in enumerate(options)]
        client.sync()
        for decision, one in zip(made, options, strict=True):
            told = once(service.observations)[decision.id]
            assert told.pop("time")
            expected = {"id": decision.id, "context": context, "action": decision.action, "policy": 3, **one}
            assert told == {**expected, "propensity": decision.propensity}

    def test_the_time_is_that_of_the_decision(self, device, service, context):
        client = device()
        before = datetime.now(UTC)
        client.decide(context, id="a", unit="user-1")
        after = datetime.now(UTC)
        client.reward("a", 1.0)
        client.sync()
        told = once(service.observations)["a"]
        assert before <= datetime.fromisoformat(told["time"]) <= after
        assert told["unit"] == "user-1"
        [reward] = once(service.rewards).values()
        assert after <= datetime.fromisoformat(reward["time"]) <= datetime.now(UTC)

    def test_an_id_that_waits_gives_the_same_decision_also_after_a_new_policy(self, device, service, problem, context):
        client = device()
        first = [client.decide(context, id=f"d{i}", eligible=["360p", "480p", "720p"]) for i in range(20)]
        newer = ps.Policy.build(problem, random_layers(problem, seed=9), version=4)
        client._stored.replace(newer.to_bytes())
        again = [client.decide(context, id=f"d{i}", eligible=["360p", "480p", "720p"]) for i in range(20)]
        assert again == first
        assert client.decide(context, id="new").policy == 4
        with pytest.raises(ValueError, match="decision 'd3' was taken in another context"):
            client.decide(context | {"bandwidth_kbps": 1}, id="d3")
        assert client.queued == 21

    def test_what_does_not_fit_is_refused_and_not_queued(self, device, context):
        client = device()
        for bad in (context | {"x": 1}, {}, context | {"bandwidth_kbps": float("nan")}):
            with pytest.raises(ps.InvalidContext):
                client.decide(bad)
        with pytest.raises(ps.InvalidContext, match="a context to be logged maps feature names to values"):
            client.decide(client.policy.problem.encode(context))
        with pytest.raises(ValueError, match="finite"):
            client.reward("a", float("nan"))
        with pytest.raises(ValueError, match="valid Unicode"):
            client.reward("\ud800", 1)
        assert client.queued == 0

    def test_two_rewards_without_keys_are_two(self, device, service):
        client = device()
        client.reward("a", 1)
        client.reward("a", 1)
        client.sync()
        assert len(service.rewards) == 2

    def test_metrics_of_rewards_arrive(self, device, service):
        client = device()
        client.reward("a", 1, metrics={"watched": 3.2})
        with pytest.raises(ValueError, match="metric 'watched' must be a finite number"):
            client.reward("b", 1, metrics={"watched": float("inf")})
        client.sync()
        assert [told["metrics"] for [told] in service.rewards.values()] == [{"watched": 3.2}]

    def test_a_context_that_changes_later_was_queued_as_it_was(self, device, service, context):
        client = device()
        context["bandwidth_kbps"] = np.int64(900)
        client.decide(context, id="a")
        context["bandwidth_kbps"] = 5
        client.sync()
        assert once(service.observations)["a"]["context"]["bandwidth_kbps"] == 900

    def test_a_full_queue(self, device, context):
        client = device(max_rows=2)
        decision = client.decide(context)
        client.reward(decision.id, 1)
        for full in (lambda: client.decide(context), lambda: client.reward(decision.id, 1)):
            with pytest.raises(QueueFull, match="sync"):
                full()
        assert client.policy.decide(context).action
        client.sync()
        client.decide(context)


class TestSync:
    def test_weeks_without_a_network(self, device, service, context):
        """Restarts, failed attempts, then a network: everything is there once."""
        device()
        service.stop()
        for day in range(5):
            client = device()
            for i in range(4):
                client.decide(context, id=f"{day}-{i}")
                client.reward(f"{day}-{i}", i, key="day")
            with pytest.raises(Unreachable):
                client.sync()
        service.start()
        done = client.sync()
        assert (done.decisions, done.rewards, done.refused, client.queued) == (20, 20, 0, 0)
        assert set(service.observations) == {f"{day}-{i}" for day in range(5) for i in range(4)}
        assert {len(told) for told in (*service.observations.values(), *service.rewards.values())} == {1}
        assert client.sync().decisions == 0

    @pytest.mark.parametrize("fault", [CUT, LOST_REPLY, 503, (429, {"Retry-After": "0.1"}), 502])
    def test_failures_on_the_way_count_once(self, device, service, context, fault):
        client = device()
        for i in range(3):
            client.decide(context, id=f"d{i}")
            client.reward(f"d{i}", 1)
        service.faults = [fault, fault]
        client.sync()
        assert set(once(service.observations)) == {"d0", "d1", "d2"}
        assert len(once(service.rewards)) == 3
        assert client.queued == 0

    @pytest.mark.parametrize(
        "reply", [(200, {}), (202, {}), (202, {}, b'{"accepted": 0}'), (302, {"Location": "/login"})]
    )
    def test_rows_stay_if_the_answer_is_not_the_services(self, device, service, context, reply):
        """A hotel's login page answers everything, but does not say that it accepted the rows."""
        client = device()
        client.decide(context)
        service.faults = [reply]
        with pytest.raises(Unreachable):
            client.sync()
        assert client.queued == 1

    @pytest.mark.parametrize("status", [401, 403, 404])
    def test_rows_stay_if_the_client_is_refused(self, device, service, context, status):
        client = device()
        client.decide(context)
        service.faults = [status]
        with pytest.raises(Refused, match=str(status)):
            client.sync()
        assert client.queued == 1

    def test_bad_rows_are_set_aside(self, device, service, context, caplog):
        client = device()
        for i in range(20):
            client.decide(context, id=f"d{i}")
            client.reward(f"d{i}", 1)
        service.bad_ids = {"d3", "d11"}
        with caplog.at_level(logging.WARNING):
            done = client.sync()
        assert (done.decisions, done.rewards, done.refused) == (18, 18, 4)
        assert set(service.observations) == {f"d{i}" for i in range(20)} - {"d3", "d11"}
        aside = client.refused()
        assert [(row.kind, row.id) for row in aside] == [(k, i) for k in ("reward", "decision") for i in ("d3", "d11")]
        assert "does not fit" in aside[0].reason
        assert json.loads(aside[2].body)["context"] == context
        assert "bandwidth" not in caplog.text  # contexts are nobody else's business
        service.bad_ids = {"d11"}
        client.requeue_refused()
        assert client.sync().refused == 2
        client.discard_refused()
        assert client.refused() == []

    def test_many_rows_go_in_batches(self, device, service, context, monkeypatch):
        monkeypatch.setattr("potstill.client.sync.BATCH_ROWS", 10)
        client = device()
        for i in range(25):
            client.decide(context, id=f"d{i}")
        service.requests.clear()
        client.sync()
        sizes = [len(told["observations"]) for told in service.bodies if told]
        assert sizes == [10, 10, 5]
        assert list(service.observations) == [f"d{i}" for i in range(25)]

    def test_a_network_too_slow_for_a_batch_gets_smaller_ones(self, device, service, context):
        client = device(max_rows=5000)
        for i in range(1100):
            client.decide(context, id=f"d{i}")
        for _ in range(3):
            service.faults = [408] * 4
            with pytest.raises(Unreachable):
                client.sync()
        assert client.sync().decisions == 1100
        assert [len(told["observations"]) for told in service.bodies if told] == [15, 30, 60, 120, 240, 480, 155]

    def test_rows_that_come_meanwhile_wait_for_the_next_time(self, device, service, context):
        """A device that decides all the time must not keep a sync going for ever."""
        client = device()
        client.decide(context)
        take = service._take
        service._take = lambda *args: (client.decide(context), take(*args))[1]
        assert client.sync().decisions == 1
        assert client.queued == 1


class TestPolicy:
    def newer(self, problem, version=4):
        return ps.Policy.build(problem, random_layers(problem, seed=version), version=version)

    def test_it_is_refreshed_by_its_tag(self, device, service, problem, context):
        client = device()
        assert client.sync().policy == 3
        service.serve(self.newer(problem))
        assert client.sync().policy == 4
        assert client.decide(context, id="a") == self.newer(problem).decide(context, id="a")
        service.requests.clear()
        client = device()
        assert client.policy.version == 4
        client.sync()
        [tag] = [headers["if-none-match"] for _, path, headers in service.requests if path.endswith("/policy")]
        assert tag in service.answer("GET", f"/v1/{service.problem}/policy", {}, b"")[1].values()

    def test_an_older_version_is_taken_over_after_a_rollback(self, device, service, problem):
        client = device()
        service.serve(self.newer(problem, version=2))
        assert client.sync().policy == 2

    @pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: b"<html>", lambda data: b""])
    def test_a_corrupt_download_never_replaces_a_good_one(self, device, service, problem, damage, context):
        client = device()
        client.decide(context)
        service.policy_file = damage(self.newer(problem).to_bytes())
        done = client.sync()
        assert done.policy == 3
        assert done.policy_error
        assert done.decisions == 1
        assert device().policy.version == 3

    def test_a_download_that_is_cut_short(self, device, service, problem):
        client = device()
        service.serve(self.newer(problem))
        service.faults = [CUT]
        assert client.sync().policy == 4
        service.serve(self.newer(problem, version=5))
        service.faults = [CUT] * 4
        with pytest.raises(Unreachable):
            client.sync()
        assert client.policy.version == 4

    def test_a_policy_for_another_problem_is_refused(self, device, service, problem):
        client = device()
        changed = ps.Problem(name=problem.name, context=problem.context[:2], actions=problem.actions)
        other = ps.Problem(name="other", context=problem.context, actions=problem.actions)
        for wrong, words in ((changed, "not as this device knows it"), (other, "for problem 'other', not for")):
            service.serve(ps.Policy.uniform(wrong, version=9))
            assert words in client.sync().policy_error
        assert client.policy.version == 3
        assert device().policy.version == 3
        service.serve(ps.Policy.uniform(changed, version=10))
        assert device(problem=changed).policy.version == 10

    def test_retired_actions_are_followed_unless_the_problem_was_stated(self, device, service, problem):
        client = device()
        names = problem.actions.names
        retired = msgspec.structs.replace(problem, actions=ps.Discrete(names, retired=names[:1]))
        service.serve(ps.Policy.uniform(retired, version=9))
        assert client.sync().policy == 9
        more = msgspec.structs.replace(problem, actions=ps.Discrete([*names, "new"]))
        service.serve(ps.Policy.uniform(more, version=10))  # an action that the device may not know how to carry out
        assert "not as this device knows it" in client.sync().policy_error
        service.serve(ps.Policy.uniform(problem, version=11))
        assert client.sync().policy == 11
        client.close()
        stated = device(problem=problem)
        service.serve(ps.Policy.uniform(retired, version=12))
        assert "not as this device knows it" in stated.sync().policy_error

    def test_it_starts_without_a_network(self, device, service, context, policy):
        device()
        service.stop()
        assert device().decide(context, id="a") == policy.decide(context, id="a")

    def test_the_first_start_needs_one(self, device, service):
        service.stop()
        with pytest.raises(NoPolicy, match=r"current\.policy is missing, and http.* gave none: .*ConnectError"):
            device()
        service.start()
        assert device().policy.version == 3  # and the folder was let go of

    def test_a_policy_file_put_there_by_hand_does_as_well(self, device, service, policy, tmp_path):
        service.stop()
        (tmp_path / "edge").mkdir()
        policy.save(tmp_path / "edge/current.policy")
        assert device().policy.version == 3

    def test_a_stored_file_that_is_damaged_is_downloaded_again(self, device, service, tmp_path):
        device()
        path = tmp_path / "edge/current.policy"
        sound = path.read_bytes()
        deep = b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        for damaged in (sound[:-1], b"", len(deep).to_bytes(8, "little") + deep):
            path.write_bytes(damaged)
            assert device().policy.version == 3
        assert ps.Policy.load(path).version == 3
        path.write_bytes(b"")
        service.stop()
        with pytest.raises(NoPolicy, match=r"current\.policy: "):
            device()


def test_two_clients_on_one_folder(device, service, tmp_path, quick):
    device()
    with pytest.raises(FolderInUse, match="give each process a folder of its own"):
        EdgeClient(service.url, tmp_path / "edge", **quick)
    device()


def test_a_corrupt_queue_is_reported(device, tmp_path, context):
    device().close()
    (tmp_path / "edge/queue.sqlite").write_bytes(b"garbage" * 1000)
    client = device()
    assert client.moved_aside == tmp_path / "edge/queue.sqlite.corrupt-1"
    client.decide(context)
    assert client.queued == 1


def wait_until(true):
    end = time.monotonic() + 10
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def test_the_background_syncs_and_stops(device, service, context):
    client = device()
    client.start(every=0.01)
    client.start(every=0.01)
    client.decide(context, id="a")
    wait_until(lambda: "a" in service.observations and client.queued == 0)
    client.stop()
    client.decide(context, id="b")
    time.sleep(0.05)
    assert client.queued == 1
    assert not [thread for thread in threading.enumerate() if thread.name == "potstill-sync"]
    client.start(every=1000)
    wait_until(lambda: client.queued == 0)


def test_stopping_does_not_wait_for_all_that_is_queued(device, service, context, monkeypatch):
    monkeypatch.setattr("potstill.client.sync.BATCH_ROWS", 1)
    client = device()
    for i in range(50):
        client.decide(context, id=f"d{i}")
    begun, take = threading.Event(), service._take
    service._take = lambda *args: (begun.set(), time.sleep(0.05), take(*args))[2]
    client.start(every=1000)
    assert begun.wait(10)
    client.stop()
    left = client.queued
    assert left > 40
    assert client.sync().decisions == left
    assert len(service.observations) == 50


def test_the_background_outlives_failures(device, service, context, caplog):
    client = device()
    service.stop()
    client.decide(context, id="a")
    with caplog.at_level(logging.WARNING):
        client.start(every=0.01)
        wait_until(lambda: "sync failed" in caplog.text)
    service.start()
    wait_until(lambda: client.queued == 0)
    assert len(service.observations["a"]) == 1
