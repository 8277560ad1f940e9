"""Every space obeys the contract; `check_space` notices one that does not."""

import msgspec
import numpy as np
import pytest
from integer_range import IntegerRange, Integers, QuadraticHead

import potstill as ps
from potstill.spaces import Catalog, Continuous, Discrete, check_space
from potstill.spaces.conformance import CHECKS
from potstill.spaces.registry import register

#: One row for each space: an example, and a restriction of it.
SPACES = {
    "discrete": (Discrete(["low", "middle", "high"]), ["high", "low"]),
    "discrete, unicode": (Discrete(["größe", "日本", "a b"]), ["日本"]),
    "catalog": (
        Catalog(
            features=[ps.Numeric("price", low=0, high=10), ps.Categorical("genre", ["rock", "jazz"])],
            items=[{"id": f"item {i}", "price": i, "genre": "rock"} for i in range(5)],
        ),
        ["item 4", "item 0"],
    ),
    "continuous": (Continuous("price", 0.5, 20), (3.1, 7.2)),
    "continuous, log, few bins": (Continuous("bid", 0.1, 1000, "log", 16), (0.15, 0.7)),
    "integer range": (IntegerRange(-3, 12), (0, 5)),
}


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", SPACES)
def test_spaces_obey_the_contract(name, check):
    space, eligible = SPACES[name]
    check(space, eligible)


def biased(self, u):
    return np.full(len(u), self.low, np.int32)


def unrestricted(self, outputs, allowed, floor):
    return whole(self, outputs, None, floor)


whole = QuadraticHead.distribution
BROKEN = {
    "draw": (Integers, "draw", biased),
    "restriction": (QuadraticHead, "distribution", unrestricted),
    "decode": (IntegerRange, "decode", lambda self, actions: (actions + 1).tolist()),
    "parse": (IntegerRange, "parse", lambda self, value: 0),
    "propensity": (Integers, "propensity", lambda self, actions: np.full(len(actions), 0.5)),
    "embed": (IntegerRange, "embed", lambda self, actions: actions[:, None] * np.float32(np.nan)),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_space_that_breaks_the_contract_is_noticed(broken, monkeypatch):
    monkeypatch.setattr(*BROKEN[broken])
    with pytest.raises((AssertionError, ValueError)):
        check_space(IntegerRange(-3, 12), eligible=(0, 5))


def test_a_tag_that_is_taken_or_missing_is_refused():
    class Other(msgspec.Struct, frozen=True, tag_field="type", tag="discrete"):
        pass

    class Untagged(msgspec.Struct, frozen=True):
        pass

    with pytest.raises(ValueError, match="there is an action space 'discrete' already"):
        register(Other, learn="nowhere")
    with pytest.raises(TypeError, match="must be a msgspec Struct with tag_field='type'"):
        register(Untagged, learn="nowhere")


def test_an_unknown_type_in_a_problem_file_lists_those_there_are(tmp_path):
    text = 'name = "p"\ncontext = []\n[actions]\ntype = "discreet"\nnames = ["a", "b"]\n'
    (tmp_path / "problem.toml").write_text(text)
    with pytest.raises(
        ps.InvalidProblem,
        match=r"unknown type 'discreet' \(did you mean 'discrete'\?\); must be one of: .*discrete, .*integer-range",
    ):
        ps.Problem.load(tmp_path / "problem.toml")
