"""Imitation of a distribution over numbers: labels are the probabilities of bins, the loss is their cross-entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

from potstill.spaces.continuous.head import HistogramDistribution
from potstill.spaces.continuous.space import Continuous
from potstill.spaces.contract import Divergences, Float32, Float64
from potstill.spaces.finite_learning import FiniteLearning
from potstill.spaces.transport import Bins

#: Contexts whose sampled actions are in memory at once.
_CHUNK = 2048


class HistogramLearning(FiniteLearning, frozen=True, kw_only=True):
    """Labels are the probability that the best number is in each bin, float32[N, bins].

    Teacher and student are both constant within bins, so that divergences between their bins are those between their
    densities.
    """

    space: Continuous

    def label(self, teacher: Any, state: Any, contexts: Float32, key: Any) -> Float32:
        """The teacher's propensities of bins; for a teacher that only samples, shares of its samples."""
        if hasattr(teacher, "propensities"):
            return super().label(teacher, state, contexts, key)
        labels = np.empty((len(contexts), self.outputs), np.float32)
        for number, first in enumerate(range(0, len(contexts), _CHUNK)):
            rows = slice(first, first + _CHUNK)
            sampled = teacher.sample_actions(state, contexts[rows], teacher.exactness.draws, key.child(number))
            labels[rows] = shares(sampled, self.space.edges)
        return labels

    def divergences(self, labels: Float32, distribution: HistogramDistribution) -> Divergences:  # type: ignore[override]
        """Distance by the probabilities of bins; the smallest propensity is relative to the uniform density."""
        found = super().divergences(labels, distribution)  # type: ignore[arg-type]
        return found._replace(smallest=found.smallest * self.outputs)


def shares(actions: Float64, edges: Float64) -> Float32:
    """Shares of numbers float64[N, n] in each bin, float32[N, bins]."""
    bins = len(edges) - 1
    places = np.searchsorted(edges, actions, side="right").clip(1, bins) - 1
    flat = places + bins * np.arange(len(actions))[:, None]
    counts = np.bincount(flat.ravel(), minlength=bins * len(actions)).reshape(len(actions), bins)
    shared: Float32 = (counts / actions.shape[1]).astype(np.float32)
    return shared


def learning(space: Continuous) -> HistogramLearning:
    """Imitation on a continuous space."""
    return HistogramLearning(space.bins, Bins(tuple(space.edges.tolist())), space=space)
