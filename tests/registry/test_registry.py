"""The registry: atomic, verified, never in conflict unnoticed; in a folder and on an object store."""

import hashlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import pytest
from examples import random_layers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import potstill as ps
from potstill.registry import Conflict, CorruptVersion, Entry, NoState, OtherProblem, Registry, UnknownVersion
from potstill.storage import AlreadyThere, Storage, open_storage

PROBLEM = ps.Problem(name="greeting", context=[ps.Boolean("returning")], actions=ps.Discrete(["hi", "welcome back"]))
SCRIPT = Path(__file__).with_name("publishers.py")


@pytest.fixture
def registry(place: str) -> Registry:
    return Registry(open_storage(place), PROBLEM)


class MemoryStorage:
    """The contract of a storage, as a dict."""

    url = "memory"

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.calls: list[str] = []

    def read(self, name: str) -> bytes:
        self.calls.append(f"read {name}")
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def create(self, name: str, data: bytes) -> None:
        self.calls.append(f"create {name}")
        if name in self.files:
            raise AlreadyThere(name)
        self.files[name] = data

    def replace(self, name: str, data: bytes) -> None:
        self.calls.append(f"replace {name}")
        self.files[name] = data

    def delete(self, name: str) -> None:
        self.files.pop(name, None)

    def names(self, folder: str, after: str = "") -> list[str]:
        self.calls.append(f"names {folder} {after}")
        inside = [name.removeprefix(f"{folder}/") for name in self.files if name.startswith(f"{folder}/")]
        return sorted(name for name in inside if "/" not in name and name > after)

    def sweep(self, folder: str = "") -> None:
        self.calls.append(f"sweep {folder}")

    def within(self, folder: str) -> Storage:
        raise NotImplementedError


@pytest.fixture
def memory() -> MemoryStorage:
    return MemoryStorage()


@pytest.fixture
def remembered(memory: MemoryStorage) -> Registry:
    return Registry(memory, PROBLEM)


def make_policy(version: int, problem: ps.Problem = PROBLEM) -> ps.Policy:
    return ps.Policy.build(problem, random_layers(problem, seed=version), version=version, parent=version - 1 or None)


def publish(registry: Registry, **options: Any) -> Entry:
    head = registry.head()
    version = registry.next_version()
    given: dict[str, Any] = {
        "teacher": b"state %d" % version,
        "report": b"report %d" % version,
        "expected": head.number if head else 0,
        **options,
    }
    return registry.publish(make_policy(version, registry.problem), **given)


def states_of(registry: Registry) -> dict[int, str]:
    return {version.version: version.state for version in registry.versions()}


# A new version


def test_an_empty_registry_has_nothing(registry: Registry) -> None:
    assert registry.head() is None
    assert registry.entries() == registry.versions() == registry.damage() == []
    assert registry.next_version() == 1
    assert registry.changed_since(0) is None
    assert registry.forget_states(1) == []
    with pytest.raises(UnknownVersion, match="no version serves yet; potstill update"):
        registry.policy()
    with pytest.raises(UnknownVersion, match="nothing to roll back from"):
        registry.rollback()


def test_what_is_published_serves_and_is_read_back(registry: Registry) -> None:
    fidelity = {"kl_mean": 0.25}
    policy = make_policy(1).with_fidelity(fidelity)
    entry = registry.publish(policy, teacher=b"state", report=b"report", expected=0, note="the first")
    assert registry.head() == entry
    assert (entry.number, entry.event, entry.version, entry.serving, entry.note) == (1, "published", 1, 1, "the first")
    for read in (registry.policy(), registry.policy(1)):
        assert read.to_bytes() == policy.to_bytes()
    assert (registry.teacher(1), registry.report(1)) == (b"state", b"report")
    (version,) = registry.versions()
    assert (version.state, version.kl, version.problem) == ("serving", 0.25, PROBLEM.hash)
    assert registry.next_version() == 2


