"""Shared by all tests: one example problem, and a bounded, repeatable hypothesis."""

import hypothesis
import pytest

import potstill as ps

# Repeatable runs: a failure on one machine is a failure on every machine.
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
