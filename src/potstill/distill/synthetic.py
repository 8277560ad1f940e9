"""Synthetic contexts: where few were observed, others are composed from them for the teacher to label.

A teacher can label any context, so a student need not generalise from the few of the first days. A child takes each
feature, with all its columns, from one of two parents at random. So it is a context that could come: one-hot columns
stay one-hot, flags stay with their values, and nothing leaves its range. Parents are any two: near ones, as in MUNGE
(Bucilă, Caruana and Niculescu-Mizil 2006), stay too close to what is known.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from potstill.distill.imitate import split
from potstill.distill.student import Student
from potstill.keys import Key
from potstill.problem import Problem

Float32 = NDArray[np.float32]


def synthetic(problem: Problem, contexts: Float32, student: Student, key: Key) -> Float32:
    """As many contexts as a student lacks, float32[M, d]; none if enough were observed.

    Args:
        problem: The problem.
        contexts: Observed contexts, float32[N, d].
        student: Its `contexts` is the number wanted in all.
        key: The key of `imitate`. Rows that it holds out are no parents, so that they stay unseen.
    """
    parents, _ = split(len(contexts), student.held_out, key.child("rows"))
    return children(problem, contexts[parents], max(student.contexts - len(contexts), 0), key.child("synthetic"))


def children(problem: Problem, parents: Float32, count: int, key: Key) -> Float32:
    """Contexts float32[count, d], each with features mixed from two of the parents float32[N, d]."""
    rng = key.generator()
    one, other = rng.integers(len(parents), size=(2, count))
    widths = [len(feature.labels) for feature in problem.context]
    swapped = np.repeat(rng.random((count, len(widths))) < 0.5, widths, axis=1)
    mixed: Float32 = np.where(swapped, parents[other], parents[one])
    return mixed
