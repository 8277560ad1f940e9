"""Contexts to float32: by hand, one by one against whole columns, and everything that can be wrong."""

import math
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import potstill as ps
from potstill.tables import context_column, encode_contexts

ACTIONS = ps.Discrete(["a", "b"])


def problem_of(*features):
    return ps.Problem(name="p", context=features, actions=ACTIONS)


EVERYTHING = problem_of(
    ps.Numeric("n", low=-10, high=10),
    ps.Numeric("l", low=1, high=1000, scale="log", missing=10),
    ps.Numeric("f", low=0, high=1, missing="flag"),
    ps.Categorical("c", ["x", "y", "zz"]),
    ps.Boolean("b"),
    ps.Boolean("g", missing="flag"),
)


def test_by_hand(problem):
    assert problem.width == 7
    assert problem.labels[1:6] == (
        "connection=2g", "connection=3g", "connection=4g", "connection=wifi", "connection=<unseen>",
    )  # fmt: skip
    row = problem.encode({"bandwidth_kbps": 25_000, "connection": "4g", "hd_screen": True})
    np.testing.assert_array_equal(row, np.float32([0.25, 0, 0, 1, 0, 0, 1]))
    row = problem.encode({"bandwidth_kbps": -5, "connection": "5g", "hd_screen": False})
    np.testing.assert_array_equal(row, np.float32([0, 0, 0, 0, 0, 1, 0]))


def test_a_log_scale_puts_equal_ratios_at_equal_distances():
    p = problem_of(ps.Numeric("x", low=1, high=10_000, scale="log"))
    rows = [p.encode({"x": x})[0] for x in (0.1, 1, 10, 100, 1e4, 1e9)]
    np.testing.assert_allclose(rows, [0, 0, 0.25, 0.5, 1, 1], atol=1e-7)


@pytest.mark.parametrize(
    ("feature", "expected"),
    [
        (ps.Numeric("x", low=0, high=4, missing=1), [0.25]),
        (ps.Numeric("x", low=0, high=4, missing="flag"), [0, 1]),
        (ps.Boolean("x", missing=True), [1]),
        (ps.Boolean("x", missing=False), [0]),
        (ps.Boolean("x", missing="flag"), [0, 1]),
        (ps.Categorical("x", ["a"]), [0, 1]),
    ],
)
def test_missing_values_follow_the_features_rule(feature, expected):
    p = problem_of(feature)
    for context in ({}, {"x": None}):
        np.testing.assert_array_equal(p.encode(context), np.float32(expected))
    np.testing.assert_array_equal(p.encode_many({"x": [None, None]}), np.float32([expected] * 2))


@pytest.mark.parametrize(
    "feature", [ps.Numeric("x", low=0, high=4), ps.Boolean("x"), ps.Categorical("x", ["a"], missing="error")]
)
def test_missing_is_an_error_where_the_feature_says_so(feature):
    for context in ({}, {"x": None}):
        with pytest.raises(ps.InvalidContext, match="feature 'x' is missing; send a value, or define the feature with"):
            problem_of(feature).encode(context)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": "fast"}, "feature 'n': expected a number, got 'fast' (str)"),
        ({"n": True}, "feature 'n': expected a number, got True (bool)"),
        ({"n": math.nan}, "got nan (float); if it may be missing, define the feature with missing=<number> or"),
        ({"l": math.nan}, "expected a finite number, got nan (float); send None for a missing value"),
        ({"f": math.nan}, "expected a finite number, got nan (float); send None for a missing value"),
        ({"n": -math.inf}, "expected a finite number, got -inf"),
        ({"n": 10**400}, "expected a finite number, got 1000000"),
        ({"n": [1]}, "expected a number, got [1] (list)"),
        ({"n": np.float32("nan")}, "expected a finite number"),
        ({"c": 3}, "feature 'c': expected a string, got 3 (int)"),
        ({"c": b"x"}, "expected a string, got b'x' (bytes)"),
        ({"b": 1}, "feature 'b': expected true or false, got 1 (int)"),
        ({"b": "true"}, "expected true or false, got 'true' (str)"),
        ({"speed": 1}, "unknown feature 'speed' (str); the problem's features are b, c, f, g, l, n"),
        ({"c": None, "☃" * 1000: None}, "unknown feature '☃☃"),
        ({7: 1}, "unknown feature 7 (int)"),
    ],
)
def test_a_bad_value_is_named(change, message):
    good = {"n": 1, "c": "x", "b": True}
    with pytest.raises(ps.InvalidContext, match=re.escape(message)) as caught:
        EVERYTHING.encode(good | change)
    assert len(str(caught.value)) < 300
    with pytest.raises(ps.InvalidContext, match=re.escape("row 1: ")):
        EVERYTHING.encode_many([good, good | change])


@pytest.mark.parametrize("context", [None, 3, "n=1", [1.0], ("n", 1)])
def test_a_context_that_is_no_mapping(context):
    with pytest.raises(ps.InvalidContext, match="a context must be a mapping of feature names to values"):
        EVERYTHING.encode(context)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"n": np.array([1.0, np.nan])}, "row 1: feature 'n': expected a finite number, got"),
        ({"n": np.array([True, False])}, "row 0: feature 'n': expected a number, got"),
        ({"n": np.array(["1", "2"])}, "row 0: feature 'n': expected a number"),
        ({"b": np.array([0, 1])}, "row 0: feature 'b': expected true or false"),
        ({"c": np.array([1, 2])}, "row 0: feature 'c': expected a string"),
        ({"n": np.ones((2, 2))}, "column 'n' must have one dimension, got shape (2, 2)"),
        ({"n": [1]}, "columns must have one length"),
        ({"q": [1, 2]}, "unknown feature 'q'"),
    ],
)
def test_a_bad_column_is_named(columns, message):
    good = {"n": [1, 2], "c": ["x", "y"], "b": [True, False]}
    with pytest.raises(ps.InvalidContext, match=re.escape(message)):
        EVERYTHING.encode_many(good | columns)


