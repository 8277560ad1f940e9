import logging
import threading
from datetime import UTC, datetime

import httpx
import pytest
import worlds
from service_examples import flushed, publish, server

import potstill as ps
from potstill.pipeline.audit import run_audit
from potstill.registry import LostEntries
from potstill.service.problem_watcher import ProblemWatcher
from potstill.service.snapshot import CONFIRM, FILE, SnapshotWatcher, write_mode
from potstill.workspace import InvalidConfig, Workspace, in_words

CONTEXT = {"bandwidth_kbps": 900.0, "connection": "4g"}


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return worlds.made(str(tmp_path / "video"))


@pytest.fixture
def outcomes() -> list[str]:
    return []


@pytest.fixture
def serving(workspace, outcomes) -> SnapshotWatcher:
    serving = SnapshotWatcher(workspace, outcomes.append)
    serving.start()
    return serving


def damage(workspace: Workspace, version: int) -> None:
    """Alter the file of a version's policy."""
    entry = workspace.registry.head()
    assert entry.version == version
    path = workspace.storage.folder / "registry" / entry.files.policy.name
    data = bytearray(path.read_bytes())
    data[-10] ^= 1
    path.write_bytes(data)


def test_where_nothing_was_published_a_uniform_policy_is(serving, workspace):
    assert serving.current.policy.version == 0
    assert workspace.registry.head().serving == 0


def test_a_new_version_takes_over_and_is_told(serving, workspace, outcomes):
    before = serving.current
    publish(workspace)
    serving.reload()
    assert serving.current.policy.version == 1
    assert serving.current.since > before.since
    assert before.policy.version == 0  # whoever holds the snapshot decides on with it
    assert outcomes == ["swapped", "swapped"]
    again = serving.current
    serving.reload()
    assert serving.current is again


def test_a_version_that_is_only_staged_does_not_serve(serving, workspace):
    head = workspace.registry.head()
    staged = ps.Policy.uniform(workspace.problem, version=1, seed=4)
    workspace.registry.publish(staged, teacher=None, report=b"{}", serve=False, expected=head.number)
    serving.reload()
    assert serving.current.policy.version == 0
    assert serving.current.number == 2


def test_a_bad_version_is_refused_and_the_one_before_serves_on(serving, workspace, outcomes, caplog):
    publish(workspace)
    serving.reload()
    publish(workspace)
    damage(workspace, 2)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            serving.reload()
    assert serving.current.policy.version == 1
    assert outcomes == ["swapped", "swapped", "refused"]  # the fault is told once
    assert len(caplog.records) == 1
    workspace.registry.rollback(by="ann")
    serving.reload()
    assert (serving.current.policy.version, serving.current.pinned.by) == (1, "ann")
    workspace.registry.unpin()
    publish(workspace)
    serving.reload()
    assert serving.current.policy.version == 3


def test_a_policy_that_cannot_decide_is_refused(serving, workspace, outcomes):
    layers = ps.Policy.uniform(workspace.problem).layers
    layers[0].weight[:] = 3e38
    layers[0].weight[:, 0] = -3e38
    head = workspace.registry.head()
    bad = ps.Policy.build(workspace.problem, layers, version=1)
    workspace.registry.publish(bad, teacher=None, report=b"{}", expected=head.number)
    serving.reload()
    assert serving.current.policy.version == 0
    assert outcomes[-1] == "refused"


def test_a_version_of_an_earlier_problem_is_refused_until_there_is_one_for_the_present(workspace, outcomes):
    publish(workspace)
    (workspace.storage.folder / "problem.toml").write_bytes(worlds.PROBLEM.replace(b"1080p", b"2160p"))
    changed = Workspace(workspace.url)
    serving = SnapshotWatcher(changed, outcomes.append)
    serving.reload()
    assert serving.current.policy is None
    assert outcomes == ["refused"]
    serving.start()
    assert serving.current.policy.version == 2
    assert "adapted from version 1" in in_words(serving.current.policy)


