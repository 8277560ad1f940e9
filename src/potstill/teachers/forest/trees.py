"""Regression trees as flat arrays: fitted by scikit-learn, kept and walked without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.teachers.contract import Float32, Float64

#: Pairs of a tree and a context that are walked at once: their arrays stay in the processor cache.
_PAIRS = 16_384
#: Contexts that are walked at once, transposed.
_CONTEXTS = 4_096


class Trees(NamedTuple):
    """Trees of all actions, T for each, one after the other. A context goes right if its column exceeds the threshold.

    Attributes:
        feature: Column that a node splits on, int32[M]; 0 for leaves.
        threshold: Threshold of the split, float32[M]; infinity for leaves.
        children: Positions of the left and right child, int32[M, 2]; a leaf is its own left child.
        mean: Mean reward in the node, float64[M].
        roots: Positions of the roots, int64[K, T].
        depth: Depth of each tree, int32[K, T].
    """

    feature: NDArray[np.int32]
    threshold: Float32
    children: NDArray[np.int32]
    mean: Float64
    roots: NDArray[np.int64]
    depth: NDArray[np.int32]

    def of_action(self, action: int) -> Trees:
        """The trees of one action, with positions counted from its first node."""
        first = int(self.roots[action, 0])
        last = int(self.roots[action + 1, 0]) if action + 1 < len(self.roots) else len(self.feature)
        part = slice(first, last)
        return Trees(
            self.feature[part],
            self.threshold[part],
            self.children[part] - np.int32(first),
            self.mean[part],
            self.roots[action : action + 1] - first,
            self.depth[action : action + 1],
        )

    def leaves(self, contexts: Float32) -> NDArray[np.int32]:
        """The leaf of each context in each tree, int32[N, K, T], for contexts float32[N, d]."""
        k, t = self.roots.shape
        found = np.empty((len(contexts), k * t), np.int32)
        for first in range(0, len(contexts), _CONTEXTS):
            columns = np.ascontiguousarray(contexts[first : first + _CONTEXTS].T)
            step = max(1, _PAIRS // columns.shape[1])
            for at in range(0, k * t, step):
                walked = self._walk(columns, slice(at, at + step))
                found[first : first + columns.shape[1], at : at + step] = walked.T
        return found.reshape(-1, k, t)

    def _walk(self, columns: Float32, trees: slice) -> NDArray[np.int32]:
        """Leaves of contexts, given as columns float32[d, n], in some trees, int32[trees, n]."""
        n = columns.shape[1]
        roots = self.roots.ravel()[trees].astype(np.int32)
        node = np.repeat(roots, n)
        context, values, children = np.tile(np.arange(n), len(roots)), columns.ravel(), self.children.ravel()
        for _ in range(int(self.depth.ravel()[trees].max())):
            right = values.take(self.feature.take(node) * np.int64(n) + context) > self.threshold.take(node)
            node = children.take(2 * node + right)
        return node.reshape(-1, n)


def join(parts: Sequence[Trees]) -> Trees:
    """Trees of several actions, or several trees of one, in one set of arrays; `roots` and `depth` are stacked."""
    starts = np.cumsum([0, *(len(part.feature) for part in parts[:-1])])
    return Trees(
        np.concatenate([part.feature for part in parts]),
        np.concatenate([part.threshold for part in parts]),
        np.concatenate([part.children + np.int32(start) for part, start in zip(parts, starts, strict=True)]),
        np.concatenate([part.mean for part in parts]),
        np.concatenate([part.roots + start for part, start in zip(parts, starts, strict=True)]),
        np.concatenate([part.depth for part in parts]),
    )


def stumps(mean: Float64) -> Trees:
    """Trees of one action that are only a leaf, with means float64[T]."""
    t = len(mean)
    nodes = np.arange(t)
    return Trees(
        np.zeros(t, np.int32),
        np.full(t, np.inf, np.float32),
        np.repeat(nodes.astype(np.int32), 2).reshape(t, 2),
        mean.astype(np.float64),
        nodes[None],
        np.zeros((1, t), np.int32),
    )


def of_sklearn(tree: Any, prior: Float64, pseudo: float) -> Trees:
    """One tree of scikit-learn's `tree_`, its nodes shrunk to the rewards `prior`, float64[nodes].

    Each node has its observations and `pseudo` observations of its own reward in `prior`.
    """
    leaf = tree.children_left < 0
    own = np.arange(len(leaf))
    children = np.stack([np.where(leaf, own, side) for side in (tree.children_left, tree.children_right)], axis=1)
    weight, mean = tree.weighted_n_node_samples, tree.value[:, 0, 0]
    share = pseudo / (weight + pseudo)
    return Trees(
        np.where(leaf, 0, tree.feature).astype(np.int32),
        np.where(leaf, np.float32(np.inf), _rounded_down(tree.threshold)),
        children.astype(np.int32),
        mean + share * (prior - mean),
        np.zeros((1, 1), np.int64),
        np.full((1, 1), tree.max_depth, np.int32),
    )


def _rounded_down(thresholds: Float64) -> Float32:
    """The largest float32 that is no larger: it splits float32 contexts as the float64 threshold does."""
    near = thresholds.astype(np.float32)
    return np.where(near > thresholds, np.nextafter(near, np.float32(-np.inf)), near)
