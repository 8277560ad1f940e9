"""Base of the peers' agents."""

from __future__ import annotations

import time

import numpy as np

from potstill.lab.problems import Float32, Float64
from potstill.lab.runs import UpdateResult
from potstill.problem import Observations


class TimedPeer:
    """A peer whose learning is timed."""

    def fit(self, observations: Observations) -> None:
        """Learn from one batch."""
        raise NotImplementedError

    def learn(self, observations: Observations) -> UpdateResult:
        """Learn from one batch, and report the seconds."""
        started = time.perf_counter()
        self.fit(observations)
        return UpdateResult(seconds={"learn": time.perf_counter() - started})


def with_intercept(contexts: Float32) -> Float64:
    """Contexts and a column of ones, float64[N, d + 1], for regressions without an intercept."""
    return np.column_stack([contexts.astype(np.float64), np.ones(len(contexts))])
