"""The draw: one uniform number per decision, a pure function of the decision's id and the policy's salt.

u = (SipHash-2-4(key=salt, id as UTF-8) >> 11) · 2⁻⁵³. Every runtime takes the same action for the same id, and an audit
can repeat it. SipHash is a keyed pseudo-random function: sequential ids give independent draws, and without the salt
nobody can pick an id to get a certain action.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from potstill.siphash import siphash, siphash_many

SALT_BYTES = 16


def uniform(decision_id: str, salt: bytes) -> float:
    """The draw of one decision, in [0, 1)."""
    return (siphash(salt, id_bytes(decision_id)) >> 11) * 2.0**-53


def uniforms(decision_ids: Sequence[str], salt: bytes) -> NDArray[np.float64]:
    """The draws of many decisions, float64[N]; the same numbers as `uniform`."""
    hashes = siphash_many(salt, [id_bytes(decision_id) for decision_id in decision_ids])
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
