"""Storage: a folder and an object store behave alike."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from potstill.storage import AlreadyThere, open_storage


def test_what_is_written_is_read_back(place: str) -> None:
    storage = open_storage(place)
    storage.create("a/1.json", b"one")
    storage.replace("a/1.json", b"two")
    assert storage.read("a/1.json") == b"two"
    assert storage.within("a").read("1.json") == b"two"


def test_a_missing_file_is_said_to_be_missing(place: str) -> None:
    with pytest.raises(FileNotFoundError):
        open_storage(place).read("nothing/here")
    open_storage(place).delete("nothing/here")


def test_a_file_is_created_once(place: str) -> None:
    storage = open_storage(place)
    storage.create("1.json", b"one")
    with pytest.raises(AlreadyThere, match="exists already"):
        storage.create("1.json", b"two")
    assert storage.read("1.json") == b"one"


def test_of_many_that_create_one_name_one_succeeds(place: str) -> None:
    storage = open_storage(place)

    def create(i: int) -> bool:
        try:
            storage.create("race", b"%d" % i)
        except AlreadyThere:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(8)))
    assert won.count(True) == 1
    assert storage.read("race") == b"%d" % won.index(True)


def test_names_are_those_right_in_the_folder_in_order(place: str) -> None:
    storage = open_storage(place)
    for name in ("a/2", "a/1", "a/10", "a/deeper/3", "ab/4"):
        storage.create(name, b"")
    assert storage.names("a") == ["1", "10", "2"]
    assert storage.names("a", after="1") == ["10", "2"]
    assert storage.names("nowhere") == []
    storage.delete("a/10")
    assert storage.names("a") == ["1", "2"]
