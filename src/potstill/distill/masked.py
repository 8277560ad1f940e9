"""A student of masks: it also takes which actions are not eligible, and is trained on random sets of eligible ones.

Renormalising P(best of all) over the eligible actions is not Thompson sampling on them. `benchmarks/masked.py` compares
this student with renormalising, and with one that gives means and scales for a quadrature at decision time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.distill.fidelity import MaskFidelity
from potstill.distill.network import Float32, as_layer
from potstill.distill.shard_order import Labels
from potstill.distill.student import Student
from potstill.errors import InvalidOption, shown
from potstill.keys import Key
from potstill.policy import Layer, Policy, masked_inputs
from potstill.problem import Problem
from potstill.spaces import (
    ActionSpace,
    FiniteDistribution,
    FiniteSpace,
    Learning,
    learning,
    masked_learning,
    masks_of_size,
)
from potstill.teachers import AnyTeacher, Exactness, is_masked, label, labels_masks

#: Rows to train on: each context is labelled under several masks, until there are this many rows.
_ROWS = {"exact": 65_536, "sampled": 16_384}
#: Most masks of a context; and most numbers in all labels, which bounds memory where there are many actions.
_MOST, _NUMBERS = 16, 1 << 25
#: Contexts that fidelity by mask is measured on, at most.
_MEASURED = 256


def check_masked(student: Student, teacher: AnyTeacher, space: ActionSpace) -> None:
    """Reject a student of masks whose actions are no list, or whose teacher cannot label masks."""
    if not student.masked:
        return
    if not isinstance(space, FiniteSpace):
        raise InvalidOption(
            f"Student(masked=True) needs a list of actions, such as Discrete([...]), got {shown(space)}"
        )
    if not labels_masks(teacher):
        raise InvalidOption(
            f"Student(masked=True) needs a teacher that labels masks, and propensities of {type(teacher).__name__} "
            "takes no `eligible`; add that parameter (potstill.teachers.MaskedTeacher), or use masked=False"
        )


def learning_of(student: Student, space: ActionSpace) -> Learning:
    """Imitation on a space, under masks if the student wants that."""
    return masked_learning(space) if student.masked else learning(space)


class LabelledRows(NamedTuple):
    """Inputs and labels to imitate.

    Attributes:
        contexts: Inputs of observed contexts.
        synthetic: Inputs of synthetic ones.
        labels: Labels of both, in this order.
        repeats: How often each context occurs: row i + j·n is context i of n under its j-th mask.
    """

    contexts: Float32
    synthetic: Float32
    labels: Float32
    repeats: int


def labelled(
    learning: Learning, teacher: AnyTeacher, state: Any, contexts: Float32, synthetic: Float32, key: Key
) -> LabelledRows:
    """Label contexts; under several masks each, where imitation is under masks."""
    if not is_masked(learning):
        labels = label(learning, teacher, state, np.concatenate([contexts, synthetic]), key)
        return LabelledRows(contexts, synthetic, labels, 1)
    repeats = masks_per_context(len(contexts) + len(synthetic), learning.outputs, teacher.exactness)
    rows = np.concatenate([np.tile(part, (repeats, 1)) for part in (contexts, synthetic)])
    labels = label(learning, teacher, state, rows, key)
    inputs, observed = inputs_of(rows, labels), repeats * len(contexts)
    return LabelledRows(inputs[:observed], inputs[observed:], labels, repeats)


def masks_per_context(contexts: int, actions: int, exactness: Exactness) -> int:
    """Number of masks that each context is labelled under."""
    rows = min(_ROWS[exactness.kind], _NUMBERS // actions)
    return min(max(rows // contexts, 1), _MOST)


def inputs_of(contexts: Float32, labels: Float32) -> Float32:
    """The network's inputs, float32[N, d + K], for contexts and labels that hold their masks."""
    return masked_inputs(contexts, labels >= 0, labels.shape[1])


class MaskedLabels(NamedTuple):
    """Labels in shards whose contexts are widened by their masks, as the network takes them."""

    plain: Labels

    @property
    def rows(self) -> Sequence[int]:
        """Number of rows of each shard."""
        return self.plain.rows

    @property
    def mean(self) -> NDArray[np.float64]:
        """The mean context, float64[d]."""
        return self.plain.mean

    def read(self, shard: int) -> tuple[Float32, Float32]:
        """Inputs and labels of a shard."""
        contexts, labels = self.plain.read(shard)
        return inputs_of(contexts, labels), labels


def start_layers(policy: Policy, student: Student) -> list[Layer]:
    """Layers of a policy for a student: inputs for masks are added with weight 0, or dropped."""
    (weight, bias), *rest = policy.layers
    width = policy.problem.width
    if policy.masked == student.masked:
        return policy.layers
    if policy.masked:
        return [as_layer(weight[:width], bias), *rest]
    masks = np.zeros((len(policy.layers[-1].bias), weight.shape[1]), np.float32)
    return [as_layer(np.concatenate([weight, masks]), bias), *rest]


def fidelity_by_mask(problem: Problem, teacher: AnyTeacher, state: Any, contexts: Float32, key: Key) -> ByMask | None:
    """Labels under random masks of a few sizes, to measure policies by; None where there are none."""
    space = problem.actions
    if not isinstance(space, FiniteSpace) or not labels_masks(teacher) or not len(contexts):
        return None
    chosen, rows, found = masked_learning(space).chosen, contexts[:_MEASURED], []
    count = len(space) if chosen is None else sum(chosen)
    if count < 3:
        return None
    for size in sorted({2, max(count // 4, 2), max(count // 2, 2)}):
        own = key.child("eligible", size)
        eligible = masks_of_size(len(rows), len(space), size, own.child("masks"), chosen)
        found.append((eligible, teacher.propensities(state, rows, own, eligible)))
    return ByMask(rows, found)


class ByMask(NamedTuple):
    """A teacher's labels of some contexts under masks.

    Attributes:
        contexts: Encoded contexts, float32[N, d].
        labels: For each size, masks bool[N, K] and propensities float32[N, K].
    """

    contexts: Float32
    labels: list[tuple[NDArray[np.bool_], Float32]]

    def of(self, policy: Policy) -> tuple[MaskFidelity, ...]:
        """How far a policy is from them, without its floor."""
        return tuple(self._measured(policy, eligible, p) for eligible, p in self.labels)

    def _measured(self, policy: Policy, eligible: NDArray[np.bool_], p: Float32) -> MaskFidelity:
        distribution: Any = policy.distribution(self.contexts, eligible=eligible, floor=0.0)
        found: FiniteDistribution = distribution
        tv = np.abs(p.astype(np.float64) - found.p).sum(axis=1) / 2
        return MaskFidelity(
            actions=int(eligible[0].sum()), contexts=len(tv), tv_mean=float(tv.mean()), tv_max=float(tv.max())
        )
