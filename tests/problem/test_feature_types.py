"""Hashed strings, vectors and quantile scales: by hand, whole columns against single values, and what is refused."""

import math
import re

import msgspec
import numpy as np
import polars as pl
import pytest
from native_examples import needs_native

import potstill as ps
from potstill.siphash import siphash, siphash_many
from potstill.tables import context_schema, encode_contexts

ACTIONS = ps.Discrete(["a", "b"])
STRINGS = ["", "a", "a\0", "a\0\0", "shop", "straße", "東京", "🎲🎲", "e\u0301", "é", "x" * 2000]


def problem_of(*features):
    return ps.Problem(name="p", context=features, actions=ACTIONS)


def test_the_column_of_a_string_is_its_siphash_modulo_the_size():
    p = problem_of(ps.Hashed("x", size=7, missing="flag"))
    assert p.labels == (*(f"x#{i}" for i in range(7)), "x=<missing>")
    for value in STRINGS:
        expected = np.zeros(8, np.float32)
        expected[siphash(bytes(16), value.encode()) % 7] = 1
        np.testing.assert_array_equal(p.encode({"x": value}), expected)
    # The published vector of SipHash-2-4 has another key; this one is the hash of nothing under a key of zeros.
    assert siphash(bytes(16), b"") == 0x1E924B9D737700D7
    np.testing.assert_array_equal(p.encode({"x": None}), np.eye(8, dtype=np.float32)[7])


def test_strings_fill_the_columns_evenly():
    """Chi-squared over 64 columns, by a fixed set of strings: below its 1 - 1e-6 quantile for 63 degrees, 133."""
    messages = [f"merchant-{i}".encode() for i in range(20_000)]
    counts = np.bincount((siphash_many(bytes(16), messages) % np.uint64(64)).astype(int), minlength=64)
    expected = len(messages) / 64
    assert ((counts - expected) ** 2 / expected).sum() < 133


def test_a_vector_as_it_is_scaled_and_of_length_one():
    plain, scaled, unit = ps.Vector("x", size=2), ps.Vector("x", 2, low=-1, high=3), ps.Vector("x", 2, norm="unit")
    np.testing.assert_array_equal(problem_of(plain).encode({"x": [3, -4.5]}), np.float32([3, -4.5]))
    np.testing.assert_array_equal(problem_of(scaled).encode({"x": (0, 9)}), np.float32([0.25, 1]))
    np.testing.assert_array_equal(problem_of(unit).encode({"x": np.array([3, -4])}), np.float32([0.6, -0.8]))
    np.testing.assert_array_equal(problem_of(unit).encode({"x": [0, 0]}), np.float32([0, 0]))
    assert problem_of(plain).labels == ("x[0]", "x[1]")


def test_a_quantile_scale_puts_knots_at_equal_distances():
    p = problem_of(ps.Numeric("x", low=0, high=1000, scale="quantile", knots=[1, 10, 100]))
    values = [-5, 0, 0.5, 1, 10, 55, 100, 1000, 1e9]
    expected = np.float32([0, 0, 0.125, 0.25, 0.5, 0.625, 0.75, 1, 1])
    np.testing.assert_array_equal([p.encode({"x": x})[0] for x in values], expected)
    np.testing.assert_array_equal(p.encode_many({"x": np.array(values)})[:, 0], expected)


RANDOM = problem_of(
    ps.Hashed("h", size=11, missing="flag"),
    ps.Vector("u", size=5, norm="unit"),
    ps.Vector("v", size=3, low=-1, high=0.5, missing="flag"),
    ps.Numeric("q", low=-2, high=3, scale="quantile", knots=[-1.5, 0.1, 0.2], missing="flag"),
)


def random_rows(count, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {
            "h": None if rng.random() < 0.1 else STRINGS[rng.integers(len(STRINGS))],
            "u": (10.0 ** rng.integers(-9, 9) * rng.standard_normal(5)).tolist(),
            "v": None if rng.random() < 0.1 else rng.standard_normal(3).tolist(),
            "q": None if rng.random() < 0.1 else float(2 * rng.standard_normal()),
        }
        for _ in range(count)
    ]


def test_columns_tables_and_rows_are_encoded_the_same():
    rows = random_rows(300)
    expected = np.stack([RANDOM.encode(row) for row in rows])
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    np.testing.assert_array_equal(RANDOM.encode_many(columns), expected)
    arrays = columns | {"u": np.array(columns["u"]), "h": np.array(columns["h"], object)}
    np.testing.assert_array_equal(RANDOM.encode_many(arrays), expected)
    frame = pl.DataFrame({f"context_{name}": values for name, values in columns.items()}, context_schema(RANDOM))
    np.testing.assert_array_equal(encode_contexts(frame, RANDOM), expected)