def test_a_running_service_says_what_to_do_when_the_problem_changes(serving, workspace, caplog):
    publish(workspace)
    serving.reload()
    watcher = ProblemWatcher(workspace)
    watcher.reload(serving.current.policy)
    assert watcher.notice is None
    (workspace.storage.folder / "problem.toml").write_bytes(worlds.PROBLEM.replace(b'"1080p"', b'"1080p", "4k"'))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            watcher.reload(serving.current.policy)
    assert "action '4k' was added; restart potstill serve to follow: version 1 then serves adapted" in watcher.notice
    assert len(caplog.records) == 1
    Workspace(workspace.url).start()  # what a service does that is started now
    serving.reload()
    assert serving.current.policy.version == 1
    assert serving.fault is None
    assert serving.following == Workspace(workspace.url).problem  # another service takes its place
    watcher.reload(serving.current.policy)
    assert "action '4k' was added; version 2, which fits it, is published: restart potstill serve" in watcher.notice
    assert "adapted" not in watcher.notice
    (workspace.storage.folder / "problem.toml").write_bytes(worlds.PROBLEM)
    watcher.reload(serving.current.policy)
    serving.reload()
    assert watcher.notice is None
    assert "version 2 is for another problem than problem.toml" in serving.fault


def test_a_service_of_the_earlier_problem_neither_follows_nor_publishes(workspace):
    """A worker that is restarted while newer versions are for the changed problem."""
    publish(workspace)
    (workspace.storage.folder / "problem.toml").write_bytes(worlds.PROBLEM.replace(b'"1080p"', b'"1080p", "4k"'))
    Workspace(workspace.url).start()
    head = workspace.registry.head()
    assert head.serving == 2
    serving = SnapshotWatcher(Workspace(workspace.url, workspace.problem))
    serving.start()
    assert serving.current.policy.version == 1
    assert serving.following == Workspace(workspace.url).problem  # which `App` then follows
    assert workspace.registry.head() == head


def test_storage_that_is_away_changes_nothing(serving, workspace, outcomes, monkeypatch):
    publish(workspace)
    with monkeypatch.context() as away:
        away.setattr(workspace.registry, "changed_since", lambda _: (_ for _ in ()).throw(OSError("away")))
        serving.reload()
        serving.reload()
    assert serving.current.policy.version == 0
    assert outcomes[1:] == ["unavailable"]
    serving.reload()
    assert serving.current.policy.version == 1


def test_a_damaged_start_has_no_policy_until_there_is_a_sound_one(workspace, outcomes):
    publish(workspace)
    damage(workspace, 1)
    serving = SnapshotWatcher(workspace, outcomes.append)
    serving.start()
    assert serving.current.policy is None
    assert serving.current.artifact == b""
    publish(workspace)
    serving.reload()
    assert serving.current.policy.version == 2


def test_the_mode_is_kept_in_the_workspace_and_followed(serving, workspace):
    assert serving.current.mode == "online"
    write_mode(workspace.storage, workspace.config.serve, "apprentice")
    serving.reload()
    assert serving.current.mode == "apprentice"
    assert SnapshotWatcher(workspace).current.mode == "online"  # until it is started
    (workspace.storage.folder / FILE).unlink()
    serving.reload()
    assert serving.current.mode == "online"


def test_a_mode_that_makes_no_sense_is_refused(serving, workspace, outcomes):
    stated = workspace.config.serve
    with pytest.raises(InvalidConfig, match=r"serve\.fallback"):
        write_mode(workspace.storage, stated, "log-only")
    assert not (workspace.storage.folder / FILE).exists()


DAMAGED = [b"", b'{"mod', b'{"mode": "of its own"}', b"\xff\xfe", b'{"mode": "log-only"}']  # the last has no fallback


@pytest.mark.parametrize("data", DAMAGED)
def test_a_damaged_mode_keeps_no_sound_policy_from_serving(workspace, outcomes, caplog, data):
    publish(workspace)
    (workspace.storage.folder / FILE).write_bytes(data)
    serving = SnapshotWatcher(workspace, outcomes.append)
    serving.start()
    serving.reload()
    assert (serving.current.policy.version, serving.current.mode) == (1, "online")
    assert "mode.json is unusable, so that mode online of potstill.toml holds" in serving.current.mode_fault
    assert outcomes == ["swapped", "refused"]
    assert [record.levelname for record in caplog.records] == ["WARNING"]  # once
    write_mode(workspace.storage, workspace.config.serve, "apprentice")
    serving.reload()
    assert (serving.current.mode, serving.current.mode_fault) == ("apprentice", None)


