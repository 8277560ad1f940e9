"""Prequential scores: how well each candidate predicted a batch of rewards before it learnt from it.

The score is the log density of the rewards under a normal distribution with the candidate's prediction as its mean. Its
variance is that of the candidate's own earlier errors, per action, so that candidates are compared by what they predict
and not by how sure they say they are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]

#: Number of observations that the mean over candidates counts for in a candidate's variance on an action.
_POOLED = 10.0


class Scores(NamedTuple):
    """Discounted sums over predictions, of C candidates on K actions.

    Attributes:
        squares: Sums of squared errors, float64[C, K].
        n: Discounted number of predictions, float64[K].
        seen: Number of observations so far, scored or not, int64[].
    """

    squares: Float64
    n: Float64
    seen: NDArray[np.int64]

    @classmethod
    def nothing(cls, candidates: int, actions: int) -> Scores:
        """No prediction yet."""
        return cls(np.zeros((candidates, actions)), np.zeros(actions), np.array(0))

    def after(self, errors: Float64, actions: NDArray[np.int32]) -> Scores:
        """The scores after a batch with prediction errors float64[C, N] on actions int32[N].

        Earlier sums are scaled by the growth of the data. An error's weight is then proportional to the number of
        observations at that time: a candidate that needs more data than others may overtake them.
        """
        before, count, k = float(self.seen), errors.shape[1], len(self.n)
        fade = before / (before + count) if count else 1.0
        squares = np.stack([np.bincount(actions, row**2, k) for row in errors]) if count else 0.0
        n = np.bincount(actions, minlength=k)
        return Scores(fade * self.squares + squares, fade * self.n + n, self.seen + count)

    def log_scores(self) -> Float64:
        """The log score of each candidate, up to a constant, float64[C]."""
        told = self.squares.any(axis=0)  # where all predictions were perfect, nothing tells candidates apart
        squares, n = self.squares[:, told], self.n[told]
        variance = (squares + _POOLED * squares.mean(axis=0) / n) / (n + _POOLED)
        return np.asarray(-0.5 * (n * np.log(variance) + squares / variance).sum(axis=1))

    def weights(self, least: float) -> Float64:
        """Posterior weights of the candidates from equal prior weights, float64[C]; 0 for those below `least`."""
        scores = self.log_scores()
        weights = np.exp(scores - scores.max())
        weights /= weights.sum()
        weights[weights < least] = 0.0
        return np.asarray(weights / weights.sum())
