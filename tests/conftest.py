"""Fixtures of all tests: an example problem, object stores, and a bounded, deterministic Hypothesis profile."""

from collections.abc import Iterator
from uuid import uuid4

import hypothesis
import pytest

import potstill as ps

# Deterministic runs: a failure on one machine is a failure on every machine.
hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("repeatable")


@pytest.fixture
def problem() -> ps.Problem:
    return ps.Problem(
        name="video-upload",
        context=[
            ps.Numeric("bandwidth_kbps", low=0, high=100_000),
            ps.Categorical("connection", ["2g", "3g", "4g", "wifi"]),
            ps.Boolean("hd_screen"),
        ],
        actions=ps.Discrete(["360p", "480p", "720p", "1080p"]),
        reward=ps.Reward(default=0.0, window="1h"),
    )


@pytest.fixture
def context() -> dict[str, object]:
    return {"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True}


@pytest.fixture(scope="session", autouse=True)
def _state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep the local logs of object-store workspaces in a temporary folder, not in the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session")
def _s3() -> Iterator[None]:
    """One S3 server for all tests. Its environment variables stay set: changing them under native threads can crash."""
    object_store = pytest.importorskip("object_store", reason="needs moto and obstore", exc_type=ImportError)
    with object_store.s3_server() as environment, pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def s3(_s3: None) -> str:
    """URL of an empty prefix on an S3-compatible server."""
    return f"s3://bucket/{uuid4().hex}"


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: object) -> str:
    """Location of a workspace: a folder, then an object store."""
    return str(tmp_path) if request.param == "folder" else request.getfixturevalue("s3")
