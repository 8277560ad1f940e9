"""The draw: one uniform number per decision, a pure function of the decision's id and the policy's salt.

u = (SipHash-2-4(key=salt, id as UTF-8) >> 11) · 2⁻⁵³. Every runtime takes the same action for the same id, and an audit
can repeat it. SipHash (Aumasson and Bernstein, 2012) is a keyed pseudo-random function for short inputs: sequential ids
give independent draws, and without the salt nobody can pick an id to get a certain action.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SALT_BYTES = 16
_MASK = (1 << 64) - 1
#: Fewer messages of one length than this are hashed faster one by one.
_FEW = 16
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)

_Words = NDArray[np.uint64]
_State = tuple[_Words, _Words, _Words, _Words]


def uniform(decision_id: str, salt: bytes) -> float:
    """The draw of one decision, in [0, 1)."""
    return (siphash(salt, id_bytes(decision_id)) >> 11) * 2.0**-53


def uniforms(decision_ids: Sequence[str], salt: bytes) -> NDArray[np.float64]:
    """The draws of many decisions, float64[N]; the same numbers as `uniform`."""
    if len(decision_ids) < _FEW:
        return np.array([uniform(decision_id, salt) for decision_id in decision_ids])
    encoded = [id_bytes(decision_id) for decision_id in decision_ids]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    hashes = np.empty(len(encoded), np.uint64)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        messages = [encoded[i] for i in rows]
        if len(messages) < _FEW:
            hashes[rows] = [siphash(salt, message) for message in messages]
        else:
            hashes[rows] = _siphash_rows(salt, messages, int(length))
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53


def several(decision_ids: Sequence[str], salt: bytes, count: int) -> NDArray[np.float64]:
    """Several draws per decision, float64[N, count], for heads that take more than one.

    The first is that of `uniforms`. The j-th hashes the id, a byte 0xFF, which never occurs in UTF-8, and j in four
    bytes.
    """
    draws = np.empty((len(decision_ids), count))
    draws[:, 0] = uniforms(decision_ids, salt)
    for row, decision_id in zip(draws, decision_ids, strict=True):
        for j in range(1, count):
            message = id_bytes(decision_id) + b"\xff" + j.to_bytes(4, "little")
            row[j] = (siphash(salt, message) >> 11) * 2.0**-53
    return draws


def id_bytes(decision_id: object) -> bytes:
    """A decision id as the bytes that are hashed."""
    if not isinstance(decision_id, str) or not decision_id:
        raise ValueError(f"a decision's id must be a non-empty string, got {decision_id!r}")
    try:
        return decision_id.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a decision's id must be valid Unicode, got {decision_id!r}") from None


def siphash(key: bytes, message: bytes) -> int:
    """SipHash-2-4 of a message under a 16-byte key, as an unsigned 64-bit number."""
    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v0, v1, v2, v3 = _START[0] ^ k0, _START[1] ^ k1, _START[2] ^ k0, _START[3] ^ k1
    padded = message + bytes(7 - len(message) % 8) + bytes([len(message) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v3 ^= word
        v0, v1, v2, v3 = _rounds(v0, v1, v2, v3, 2)
        v0 ^= word
    v0, v1, v2, v3 = _rounds(v0, v1, v2 ^ 0xFF, v3, 4)
    return v0 ^ v1 ^ v2 ^ v3


def _rounds(v0: int, v1: int, v2: int, v3: int, count: int) -> tuple[int, int, int, int]:
    for _ in range(count):
        v0 = (v0 + v1) & _MASK
        v1 = ((v1 << 13) | (v1 >> 51)) & _MASK ^ v0
        v0 = ((v0 << 32) | (v0 >> 32)) & _MASK
        v2 = (v2 + v3) & _MASK
        v3 = ((v3 << 16) | (v3 >> 48)) & _MASK ^ v2
        v0 = (v0 + v3) & _MASK
        v3 = ((v3 << 21) | (v3 >> 43)) & _MASK ^ v0
        v2 = (v2 + v1) & _MASK
        v1 = ((v1 << 17) | (v1 >> 47)) & _MASK ^ v2
        v2 = ((v2 << 32) | (v2 >> 32)) & _MASK
    return v0, v1, v2, v3


def _siphash_rows(key: bytes, messages: list[bytes], length: int) -> _Words:
    """SipHash-2-4 of many messages of one length at once; `siphash` above is the definition."""
    padding = bytes(7 - length % 8) + bytes([length & 0xFF])
    words = np.frombuffer(b"".join(m + padding for m in messages), "<u8").reshape(len(messages), -1)
    k0, k1 = np.frombuffer(key, "<u8")
    start = [np.full(len(messages), np.uint64(s) ^ k) for s, k in zip(_START, (k0, k1, k0, k1), strict=True)]
    v0, v1, v2, v3 = start
    for word in words.T:
        v0, v1, v2, v3 = _rounds_rows((v0, v1, v2, v3 ^ word), 2)
        v0 = v0 ^ word
    v0, v1, v2, v3 = _rounds_rows((v0, v1, v2 ^ np.uint64(0xFF), v3), 4)
    return v0 ^ v1 ^ v2 ^ v3


def _rounds_rows(state: _State, count: int) -> _State:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 = v0 + v1
        v1 = _rotate(v1, 13) ^ v0
        v0 = _rotate(v0, 32)
        v2 = v2 + v3
        v3 = _rotate(v3, 16) ^ v2
        v0 = v0 + v3
        v3 = _rotate(v3, 21) ^ v0
        v2 = v2 + v1
        v1 = _rotate(v1, 17) ^ v2
        v2 = _rotate(v2, 32)
    return v0, v1, v2, v3


def _rotate(words: _Words, bits: int) -> _Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))
