"""Texts: against a second implementation by hand, on whole columns and every runtime, and what is refused."""

import math
import re

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_examples import needs_native

import potstill as ps
from potstill.siphash import siphash
from potstill.tables import context_schema, encode_contexts

ACTIONS = ps.Discrete(["a", "b"])
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
TEXTS = [
    "", "\0", "!?", "a", "Red shoes", "red\0SHOES,  red-shoes", "Straße", "İI", "東京タワー", "🎲",
    "e\u0301 é", "\u00a0", "x" * 4096, "🎲" * 4096, "to be or not to be " * 200,
]  # fmt: skip


def problem_of(*features):
    return ps.Problem(name="p", context=features, actions=ACTIONS)


def counted(text, n):
    """N-grams of a text and how often each occurs: character by character, without regular expressions."""
    counts, word = {}, ""
    for character in [*text, " "]:
        if "A" <= character <= "Z":
            character = LETTERS[ord(character) - ord("A")]
        if character in LETTERS or ord(character) >= 128:
            word += character
        elif word:
            bounded = f" {word} "
            for at in range(len(bounded)):
                if at + n <= len(bounded) or at == 0:
                    counts[bounded[at : at + n]] = counts.get(bounded[at : at + n], 0) + 1
            word = ""
    return counts


def expected(text, size, n):
    columns = [0] * size
    for ngram, count in counted(text, n).items():
        hashed = siphash(bytes(16), ngram.encode())
        columns[hashed % size] += count if hashed < 2**63 else -count
    length = math.sqrt(sum(c * c for c in columns))
    return np.float32([c / length if length else 0 for c in columns])


def test_ngrams_of_words_by_hand():
    assert list(ps.Text("x", 8).pieces("Red, is 東!")) == [" re", "red", "ed ", " is", "is ", " 東 "]
    assert list(ps.Text("x", 8, ngrams=8).pieces("a sentence")) == [" a ", " sentenc", "sentence", "entence "]
    assert counted("Red, is 東!", 3) == dict.fromkeys([" re", "red", "ed ", " is", "is ", " 東 "], 1)


def test_columns_of_one_ngram_and_labels():
    p = problem_of(ps.Text("x", size=5, missing="flag"))
    assert p.labels == ("x~0", "x~1", "x~2", "x~3", "x~4", "x=<missing>")
    hashed = siphash(bytes(16), b" a ")
    one = np.zeros(6, np.float32)
    one[hashed % 5] = 1 if hashed < 2**63 else -1
    for text in ("a", "A", "?a!", "a a a a"):
        np.testing.assert_array_equal(p.encode({"x": text}), one)
    np.testing.assert_array_equal(p.encode({"x": None}), [0, 0, 0, 0, 0, 1])
    np.testing.assert_array_equal(p.encode({"x": " ... "}), np.zeros(6))


@needs_native
@settings(max_examples=150, deadline=None)
@given(
    texts=st.lists(st.one_of(st.text(max_size=60), st.text("aB c\0é東🎲-", max_size=60)), min_size=1, max_size=5),
    size=st.integers(2, 40),
    n=st.integers(2, 8),
)
def test_every_way_gives_what_the_second_implementation_does(texts, size, n):
    p = problem_of(ps.Text("x", size=size, ngrams=n))
    wanted = np.stack([expected(text, size, n) for text in texts])
    assert (np.abs(np.linalg.norm(wanted, axis=1) - wanted.any(axis=1)) < 1e-6).all()  # of length one, or zeros
    np.testing.assert_array_equal([p.encode({"x": text}) for text in texts], wanted)
    np.testing.assert_array_equal(p.encode_many({"x": np.array(texts, object)}), wanted)
    kernel, encoded = ps.Policy.uniform(p)._runtime._kernel, np.empty((len(texts), size), np.float32)
    assert kernel.encode_many([{"x": text} for text in texts], encoded)
    np.testing.assert_array_equal(encoded, wanted)


@needs_native
@pytest.mark.parametrize("n", [2, 3, 8])
def test_chosen_texts_columns_tables_and_the_kernel(n):
    p = problem_of(ps.Text("x", size=11, ngrams=n, missing="flag"))
    values = [*TEXTS, None]
    wanted = np.stack([np.append(expected(text, 11, n), np.float32(0)) for text in TEXTS] + [np.eye(12)[11]])
    for columns in ({"x": values}, {"x": np.array(values, object)}):
        np.testing.assert_array_equal(p.encode_many(columns), wanted)
    frame = pl.DataFrame({"context_x": values}, context_schema(p))
    np.testing.assert_array_equal(encode_contexts(frame, p), wanted)
    encoded = np.empty((len(values), 12), np.float32)
    assert ps.Policy.uniform(p)._runtime._kernel.encode_rows([(value,) for value in values], encoded)
    np.testing.assert_array_equal(encoded, wanted)


