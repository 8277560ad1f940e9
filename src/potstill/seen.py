"""What a still has seen: contexts to imitate on, the range of rewards, and how many observations there were."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem, Reward

#: Observed contexts that are kept to imitate on: enough for the student, little enough for any machine.
CONTEXTS_KEPT = 100_000


class Seen(NamedTuple):
    """Sums and samples over all observations so far.

    Attributes:
        contexts: a uniform sample of those observed, in order, float32[N, d]; all of them while they are few.
        ranks: a random number for each; those of the smallest are kept, float64[N].
        rewards: the smallest and the largest, float64[2].
        observations: how many there were, int64[].
    """

    contexts: NDArray[np.float32]
    ranks: NDArray[np.float64]
    rewards: NDArray[np.float64]
    observations: NDArray[np.int64]

    @classmethod
    def nothing(cls, problem: Problem) -> Seen:
        """Before the first observation."""
        none = np.zeros((0, problem.width), np.float32)
        return cls(none, np.zeros(0), np.array([np.inf, -np.inf]), np.array(0, np.int64))

    def after(self, observations: Observations, key: Key) -> Seen:
        """With more observations."""
        contexts = np.concatenate([self.contexts, observations.contexts])
        ranks = np.concatenate([self.ranks, key.generator().random(len(observations))])
        if len(contexts) > CONTEXTS_KEPT:
            kept = np.sort(np.argpartition(ranks, CONTEXTS_KEPT)[:CONTEXTS_KEPT])
            contexts, ranks = contexts[kept], ranks[kept]
        low = min(self.rewards[0], observations.rewards.min(initial=np.inf))
        high = max(self.rewards[1], observations.rewards.max(initial=-np.inf))
        return Seen(contexts, ranks, np.array([low, high]), self.observations + len(observations))

    def spread(self, reward: Reward) -> float:
        """The largest difference between two rewards: as the problem says, or as seen so far."""
        low = self.rewards[0] if reward.low is None else reward.low
        high = self.rewards[1] if reward.high is None else reward.high
        return max(float(high - low), 0.0)
