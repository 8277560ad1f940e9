"""What the native kernel is not made for, it takes or refuses in the oracle's words, and nothing crashes it."""

import math
from collections import ChainMap, OrderedDict, UserDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_examples import FEATURES, GOOD, assert_same_outcome, make_policy, make_problem, needs_native, outcome

import potstill as ps
from potstill.policy import Layer

pytestmark = needs_native


class Text(str):
    pass


class Loud(float):
    def __float__(self):
        raise ZeroDivisionError("asked for a number")


class Mute(str):
    def __eq__(self, other):
        raise ZeroDivisionError("asked for equality")

    __hash__ = str.__hash__


class Number:
    def __float__(self):
        return 1.0

    def __index__(self):
        return 1


WRONG_VALUES = [
    "fast", b"1", "", 1, 0, -0.0, True, None, 1.5, math.nan, math.inf, -math.inf, 10**400, -(10**400), 2**63, 1e308,
    5e-324, 1j, [], {}, (), object, Number(), Loud(1), Text("home"), Mute("home"), "\ud800", "x" * 1_000_000,
    "東" * 100_000,
    np.float32(2), np.float64(2), np.float64("nan"), np.int8(3), np.uint64(2**64 - 1), np.bool_(True), np.str_("home"),
    np.array(1.0), np.array([1.0]),
]  # fmt: skip


@pytest.mark.parametrize("name", [feature.name for feature in FEATURES])
def test_a_value_of_any_type_is_taken_or_refused_as_the_oracle_does(name):
    policy = make_policy()
    for value in WRONG_VALUES:
        assert_same_outcome(policy, GOOD | {name: value}, id="x")


@pytest.mark.parametrize("place", range(len(FEATURES)))
def test_a_row_with_a_value_of_any_type_is_taken_or_refused_as_the_oracle_does(place):
    policy, good = make_policy(), [GOOD.get(feature.name) for feature in FEATURES]
    for value in WRONG_VALUES:
        row = (*good[:place], value, *good[place + 1 :])
        expected = outcome(lambda row=row: policy.with_runtime("numpy").decide_row(row, id="x"))
        found = outcome(lambda row=row: policy.decide_row(row, id="x"))
        if isinstance(expected, ps.Decision):
            assert (found.id, found.action) == (expected.id, expected.action)
            assert found.propensity == pytest.approx(expected.propensity, abs=1e-6)
        else:
            assert found == expected


@pytest.mark.parametrize("name", [feature.name for feature in FEATURES])
def test_a_missing_feature(name):
    assert_same_outcome(make_policy(), {key: value for key, value in GOOD.items() if key != name}, id="x")


@pytest.mark.parametrize(
    "context",
    [
        GOOD | {"colour": 1},
        GOOD | {Text("speed"): 2.0},
        GOOD | {Text("colour"): 2.0},
        GOOD | {"speed\0": 1.0},
        GOOD | {"SPEED": 1.0},
        GOOD | {"\ud800": 1.0},
        GOOD | {1: 2},
        GOOD | {None: None},
        GOOD | {(): {}},
        GOOD | {f"extra {i}": i for i in range(5000)},
        {},
        OrderedDict(GOOD),
        UserDict(GOOD),
        ChainMap(GOOD),
        {"speed": 1.0},
        None,
        "speed",
        b"speed",
        3,
        [GOOD],
        [("speed", 1.0)],
        object(),
    ],
    ids=lambda context: f"{type(context).__name__}-{len(context) if hasattr(context, '__len__') else ''}",
)
def test_a_context_of_any_shape(context):
    assert_same_outcome(make_policy(), context, id="x")


def test_an_encoded_context_of_any_shape():
    policy = make_policy()
    good = policy.problem.encode(GOOD)
    assert policy.decide(good, id="x") == policy.decide(GOOD, id="x")
    shifted = np.frombuffer(b"\0" + good.tobytes(), np.uint8)[1:].view(np.float32)
    bad = good.copy()
    bad[3] = np.nan
    for array in (
        good.astype(np.float64), good.astype(np.float16), good.astype(int), good.astype(">f4"), good.astype(object),
        np.repeat(good, 2)[::2], shifted, good[None], good[:-1], np.append(good, 0), good[:0], np.float32(1), bad,
        np.full_like(good, np.inf), good.astype(str), np.ma.masked_array(good), memoryview(good), good.tolist(),
    ):  # fmt: skip
        assert_same_outcome(policy, array, id="x")
    assert not shifted.flags.aligned


def test_an_infinite_number_is_refused_where_no_score_would_show_it():
    """Infinity times a negative weight is 0 after a relu."""
    problem = make_problem()
    layers = [
        Layer(np.full((problem.width, 3), -1, np.float32), np.zeros(3, np.float32)),
        Layer(np.ones((3, 5), np.float32), np.zeros(5, np.float32)),
    ]
    policy = ps.Policy.build(problem, layers, version=1, activation="relu").with_runtime("native")
    assert_same_outcome(policy, np.full(problem.width, np.inf, np.float32), id="x")


