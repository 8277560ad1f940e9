"""The contract of a runtime, which computes a policy's decisions: the NumPy oracle and the native kernel."""

from __future__ import annotations

from collections.abc import Sequence
from types import NotImplementedType
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from potstill.policy.decision import Decision
from potstill.policy.network import Float32
from potstill.problem import Context, Contexts
from potstill.spaces import Actions, Allowed, Distribution

Draws = NDArray[np.float64]
Mask = NDArray[np.bool_]
#: The values of a context in the order of the features.
Row = tuple[Any, ...]
RuntimeName = Literal["native", "numpy"]


class Runtime(Protocol):
    """A policy's arithmetic. `Policy` has checked all arguments, except those of `decide`."""

    name: RuntimeName

    def decide(
        self,
        context: Context,
        id: str | None,  # noqa: A002 - the word that callers know
        eligible: Any,
        floor: float | None,
        /,
    ) -> Decision | NotImplementedType:
        """A complete decision, as `Policy.decide` returns it; NotImplemented to have it computed step by step."""

    def decide_row(
        self,
        values: Row,
        id: str | None,  # noqa: A002 - the word that callers know
        eligible: Any,
        floor: float | None,
        /,
    ) -> Decision | NotImplementedType:
        """The same for the values of a context in the order of the features; None is a missing value."""

    def encode(self, context: Context) -> Float32:
        """One context as float32[d]."""

    def encode_many(self, contexts: Contexts) -> Float32:
        """Contexts as float32[N, d]."""

    def encode_rows(self, rows: list[Row]) -> Float32:
        """Contexts as float32[N, d], from their values in the order of the features; None is a missing value."""

    def uniforms(self, ids: Sequence[str]) -> Draws:
        """The draws of each decision: float64[N] if the head takes one, else float64[N, draws]."""

    def probabilities(self, encoded: Float32, eligible: Mask | None, floor: float) -> Float32:
        """The probability of each action, float32[N, K], for contexts float32[N, d]; finite spaces only."""

    def distribution(self, encoded: Float32, eligible: Allowed | None, floor: float) -> Distribution:
        """The distribution over actions of each row."""

    def choose(
        self, encoded: Float32, draws: Draws, eligible: Allowed | None, floor: float
    ) -> tuple[Actions, NDArray[Any]]:
        """Actions and their propensities, float[N]."""
