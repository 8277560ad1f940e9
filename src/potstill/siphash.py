"""SipHash-2-4, the hash of decision ids and of hashed features, one message at a time or many at once.

SipHash (Aumasson and Bernstein, 2012) is a keyed pseudo-random function for short inputs. Every runtime has it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
#: Fewer messages of one length than this are hashed faster one by one.
_FEW = 16
_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)

_Words = NDArray[np.uint64]
_State = tuple[_Words, _Words, _Words, _Words]


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


def siphash_many(key: bytes, messages: Sequence[bytes]) -> _Words:
    """SipHash-2-4 of each message, uint64[N]; the same numbers as `siphash`."""
    hashes = np.empty(len(messages), np.uint64)
    if len(messages) < _FEW:
        hashes[:] = [siphash(key, message) for message in messages]
        return hashes
    lengths = np.fromiter(map(len, messages), np.int64, len(messages))
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length).tolist()
        chosen = [messages[i] for i in rows]
        if len(chosen) < _FEW:
            hashes[rows] = [siphash(key, message) for message in chosen]
        else:
            hashes[rows] = _siphash_rows(key, chosen, int(length))
    return hashes


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
