"""The NumPy runtime: the reference for every other runtime."""

from __future__ import annotations

from collections.abc import Sequence
from types import NotImplementedType
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from potstill.policy import draw, network
from potstill.policy.artifact import Metadata
from potstill.policy.contract import Draws, Mask, Row, RuntimeName
from potstill.policy.network import Float32, Layer
from potstill.problem import Context, Contexts
from potstill.spaces import Actions, Allowed, Distribution, FiniteDistribution, Head


class Oracle:
    """A policy's arithmetic in NumPy; see `Runtime` for what each method does."""

    name: RuntimeName = "numpy"

    def __init__(self, metadata: Metadata, layers: Sequence[Layer], head: Head) -> None:
        self._head = head
        self._problem = metadata.problem
        self._layers = [Layer(*(array.astype(np.float64) for array in layer)) for layer in layers]
        self._activation = metadata.activation
        self._salt = bytes.fromhex(metadata.salt)
        self._masked = metadata.masked

    def decide(self, *_: object) -> NotImplementedType:  # noqa: D102
        return NotImplemented  # type: ignore[no-any-return]

    def decide_row(self, *_: object) -> NotImplementedType:  # noqa: D102
        return NotImplemented  # type: ignore[no-any-return]

    def encode(self, context: Context) -> Float32:  # noqa: D102
        return self._problem.encode(context)

    def encode_many(self, contexts: Contexts) -> Float32:  # noqa: D102
        return self._problem.encode_many(contexts)

    def encode_rows(self, rows: list[Row]) -> Float32:  # noqa: D102
        if not rows or not self._problem.context:
            return np.zeros((len(rows), self._problem.width), np.float32)
        names = [feature.name for feature in self._problem.context]
        columns = map(list, zip(*rows, strict=True))
        return self._problem.encode_many(dict(zip(names, columns, strict=True)))

    def uniforms(self, ids: Sequence[str]) -> Draws:  # noqa: D102
        return (
            draw.uniforms(ids, self._salt) if self._head.draws == 1 else draw.several(ids, self._salt, self._head.draws)
        )

    def probabilities(self, encoded: Float32, eligible: Mask | None, floor: float) -> Float32:  # noqa: D102
        p: Float32 = cast(FiniteDistribution, self.distribution(encoded, eligible, floor)).p
        return p

    def distribution(self, encoded: Float32, eligible: Allowed | None, floor: float) -> Distribution:  # noqa: D102
        with np.errstate(over="ignore", invalid="ignore"):  # Policy rejects scores that are not finite
            inputs = network.masked_inputs(encoded, eligible, self._head.outputs) if self._masked else encoded
            outputs = network.outputs(self._layers, self._activation, inputs)
            return self._head.distribution(outputs, eligible, floor)

    def choose(  # noqa: D102
        self, encoded: Float32, draws: Draws, eligible: Allowed | None, floor: float
    ) -> tuple[Actions, NDArray[Any]]:
        distribution = self.distribution(encoded, eligible, floor)
        chosen = distribution.draw(draws.reshape(len(draws), -1))
        return chosen, distribution.propensity(chosen)
