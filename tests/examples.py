"""Random policies for tests."""

from itertools import pairwise

import numpy as np

from potstill.policy import Layer


def random_layers(problem, hidden=(8, 6), seed=0, scale=1.0):
    """Layers of a student with random weights."""
    rng = np.random.default_rng(seed)
    sizes = [problem.width, *hidden, problem.actions.head().outputs]
    return [
        Layer((scale * rng.standard_normal((a, b))).astype(np.float32), rng.standard_normal(b).astype(np.float32))
        for a, b in pairwise(sizes)
    ]
