"""LinUCB: batch upper confidence bounds on the posterior of Linear-TS."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.teachers.contract import Bool, Float32
from potstill.teachers.linear.linear_ts import LinearState, LinearTS
from potstill.teachers.propensities import among, sample_rows, split_ties


class LinUCB(LinearTS, frozen=True, kw_only=True, tag_field="type", tag="lin-ucb"):
    """The action with the highest upper confidence bound, location + √β·scale, under the posterior of Linear-TS.

    Args:
        beta_t: β of the bound. Default: the paper's 2·log((T⁴rd)ᵈT²) with r = d = 1 and T the number of observations.
    """

    beta_t: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta_t is not None and not 0 <= self.beta_t < math.inf:
            raise InvalidOption(f"LinUCB: beta_t must be 0 or more, got {self.beta_t!r}")

    def propensities(
        self,
        state: LinearState,
        contexts: Float32,
        key: Key,  # noqa: ARG002
        eligible: Bool | None = None,
    ) -> Float32:
        """Probability 1 on the action with the highest bound, float32[N, K]; ties are split evenly."""
        return split_ties(among(self.bounds(state, contexts), eligible))

    def sample_actions(self, state: LinearState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Actions with the highest bound, int64[N, n]; ties are broken at random."""
        return sample_rows(self.propensities(state, contexts, key), n, key)

    def bounds(self, state: LinearState, contexts: Float32) -> NDArray[np.float64]:
        """The upper confidence bound of each action, float64[N, K]."""
        marginals = self.marginals(state, contexts)
        beta = self.beta_t if self.beta_t is not None else paper_beta(float(state.sums.normalised().n.sum()))
        return marginals.location + math.sqrt(beta) * marginals.scale


def paper_beta(rounds: float) -> float:
    """β of the paper's batch UCB after a number of rounds, for actions in [0, 1] (r = d = 1)."""
    t = max(rounds, 1.0)
    return 2 * math.log(t**4 * t**2)
