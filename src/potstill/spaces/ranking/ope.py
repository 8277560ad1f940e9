"""Off-policy estimators for rankings and slates: several items are shown at once, and each position earns a reward.

Beyond two or three positions there are too many rankings to weight whole ones. If the reward at a position depends on
little more than its item, weights of single positions are enough.

The estimators give `Parts`, from which `potstill.evaluate` makes intervals.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidLog
from potstill.spaces.influence import Parts

#: What the reward at a position depends on, besides the item there.
DependsOn: TypeAlias = Literal["position", "above", "all"]


@dataclass(frozen=True, eq=False)
class Rankings:
    """N logged rankings of up to L positions; checked on construction.

    Attributes:
        rewards: Rewards such as clicks, float64[N, L].
        propensities: Probability of the item at its position, float64[N, L], in (0, 1]: marginal where rewards
            depend on the position alone, else conditional on the items above it.
        probabilities: The same under the target, float64[N, L].
        shown: Positions that were shown, bool[N, L], if rankings differ in length; None for all.
    """

    rewards: NDArray[np.float64]
    propensities: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    shown: NDArray[np.bool_] | None = None

    def __post_init__(self) -> None:
        if self.rewards.ndim != 2:
            raise InvalidLog(f"rewards must have shape [rankings, positions], got {self.rewards.shape}")
        for name in ("propensities", "probabilities", "shown"):
            array = getattr(self, name)
            if array is not None and array.shape != self.rewards.shape:
                raise InvalidLog(f"{name} must have shape {self.rewards.shape}, as rewards has, got {array.shape}")
        self._refuse(np.isfinite(self.rewards), "rewards", "a finite number")
        self._refuse((self.propensities > 0) & (self.propensities <= 1), "propensities", "above 0 and at most 1")
        self._refuse((self.probabilities >= 0) & (self.probabilities <= 1), "probabilities", "from 0 to 1")

    def weights(self, depends_on: DependsOn = "position") -> NDArray[np.float64]:
        """Importance weight of each position's reward, float64[N, L]; 0 where nothing was shown."""
        weights = np.divide(self.probabilities, self.propensities, where=self.counted, out=np.ones_like(self.rewards))
        if depends_on == "above":
            weights = np.cumprod(weights, axis=1)
        elif depends_on == "all":
            weights = np.broadcast_to(np.prod(weights, axis=1, keepdims=True), weights.shape)
        return np.where(self.counted, weights, 0.0)

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Where something was shown, bool[N, L]."""
        return np.ones(self.rewards.shape, bool) if self.shown is None else self.shown

    def _refuse(self, good: NDArray[np.bool_], name: str, expected: str) -> None:
        bad = np.argwhere(~good & self.counted)
        if bad.size:
            row, position = bad[0]
            value = getattr(self, name)[row, position]
            others = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            raise InvalidLog(f"row {row}, position {position}: {name} must be {expected}, got {value}{others}")


def ips(rankings: Rankings, depends_on: DependsOn = "position") -> Parts:
    """Position-wise inverse propensity scoring; the value is the total reward of a ranking.

    - ``"position"``: the item-position model, in which a reward depends on the item, its position and the context (Li,
      Abbasi-Yadkori, Kveton, Muthukrishnan, Vinay & Wen 2018, "Offline evaluation of ranking policies with click
      models"). The usual choice.
    - ``"above"``: rewards also depend on the items above, as when people read from the top (McInerney, Brost,
      Chandar, Mehrotra & Carterette 2020, "Counterfactual evaluation of slate recommendations with sequential reward
      interactions").
    - ``"all"``: rewards depend on everything shown; always unbiased, and practical for two or three positions.

    Args:
        rankings: Logged rankings.
        depends_on: What the reward at a position depends on, besides the item there.
    """
    return Parts(numerator=_earned(rankings, rankings.weights(depends_on)))


def snips(rankings: Rankings, depends_on: DependsOn = "position") -> Parts:
    """Self-normalised position-wise inverse propensity scoring.

    Has a smaller variance than `ips` and a bias that vanishes as 1/N. See `ips` for `depends_on`.
    """
    weights = rankings.weights(depends_on)
    positions = float(rankings.counted.sum(axis=1).mean()) or 1.0
    return Parts(numerator=_earned(rankings, weights), denominator=weights.sum(axis=1) / positions)


def _earned(rankings: Rankings, weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """The weighted reward of each ranking, float64[N]."""
    earned: NDArray[np.float64] = np.where(rankings.counted, weights * rankings.rewards, 0.0).sum(axis=1)
    return earned