def test_a_long_text_weighs_no_more_and_distances_are_kept_in_the_mean():
    """Cosines of hashed texts of 64 columns against those of n-gram counts, over 400 fixed pairs of texts.

    The error of one cosine has a standard deviation below 1/8 (1 / sqrt(64)), and the mean of 400 independent ones
    below 0.00625: 0.03 is 4.8 of them, a false alarm of 2e-6.
    """
    p = problem_of(ps.Text("x", size=64))
    errors = []
    for i in range(400):
        shared, one, other = (f"{word}{i * i}" for word in ("shared", "fast", "slow"))
        a, b = counted(f"{shared} {one}", 3), counted(f"{shared} {other}", 3)
        exact = sum(a[g] * b.get(g, 0) for g in a) / math.hypot(*a.values()) / math.hypot(*b.values())
        x, y = p.encode({"x": f"{shared} {one}"}), p.encode({"x": f"{shared} {other}"})
        errors.append(float(x @ y) - exact)
    assert abs(np.mean(errors)) < 0.03


@needs_native
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("x" * 4097, "feature 'x': expected a text of at most 4096 characters, got one of 4097; cut it"),
        ("🎲" * 4097, "feature 'x': expected a text of at most 4096 characters, got one of 4097; cut it"),
        ("x" * 10_000_000, "expected a text of at most 4096 characters, got one of 10000000; cut it"),
        ("a\ud800", "feature 'x': expected a text of valid Unicode, got 'a\\ud800' (str); replace lone surrogates"),
        ("\udfff" * 4097, "expected a text of at most 4096 characters"),
        (3, "feature 'x': expected a string, got 3 (int)"),
        (None, "feature 'x' is missing; send a value, or define the feature with missing='flag'"),
    ],
    ids=lambda value: str(value)[:10].encode("ascii", "replace").decode(),
)
def test_a_bad_text_is_refused_by_every_runtime(value, message):
    p = problem_of(ps.Text("x", size=8))
    for runtime in ("numpy", "native"):
        with pytest.raises(ps.InvalidContext, match=re.escape(message)):
            ps.Policy.uniform(p).with_runtime(runtime).decide({"x": value})
    with pytest.raises(ps.InvalidContext, match=re.escape(f"row 1: {message}" if message[0] == "f" else message)):
        p.encode_many({"x": np.array(["good", value], object)})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.Text("x", size=1), "size must be a whole number from 2 to 65536, got 1"),
        (lambda: ps.Text("x", size=8, ngrams=1), "ngrams must be a whole number from 2 to 8, got 1"),
        (lambda: ps.Text("x", size=8, ngrams=9), "ngrams must be a whole number from 2 to 8, got 9"),
        (lambda: ps.Text("x", size=8, ngrams=True), "ngrams must be a whole number from 2 to 8, got True"),
        (lambda: ps.Text("x", size=8, ngrams=3.0), "ngrams must be a whole number from 2 to 8, got 3.0"),
        (lambda: ps.Text("x", size=8, missing="unseen"), "missing must be 'error' or 'flag', got 'unseen'"),
    ],
)
def test_a_bad_definition_is_refused(make, message):
    with pytest.raises(ps.InvalidProblem, match=re.escape(message)):
        make()


def test_contexts_drawn_before_any_was_observed_look_like_texts():
    drawn = ps.Text("x", size=64).draw(np.random.default_rng(0), 50)
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1, rtol=1e-6)
    assert ps.Text("x", size=2).draw(np.random.default_rng(0), 50).shape == (50, 2)


def test_it_is_read_back_with_its_defaults_left_out(tmp_path):
    p = problem_of(ps.Text("x", 8), ps.Text("y", 9, ngrams=4, missing="flag"))
    p.save(tmp_path / "problem.toml")
    assert ps.Problem.load(tmp_path / "problem.toml") == p
    policy = ps.Policy.uniform(p)
    assert policy.metadata.format == 2
    assert ps.Policy.from_bytes(policy.to_bytes()).problem == p
    assert b'{"type":"text","name":"x","size":8}' in policy.to_bytes().replace(b'\\"', b'"')