def test_encoded_arrays_pass_and_are_checked(problem):
    rows = np.random.default_rng(0).random((3, 7))
    np.testing.assert_array_equal(problem.encode_many(rows), rows.astype(np.float32))
    np.testing.assert_array_equal(problem.encode(rows[0]), rows[0].astype(np.float32))
    with pytest.raises(ps.InvalidContext, match=r"must have 7 columns, got shape \(3, 6\)"):
        problem.encode_many(rows[:, :6])
    rows[2, 4] = np.inf
    with pytest.raises(ps.InvalidContext, match=r"non-finite number at \(2, 4\)"):
        problem.encode_many(rows)


@pytest.mark.parametrize("value", [10**5000, -(10**5000), 10**400], ids=["5001 digits", "negative", "401 digits"])
def test_an_integer_that_no_float_can_hold_is_the_callers_error(value):
    problem = problem_of(ps.Numeric("x", low=0, high=1))
    for encode in (
        lambda: problem.encode({"x": value}),
        lambda: problem.encode_many([{"x": value}]),
        lambda: problem.encode_many({"x": [value]}),
        lambda: ps.Policy.uniform(problem).decide({"x": value}),
    ):
        with pytest.raises(ps.InvalidContext, match=r"feature 'x': expected a finite number, got .* \(int\)"):
            encode()


def test_an_encoded_number_beyond_float32_is_the_callers_error():
    problem = problem_of(ps.Numeric("x", low=0, high=1))
    with pytest.raises(ps.InvalidContext, match=r"non-finite number at \(0,\): 1e\+300"):
        problem.encode(np.array([1e300]))
    with pytest.raises(ps.InvalidContext, match=r"non-finite number at \(1, 0\): -1e\+300"):
        ps.Policy.uniform(problem).probabilities_many(np.array([[0.5], [-1e300]]))


def test_categories_that_differ_by_trailing_nuls_are_different_everywhere():
    values = ["a", "a\0", "b\0\0"]
    problem = problem_of(ps.Categorical("c", values))
    given, columns = [*values, "b", "a\0\0"], [0, 1, 2, 3, 3]
    expected = np.eye(4, dtype=np.float32)[columns]
    np.testing.assert_array_equal([problem.encode({"c": value}) for value in given], expected)
    np.testing.assert_array_equal(problem.encode_many([{"c": value} for value in given]), expected)
    np.testing.assert_array_equal(problem.encode_many({"c": given}), expected)
    np.testing.assert_array_equal(problem.encode_many({"c": np.array(given, object)}), expected)
    np.testing.assert_array_equal(problem.encode_many({"c": np.array(["a", "b"])}), expected[[0, 3]])
    frame = pl.DataFrame({context_column("c"): given})
    np.testing.assert_array_equal(encode_contexts(frame, problem), expected)
    policy = ps.Policy.uniform(problem)
    np.testing.assert_array_equal(policy.encode_rows([(value,) for value in given]), expected)


def test_no_rows_and_no_features(problem):
    assert problem.encode_many([]).shape == (0, 7)
    assert problem.encode_many({}).shape == (0, 7)
    empty = problem_of()
    assert empty.encode({}).shape == (0,)
    assert empty.encode_many([{}, {}]).shape == (2, 0)


numbers = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(10**18), 10**18)
contexts = st.fixed_dictionaries(
    {"n": numbers, "c": st.sampled_from(["x", "y", "zz", "", "ZZ", "☃"]), "b": st.booleans()},
    optional={"l": numbers | st.none(), "f": numbers | st.none(), "g": st.booleans() | st.none()},
)


@given(st.lists(contexts, min_size=1, max_size=8))
def test_one_by_one_rows_and_columns_agree_to_the_bit(rows):
    one_by_one = np.stack([EVERYTHING.encode(row) for row in rows])
    assert ((one_by_one >= 0) & (one_by_one <= 1)).all()
    np.testing.assert_array_equal(EVERYTHING.encode_many(rows), one_by_one)
    as_columns = {name: [row.get(name) for row in rows] for name in ("n", "l", "f", "c", "b", "g")}
    np.testing.assert_array_equal(EVERYTHING.encode_many(as_columns), one_by_one)


@given(st.lists(contexts, min_size=1, max_size=8))
def test_whole_arrays_agree_with_one_by_one(rows):
    columns = {
        "n": np.array([float(row["n"]) for row in rows]),
        "l": np.array([float(row.get("l") or 1.0) for row in rows]),
        "c": np.array([row["c"] for row in rows]),
        "b": np.array([row["b"] for row in rows]),
    }
    as_rows = [{name: column[i].item() for name, column in columns.items()} for i in range(len(rows))]
    # The logarithms of NumPy and the standard library may differ in the last bit of float64.
    np.testing.assert_allclose(EVERYTHING.encode_many(columns), EVERYTHING.encode_many(as_rows), rtol=2e-7)
