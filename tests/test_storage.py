"""Storage: a folder and an object store behave alike."""

import os
import subprocess
import sys
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


PLAIN_HTTP = """
import sys
import potstill as ps
from potstill.events.lake import Lake, LakeUnavailable
from potstill.storage import StorageUnavailable, open_storage
problem = ps.Problem(name="a", context=[ps.Boolean("b")], actions=ps.Discrete(["c", "d"]))
try:
    open_storage("s3://bucket/a").read("b")
except StorageUnavailable as error:
    print(error)
try:
    Lake("s3://bucket/a", problem).version("decisions")
except LakeUnavailable as error:
    print(error)
"""


def test_an_endpoint_without_tls_is_refused_with_the_way_out() -> None:
    """In a process of its own: native threads read the environment."""
    stated = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    command = [sys.executable, "-c", PLAIN_HTTP]
    done = subprocess.run(command, env={**environment, **stated}, capture_output=True, text=True, check=True)
    assert done.stdout.count("set AWS_ALLOW_HTTP=true") == 2


def test_names_are_those_right_in_the_folder_in_order(place: str) -> None:
    storage = open_storage(place)
    for name in ("a/2", "a/1", "a/10", "a/deeper/3", "ab/4"):
        storage.create(name, b"")
    assert storage.names("a") == ["1", "10", "2"]
    assert storage.names("a", after="1") == ["10", "2"]
    assert storage.names("nowhere") == []
    storage.delete("a/10")
    assert storage.names("a") == ["1", "2"]
