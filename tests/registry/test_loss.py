"""Lost and replaced entries of the registry are noticed, and no version number is given out twice."""

import hashlib
import itertools
from pathlib import Path

import msgspec
import pytest
from examples import random_layers

import potstill as ps
from potstill.registry import Entry, LostEntries, Registry
from potstill.storage import open_storage

PROBLEM = ps.Problem(name="greeting", context=[ps.Boolean("returning")], actions=ps.Discrete(["hi", "welcome back"]))
_seeds = itertools.count()


@pytest.fixture
def registry(place: str) -> Registry:
    return Registry(open_storage(place), PROBLEM)


def publish(registry: Registry) -> Entry:
    """Publish a policy that no other call publishes."""
    head, version = registry.head(), registry.next_version()
    policy = ps.Policy.build(PROBLEM, random_layers(PROBLEM, seed=next(_seeds)), version=version)
    return registry.publish(policy, teacher=None, report=b"{}", expected=head.number if head else 0)


def entry_name(number: int) -> str:
    return f"entries/{number:010}.json"


def backup(registry: Registry) -> dict[str, bytes]:
    storage = registry.storage
    names = ["head.json", *(f"entries/{name}" for name in storage.names("entries"))]
    return {name: storage.read(name) for name in names}


def restore(registry: Registry, files: dict[str, bytes]) -> None:
    for name in registry.storage.names("entries"):
        registry.storage.delete(f"entries/{name}")
    for name, data in files.items():
        registry.storage.replace(name, data)


def test_each_entry_holds_the_hash_of_the_one_before_it(registry: Registry) -> None:
    first, second = publish(registry), publish(registry)
    assert first.previous == ""
    assert second.previous == hashlib.sha256(registry.storage.read(entry_name(1))).hexdigest()
    assert registry.broken_links() == []


def test_the_newest_entry_is_deleted(registry: Registry) -> None:
    for _ in range(3):
        publish(registry)
    registry.storage.delete(entry_name(3))
    said = r"the last one is 2, but entry 3 was written; restore .* potstill verify DIR --repair"
    for use in (registry.head, registry.policy, registry.next_version, registry.rollback, lambda: publish(registry)):
        with pytest.raises(LostEntries, match=said):
            use()
    assert [version.version for version in registry.versions()] == [1, 2]
    assert "entry 3 was written" in registry.damage()[0]


def test_all_entries_are_deleted(registry: Registry) -> None:
    publish(registry)
    registry.storage.delete(entry_name(1))
    with pytest.raises(LostEntries, match="the last one is 0, but entry 1 was written"):
        registry.head()
    with pytest.raises(LostEntries, match="restore the registry from a backup"):
        registry.accept_loss()


def test_an_older_backup_of_the_journal_is_restored(registry: Registry) -> None:
    publish(registry)
    older = backup(registry)
    publish(registry)
    restore(registry, older)
    assert registry.policy().version == 1  # nothing in the journal says more
    for use in (registry.next_version, lambda: publish(registry)):
        with pytest.raises(LostEntries, match="the last one is 1, but entry 2 was written"):
            use()


def test_an_accepted_loss_gives_out_no_number_twice(registry: Registry) -> None:
    for _ in range(4):
        publish(registry)
    served = registry.policy(4).to_bytes()
    for number in (3, 4):
        registry.storage.delete(entry_name(number))
    entry = registry.accept_loss(note="disk", by="ann")
    assert entry is not None
    assert (entry.number, entry.serving, entry.latest, entry.lost, entry.by) == (5, 2, 4, 2, "ann")
    assert registry.accept_loss() is None
    assert registry.damage() == registry.broken_links() == []
    later = publish(registry)
    assert (later.number, later.version) == (6, 5)
    assert registry.policy().to_bytes() != served
    assert [version.version for version in registry.versions()] == [1, 2, 5]
    assert registry.policy(5).version == 5
    assert registry.rollback().serving == 2


def test_a_loss_that_only_others_know_of_is_accepted_too(registry: Registry) -> None:
    publish(registry)
    entry = registry.accept_loss(latest=7)
    assert entry is not None
    assert registry.next_version() == 8
    assert publish(registry).version == 8
    assert registry.policy(8).version == 8
    assert [version.version for version in registry.versions()] == [1, 8]


def test_a_restored_entry_mends_the_journal(registry: Registry) -> None:
    publish(registry)
    publish(registry)
    data = registry.storage.read(entry_name(2))
    registry.storage.delete(entry_name(2))
    with pytest.raises(LostEntries):
        registry.head()
    registry.storage.create(entry_name(2), data)
    assert registry.policy().version == 2
    assert registry.accept_loss() is None


def test_entries_that_published_versions_are_restored(registry: Registry) -> None:
    for _ in range(4):
        publish(registry)
    before = backup(registry)
    for number in range(1, 5):
        registry.storage.delete(entry_name(number))
    assert registry.restore_lost() == [1, 2, 3, 4]
    assert backup(registry) == before
    assert registry.restore_lost() == []
    registry.pause()
    registry.storage.delete(entry_name(5))  # it published no version
    assert registry.restore_lost() == []
    assert registry.accept_loss() is not None
    assert registry.restore_lost() == []


def test_an_entry_in_the_middle_is_deleted_or_replaced(registry: Registry) -> None:
    publish(registry)
    older = backup(registry)
    publish(registry)
    publish(registry)
    entries = backup(registry)
    registry.storage.delete(entry_name(2))
    assert "entries 2 to 2 of the registry are missing" in registry.broken_links()[0]
    restore(registry, older)
    registry.storage.delete("versions/2/entry.json")
    publish(registry)
    restore(registry, {**entries, entry_name(2): registry.storage.read(entry_name(2))})
    assert "entry 2 of the registry is not the one that was written first" in registry.broken_links()[0]


def test_a_replaced_head_is_noticed(registry: Registry) -> None:
    publish(registry)
    older = backup(registry)
    publish(registry)
    head = registry.storage.read("head.json")
    restore(registry, older)
    registry.storage.delete("versions/2/entry.json")
    publish(registry)
    registry.storage.replace("head.json", head)
    with pytest.raises(LostEntries, match="entry 2 of the registry is not the one that was written first"):
        registry.head()


def test_a_reader_confirms_what_it_has_read(registry: Registry) -> None:
    publish(registry)
    known = publish(registry)
    assert not registry.confirm(known)
    registry.storage.delete(entry_name(2))
    with pytest.raises(LostEntries, match="the last one is 1, but entry 2"):
        registry.confirm(known)
    registry.accept_loss()
    assert registry.confirm(known)


def test_entries_from_before_the_chain_are_read_and_it_starts_after_them(tmp_path: Path) -> None:
    registry = Registry(open_storage(tmp_path), PROBLEM)
    for number in (1, 2):
        publish(registry)
        name = entry_name(number)
        entry = msgspec.json.decode(registry.storage.read(name))["entry"]
        for field in ("previous", "lost"):
            del entry[field]
        data = msgspec.json.encode(entry)
        sealed = {"sha256": hashlib.sha256(data).hexdigest(), "entry": msgspec.Raw(data)}
        registry.storage.replace(name, msgspec.json.encode(sealed))
        registry.storage.replace("head.json", b'{"number": %d}' % number)
        registry.storage.delete(f"versions/{number}/entry.json")
    later = publish(registry)
    assert later.previous == hashlib.sha256(registry.storage.read(entry_name(2))).hexdigest()
    assert registry.broken_links() == registry.damage() == []
    assert [version.version for version in registry.versions()] == [1, 2, 3]