def test_staged_and_refused_versions_do_not_serve_and_keep_their_number(registry: Registry) -> None:
    for options in ({}, {"serve": False}, {"reasons": ("KL 0.9 is above 0.5",)}):
        publish(registry, **options)
    assert states_of(registry) == {1: "serving", 2: "staged", 3: "refused"}
    assert registry.policy().version == 1
    assert registry.versions(after=2)[0].reasons == ("KL 0.9 is above 0.5",)
    assert registry.next_version() == 4
    assert registry.policy(3).version == 3


def test_a_version_is_for_this_problem_and_has_the_next_number(remembered: Registry, problem: ps.Problem) -> None:
    with pytest.raises(OtherProblem, match=r"'video-upload'.*this registry is for 'greeting'"):
        remembered.publish(make_policy(1, problem), teacher=None, report=b"", expected=0)
    with pytest.raises(ValueError, match="the next version is 1, but the policy to publish says 2"):
        remembered.publish(make_policy(2), teacher=None, report=b"", expected=0)
    assert remembered.head() is None


def test_what_cannot_be_read_is_not_served_but_can_be_kept(remembered: Registry, memory: MemoryStorage) -> None:
    broken = ps.Policy.build(PROBLEM, random_layers(PROBLEM, scale=np.inf), version=1)
    options: dict[str, Any] = {"teacher": None, "report": b"", "expected": 0}
    with pytest.raises(ps.InvalidPolicy, match="not finite"):
        remembered.publish(broken, **options)
    assert not memory.files
    remembered.publish(broken, **options, reasons=("not finite",))
    with pytest.raises(CorruptVersion, match="not finite"):
        remembered.serve(1)


def test_of_a_changed_registry_nothing_is_published(remembered: Registry) -> None:
    publish(remembered)
    with pytest.raises(Conflict, match=r"its last entry is 1, and this change was to follow 0; .*try again"):
        remembered.publish(make_policy(2), teacher=None, report=b"", expected=0)
    with pytest.raises(Conflict):
        remembered.publish(make_policy(2), teacher=None, report=b"", expected=7)
    assert len(remembered.entries()) == 1


def test_equal_files_that_are_there_are_used_and_damaged_ones_put_right(
    remembered: Registry, memory: MemoryStorage
) -> None:
    publish(remembered)
    left = {name: data for name, data in memory.files.items() if name.startswith("versions/1/")}
    del left["versions/1/entry.json"]  # as if it had been killed before its entry
    memory.files = {name: data[:-1] if name.endswith(".report") else data for name, data in left.items()}
    publish(remembered)
    assert {name: memory.files[name] for name in left} == left


def test_a_lost_answer_of_the_store_is_no_conflict(remembered: Registry, memory: MemoryStorage) -> None:
    create = memory.create

    def create_twice(name: str, data: bytes) -> None:
        create(name, data)
        if name.startswith("entries/"):
            create(name, data)

    memory.create = create_twice  # type: ignore[method-assign]
    assert publish(remembered) == remembered.head()


def test_a_hint_that_cannot_be_written_does_not_undo_a_change(remembered: Registry, memory: MemoryStorage) -> None:
    def refuse(name: str, data: bytes) -> None:
        raise OSError("disk full")

    memory.replace = refuse  # type: ignore[method-assign]
    assert publish(remembered) == remembered.head()


# Reading cheaply


HINTS = [None, b"", b"{", b"\xff", b"[]", b'{"number": 1}', b'{"number": 2}', b'{"number": -5}']


@pytest.mark.parametrize("hint", HINTS)
def test_a_hint_may_be_missing_stale_or_corrupt(remembered: Registry, hint: bytes | None) -> None:
    for _ in range(3):
        publish(remembered)
    remembered.storage.delete("head.json") if hint is None else remembered.storage.replace("head.json", hint)
    head = remembered.head()
    assert head is not None
    assert head.number == 3


