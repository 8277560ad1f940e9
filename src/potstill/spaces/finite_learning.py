"""Imitation on a list of actions, or of bins: labels are probabilities, the loss is their cross-entropy."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from scipy.special import entr, log_softmax, rel_entr

from potstill.spaces.contract import Bool, Divergences, FiniteSpace, Float32, Float64
from potstill.spaces.finite import FiniteDistribution
from potstill.spaces.transport import Bins, Line, Metric

#: Largest accepted deviation of a row of labels from summing to 1: above float32 rounding, below real mistakes.
SUM_TOLERANCE = 1e-3
#: Smallest probability that a new student gives to an action, also one that no label favours.
RAREST = 1e-4


class FiniteLearning(msgspec.Struct, frozen=True):
    """Labels are the teacher's propensities, float32[N, K]; outputs are scores under a softmax.

    Attributes:
        outputs: Number of actions.
        geometry: Distances between them; None if they have none.
        chosen: Whether each action is chosen; None if none is retired. Labels are then among those chosen.
    """

    outputs: int
    geometry: Line | Bins | Metric | None = None
    chosen: tuple[bool, ...] | None = None

    def label(self, teacher: Any, state: Any, contexts: Float32, key: Any) -> Float32:
        """The teacher's propensities."""
        labels: Float32 = teacher.propensities(state, contexts, key)
        return labels

    def check(self, labels: Float32) -> tuple[Bool, str]:
        """Rows that are not probabilities."""
        wrong = np.any(~(labels >= 0), axis=1)
        if wrong.any():
            return wrong, "be probabilities, none missing or below 0"
        return np.abs(labels.sum(axis=1, dtype=np.float64) - 1) > SUM_TOLERANCE, "sum to 1: divide each row by its sum"

    def loss(self, outputs: jax.Array, labels: jax.Array) -> jax.Array:
        """The cross-entropy of each row."""
        return -jnp.sum(labels * jax.nn.log_softmax(outputs), axis=1)

    def wasserstein(self, outputs: jax.Array, labels: jax.Array) -> jax.Array:
        """W₁ of each row as a share of the largest distance."""
        assert self.geometry is not None
        found: jax.Array = self.geometry.loss(labels, jax.nn.softmax(outputs)) / self.geometry.diameter
        return found

    def lipschitz(self, rewards: Float64) -> Float64 | None:
        """The steepest slope of rewards over distances; None without distances."""
        return None if self.geometry is None else self.geometry.lipschitz(rewards)

    def start(self, labels: Float32) -> Float32:
        """The scores of the mean label."""
        scores: Float32 = np.log(np.maximum(labels.mean(axis=0), RAREST))
        return scores

    def divergence(self, outputs: Float64, labels: Float32) -> Float64:
        """The cross-entropy minus the entropy of the label."""
        cross_entropy = -(labels * log_softmax(outputs, axis=1)).sum(axis=1)
        kl: Float64 = cross_entropy - entr(labels.astype(np.float64)).sum(axis=1)
        return kl

    def divergences(self, labels: Float32, distribution: FiniteDistribution) -> Divergences:
        """Distance by the probabilities of all actions.

        Labels may be zero. A probability that float32 rounds to zero counts as the smallest normal float32, so that the
        divergence stays finite.
        """
        if labels.shape != distribution.p.shape or labels.ndim != 2 or not labels.size:
            raise ValueError(
                "labels and probabilities must have one shape [N, K] that is not empty, "
                f"got {list(labels.shape)} and {list(distribution.p.shape)}"
            )
        teacher, student = labels.astype(np.float64), distribution.p.astype(np.float64)
        found = finite_divergences(teacher, student)
        if self.geometry is None:
            return found
        return found._replace(w1=self.geometry.distance(_rows(teacher), _rows(student)))

    def labels_of(self, distribution: FiniteDistribution) -> Float32:
        """The probabilities."""
        return distribution.p


def finite_divergences(teacher: Float64, student: Float64) -> Divergences:
    """Distance between rows of probabilities [N, K]."""
    kl = rel_entr(_rows(teacher), np.maximum(_rows(student), np.finfo(np.float32).tiny)).sum(axis=1)
    return Divergences(kl, np.abs(teacher - student).sum(axis=1) / 2, float(student.min()))


def _rows(values: Float64) -> Float64:
    """Rows normalised to sum to 1 in float64, not only in float32."""
    total: Float64 = values.sum(axis=1, keepdims=True)
    return values / total


def learning(space: FiniteSpace) -> FiniteLearning:
    """Imitation on a list of actions; with distances if the space has positions or distances."""
    retired = getattr(space, "retired", ())
    chosen = tuple(name not in retired for name in space.labels) if retired else None
    if positions := getattr(space, "positions", None):
        return FiniteLearning(len(space), Line(positions), chosen)
    if distances := getattr(space, "distances", None):
        return FiniteLearning(len(space), Metric(distances), chosen)
    return FiniteLearning(len(space), chosen=chosen)
