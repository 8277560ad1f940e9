"""Propensities: from scores, as sampled actions, and as labels for imitation."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.spaces import Learning
from potstill.teachers.among import propensities_among
from potstill.teachers.contract import AnyFiniteTeacher, AnyTeacher, Bool, Float32


def split_ties(scores: NDArray[np.float64]) -> Float32:
    """Probability 1 on the largest score of each row, float32[N, K]; ties are split evenly."""
    best = scores == scores.max(axis=1, keepdims=True)
    shared: Float32 = (best / best.sum(axis=1, keepdims=True)).astype(np.float32)
    return shared


def among(scores: NDArray[Any], eligible: Bool | None) -> NDArray[Any]:
    """Scores [N, K], or of several networks [B, N, K], with -inf for actions that are not eligible."""
    return scores if eligible is None else np.where(eligible, scores, scores.dtype.type(-np.inf))


def part_of(eligible: Bool | None, rows: slice) -> Bool | None:
    """The eligible actions of some rows."""
    return None if eligible is None else eligible[rows]


def sample_rows(probabilities: Float32, n: int, key: Key) -> NDArray[np.int64]:
    """Draw n actions per row, int64[N, n], each with the row's probabilities."""
    cumulative = np.cumsum(probabilities, axis=1, dtype=np.float64)
    u = key.generator().random((len(probabilities), n)) * cumulative[:, -1:]
    actions: NDArray[np.int64] = (u[:, :, None] >= cumulative[:, None, :-1]).sum(axis=2)
    return actions


def label(learning: Learning, teacher: AnyTeacher, state: Any, contexts: Float32, key: Key) -> Float32:
    """The teacher's labels, float32[N, L], for contexts [N, d] that may contain duplicates.

    Exact labels are computed once per distinct context. Sampled labels are not deduplicated: with independent draws
    per row, their errors average out; nor are labels under random masks, which differ by row.
    """
    if teacher.exactness.kind != "exact" or not contexts.size or is_masked(learning):
        return _labels(learning, teacher, state, contexts, key)
    # Deduplicate rows as bytes: sorting 17 to 139 columns took 1 to 4 µs per context, a label of 20 actions 28 µs.
    rows = np.ascontiguousarray(contexts).view(np.dtype((np.void, contexts.itemsize * contexts.shape[1])))
    _, first, which = np.unique(rows[:, 0], return_index=True, return_inverse=True)
    if len(first) == len(contexts):
        return _labels(learning, teacher, state, contexts, key)
    labels: Float32 = _labels(learning, teacher, state, contexts[first], key)[which]
    return labels


def _labels(learning: Learning, teacher: AnyTeacher, state: Any, contexts: Float32, key: Key) -> Float32:
    """Labels of contexts; where actions are retired, among the others."""
    chosen = getattr(learning, "chosen", None)
    if chosen is None or is_masked(learning):
        return learning.label(teacher, state, contexts, key)
    return propensities_among(cast(AnyFiniteTeacher, teacher), state, contexts, key, np.array(chosen))


def is_masked(learning: Learning) -> bool:
    """Whether labels are under random masks, which leave out retired actions."""
    return bool(getattr(learning, "masked", False))