def test_a_poll_costs_one_read_and_finds_the_last_of_several_changes(
    remembered: Registry, memory: MemoryStorage
) -> None:
    publish(remembered)
    memory.calls.clear()
    assert remembered.changed_since(1) is None
    assert memory.calls == ["read entries/0000000002.json"]
    for _ in range(3):
        last = publish(remembered)
    assert remembered.changed_since(1) == remembered.changed_since(3) == last
    assert remembered.changed_since(4) is None


def test_the_head_of_a_long_registry_is_found_from_the_hint(remembered: Registry, memory: MemoryStorage) -> None:
    for _ in range(5):
        publish(remembered)
    memory.calls.clear()
    remembered.head()
    assert not [call for call in memory.calls if call.startswith("names")]
    memory.replace("head.json", b'{"number": 3}')
    memory.calls.clear()
    remembered.head()
    assert [call for call in memory.calls if call.startswith("names")] == ["names entries 0000000002.json"]


def test_foreign_files_are_left_alone(registry: Registry) -> None:
    publish(registry)
    registry.storage.create("entries/notes.txt", b"bring milk")
    assert registry.next_version() == 2
    assert [entry.number for entry in registry.entries()] == [1]


# Forward and back


def test_rolling_back_again_goes_further_back(registry: Registry) -> None:
    for _ in range(3):
        publish(registry)
    assert registry.rollback(note="worse on 2g").note == "worse on 2g"
    assert registry.policy().version == 2
    assert registry.rollback().serving == 1
    with pytest.raises(UnknownVersion, match=r"no version served before version 1.*potstill promote"):
        registry.rollback()
    assert states_of(registry) == {1: "serving", 2: "served before", 3: "served before"}
    registry.unpin()
    assert publish(registry).version == 4
    assert registry.rollback().serving == 1  # and not 2 or 3, which were rolled back from


def test_a_rollback_may_name_its_version(remembered: Registry) -> None:
    for _ in range(4):
        publish(remembered)
    assert remembered.rollback(to=2).serving == 2
    assert remembered.rollback().serving == 1
    assert remembered.rollback(to=4).serving == 4  # not behind it, so that it is a step forward
    assert remembered.rollback().serving == 1


def test_a_refused_version_can_be_promoted_and_its_reasons_stay(registry: Registry) -> None:
    publish(registry)
    publish(registry, reasons=("too few observations",))
    entry = registry.serve(2, note="looked at by hand")
    assert (entry.event, entry.version, entry.serving) == ("served", 2, 2)
    assert entry.reasons == ("too few observations",)
    assert registry.policy().version == 2
    assert states_of(registry) == {1: "served before", 2: "serving"}
    assert registry.rollback().serving == 1


def test_serving_what_serves_changes_nothing(remembered: Registry) -> None:
    entry = publish(remembered)
    assert remembered.serve(1) == remembered.unpin() == remembered.resume() == entry


# Pins and pauses


def test_a_rollback_holds_until_somebody_unpins_or_promotes(registry: Registry) -> None:
    for _ in range(3):
        publish(registry)
    entry = registry.rollback(note="worse on 2g", by="ann")
    assert (entry.by, entry.pinned.by, entry.pinned.reason) == ("ann", "ann", "worse on 2g")
    assert publish(registry).serving == 2
    assert states_of(registry) == {1: "served before", 2: "serving", 3: "served before", 4: "staged"}
    assert registry.unpin(by="bob").pinned is None
    assert publish(registry).serving == 5
    registry.rollback()
    assert registry.serve(4).pinned is None
    assert publish(registry).serving == 6


def test_a_pin_names_the_serving_version_or_another(registry: Registry) -> None:
    for _ in range(2):
        publish(registry)
    entry = registry.pin(note="holidays", by="ann")
    assert (entry.event, entry.serving, entry.version, entry.pinned.in_words[:12]) == ("pinned", 2, 2, "by ann since")
    assert registry.pin(1, by="bob").serving == 1
    assert publish(registry).serving == 1
    assert registry.rollback().serving == 2  # what served before the second pin
    assert registry.serve(2).pinned is None  # to promote what serves releases its pin
    assert publish(registry).serving == 4


