"""Labels among some of the actions, for a list of which others are retired."""

from __future__ import annotations

from typing import Any

import numpy as np

from potstill.keys import Key
from potstill.teachers.contract import AnyFiniteTeacher, Bool, Float32, MeanRewards, labels_masks

#: A row of labels with less than this on the actions to choose from says nothing about them: float32 rounds the rest.
_LEAST = 1e-4


def propensities_among(teacher: AnyFiniteTeacher, state: Any, contexts: Float32, key: Key, chosen: Bool) -> Float32:
    """The probability that each action is the best of those in `chosen`, bool[K], float32[N, K]; 0 for the others.

    Labels of a teacher that does not label masks are renormalised. Where such labels are nearly all on other actions,
    the mean rewards decide, or all are alike if it gives none.
    """
    if labels_masks(teacher):
        return teacher.propensities(state, contexts, key, np.broadcast_to(chosen, (len(contexts), len(chosen))))
    labels: Float32 = np.where(chosen, teacher.propensities(state, contexts, key), np.float32(0))
    empty = labels.sum(axis=1) < _LEAST
    if empty.any():
        labels[empty] = _without_labels(teacher, state, contexts[empty], chosen)
    normalised: Float32 = labels / labels.sum(axis=1, keepdims=True)
    return normalised


def _without_labels(teacher: AnyFiniteTeacher, state: Any, contexts: Float32, chosen: Bool) -> Float32:
    if not isinstance(teacher, MeanRewards):
        return np.broadcast_to(chosen.astype(np.float32), (len(contexts), len(chosen)))
    means = np.where(chosen, teacher.mean_rewards(state, contexts), -np.inf)
    best: Float32 = (means == means.max(axis=1, keepdims=True)).astype(np.float32)
    return best
