"""The processes of a service: each may die, and what was acknowledged is there all the same."""

import os
import re
import signal
import socket
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from service_examples import publish
from service_process import PATIENCE, Load, serving, until

from potstill.events.lake import Flusher
from potstill.events.wal import Spool
from potstill.registry import OtherProblem
from potstill.service.process import CannotServe, Settings, run
from potstill.service.tokens import TokenFile
from potstill.workspace import Workspace, template

REST = b'"context": {"bandwidth_kbps": 1, "hd_screen": true}}'
CONTEXT = {"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True}
WORKER, UPDATER = "potstill.service.process.worker", "potstill.cli"
#: Memory that workers share.
SHARED = {"/memfd:potstill-counts", "/memfd:potstill-ids"}


@pytest.fixture
def workspace(tmp_path):
    return Workspace.create(tmp_path / "video", template.PROBLEM.encode(), template.CONFIG.encode())


def alive(pid):
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def in_lake(workspace, table):
    return Counter(workspace.lake.scan(table).select("id").collect()["id"].to_list())


def assert_kept(workspace, *loads):
    """All that was acknowledged is in the lake, and once."""
    decisions, rewards = in_lake(workspace, "decisions"), in_lake(workspace, "rewards")
    for load in loads:
        assert set(load.decided) <= set(decisions)
        assert set(load.rewarded) <= set(rewards)
    assert {*decisions.values(), *rewards.values()} == {1}


# ---- processes that die


@contextmanager
def half_sent(running):
    """A connection on which a worker has taken on a request that is not whole yet; `REST` is missing."""
    head = "POST /v1/video-upload/decide HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE) as slow:
        slow.sendall(f"{head}Content-Length: {1 + len(REST)}\r\nExpect: 100-continue\r\n\r\n{{".encode())
        assert slow.recv(1000) == b"HTTP/1.1 100 Continue\r\n\r\n"
        yield slow


def counted(running, name):
    """The sum of a metric over all its labels."""
    families = text_string_to_metric_families(running.ask("GET", "/metrics")[1].decode())
    return sum(sample.value for family in families for sample in family.samples if sample.name == name)


def test_a_killed_worker_is_replaced_and_the_end_under_load_loses_nothing(workspace, tmp_path):
    with serving(tmp_path / "out", workspace.url, "--workers", 2) as running:
        first = running.children()[WORKER]
        with Load(running, "video-upload", CONTEXT) as load:
            until(lambda: len(load.rewarded) > 20)
            os.kill(first[0], signal.SIGKILL)
            until(lambda: len(set(running.children()[WORKER]) - set(first)) == 1)
            seen = len(load.rewarded)
            until(lambda: len(load.rewarded) > seen + 20)
        assert len(load.failures) <= 4  # connections of the one that was killed
        # What was counted is what was acknowledged, and perhaps what was about to be.
        assert 0 <= counted(running, "potstill_rewards_total") - len(load.rewarded) <= len(load.failures)
        with Load(running, "video-upload", CONTEXT, name="last", threads=8) as last, half_sent(running) as slow:
            until(lambda: len(last.rewarded) > 20)
            began = time.monotonic()
            running.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            slow.sendall(REST)
            assert slow.recv(1000).startswith(b"HTTP/1.1 200")  # what was begun is answered
            assert running.process.wait(PATIENCE) == 0
            assert time.monotonic() - began < 10
    assert running.errors.count("\n") == 1
    assert "was killed by SIGKILL; restarting it" in running.errors
    assert Spool(workspace.spool).pending().segments == 0  # the flusher has taken them before it ended
    assert_kept(workspace, load, last)


@pytest.mark.parametrize("workers", [1, 2])
def test_repeats_find_the_first_decision_after_a_workers_death_under_a_new_version(workspace, tmp_path, workers):
    requests = [{"id": f"r{i}", "context": CONTEXT} for i in range(30)]
    with serving(tmp_path / "out", workspace.url, "--workers", workers) as running:

        def decided() -> list[dict]:
            one, *others = requests
            single = running.ask("POST", "/v1/video-upload/decide", one)[1]
            batch = running.ask("POST", "/v1/video-upload/decide/batch", {"requests": others})[1]
            return [single, *batch["decisions"]]

        first, killed = decided(), running.children()[WORKER]
        version = publish(workspace).version
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        until(lambda: len(set(running.children().get(WORKER, [])) - set(killed)) == workers)
        fresh = {"id": "fresh", "context": CONTEXT}
        assert running.ask("POST", "/v1/video-upload/decide", fresh)[1]["policy"] == version
        assert [decided() for _ in range(6)] == [first] * 6  # whichever worker accepts
        assert running.stop() == 0
    assert in_lake(workspace, "decisions") == Counter([*(f"r{i}" for i in range(30)), "fresh"])


def test_a_worker_that_is_restarted_decides_the_problem_of_the_start(workspace, tmp_path):
    """A change that needs an update first must not reach decisions because a worker died."""
    publish(workspace)
    file = Path(workspace.url) / "problem.toml"
    with serving(tmp_path / "out", workspace.url) as running:
        [first] = running.children()[WORKER]
        file.write_text(file.read_text().replace('"wifi"]', '"wifi", "5g"]'))
        os.kill(first, signal.SIGKILL)
        until(lambda: running.children().get(WORKER, [first]) != [first])
        status = until(lambda: status_of(running))
        assert (status["serving"], status["ready"]) == (1, True)
        until(lambda: "feature 'connection' was changed" in str(status_of(running)))
        decided = running.ask("POST", "/v1/video-upload/decide", {"context": CONTEXT})
        assert (decided[0], decided[1]["policy"]) == (200, 1)
        assert running.stop() == 0


def test_a_worker_that_is_restarted_outlives_a_mistake_in_the_configuration(workspace, tmp_path):
    publish(workspace)
    file = Path(workspace.url) / "potstill.toml"
    with serving(tmp_path / "out", workspace.url) as running:
        [first] = running.children()[WORKER]
        file.write_text("[policy]\nflor = 0.1\n")
        os.kill(first, signal.SIGKILL)
        until(lambda: running.children().get(WORKER, [first]) != [first])
        until(lambda: status_of(running))
        decided = running.ask("POST", "/v1/video-upload/decide", {"context": CONTEXT})
        assert (decided[0], decided[1]["policy"]) == (200, 1)
        assert running.stop() == 0


def status_of(running):
    try:
        return running.ask("GET", "/v1/video-upload/status")[1]
    except OSError:
        return None


def status(pid):
    return Path(f"/proc/{pid}/status").read_text()


def shared_mappings(pid):
    """Files that a process can change through memory."""
    lines = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    return {line[5] for line in lines if line[1] == "rw-s" and line[5].startswith("/")}


def test_processes_end_with_a_parent_that_is_killed_and_leave_nothing(workspace, tmp_path):
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    with serving(tmp_path / "out", workspace.url, "--workers", 2, TMPDIR=str(temporary)) as running:
        children = [pid for pids in running.children().values() for pid in pids]
        assert len(children) == 3
        assert {re.search(r"^Umask:\s+(\d+)", status(pid), re.M)[1] for pid in children} == {"0077"}
        # A write to a mapped file on a full disk would end the worker by SIGBUS.
        assert [shared_mappings(pid) for pid in running.children()[WORKER]] == [SHARED] * 2
        with Load(running, "video-upload", CONTEXT) as load:
            until(lambda: len(load.rewarded) > 20)
            running.process.kill()
            until(lambda: not any(map(alive, children)))
    Flusher(Spool(workspace.spool), workspace.lake).flush()
    assert_kept(workspace, load)
    assert list(temporary.iterdir()) == []


def test_a_closed_service_stays_closed_without_its_tokens_and_when_a_worker_dies(workspace, tmp_path):
    token = TokenFile(workspace.storage).create("web", ["decide"])
    path, body = "/v1/video-upload/decide", {"context": CONTEXT}
    with serving(tmp_path / "out", workspace.url) as running:
        assert running.ask("POST", path, body, token)[0] == 200
        with socket.create_connection(("127.0.0.1", running.port), timeout=PATIENCE) as connection:
            connection.sendall(in_a_trailer(path, token))
            assert connection.recv(1000).startswith(b"HTTP/1.1 401")
        workspace.storage.delete("tokens.json")
        until(lambda: running.ask("POST", path, body, token)[0] == 401)
        (worker,) = running.children()[WORKER]
        os.kill(worker, signal.SIGKILL)
        until(lambda: running.children().get(WORKER, [worker]) != [worker])
        until(lambda: running.ask("GET", "/ready")[0] == 200)
        assert running.ask("POST", path, body)[0] == 401
    with serving(tmp_path / "again", workspace.url) as running:
        assert "tokens needed" in running.printed
        assert "tokens.json is missing, and callers need tokens here" in running.errors
        assert running.ask("POST", path, body)[0] == 401


def in_a_trailer(path, token):
    """A request whose token follows its body."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunk = (
        f"Transfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n{1 + len(REST):x}\r\n{{{REST.decode()}\r\n0\r\n"
    )
    return f"{head}{chunk}Authorization: Bearer {token}\r\n\r\n".encode()


def test_a_second_signal_ends_at_once_with_updates_and_all(workspace, tmp_path):
    with serving(tmp_path / "out", workspace.url, "--update-every", "1h", "--stage") as running:
        children = running.children()
        assert b"--stage" in Path(f"/proc/{children[UPDATER][0]}/cmdline").read_bytes().split(b"\0")
        updater, worker = children[UPDATER][0], children[WORKER][0]
        until(lambda: os.getpriority(os.PRIO_PROCESS, updater) == os.getpriority(os.PRIO_PROCESS, worker) + 10)
        with half_sent(running):
            running.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert running.process.poll() is None  # it waits for the request
            assert running.stop(signal.SIGINT) == 1
    assert not any(alive(pid) for (pid,) in children.values())


def test_a_service_that_cannot_start_says_why_and_ends(workspace, tmp_path):
    (tmp_path / "video" / "events").mkdir()
    (tmp_path / "video" / "events" / "log").write_text("a file where a folder should be")
    with pytest.raises(AssertionError) as caught, serving(tmp_path / "out", workspace.url):
        pass
    assert "the service ended with 1" in str(caught.value)
    assert "a worker cannot be started; its error is above" in str(caught.value)


# ---- requests of Personalizer


def test_personalizer_of_two_workers(workspace, tmp_path):
    """An event that one worker holds is activated by any, once."""
    actions = [{"id": name} for name in ("360p", "480p", "720p", "1080p")]
    features = [{"bandwidth_kbps": 900}, {"connection": "4g", "hd_screen": True}]
    body = {"contextFeatures": features, "actions": actions, "deferActivation": True}
    root = "/personalizer/v1.0"
    with serving(tmp_path / "out", workspace.url, "--personalizer", "--workers", 2) as running:
        assert f"endpoint of its clients: http://127.0.0.1:{running.port}\n" in running.printed
        for number in range(8):
            status, ranked = running.ask("POST", f"{root}/rank", {**body, "eventId": f"e{number}"})
            assert (status, ranked["eventId"]) == (201, f"e{number}")
        for number in range(0, 8, 2):
            for _ in range(3):  # connections go to either worker
                assert running.ask("POST", f"{root}/events/e{number}/activate")[0] == 204
        assert running.stop() == 0
    found = in_lake(workspace, "decisions")
    assert set(found) == {"e0", "e2", "e4", "e6"}


# ---- what is refused before anything starts


def refused(*places, **options):
    with pytest.raises(CannotServe) as caught:
        run(Settings(places=places, **options), on_ready=pytest.fail, warn=pytest.fail)
    return str(caught.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_need_tokens(workspace, host):
    said = refused(workspace.url, host=host)
    assert "callers need tokens" in said
    assert f"potstill token create {workspace.url} NAME" in said


def test_personalizer_needs_one_list_of_actions(workspace, tmp_path):
    other = Workspace.create(tmp_path / "other", template.PROBLEM.replace("video", "film").encode(), b"")
    assert "--personalizer serves one workspace" in refused(workspace.url, other.url, personalizer=True)
    names = template.PROBLEM.index('type = "discrete"')
    number = template.PROBLEM[:names] + 'type = "continuous"\nname = "price"\nlow = 1\nhigh = 2\n'
    priced = Workspace.create(tmp_path / "price", number.encode(), b"")
    assert "the action of this problem is a number" in refused(priced.url, personalizer=True)


def test_a_problem_that_no_version_fits_needs_a_fresh_start(workspace, tmp_path):
    """It served uniform random in place of what was learnt, and said nothing."""
    publish(workspace)
    file = Path(workspace.url) / "problem.toml"
    file.write_text(file.read_text().replace('"wifi"]', '"wifi", "5g"]'))
    with pytest.raises(OtherProblem, match=r"feature 'connection' was changed.*potstill serve --fresh"):
        run(Settings(places=(workspace.url,), port=0), on_ready=pytest.fail, warn=pytest.fail)
    workspace.registry.pin(by="ann")
    with serving(tmp_path / "out", workspace.url, "--fresh") as running:
        status = running.ask("GET", "/v1/video-upload/status")[1]
        assert (status["decides"], status["pinned"]) == ("uniform: it has learnt nothing", None)
        assert "the pin of version 1 by ann since " in running.errors
        assert running.stop() == 0


def test_added_actions_are_served_after_a_restart(workspace, tmp_path):
    publish(workspace)
    file = Path(workspace.url) / "problem.toml"
    file.write_text(file.read_text().replace('"1080p"]', '"1080p", "4k"]'))
    with serving(tmp_path / "out", workspace.url) as running:
        assert "policy 2 (adapted from version 1 until the next update; '4k': 2 % of decisions" in running.printed
        assert running.stop() == 0


def test_staging_is_about_updates(workspace):
    assert "add --update-every" in refused(workspace.url, port=0, stage=True)


def test_only_workspaces_without_tokens_are_named(workspace, tmp_path):
    text = template.PROBLEM.replace("video-upload", "other").encode()
    other = Workspace.create(tmp_path / "other", text, template.CONFIG.encode())
    TokenFile(other.storage).create("web", ["decide"])
    said = refused(workspace.url, other.url, host="0.0.0.0")
    assert f"create {workspace.url}" in said
    assert f"create {other.url}" not in said


def test_a_port_that_is_taken(workspace):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert refused(workspace.url, port=port).startswith(f"cannot listen on 127.0.0.1 port {port}: Address already")


def test_an_address_that_is_none(workspace):
    assert "cannot listen on no.such.host.invalid" in refused(workspace.url, host="no.such.host.invalid")


def test_two_workspaces_of_one_name(workspace, tmp_path):
    again = Workspace.create(tmp_path / "again", template.PROBLEM.encode(), template.CONFIG.encode())
    assert "both have the problem name 'video-upload'" in refused(workspace.url, again.url)