def test_a_pause_is_kept_by_every_other_change(registry: Registry) -> None:
    with pytest.raises(UnknownVersion, match="no version serves yet"):
        registry.pause()
    publish(registry)
    registry.pause(note="rewards are late", by="ann")
    for entry in (publish(registry), registry.rollback(), registry.unpin(), registry.serve(2), registry.pin()):
        assert (entry.paused.by, entry.paused.reason) == ("ann", "rewards are late")
    assert registry.resume(by="bob").paused is None
    events = [entry.event for entry in registry.entries()]
    assert events == ["published", "paused", "published", "served", "unpinned", "served", "pinned", "resumed"]


def test_entries_without_pin_and_author_read_as_before(remembered: Registry, memory: MemoryStorage) -> None:
    publish(remembered)
    name = "entries/0000000001.json"
    entry = msgspec.json.decode(memory.files[name])["entry"]
    for field in ("pinned", "paused", "by", "previous", "lost"):
        del entry[field]
    data = msgspec.json.encode(entry)
    memory.files[name] = msgspec.json.encode({"sha256": hashlib.sha256(data).hexdigest(), "entry": msgspec.Raw(data)})
    memory.files["head.json"] = b'{"number": 1}'
    head = remembered.head()
    assert head is not None
    assert (head.pinned, head.paused, head.by) == (None, None, "")


@pytest.mark.parametrize("version", [2, 0, -1, 10**9])
def test_unknown_versions_are_named(remembered: Registry, version: int) -> None:
    publish(remembered)
    for use in (remembered.policy, remembered.teacher, remembered.report, remembered.serve, remembered.rollback):
        with pytest.raises(UnknownVersion, match=rf"no version {version}; potstill versions"):
            use(version)


def test_a_change_between_reading_and_writing_is_a_conflict(remembered: Registry, memory: MemoryStorage) -> None:
    for _ in range(2):
        publish(remembered)
    create = memory.create

    def interrupted(name: str, data: bytes) -> None:
        memory.create = create  # type: ignore[method-assign]
        publish(remembered)
        memory.create(name, data)

    memory.create = interrupted  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        remembered.rollback()
    assert remembered.policy().version == 3


# Against a model

SERVED = ("publish", True, [])
changes = st.one_of(
    st.sampled_from([SERVED, ("rollback", None)]),
    st.sampled_from([SERVED, ("publish", False, []), ("publish", True, ["a reason"])]),
    st.tuples(st.sampled_from(["serve", "rollback", "pin"]), st.integers(1, 6)),
    st.sampled_from([("pin", None), ("unpin",), ("pause",), ("resume",)]),
)


class Model:
    """What the registry should be: versions, and a stack of what served."""

    def __init__(self) -> None:
        self.refused: list[bool] = []
        self.stack: list[int] = []
        self.served: set[int] = set()
        self.pinned = self.paused = False

    def publish(self, serve: bool, reasons: list[str]) -> bool:
        self.refused.append(bool(reasons))
        return self.move(len(self.refused)) if serve and not reasons and not self.pinned else True

    def serve(self, version: int) -> bool:
        self.pinned = self.pinned and not version <= len(self.refused)
        return self.move(version)

    def pin(self, version: int | None) -> bool:
        done = bool(self.stack) if version is None else self.move(version)
        self.pinned = self.pinned or done
        return done

    def unpin(self) -> bool:
        self.pinned = False
        return bool(self.refused)

    def pause(self) -> bool:
        self.paused = bool(self.stack)
        return self.paused

    def resume(self) -> bool:
        self.paused = False
        return bool(self.refused)

    def move(self, version: int) -> bool:
        if not version <= len(self.refused):
            return False
        if not self.stack or self.stack[-1] != version:
            self.stack.append(version)
        self.served.add(version)
        return True

    def rollback(self, to: int | None) -> bool:
        earlier = self.stack[:-1]
        if to is None and earlier:
            self.stack, self.pinned = earlier, True
            return True
        if to in earlier:
            while earlier[-1] != to:
                earlier.pop()
            self.stack, self.pinned = earlier, True
            return True
        return bool(self.stack) and to is not None and self.pin(to)

    def states(self) -> dict[int, str]:
        def state(version: int, refused: bool) -> str:
            if self.stack[-1:] == [version]:
                return "serving"
            return "served before" if version in self.served else "refused" if refused else "staged"

        return {version: state(version, refused) for version, refused in enumerate(self.refused, 1)}


