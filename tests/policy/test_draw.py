"""The draw: SipHash against its reference vectors, and uniform whatever the ids look like."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.policy.draw import several, siphash, uniform, uniforms

KEY = bytes(range(16))

# SipHash-2-4 of the messages b"", 00, 00 01, … under the key 00 01 … 0f, from the appendix of the SipHash paper and
# its reference implementation's vectors (the first eight, and the fifteen-byte one of the paper).
REFERENCE = {
    0: 0x726FDB47DD0E0E31,
    1: 0x74F839C593DC67FD,
    2: 0x0D6C8009D9A94F5A,
    3: 0x85676696D7FB7E2D,
    4: 0xCF2794E0277187B7,
    5: 0x18765564CD99A68D,
    6: 0xCBC9466E58FEE3CE,
    7: 0xAB0200F58B01D137,
    15: 0xA129CA6149BE45E5,
}


@pytest.mark.parametrize(("length", "expected"), REFERENCE.items())
def test_siphash_reference_vectors(length, expected):
    assert siphash(KEY, bytes(range(length))) == expected


@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=20),
    st.binary(min_size=16, max_size=16),
)
def test_many_at_once_are_the_same_numbers(ids, salt):
    np.testing.assert_array_equal(uniforms(ids, salt), [uniform(i, salt) for i in ids])


def test_many_of_one_length_are_the_same_numbers():
    ids = [f"upload-{i:04}" for i in range(100)]
    np.testing.assert_array_equal(uniforms(ids, KEY), [uniform(i, KEY) for i in ids])


def test_ids_that_count_upwards_give_uniform_draws():
    """Chi-square over 100 bins of 100,000 draws; false alarm 1e-6 (99 degrees of freedom: 181.4)."""
    u = uniforms([f"upload-{i}" for i in range(100_000)], KEY)
    assert (u >= 0).all()
    assert (u < 1).all()
    counts = np.bincount((u * 100).astype(int), minlength=100)
    assert ((counts - 1000) ** 2 / 1000).sum() < 181.4


def test_neighbouring_ids_and_salts_are_uncorrelated():
    """Correlations of 100,000 pairs; a false alarm at 5 standard errors has probability below 1e-6 each."""
    ids = [str(i) for i in range(100_000)]
    u, other = uniforms(ids, KEY), uniforms(ids, KEY[::-1])
    bound = 5 / np.sqrt(100_000)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < bound
    assert abs(np.corrcoef(u, other)[0, 1]) < bound


@pytest.mark.parametrize("bad", ["", None, 3, b"x", "\ud800"])
def test_an_id_must_be_a_string_with_something_in_it(bad):
    with pytest.raises(ValueError, match="a decision's id must be"):
        uniform(bad, KEY)
    with pytest.raises(ValueError, match="a decision's id must be"):
        uniforms(["fine", bad], KEY)


def test_several_draws_begin_with_the_first_and_are_independent():
    """Correlations of 20,000 draws within 5 standard errors of 0; false alarm below 1e-5."""
    ids = [f"id-{i}" for i in range(20_000)]
    draws = several(ids, KEY, 3)
    np.testing.assert_array_equal(draws[:, 0], uniforms(ids, KEY))
    by_hand = siphash(KEY, b"id-7\xff" + (2).to_bytes(4, "little"))
    assert draws[7, 2] == (by_hand >> 11) * 2.0**-53
    assert np.abs(np.corrcoef(draws.T) - np.eye(3)).max() < 5 / np.sqrt(len(ids))
