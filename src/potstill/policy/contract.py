"""What a runtime does: a policy's arithmetic, behind one contract for the NumPy oracle and the native kernel."""

from __future__ import annotations

from collections.abc import Sequence
from types import NotImplementedType
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from potstill.policy.decision import Decision
from potstill.policy.network import Float32
from potstill.problem import Context, Contexts

Draws = NDArray[np.float64]
Mask = NDArray[np.bool_]
#: The values of a context in the order of the features.
Row = tuple[Any, ...]
RuntimeName = Literal["native", "numpy"]


class Runtime(Protocol):
    """A policy's arithmetic. Except for those of `decide`, arguments have been checked by `Policy`."""

    name: RuntimeName

    def decide(
        self,
        context: Context,
        id: str | None,  # noqa: A002 - the word that callers know
        eligible: Sequence[str] | None,
        floor: float | None,
        /,
    ) -> Decision | NotImplementedType:
        """A whole decision at once, as `Policy.decide` gives it; NotImplemented to be taken step by step."""

    def encode(self, context: Context) -> Float32:
        """One context as float32[d]."""

    def encode_many(self, contexts: Contexts) -> Float32:
        """Contexts as float32[N, d]."""

    def encode_rows(self, rows: list[Row]) -> Float32:
        """Contexts as float32[N, d], from their values in the order of the features; None is a missing one."""

    def uniforms(self, ids: Sequence[str]) -> Draws:
        """The draw of each decision, float64[N]."""

    def probabilities(self, encoded: Float32, eligible: Mask | None, floor: float) -> Float32:
        """The probability of each action, float32[N, K], for float32[N, d]; `eligible` is bool[N, K]."""

    def choose(
        self, encoded: Float32, draws: Draws, eligible: Mask | None, floor: float
    ) -> tuple[NDArray[np.int64], Float32]:
        """Actions int64[N] and their propensities float32[N]."""
