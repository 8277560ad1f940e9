"""GP-UCB: batch upper confidence bounds on the posterior of GP-TS."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.teachers.contract import EXACT, Bool, Exactness, Float32
from potstill.teachers.gp.gp_ts import GaussianProcessState, GaussianProcessTS
from potstill.teachers.gp.pairs import Float64
from potstill.teachers.propensities import among, sample_rows, split_ties


class GaussianProcessUCB(GaussianProcessTS, frozen=True, kw_only=True, tag_field="type", tag="gp-ucb"):
    """The action with the highest upper confidence bound, mean + √β·standard deviation, by a Gaussian process.

    The policy is deterministic: its log supports no off-policy evaluation unless ``policy.floor`` is set.

    Args:
        beta: β of the bound. Default: the paper's 2·log((T⁴rd)ᵈT²), with T the number of observations and action
            features in [0, r]ᵈ.
    """

    beta: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.beta is not None and not 0 <= self.beta < math.inf:
            raise InvalidOption(f"GaussianProcessUCB: beta must be 0 or more, or None, got {self.beta!r}")

    @property
    def exactness(self) -> Exactness:
        """Exact: the bounds are closed forms, and nothing is drawn."""
        return EXACT

    def propensities(
        self,
        state: GaussianProcessState,
        contexts: Float32,
        key: Key,  # noqa: ARG002
        eligible: Bool | None = None,
    ) -> Float32:
        """Probability 1 on the action with the highest bound, float32[N, K]; ties are split evenly."""
        return split_ties(among(self.bounds(state, contexts), eligible))

    def sample_actions(self, state: GaussianProcessState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Actions with the highest bound, int64[N, n]; ties are broken at random."""
        return sample_rows(self.propensities(state, contexts, key), n, key)

    def bounds(self, state: GaussianProcessState, contexts: Float32) -> Float64:
        """The upper confidence bound of each action, float64[N, K], in units of the reward."""
        posterior = self.joint(state, contexts)
        variances = np.maximum(np.diagonal(posterior.covariance, axis1=1, axis2=2), 0.0)
        beta = self.beta if self.beta is not None else _paper_beta(len(state.memory.actions), state.features)
        return np.asarray(posterior.mean + math.sqrt(beta) * np.sqrt(variances))


def _paper_beta(rounds: int, features: Float64) -> float:
    """2·log((T⁴rd)ᵈT²) for T rounds and actions in a cube of side r and dimension d; 0 before the first."""
    t, d = float(max(rounds, 1)), int(features.shape[1])
    r = float(np.ptp(features, axis=0).max(initial=0.0)) or 1.0
    return max(2 * (d * math.log(t**4 * r * d) + 2 * math.log(t)), 0.0)
