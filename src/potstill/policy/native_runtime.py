"""The native runtime: the C kernel in `native/`, with the oracle behind it for unusual input."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potstill.policy.artifact import Metadata
from potstill.policy.contract import Draws, Mask, Row, RuntimeName
from potstill.policy.decision import Decision
from potstill.policy.network import Float32, Layer
from potstill.policy.oracle import Oracle
from potstill.problem import Context, Contexts, Feature
from potstill.spaces import Actions, Allowed, Distribution, FiniteDistribution, Head
from potstill.spaces.continuous import HistogramHead

#: Why there is no native runtime; None if there is one.
WHY_NOT: str | None = None
try:
    from potstill.policy import _native
except ImportError as error:
    if importlib.util.find_spec("potstill.policy._native"):
        WHY_NOT = f"the native kernel cannot be loaded: {error}"
    else:
        WHY_NOT = "the native kernel was not built when Potstill was installed, which needs a C compiler"


def digests(rows: list[Row]) -> list[int]:
    """A 64-bit digest of each row; equal rows have equal digests."""
    return [hash(row) for row in rows] if WHY_NOT else _native.digests(rows)


class NativeRuntime:
    """A policy's arithmetic in C; see `Runtime` for what each method does.

    The kernel hands unusual calls back to Python, such as a NumPy scalar in a context or an id that is not valid
    Unicode. The oracle then computes the result or raises the error, so that both runtimes reject the same input with
    the same message.
    """

    name: RuntimeName = "native"

    def __init__(self, metadata: Metadata, layers: Sequence[Layer], head: Head) -> None:
        self._oracle = Oracle(metadata, layers, head)
        self._width = metadata.problem.width
        self._actions = head.outputs
        self._draws = head.draws
        self._kernel = _kernel(metadata, layers, self._edges(head))
        self.decide, self.decide_row = self._kernel.decide, self._kernel.decide_row

    def _edges(self, head: Head) -> NDArray[np.float64] | None:  # noqa: ARG002
        return None

    def encode(self, context: Context) -> Float32:  # noqa: D102
        encoded = np.empty(self._width, np.float32)
        return encoded if self._kernel.encode_many([context], encoded[None]) else self._oracle.encode(context)

    def encode_many(self, contexts: Contexts) -> Float32:  # noqa: D102
        if type(contexts) is list:
            encoded = np.empty((len(contexts), self._width), np.float32)
            if self._kernel.encode_many(contexts, encoded):
                return encoded
        return self._oracle.encode_many(contexts)

    def encode_rows(self, rows: list[Row]) -> Float32:  # noqa: D102
        encoded = np.empty((len(rows), self._width), np.float32)
        return encoded if self._kernel.encode_rows(rows, encoded) else self._oracle.encode_rows(rows)

    def uniforms(self, ids: Sequence[str]) -> Draws:  # noqa: D102
        ids = list(ids)
        draws = np.empty(len(ids) if self._draws == 1 else (len(ids), self._draws))
        return draws if self._kernel.uniforms(ids, draws) else self._oracle.uniforms(ids)

    def probabilities(self, encoded: Float32, eligible: Mask | None, floor: float) -> Float32:  # noqa: D102
        p = np.empty((len(encoded), self._actions), np.float32)
        if self._kernel.probabilities(_plain(encoded), _plain(eligible), floor, p):
            return p
        return self._oracle.probabilities(encoded, eligible, floor)

    def distribution(self, encoded: Float32, eligible: Allowed | None, floor: float) -> Distribution:  # noqa: D102
        return FiniteDistribution(self.probabilities(encoded, eligible, floor))

    def choose(  # noqa: D102
        self, encoded: Float32, draws: Draws, eligible: Mask | None, floor: float
    ) -> tuple[Actions, NDArray[Any]]:
        actions, propensities = np.empty(len(encoded), np.int64), np.empty(len(encoded), np.float32)
        if self._kernel.decide_many(_plain(encoded), draws, _plain(eligible), floor, actions, propensities):
            return actions, propensities
        return self._oracle.choose(encoded, draws, eligible, floor)


class NativeHistogramRuntime(NativeRuntime):
    """The same for a policy over numbers, whose outputs are scores of bins."""

    def __init__(self, metadata: Metadata, layers: Sequence[Layer], head: Head) -> None:
        assert isinstance(head, HistogramHead)
        super().__init__(metadata, layers, head)
        self._head = head

    def _edges(self, head: Head) -> NDArray[np.float64] | None:
        return head.edges if isinstance(head, HistogramHead) else None

    def distribution(self, encoded: Float32, eligible: Allowed | None, floor: float) -> Distribution:  # noqa: D102
        p = np.empty((len(encoded), self._actions), np.float32)
        if self._kernel.probabilities(_plain(encoded), _plain(self._head.mask(eligible)), 0.0, p):
            return self._head.histogram(p, eligible, floor)
        return self._oracle.distribution(encoded, eligible, floor)

    def choose(  # noqa: D102
        self, encoded: Float32, draws: Draws, eligible: Allowed | None, floor: float
    ) -> tuple[Actions, NDArray[Any]]:
        actions, densities = np.empty(len(encoded)), np.empty(len(encoded))
        if self._kernel.decide_numbers(_plain(encoded), _plain(draws), _plain(eligible), floor, actions, densities):
            return actions, densities
        return self._oracle.choose(encoded, draws, eligible, floor)


#: The runtime of each head that the kernel computes.
RUNTIMES: dict[str, type[NativeRuntime]] = {"softmax": NativeRuntime, "histogram": NativeHistogramRuntime}


def _plain(array: NDArray[Any] | None) -> Any:
    """An array as the kernel reads it: contiguous, and aligned for its type."""
    return None if array is None else np.require(array, requirements=("C_CONTIGUOUS", "ALIGNED"))


def _kernel(metadata: Metadata, layers: Sequence[Layer], edges: NDArray[np.float64] | None = None) -> _native.Kernel:
    return _native.Kernel(
        features=tuple(map(_definition, metadata.problem.context)),
        layers=tuple((_float32(layer.weight), _float32(layer.bias)) for layer in layers),
        actions=() if edges is not None else _names(metadata, len(layers[-1].bias)),
        activation=metadata.activation,
        salt=bytes.fromhex(metadata.salt),
        floor=metadata.floor,
        version=metadata.version,
        decision=Decision,
        array=np.ndarray,
        edges=edges,
        masked=metadata.masked,
    )


def _names(metadata: Metadata, count: int) -> tuple[str, ...]:
    return tuple(map(_exact, metadata.problem.actions.decode(np.arange(count))))


def _definition(feature: Feature) -> _native.FeatureDefinition:
    kernel = feature.kernel
    return _exact(feature.name), *kernel._replace(categories=tuple(map(_exact, kernel.categories)))


def _exact(name: str) -> str:
    """A name as a plain string: a subclass of str could override any method."""
    return str.__str__(name)


def _float32(array: NDArray[Any]) -> Float32:
    return np.require(array, np.float32, ("C_CONTIGUOUS", "ALIGNED"))
