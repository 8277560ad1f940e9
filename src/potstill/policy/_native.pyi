"""The C kernel, as `native_runtime.py` uses it. Built from `native/` where a C compiler is at hand."""

from types import NotImplementedType
from typing import Any, Literal, final

import numpy as np
from numpy.typing import NDArray

from potstill.policy.decision import Decision

Kind = Literal["numeric", "boolean", "categorical", "hashed", "vector", "ngrams", "timestamp"]
Missing = Literal["refuse", "stand_in", "flag"]
#: name, and the fields of a `KernelFeature`: kind, what a missing value becomes, its stand-in; low, high, origin, span,
#: is log; categories; size, is unit; knots; ngrams; parts, offset, own, per second
FeatureDefinition = tuple[
    str,
    Kind,
    Missing,
    float,
    float,
    float,
    float,
    float,
    bool,
    tuple[str, ...],
    int,
    bool,
    tuple[float, ...],
    int,
    tuple[str, ...],
    int,
    bool,
    float,
]

#: What the network runs on: "avx512", "avx2" or "portable".
INSTRUCTIONS: str

@final
class Kernel:
    """A policy in the form of the C kernel: immutable, and shared between threads without locks.

    Arrays are C-contiguous. Where a method answers False or NotImplemented, it met something unusual and has left the
    request to Python; what it wrote to `out`, `actions` or `propensities` until then means nothing.
    """

    def __new__(
        cls,
        features: tuple[FeatureDefinition, ...],
        layers: tuple[tuple[NDArray[np.float32], NDArray[np.float32]], ...],
        actions: tuple[str, ...],
        activation: Literal["tanh", "relu"],
        salt: bytes,
        floor: float,
        version: int,
        decision: type[Decision],
        array: type[NDArray[Any]],
        edges: NDArray[np.float64] | None,
        masked: bool,
    ) -> Kernel: ...
    def decide(
        self,
        context: object,
        id: object,  # noqa: A002 - the word that callers know
        eligible: object,
        floor: object,
        /,
    ) -> Decision | NotImplementedType:
        """Choose an action, for a dict or an encoded float32[d]; with `id` None under a new id."""

    def decide_row(
        self,
        values: object,
        id: object,  # noqa: A002 - the word that callers know
        eligible: object,
        floor: object,
        /,
    ) -> Decision | NotImplementedType:
        """The same for a tuple of all values, in the order of the features."""

    def decide_many(
        self,
        encoded: NDArray[np.float32],
        draws: NDArray[np.float64],
        eligible: NDArray[np.bool_] | None,
        floor: float,
        actions: NDArray[np.int64],
        propensities: NDArray[np.float32],
        /,
    ) -> bool:
        """Choose for float32[N, d] at draws float64[N], where bool[N, K] allows; other threads run meanwhile."""

    def decide_numbers(
        self,
        encoded: NDArray[np.float32],
        draws: NDArray[np.float64],
        intervals: NDArray[np.float64] | None,
        floor: float,
        actions: NDArray[np.float64],
        densities: NDArray[np.float64],
        /,
    ) -> bool:
        """Choose numbers for float32[N, d] at draws float64[N, 2], within float64[N, 2]; other threads run."""

    def encode_many(self, rows: list[Any], out: NDArray[np.float32], /) -> bool:
        """Encode N dicts to float32[N, d]."""

    def encode_rows(self, rows: list[tuple[Any, ...]], out: NDArray[np.float32], /) -> bool:
        """Encode N tuples, of all values in the order of the features, to float32[N, d]."""

    def probabilities(
        self,
        encoded: NDArray[np.float32],
        eligible: NDArray[np.bool_] | None,
        floor: float,
        out: NDArray[np.float32],
        /,
    ) -> bool:
        """The probability of each action, float32[N, K], for float32[N, d]; other threads run meanwhile."""

    def uniforms(self, ids: list[str], out: NDArray[np.float64], /) -> bool:
        """The draw of each id, float64[N]; the two draws of each for a policy over numbers, float64[N, 2]."""

def digests(rows: list[tuple[Any, ...]], /) -> list[int]:
    """A number of 64 bits for each tuple: equal ones have equal numbers, others different ones, but for chance."""
