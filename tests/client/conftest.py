"""A service to talk to, and clients that do not sleep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from examples import random_layers
from fake_service import FakeService, running

import potstill as ps
from potstill.client import Retry


@pytest.fixture
def policy(problem: ps.Problem) -> ps.Policy:
    return ps.Policy.build(problem, random_layers(problem), version=3)


@pytest.fixture
def service(policy: ps.Policy) -> Iterator[FakeService]:
    with running(policy) as service:
        yield service


@pytest.fixture
def pauses() -> list[float]:
    """The pauses that a client made, in place of sleeping."""
    return []


@pytest.fixture
def quick(pauses: list[float]) -> dict[str, object]:
    """Arguments of a client that notes its pauses and does not make them."""
    return {"retry": Retry(timeout=5.0, jitter=lambda: 0.0), "sleep": pauses.append}
