"""Synthetic contexts: where few were observed, others are composed from them for the teacher to label.

A teacher can label any context, so a student need not generalise from the few of the first days. A child takes each
feature, with all its columns, from one of two parents. So it is a context that could come: one-hot columns stay
one-hot, flags stay with their values, and nothing leaves its range.

``crossed`` parents are any two: they reach the furthest from what is known, which suits smooth labels. ``near``
parents are neighbours, as in MUNGE (Bucilă, Caruana and Niculescu-Mizil 2006), and a number may also lie between
those of its parents. It suits labels with steps, as those of trees: students need contexts near the steps that matter.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from potstill.distill.imitate import split
from potstill.distill.student import Student
from potstill.keys import Key
from potstill.problem import Numeric, Problem

Float32 = NDArray[np.float32]

#: Neighbours to choose the second parent from. On covtype and letter, 10 to 100 gave about the same imitation cost.
_NEIGHBOURS = 30
#: Contexts among which neighbours are searched, at most: bounds the time for many contexts.
_SEARCHED = 4_096
#: Contexts whose distances are held at once: 32 MB.
_ROWS = 1_024


def synthetic(problem: Problem, contexts: Float32, student: Student, key: Key) -> Float32:
    """As many contexts as a student lacks, float32[M, d]; none if enough were observed.

    Args:
        problem: The problem.
        contexts: Observed contexts, float32[N, d].
        student: Its `contexts` is the number wanted in all, and `synthetic` how they are composed.
        key: The key of `imitate`. Rows that it holds out are no parents, so that they stay unseen.
    """
    rows, _ = split(len(contexts), student.held_out, key.child("rows"))
    count, compose = max(student.contexts - len(contexts), 0), children if student.synthetic == "crossed" else between
    return compose(problem, contexts[rows], count, key.child("synthetic"))


def children(problem: Problem, parents: Float32, count: int, key: Key) -> Float32:
    """Contexts float32[count, d], each with features mixed from two of the parents float32[N, d]."""
    rng = key.generator()
    one, other = rng.integers(len(parents), size=(2, count))
    widths = [len(feature.labels) for feature in problem.context]
    swapped = np.repeat(rng.random((count, len(widths))) < 0.5, widths, axis=1)
    mixed: Float32 = np.where(swapped, parents[other], parents[one])
    return mixed


def between(problem: Problem, parents: Float32, count: int, key: Key) -> Float32:
    """Contexts float32[count, d], each between one of the parents float32[N, d] and a neighbour of it.

    A quarter of its numbers is that of either parent, the others are uniform between both; other features are those of
    either parent.
    """
    rng = key.generator()
    neighbours = _neighbours(parents, rng) if count else np.zeros((len(parents), 1), np.int64)
    one = rng.integers(len(parents), size=count)
    other = neighbours[one, rng.integers(neighbours.shape[1], size=count)]
    share = np.clip(rng.uniform(-0.5, 1.5, (count, len(problem.context))), 0, 1)
    share = np.where([_is_number(feature) for feature in problem.context], share, np.round(share))
    share = np.repeat(share, [len(feature.labels) for feature in problem.context], axis=1)
    # Not one + share * (other - one): rounding could then leave the range of the parents.
    mixed = (1 - share) * parents[one] + share * parents[other]
    return mixed.astype(np.float32)


def _is_number(feature: object) -> bool:
    """Whether values between two values of a feature are values of it; a missing one is not, and has a column more."""
    return isinstance(feature, Numeric) and len(feature.labels) == 1


def _neighbours(contexts: Float32, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of the contexts nearest to each, itself usually among them, int64[N, k]: Euclidean, columns in units of sd.

    Brute force: contexts have tens of columns, where search trees are no faster.
    """
    scaled = contexts / (contexts.std(axis=0, dtype=np.float64) + 1e-6).astype(np.float32)
    searched = rng.choice(len(contexts), min(_SEARCHED, len(contexts)), replace=False)
    targets, k = scaled[searched], min(_NEIGHBOURS, len(searched))
    squares = (targets**2).sum(axis=1)
    nearest = [
        np.argpartition(squares - 2 * scaled[first : first + _ROWS] @ targets.T, k - 1, axis=1)[:, :k]
        for first in range(0, len(scaled), _ROWS)
    ]
    return searched[np.concatenate(nearest)]