def apply(registry: Registry, change: tuple[Any, ...]) -> bool:
    try:
        match change:
            case "publish", serve, reasons:
                publish(registry, serve=serve, reasons=tuple(reasons))
            case "serve", version:
                registry.serve(version)
            case ("rollback" | "pin") as name, to:
                getattr(registry, name)(to)
            case (name,):
                getattr(registry, name)()
    except UnknownVersion:
        return False
    return True


def compare_with_model(registry: Registry, sequence: list[tuple[Any, ...]]) -> None:
    model = Model()
    for name, *arguments in sequence:
        assert apply(registry, (name, *arguments)) == getattr(model, name)(*arguments)
        head = registry.head()
        assert (head.serving if head else None) == (model.stack[-1] if model.stack else None)
        assert (bool(head and head.pinned), bool(head and head.paused)) == (model.pinned, model.paused)
    assert states_of(registry) == model.states()
    numbers = [entry.number for entry in registry.entries()]
    assert numbers == list(range(1, len(numbers) + 1))
    for version in model.states():
        assert registry.policy(version).to_bytes() == make_policy(version).to_bytes()


@given(st.lists(changes, max_size=30))
@settings(max_examples=150)
def test_any_sequence_of_changes_is_as_in_the_model(sequence: list[tuple[Any, ...]]) -> None:
    compare_with_model(Registry(MemoryStorage(), PROBLEM), sequence)


@given(st.lists(changes, min_size=8, max_size=12))
@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_also_in_a_folder_and_on_an_object_store(place: str, sequence: list[tuple[Any, ...]]) -> None:
    compare_with_model(Registry(open_storage(f"{place}/{uuid4().hex}"), PROBLEM), sequence)


# Many at once


def test_of_threads_that_publish_at_once_one_succeeds_each_time(registry: Registry) -> None:
    def compete(i: int) -> int | None:
        try:
            return publish(registry, report=b"by thread %d" % i).number
        except Conflict:
            return None

    with ThreadPoolExecutor(8) as pool:
        won = [list(pool.map(compete, range(8))) for _ in range(3)]
    numbers = sorted(number for each in won for number in each if number)
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 3
    for entry in registry.entries():
        assert registry.policy(entry.version).version == entry.version == entry.number
        assert registry.report(entry.version).startswith(b"by thread")


