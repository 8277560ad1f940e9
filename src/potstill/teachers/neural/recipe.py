"""How a network is trained: the optimiser, its schedule, and how long."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Minibatch training on squared error; the optimiser is re-initialised at every update.

    Args:
        optimiser: ``adam`` or ``rmsprop``.
        rate: The learning rate at the start.
        schedule: ``cosine`` falls to 0 at the last step; ``inverse-time`` is rate / (1 + decay · step).
        decay: Decay of the inverse-time schedule.
        steps: Minibatches per update; at most 4 per observation.
        catch_up: A warm-started network takes only part of the steps, the last ones, where the rate has already fallen:
            this factor times the share of observations that are new, in halves down to an
            eighth. None always takes all of them.
        batch: Observations per minibatch, drawn with replacement; fewer where there are fewer observations.
        noise: Share of the variance of rewards that is noise. Weights have He's normal prior, which counts the more,
            the noisier rewards are and the fewer there are: with it a network overfits the noise less. None
            learns the share from the observations; 0 leaves the prior out.
    """

    optimiser: Literal["adam", "rmsprop"] = "adam"
    rate: float = 0.01
    schedule: Literal["cosine", "inverse-time"] = "cosine"
    decay: float = 0.55
    steps: int = 1000
    catch_up: float | None = 4.0
    batch: int = 128
    noise: float | None = None

    def __post_init__(self) -> None:
        for field in ("rate", "steps", "batch"):
            self._check(field, above_zero=True)
        self._check("decay", above_zero=False)
        if self.catch_up is not None:
            self._check("catch_up", above_zero=True)
        if self.noise is not None:
            self._check("noise", above_zero=False)

    def _check(self, field: str, *, above_zero: bool) -> None:
        value = getattr(self, field)
        if not 0 <= value < np.inf or (above_zero and not value):
            raise ValueError(
                f"Recipe: {field} must be {'a positive number' if above_zero else '0 or more'}, got {value!r}"
            )


#: The paper's. The rate ends at 1/55 of its start, and half of what all rates add up to is spent on the first ten
#: minibatches: quick, and far from converged.
PAPER = Recipe(
    optimiser="rmsprop",
    rate=0.01,
    schedule="inverse-time",
    decay=0.55,
    steps=100,
    catch_up=None,
    batch=512,
    noise=0.0,
)
