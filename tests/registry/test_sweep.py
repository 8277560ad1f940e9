"""Files of publications that did not take place are deleted, and never one that is, or may still be, named."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import potstill as ps
from potstill.files import STALE
from potstill.registry import Conflict, CorruptVersion, Registry
from potstill.registry.blobs import write_blob
from potstill.storage import Storage, open_storage

PROBLEM = ps.Problem(name="greeting", context=[ps.Boolean("returning")], actions=ps.Discrete(["hi", "welcome back"]))


@pytest.fixture
def registry(place: str) -> Registry:
    return Registry(open_storage(place), PROBLEM)


def publish(registry: Registry, seed: int = 0, expected: int | None = None, version: int | None = None) -> None:
    head = registry.head()
    registry.publish(
        ps.Policy.uniform(PROBLEM, version=registry.next_version() if version is None else version, seed=seed),
        teacher=b"state %d" % seed,
        report=b"report %d" % seed,
        expected=(head.number if head else 0) if expected is None else expected,
    )


def files(registry: Registry, version: int) -> set[str]:
    """Files of a version, without the mark that it was published."""
    names = registry.storage.names(f"versions/{version}")
    return {f"versions/{version}/{name}" for name in names if name != "entry.json"}


def named(registry: Registry) -> dict[int, set[str]]:
    return {
        one.version: {file.name for file in (one.files.policy, one.files.teacher, one.files.report) if file}
        for one in registry.versions()
    }


class Late:
    """A storage on which another publication is first, just before an entry is created."""

    def __init__(self, storage: Storage, other: Registry) -> None:
        self._storage, self._other = storage, other

    def __getattr__(self, name: str) -> object:
        return getattr(self._storage, name)

    def create(self, name: str, data: bytes) -> None:
        if name.startswith("entries/"):
            publish(self._other, seed=1)
        self._storage.create(name, data)


def test_the_loser_of_a_race_leaves_nothing(registry: Registry) -> None:
    late = Registry(Late(registry.storage, registry), PROBLEM)  # type: ignore[arg-type]
    with pytest.raises(Conflict):
        publish(late, seed=2)
    assert {version: files(registry, version) for version in (1, 2)} == {**named(registry), 2: set()}
    assert registry.teacher(1) == b"state 1"


def test_many_publishers_leave_only_what_is_named(registry: Registry) -> None:
    def compete(seed: int) -> None:
        for _ in range(4):
            try:
                publish(registry, seed)
            except Conflict:
                continue

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(compete, range(4)))
    registry.sweep()
    assert {version: files(registry, version) for version in named(registry)} == named(registry)
    assert [registry.policy(version).version for version in named(registry)] == list(named(registry))


def test_what_killed_publishers_left_is_deleted_once_the_version_is_published(registry: Registry) -> None:
    publish(registry)
    left = write_blob(registry.storage, 2, "policy", b"of a publisher that was killed").name
    same = write_blob(registry.storage, 2, "report", b"report 3").name
    assert registry.sweep() == []  # somebody may be about to publish version 2
    publish(registry, seed=3)
    assert registry.sweep(dry_run=True) == [left]
    assert registry.sweep() == [left]
    assert registry.report(2) == b"report 3"  # the same bytes: it is named now
    assert same in files(registry, 2)


def test_only_the_latest_are_looked_at_unless_all_are_asked_for(registry: Registry) -> None:
    for seed in range(4):
        publish(registry, seed)
    left = write_blob(registry.storage, 1, "policy", b"of long ago").name
    assert registry.sweep(recent=2) == []
    assert registry.sweep(recent=None) == [left]


def test_files_of_an_entry_that_cannot_be_read_stay(registry: Registry) -> None:
    publish(registry)
    publish(registry, seed=1)
    before = files(registry, 1)
    registry.storage.replace("entries/0000000001.json", b"damaged")
    with pytest.raises(CorruptVersion):
        registry.entries()
    assert registry.sweep(recent=None) == []
    assert files(registry, 1) == before


def test_temporary_files_are_deleted_a_day_later(tmp_path: Path) -> None:
    registry = Registry(open_storage(tmp_path), PROBLEM)
    publish(registry)
    places = [tmp_path / folder / ".x.json.0123456789abcdef.tmp" for folder in ("", "entries", "versions/1")]
    for path in places:
        path.touch()
    registry.sweep()
    assert all(path.exists() for path in places)
    for path in places:
        os.utime(path, (time.time() - STALE - 60,) * 2)
    registry.sweep()
    assert not any(path.exists() for path in places)
