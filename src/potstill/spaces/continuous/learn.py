"""Imitation of a distribution over numbers: labels are the probabilities of bins, the loss is their cross-entropy."""

from __future__ import annotations

from typing import Any

import numpy as np

from potstill.spaces.continuous.head import HistogramDistribution
from potstill.spaces.continuous.space import Continuous
from potstill.spaces.contract import Divergences, Float32, Float64
from potstill.spaces.finite_learning import FiniteLearning

#: Contexts whose sampled actions are in memory at once.
_CHUNK = 2048


class HistogramLearning(FiniteLearning, frozen=True):
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
        w1 = wasserstein(labels.astype(np.float64), distribution.p, np.diff(self.space.edges))
        return found._replace(smallest=found.smallest * self.outputs, w1=w1)


def shares(actions: Float64, edges: Float64) -> Float32:
    """Shares of numbers float64[N, n] in each bin, float32[N, bins]."""
    bins = len(edges) - 1
    places = np.searchsorted(edges, actions, side="right").clip(1, bins) - 1
    flat = places + bins * np.arange(len(actions))[:, None]
    counts = np.bincount(flat.ravel(), minlength=bins * len(actions)).reshape(len(actions), bins)
    shared: Float32 = (counts / actions.shape[1]).astype(np.float32)
    return shared


def wasserstein(p: Float64, q: Float64, widths: Float64) -> Float64:
    """W₁ between histograms with densities constant within bins, float64[N], in units of the action.

    In one dimension W₁ is the area between the distribution functions, which are linear within each bin.
    """
    gap = np.cumsum(p - q, axis=1)
    end = np.abs(gap)
    start = np.abs(np.concatenate([np.zeros((len(gap), 1)), gap[:, :-1]], axis=1))
    crosses = np.concatenate([np.zeros((len(gap), 1)), gap[:, :-1]], axis=1) * gap < 0
    # Two triangles where the functions cross, otherwise a trapezium.
    total = start + end
    area = np.where(crosses, (start**2 + end**2) / np.where(crosses, total, 1.0), total) / 2
    distance: Float64 = area @ widths
    return distance


def learning(space: Continuous) -> HistogramLearning:
    """Imitation on a continuous space."""
    return HistogramLearning(space.bins, space)