@needs_native
def test_the_kernel_encodes_the_same_and_leaves_the_rest_to_python():
    policy, rows = ps.Policy.uniform(RANDOM).with_runtime("native"), random_rows(300)
    kernel, encoded = policy._runtime._kernel, np.empty((300, RANDOM.width), np.float32)
    assert kernel.encode_many(rows, encoded)
    np.testing.assert_array_equal(encoded, [RANDOM.encode(row) for row in rows])
    assert kernel.encode_rows([tuple(row.values()) for row in rows], encoded)
    np.testing.assert_array_equal(encoded, [RANDOM.encode(row) for row in rows])
    unusual = rows[0] | {"u": np.arange(5.0)}
    assert not kernel.encode_many([unusual], encoded[:1])
    np.testing.assert_array_equal(policy._runtime.encode(unusual), RANDOM.encode(unusual))


@needs_native
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"h": "\ud800"},
            "feature 'h': expected a string of valid Unicode, got '\\ud800' (str); replace lone surrogates",
        ),
        ({"h": 3}, "feature 'h': expected a string, got 3 (int)"),
        ({"u": [1, 2]}, "feature 'u': expected a list of 5 numbers, got one of 2"),
        ({"u": 3.5}, "feature 'u': expected a list of 5 numbers, got 3.5 (float)"),
        ({"u": [1, 2, "3", 4, 5]}, "feature 'u'[2]: expected a number, got '3' (str)"),
        ({"u": [1, 2, 3, 4, True]}, "feature 'u'[4]: expected a number, got True (bool)"),
        (
            {"u": [1, math.nan, 3, 4, 5]},
            "feature 'u'[1]: expected a finite number, got nan (float); if it may be missing",
        ),
        ({"u": [1, 2, 3, 4, -1e39]}, "feature 'u'[4]: expected a finite number, got -1e+39 (float)"),
        ({"v": [math.inf, 2, 3]}, "feature 'v'[0]: expected a finite number, got inf (float); send None"),
        ({"u": None}, "feature 'u' is missing; send a value, or define the feature with missing='flag'"),
    ],
)
def test_a_bad_value_is_refused_with_its_place_on_both_runtimes(changes, message):
    context = random_rows(1)[0] | changes
    for runtime in ("numpy", "native"):
        with pytest.raises(ps.InvalidContext, match=re.escape(message)):
            ps.Policy.uniform(RANDOM).with_runtime(runtime).decide(context)


def test_a_bad_array_is_refused_with_its_row():
    p = problem_of(ps.Vector("x", size=2))
    with pytest.raises(ps.InvalidContext, match=r"row 1: feature 'x'\[0\]: expected a finite number, got .*nan"):
        p.encode_many({"x": np.array([[1, 2], [math.nan, 2]])})
    with pytest.raises(ps.InvalidContext, match=r"column 'x' must have 2 numbers in each row, got shape \(4, 3\)"):
        p.encode_many({"x": np.zeros((4, 3))})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.Hashed("x", size=1), "size must be a whole number from 2 to 65536, got 1"),
        (lambda: ps.Hashed("x", size=2.0), "size must be a whole number"),
        (lambda: ps.Hashed("x", size=8, missing="unseen"), "missing must be 'error' or 'flag', got 'unseen'"),
        (lambda: ps.Vector("x", size=0), "size must be a whole number from 1 to 65536"),
        (lambda: ps.Vector("x", size=2, low=0), "low and high go together, got low=0, high=None"),
        (lambda: ps.Vector("x", size=2, low=1, high=1), "low must be below high"),
        (lambda: ps.Vector("x", size=2, low=0, high=1e39), "high must be a finite number of at most"),
        (lambda: ps.Vector("x", size=2, low=0, high=1, norm="unit"), "norm='unit' needs no low and high"),
        (lambda: ps.Vector("x", size=2, norm="max"), "norm must be 'unit' or left out, got 'max'"),
        (lambda: ps.Numeric("x", 0, 1, scale="quantile"), "knots and scale='quantile' go together, got 0 knots"),
        (lambda: ps.Numeric("x", 0, 1, knots=[0.5]), "knots and scale='quantile' go together, got 1 knots"),
        (lambda: ps.Numeric("x", 0, 1, "quantile", knots=[0.5, 0.5]), "must increase, got 0.5 before 0.5"),
        (lambda: ps.Numeric("x", 0, 1, "quantile", knots=[2]), "must increase, got 2.0 before 1.0"),
        (lambda: ps.Numeric("x", 0, 1, "quantile", knots=["a"]), "knots[0] must be a finite number, got 'a'"),
    ],
)
def test_a_bad_definition_is_refused(make, message):
    with pytest.raises(ps.InvalidProblem, match=re.escape(message)):
        make()


def test_problems_and_policies_are_read_back(tmp_path):
    RANDOM.save(tmp_path / "problem.toml")
    assert ps.Problem.load(tmp_path / "problem.toml") == RANDOM
    policy = ps.Policy.uniform(RANDOM)
    assert policy.metadata.format == 2
    assert ps.Policy.from_bytes(policy.to_bytes()).problem == RANDOM
    assert ps.Policy.uniform(problem_of(ps.Boolean("b"))).metadata.format == 1


def test_defaults_are_left_out_so_that_earlier_hashes_stay():
    text = msgspec.json.encode(ps.Numeric("x", 0, 1))
    assert text == b'{"type":"numeric","name":"x","low":0.0,"high":1.0}'
    assert msgspec.json.encode(ps.Vector("x", 2)) == b'{"type":"vector","name":"x","size":2}'
