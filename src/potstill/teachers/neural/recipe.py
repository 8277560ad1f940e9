"""The training recipe of a network: optimiser, learning-rate schedule and number of steps."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from potstill.errors import InvalidOption


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """Minibatch training on squared error; the optimiser is re-initialised at every update.

    Args:
        optimiser: ``adam`` or ``rmsprop``.
        rate: Initial learning rate.
        schedule: ``cosine`` falls to 0 at the last step; ``inverse-time`` is rate / (1 + decay · step).
        decay: Decay of the inverse-time schedule.
        steps: Number of minibatches per update; at most 4 per observation.
        catch_up: Warm-started networks train for only a share of the steps when little data is new: this factor times
            the share of new observations, rounded up to 1, 1/2, 1/4 or 1/8. They take the last steps of the schedule,
            where the rate is low. None always takes all steps.
        batch: Observations per minibatch, drawn with replacement; fewer if there are fewer observations.
        noise: Noise share of the variance of rewards. Network weights have a He-normal prior, whose weight grows with
            the noise and falls with the number of observations; it reduces overfitting. None selects the share on a
            hold-out; 0 disables the prior.
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
            raise InvalidOption(
                f"Recipe: {field} must be {'a positive number' if above_zero else '0 or more'}, got {value!r}"
            )


#: The paper's recipe. The rate falls to 1/55 of its initial value, and half of the sum of all rates is spent on the
#: first ten minibatches: fast, and far from converged.
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