@pytest.mark.parametrize("decision_id", ["", "\ud800", "a\udfff", b"x", 3, 1.5, Text("x"), Mute("x"), "x" * 200_000])
def test_an_id_of_any_kind(decision_id):
    assert_same_outcome(make_policy(), GOOD, id=decision_id)


@pytest.mark.parametrize(
    "eligible",
    [
        [], (), "action 1", ["action 9"], [1], [None], ["action 1"] * 1000, {"action 1"}, {"action 1": 0}, 3,
        np.array(["action 1"]), [Text("action 1")], [Mute("action 1")], ["\ud800"], range(2), [[]], object(),
    ],
)  # fmt: skip
def test_an_eligible_list_of_any_kind(eligible):
    assert_same_outcome(make_policy(), GOOD, id="x", eligible=eligible)


@pytest.mark.parametrize(
    "floor",
    [-0.1, 0.21, 0.2, 1, 0, True, False, math.nan, math.inf, "0.1", 10**400, Loud(0.1), np.float64(0.1), 1j, []],
)
def test_a_floor_of_any_kind(floor):
    assert_same_outcome(make_policy(), GOOD, id="x", floor=floor)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=400)
@given(
    st.dictionaries(st.sampled_from([f.name for f in FEATURES] + ["x"]) | st.text() | st.integers(), anything),
    st.text() | anything,
    st.none() | st.lists(st.sampled_from([f"action {i}" for i in range(6)])) | anything,
    st.none() | st.floats() | anything,
)
def test_whatever_it_is_given_it_does_as_the_oracle_does(changes, decision_id, eligible, floor):
    if decision_id is None:
        decision_id = "x"  # otherwise each runtime would make its own
    assert_same_outcome(make_policy(), GOOD | changes, id=decision_id, eligible=eligible, floor=floor)


class Saboteur:
    """A key that is equal to none, and empties the context when it is compared."""

    def __init__(self, name, context):
        self.hash, self.context = hash(name), context

    def __hash__(self):
        return self.hash

    def __eq__(self, other):
        self.context.clear()
        return False


def test_a_key_that_destroys_the_context_when_it_is_compared():
    policy = make_policy()
    for name in GOOD:
        context = {}
        context[Saboteur(name, context)] = 1
        context.update({key: value for key, value in GOOD.items() if key != name})
        assert isinstance(outcome(lambda context=context: policy.decide(context, id="x")), tuple)


def test_weights_that_overflow_are_refused_whatever_the_runtime():
    problem = make_problem()
    huge = [Layer(np.full((problem.width, 5), 3e38, np.float32), np.zeros(5, np.float32))]
    for name in ("native", "numpy"):
        policy = ps.Policy.build(problem, huge, version=1).with_runtime(name)
        for call in (
            lambda policy=policy: policy.decide(GOOD, id="x"),
            lambda policy=policy: policy.probabilities(GOOD, eligible=["action 1"], floor=0.1),
            lambda policy=policy: policy.decide_many([GOOD], ["x"]),
            lambda policy=policy: policy.probabilities_many([GOOD]),
        ):
            with pytest.raises(ps.InvalidPolicy, match="scores are not finite"):
                call()


def test_batches_refuse_in_the_oracles_words():
    policy = make_policy()
    encoded = policy.problem.encode_many([GOOD] * 3)
    ids = ["a", "b", "c"]
    bad = encoded.copy()
    bad[1, 2] = np.inf
    for arguments, options in [
        (([GOOD, GOOD | {"speed": "x"}, GOOD], ids), {}),
        (([GOOD, {}, GOOD], ids), {}),
        (([GOOD, None, GOOD], ids), {}),
        ((bad, ids), {}),
        ((encoded[:, 1:], ids), {}),
        ((encoded, ids[:2]), {}),
        ((encoded, ["a", "", "c"]), {}),
        ((encoded, ["a", "\ud800", "c"]), {}),
        ((encoded, ["a", 3, "c"]), {}),
        ((encoded, ids), {"floor": 0.5}),
        ((encoded, ids), {"eligible": np.zeros(5, bool)}),
        ((encoded, ids), {"eligible": np.ones(4, bool)}),
        ((encoded, ids), {"eligible": np.eye(3, 5, 1, dtype=bool)}),
        ((iter([GOOD] * 3), ids), {}),
        (([OrderedDict(GOOD), GOOD, UserDict(GOOD)], tuple(ids)), {}),
        ((encoded.astype(np.float64), np.array(ids)), {}),
        ((np.asfortranarray(encoded), ids), {}),
    ]:
        contexts, given_ids = arguments
        again = [GOOD] * 3 if hasattr(contexts, "__next__") else contexts
        expected = outcome(lambda: policy.with_runtime("numpy").decide_many(again, given_ids, **options))  # noqa: B023
        found = outcome(lambda: policy.decide_many(contexts, given_ids, **options))  # noqa: B023
        if isinstance(expected[0], type):
            assert found == expected
        else:
            np.testing.assert_array_equal(found[0], expected[0])
            np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