def test_a_mode_that_is_damaged_while_it_holds_falls_back_to_the_configured_one(serving, workspace):
    write_mode(workspace.storage, workspace.config.serve, "apprentice")
    serving.reload()
    (workspace.storage.folder / FILE).write_bytes(b"{")
    publish(workspace)
    serving.reload()
    assert (serving.current.policy.version, serving.current.mode) == (1, "online")


def test_a_mode_that_cannot_be_read_now_stays_and_keeps_no_policy_from_serving(serving, workspace):
    write_mode(workspace.storage, workspace.config.serve, "apprentice")
    serving.reload()
    (workspace.storage.folder / FILE).unlink()
    (workspace.storage.folder / FILE).mkdir()  # reading it fails
    publish(workspace)
    serving.reload()
    assert (serving.current.policy.version, serving.current.mode) == (1, "apprentice")
    assert "mode.json is unreadable" in serving.current.mode_fault


def test_the_artifact_is_the_file_of_the_policy(serving, workspace):
    policy = publish(workspace)
    serving.reload()
    assert serving.current.artifact == policy.to_bytes()
    assert ps.Policy.from_bytes(serving.current.artifact).version == 1
    assert serving.current.since <= datetime.now(UTC)


class Callers:
    """Threads that decide, singly and in batches, until told to stop."""

    def __init__(self, url: str, count: int) -> None:
        self.versions: list[list[int]] = []  # of each batch, and of each single decision
        self.failures: list[str] = []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(url, i)) for i in range(count)]

    def __enter__(self) -> "Callers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _call(self, url: str, number: int) -> None:
        with httpx.Client(base_url=f"{url}/v1/video-upload/", timeout=30) as client:
            for i, context in enumerate(worlds.contexts(100_000, seed=number)):
                if self._stop.is_set():
                    return
                if number % 2:
                    asked = {"requests": [{"context": context, "id": f"{number}-{i}-{j}"} for j in range(40)]}
                    reply = client.post("decide/batch", json=asked)
                else:
                    reply = client.post("decide", json={"context": context, "id": f"{number}-{i}"})
                if reply.status_code == 200:
                    told = reply.json()
                    self.versions.append([decision["policy"] for decision in told.get("decisions", [told])])
                else:
                    self.failures.append(reply.text)


def test_swaps_under_load_drop_nothing_mix_no_batch_and_pass_the_audit(workspace):
    publish(workspace)
    with server(workspace.url, reload_seconds=0.02, log_timeout=30) as started, Callers(started.url, 4) as callers:
        for version in range(2, 9):
            seen = threading.Event()
            publish(workspace)
            while not any(versions[-1] == version for versions in callers.versions[-50:]):
                assert not callers.failures
                seen.wait(0.01)
    assert callers.failures == []
    assert all(len(set(versions)) == 1 for versions in callers.versions)
    assert {versions[0] for versions in callers.versions} >= set(range(2, 9))
    found = audit_of(workspace)
    assert found.clean
    assert found.checked == found.decisions == sum(map(len, callers.versions))


def audit_of(workspace: Workspace):
    flushed(workspace)
    return run_audit(workspace)


def test_a_worker_notices_that_the_entry_it_serves_is_lost(serving, workspace, outcomes):
    for _ in range(2):
        publish(workspace)
    serving.reload()
    assert serving.current.number == 3
    (workspace.storage.folder / "registry/entries/0000000003.json").unlink()
    for _ in range(CONFIRM):
        serving.reload()
    assert "the last one is 2, but entry 3 was written" in serving.fault
    serving.reload()
    assert "entry 3 was written" in serving.fault  # for as long as it is so
    assert serving.current.policy.version == 2
    assert outcomes.count("refused") == 1
    with pytest.raises(LostEntries):
        publish(workspace)
    restarted = SnapshotWatcher(workspace)
    restarted.start()
    assert restarted.current.policy is None
    assert "entry 3 was written" in restarted.fault
    workspace.registry.accept_loss()
    for watcher in (serving, restarted):
        watcher.reload()
        assert watcher.fault is None
        assert (watcher.current.policy.version, watcher.current.number) == (1, 4)
    assert publish(workspace).version == 3
