"""Growing the trees of one action with scikit-learn."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.teachers.contract import Float64
from potstill.teachers.forest import trees as forests
from potstill.teachers.forest.trees import Trees
from potstill.teachers.memory import Memory

Sample = tuple[NDArray[np.int64], NDArray[np.int64]]


class Growing(NamedTuple):
    """How trees are grown; see `ForestTS`."""

    trees: int
    splitter: Literal["best", "random"]
    features: float
    leaf: int
    pseudo: float
    sample: int


def grow(memory: Memory, action: int, how: Growing, key: Key) -> Trees:
    """New trees of one action, from all observations: those of other actions only give the prior."""
    rng = key.generator()
    own = memory.rows(np.flatnonzero(memory.actions == action))
    if not len(own.actions):
        return forests.stumps(_prior(memory.rewards, how.trees, rng))
    samples = [_bootstrap(len(own.actions), how.sample, rng) for _ in range(how.trees)]
    joined = forests.join([_grow_tree(own, memory.rewards, how, sample, rng) for sample in samples])
    return joined._replace(roots=joined.roots.reshape(1, -1), depth=joined.depth.reshape(1, -1))


def _bootstrap(n: int, most: int, rng: np.random.Generator) -> Sample:
    """Distinct rows of a bootstrap sample of n observations, and how often each is in it."""
    return np.unique(rng.integers(n, size=min(n, most)), return_counts=True)


def _grow_tree(own: Memory, rewards: Float64, how: Growing, sample: Sample, rng: np.random.Generator) -> Trees:
    """One tree on a bootstrap sample, its nodes shrunk to rewards drawn from those of all actions."""
    rows, counts = sample
    fitted = _fit(own.rows(rows), counts, how, int(rng.integers(2**31)))
    return forests.of_sklearn(fitted, _prior(rewards, fitted.node_count, rng), how.pseudo)


def _fit(own: Memory, counts: NDArray[np.int64], how: Growing, seed: int) -> Any:
    """scikit-learn's `tree_` of observations that count several times."""
    from sklearn import config_context
    from sklearn.tree import DecisionTreeRegressor

    tree = DecisionTreeRegressor(
        splitter=how.splitter, max_features=how.features, min_samples_leaf=how.leaf, random_state=seed
    )
    with config_context(skip_parameter_validation=True):  # a third of the time of a small tree
        tree.fit(own.contexts, own.rewards, sample_weight=counts * own.weights, check_input=False)
    return tree.tree_


def _prior(rewards: Float64, n: int, rng: np.random.Generator) -> Float64:
    """Rewards of random observations, float64[n]."""
    drawn: Float64 = rewards[rng.integers(len(rewards), size=n)]
    return drawn