def test_of_processes_that_publish_at_once_one_succeeds_each_time(registry: Registry, place: str) -> None:
    command = [sys.executable, SCRIPT, "compete", place, "10"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    won = sorted(int(version) for each in printed for version in each.split())
    assert won == [version.version for version in registry.versions()] == list(range(1, len(won) + 1))
    assert len(won) >= 10
    authors = {registry.report(version).split()[-1] for version in won}
    assert authors <= {b"%d" % process.pid for process in processes}
    assert all(registry.policy(version).version == version for version in won)


# Killed at any moment


def kill_publishers(how: str, place: str, counts: range) -> list[str]:
    command = [sys.executable, SCRIPT, how, place, *map(str, counts)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def prepared(place: str) -> Registry:
    registry = Registry(open_storage(place), PROBLEM)
    publish(registry)
    return registry


def check_after_a_kill(registry: Registry) -> int:
    """The old version serves or the new one, whole, and the next can be published."""
    versions = [version.version for version in registry.versions()]
    assert versions in ([1], [1, 2])
    assert registry.policy().version == versions[-1]
    assert registry.teacher(versions[-1]) == b"state %d" % versions[-1]
    assert publish(registry).version == versions[-1] + 1
    assert registry.policy().version == versions[-1] + 1
    return versions[-1]


def kill_at_each(how: str, place: str, counts: range) -> None:
    registries = [prepared(f"{place}/{count}") for count in counts]
    ended = kill_publishers(how, place, counts)
    kills = ended.count("9")
    assert ended == ["9"] * kills + ["0"] * (len(counts) - kills)
    assert 0 < kills < len(counts)  # every step was met, and the last ones ran to the end
    served = [check_after_a_kill(registry) for registry in registries]
    assert served == sorted(served)
    assert set(served[:kills]) == {1, 2}


def test_a_publisher_killed_after_any_call_leaves_the_old_version_or_the_new(place: str) -> None:
    kill_at_each("killed-after-calls", place, range(1, 22))


def test_a_publisher_killed_amid_its_files_leaves_the_old_version_or_the_new(tmp_path: Path) -> None:
    kill_at_each("killed-in-files", str(tmp_path), range(1, 25))


# Altered files


def damaged(data: bytes) -> dict[str, bytes]:
    middle = len(data) // 2
    return {
        "empty": b"",
        "truncated": data[:-3],
        "altered": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
        "longer": data + b" more",
    }


@pytest.mark.parametrize("how", ["empty", "truncated", "altered", "longer"])
@pytest.mark.parametrize("kind", ["policy", "teacher", "report"])
def test_an_altered_file_of_a_version_is_refused_by_name(remembered: Registry, kind: str, how: str) -> None:
    entry = publish(remembered)
    name = getattr(entry.files, kind).name
    remembered.storage.replace(name, damaged(remembered.storage.read(name))[how])
    with pytest.raises(CorruptVersion, match=rf"{name}.*potstill rollback"):
        getattr(remembered, kind)(1)


@pytest.mark.parametrize("kind", ["policy", "report"])
def test_a_file_that_is_gone_is_named(remembered: Registry, kind: str) -> None:
    name = getattr(publish(remembered).files, kind).name
    remembered.storage.delete(name)
    with pytest.raises(CorruptVersion, match=f"{name} is missing"):
        getattr(remembered, kind)(1)


def test_a_damaged_version_is_not_served_again(remembered: Registry) -> None:
    for _ in range(3):
        publish(remembered)
    name = remembered.entries()[1].files.policy.name
    remembered.storage.replace(name, b"nonsense")
    for change in (remembered.rollback, lambda: remembered.serve(2)):
        with pytest.raises(CorruptVersion, match=r"versions/2/.*--to"):
            change()
    assert remembered.policy().version == 3
    assert remembered.rollback(to=1).serving == 1


@pytest.mark.parametrize("how", ["empty", "truncated", "altered"])
def test_a_damaged_last_entry_is_named_and_a_rollback_passes_over_it(remembered: Registry, how: str) -> None:
    for _ in range(3):
        publish(remembered)
    name = "entries/0000000003.json"
    remembered.storage.replace(name, damaged(remembered.storage.read(name))[how])
    for use in (remembered.head, remembered.policy, remembered.next_version, lambda: remembered.changed_since(2)):
        with pytest.raises(CorruptVersion, match=rf"{name}.*potstill rollback"):
            use()
    assert states_of(remembered) == {1: "served before", 2: "serving"}
    assert len(remembered.damage()) == 1
    assert remembered.rollback().serving == 2
    assert remembered.policy().version == 2
    assert remembered.rollback().serving == 1
    assert publish(remembered).version == 4  # 3 was given out, as far as anybody can tell


def test_an_entry_under_another_name_is_refused(remembered: Registry) -> None:
    publish(remembered)
    publish(remembered)
    remembered.storage.replace("entries/0000000002.json", remembered.storage.read("entries/0000000001.json"))
    with pytest.raises(CorruptVersion, match="it is entry 1 under another name"):
        remembered.head()


def test_a_damaged_entry_in_the_past_hides_only_its_version(remembered: Registry) -> None:
    for _ in range(4):
        publish(remembered)
    remembered.storage.replace("entries/0000000002.json", b"{}")
    assert states_of(remembered) == {1: "served before", 3: "served before", 4: "serving"}
    with pytest.raises(UnknownVersion, match="no version 2"):
        remembered.policy(2)
    with pytest.raises(CorruptVersion):
        remembered.entries()
    assert remembered.rollback().serving == 3


def test_a_serving_version_whose_entry_is_damaged_is_corrupt_and_not_unknown(remembered: Registry) -> None:
    publish(remembered)
    publish(remembered, serve=False)
    remembered.storage.replace("entries/0000000001.json", b"{}")
    with pytest.raises(CorruptVersion, match="the entry of version 1, which serves, cannot be read"):
        remembered.policy()
    assert remembered.serve(2).serving == 2


# States of teachers


def test_states_of_old_versions_are_forgotten_and_reading_one_says_so(registry: Registry) -> None:
    for _ in range(5):
        publish(registry)
    assert registry.forget_states(keep=2) == [1, 2, 3]
    assert registry.teacher(4) == b"state 4"
    with pytest.raises(NoState, match=r"state of version 3 was forgotten.*states_kept"):
        registry.teacher(3)
    assert (registry.policy(3).version, registry.report(3)) == (3, b"report 3")
    assert registry.forget_states(keep=2) == []
    publish(registry)
    assert registry.forget_states(keep=2) == [4]


def test_the_serving_state_is_kept_for_as_long_as_it_serves(remembered: Registry) -> None:
    publish(remembered)
    for _ in range(4):
        publish(remembered, serve=False)
    assert remembered.forget_states(keep=1) == [2, 3, 4]
    assert remembered.teacher(1) == b"state 1"
    publish(remembered)
    assert remembered.forget_states(keep=1) == [1, 5]


def test_states_are_forgotten_behind_a_version_without_one_and_after_a_promotion(remembered: Registry) -> None:
    for teacher in (b"1", None, b"3", b"4"):
        publish(remembered, teacher=teacher)
    assert remembered.forget_states(keep=2) == [1]
    remembered.serve(1)
    publish(remembered, teacher=b"5")
    assert remembered.forget_states(keep=2) == [3]
    with pytest.raises(NoState, match="version 2 was published without"):
        remembered.teacher(2)


def test_an_interrupted_forgetting_is_finished_by_the_next(remembered: Registry, memory: MemoryStorage) -> None:
    for _ in range(5):
        publish(remembered)
    delete, left = memory.delete, [2]

    def interrupted(name: str) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        delete(name)

    memory.delete = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        remembered.forget_states(keep=1)
    memory.delete = delete  # type: ignore[method-assign]
    assert remembered.forget_states(keep=1) == [3, 4]


def test_at_least_one_state_is_kept(remembered: Registry) -> None:
    with pytest.raises(ValueError, match="at least 1 version, got 0"):
        remembered.forget_states(0)


# Another problem


def test_a_changed_problem_does_not_serve_old_versions_and_starts_at_the_next_number(registry: Registry) -> None:
    publish(registry)
    publish(registry)
    other = msgspec.structs.replace(PROBLEM, actions=ps.Discrete(["hi", "welcome back", "good morning"]))
    changed = Registry(registry.storage, other)
    for use in (changed.policy, changed.rollback, lambda: changed.serve(1)):
        with pytest.raises(OtherProblem, match=r"cannot serve: it decides an earlier problem.*potstill update"):
            use()
    assert changed.policy(1).problem == PROBLEM  # for an audit
    assert publish(changed).version == 3
    assert changed.policy().problem == other
    with pytest.raises(OtherProblem):
        registry.policy()
    assert registry.rollback().serving == 2  # with the old problem.toml back
