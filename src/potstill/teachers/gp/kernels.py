"""Kernels over (context, action): how alike the rewards of two points are before any were seen.

A kernel is configuration. Its numbers are where learning starts; what was learnt is a vector of their logarithms,
kernel by kernel, each one's variance before its length scale.

>>> kernel = Matern("context") + RBF("context") * RBF("action", length_scale=0.3)
>>> kernel.size
6
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import reduce
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from potstill.teachers.gp.pairs import Float64, Geometry, Pairs

Part = Literal["context", "action"]
Smoothness = Literal["1/2", "3/2", "5/2"]


class Typical(NamedTuple):
    """Typical distances between two contexts and two actions: the length scales that nobody chose."""

    context: float
    action: float


class Slopes(NamedTuple):
    """Derivatives of a number that depends on covariances.

    Attributes:
        logs: Logs by the hyperparameters, float64[size].
        context: Gradient by the kernel's context features; broadcasts to the shape of the pairs.
    """

    logs: Float64
    context: Geometry


_NONE = Geometry(np.zeros(()), np.zeros(()))


class _Kernel(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """What every kernel can do; hyperparameters are float64[size], logarithms."""

    @property
    def size(self) -> int:
        """How many hyperparameters it has."""
        raise NotImplementedError

    def start(self, typical: Typical) -> Float64:
        """The hyperparameters before learning, float64[size]."""
        raise NotImplementedError

    def __call__(self, logs: Float64, pairs: Pairs) -> Float64:
        """Covariances of the pairs; the shape broadcasts to that of the pairs."""
        raise NotImplementedError

    def slopes(self, logs: Float64, pairs: Pairs, adjoint: Float64) -> Slopes:
        """The chain rule's step through the kernel: `adjoint` are the derivatives by the covariances of the pairs."""
        raise NotImplementedError

    def __add__(self, other: Kernel) -> Sum:
        return Sum((self, other))  # type: ignore[arg-type]

    def __mul__(self, other: Kernel) -> Product:
        return Product((self, other))  # type: ignore[arg-type]

    def _check_positive(self, *fields: str) -> None:
        for field in fields:
            value = getattr(self, field)
            if not 0 < value < np.inf:
                raise ValueError(f"{type(self).__name__}: {field} must be a positive number, got {value!r}")


class _Scaled(_Kernel, frozen=True):
    """A fixed shape times a variance, which is its only hyperparameter."""

    def __post_init__(self) -> None:
        self._check_positive("variance")

    @property
    def size(self) -> int:
        return 1

    def start(self, typical: Typical) -> Float64:  # noqa: ARG002
        return np.log([self.variance])  # type: ignore[attr-defined]

    def __call__(self, logs: Float64, pairs: Pairs) -> Float64:
        return np.asarray(np.exp(logs[0]) * self._shape(pairs))

    def slopes(self, logs: Float64, pairs: Pairs, adjoint: Float64) -> Slopes:
        return Slopes(np.array([(adjoint * self(logs, pairs)).sum()]), _NONE)

    def _shape(self, pairs: Pairs) -> Float64:
        raise NotImplementedError


class Constant(_Scaled, frozen=True, tag="constant"):
    """One unknown number, the same everywhere: variance."""

    variance: float = 1.0

    def _shape(self, pairs: Pairs) -> Float64:
        return np.ones(pairs.same.shape)


class Independent(_Scaled, frozen=True, tag="independent"):
    """Each action apart: variance if the actions are one, else 0."""

    variance: float = 1.0

    def _shape(self, pairs: Pairs) -> Float64:
        return pairs.same.astype(np.float64)


class Linear(_Scaled, frozen=True, tag="linear"):
    """Straight lines through the origin: variance · xᵀx'. Add a Constant for lines that miss it."""

    on: Part
    variance: float = 1.0

    def __post_init__(self) -> None:
        _check_part(self, self.on)
        super().__post_init__()

    def slopes(self, logs: Float64, pairs: Pairs, adjoint: Float64) -> Slopes:
        """By the logarithm of the variance, and by inner products."""
        own = super().slopes(logs, pairs, adjoint)
        if self.on == "action":
            return own
        return Slopes(own.logs, Geometry(np.exp(logs[0]) * adjoint, np.zeros(())))

    def _shape(self, pairs: Pairs) -> Float64:
        return _side(pairs, self.on).inner


class _Stationary(_Kernel, frozen=True):
    """variance · shape(‖x - x'‖² / length_scale²).

    Args:
        on: The context, or the action's features.
        length_scale: How far apart points still tell of each other; left out, a typical distance.
        variance: Variance of the rewards that it explains.
    """

    on: Part
    length_scale: float | None = None
    variance: float = 1.0

    def __post_init__(self) -> None:
        _check_part(self, self.on)
        self._check_positive(*(["variance"] if self.length_scale is None else ["variance", "length_scale"]))

    @property
    def size(self) -> int:
        """Two: variance, length scale."""
        return 2

    def start(self, typical: Typical) -> Float64:
        """Logarithms of variance and length scale."""
        length_scale = getattr(typical, self.on) if self.length_scale is None else self.length_scale
        return np.log([self.variance, length_scale])

    def __call__(self, logs: Float64, pairs: Pairs) -> Float64:
        return np.asarray(np.exp(logs[0]) * self._shape(self._scaled(logs, pairs)))

    def slopes(self, logs: Float64, pairs: Pairs, adjoint: Float64) -> Slopes:
        """By the logarithms of variance and length scale, and by squared distances."""
        scaled, adjoint = self._scaled(logs, pairs), np.exp(logs[0]) * adjoint
        stretched = adjoint * self._stretch(scaled)
        own = np.array([(adjoint * self._shape(scaled)).sum(), stretched.sum()])
        if self.on == "action":
            return Slopes(own, _NONE)
        # ∂/∂log length_scale = -2·squared·∂/∂squared. At distance 0 there is nothing that could be stretched.
        squared = pairs.context.squared
        return Slopes(own, Geometry(np.zeros(()), -stretched / np.where(squared > 0, 2 * squared, np.inf)))

    def _scaled(self, logs: Float64, pairs: Pairs) -> Float64:
        return np.asarray(_side(pairs, self.on).squared * np.exp(-2 * logs[1]))

    def _shape(self, scaled: Float64) -> Float64:
        """The kernel by the squared distance in length scales."""
        raise NotImplementedError

    def _stretch(self, scaled: Float64) -> Float64:
        """∂shape / ∂log length_scale."""
        raise NotImplementedError


class RBF(_Stationary, frozen=True, tag="rbf"):
    """Smooth functions: variance · exp(-r²/2), r = ‖x - x'‖ / length_scale."""

    def _shape(self, scaled: Float64) -> Float64:
        return np.asarray(np.exp(-scaled / 2))

    def _stretch(self, scaled: Float64) -> Float64:
        return scaled * np.exp(-scaled / 2)


class Matern(_Stationary, frozen=True, tag="matern"):
    """Rougher functions: 1/2 is continuous, 3/2 once and 5/2 twice differentiable."""

    smoothness: Smoothness = "5/2"

    def __post_init__(self) -> None:
        if self.smoothness not in _MATERN:
            raise ValueError(f"Matern: smoothness must be one of {', '.join(_MATERN)}, got {self.smoothness!r}")
        super().__post_init__()

    def _shape(self, scaled: Float64) -> Float64:
        twice_nu, shape, _ = _MATERN[self.smoothness]
        r = np.sqrt(twice_nu * scaled)
        return shape(r) * np.exp(-r)

    def _stretch(self, scaled: Float64) -> Float64:
        twice_nu, _, stretch = _MATERN[self.smoothness]
        r = np.sqrt(twice_nu * scaled)
        return stretch(r) * np.exp(-r)


_Polynomial = Callable[[Float64], Float64]
#: 2ν, then p and q with shape = p(r)·exp(-r) and stretch = -r·shape'(r) = q(r)·exp(-r), where r = √(2ν)·distance.
_MATERN: dict[Smoothness, tuple[float, _Polynomial, _Polynomial]] = {
    "1/2": (1.0, np.ones_like, lambda r: r),
    "3/2": (3.0, lambda r: 1 + r, lambda r: r**2),
    "5/2": (5.0, lambda r: 1 + r + r**2 / 3, lambda r: r**2 * (1 + r) / 3),
}


class _Compound(_Kernel, frozen=True):
    """Kernels put together; its hyperparameters are theirs, one after the other."""

    parts: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError(f"{type(self).__name__}: parts must hold at least one kernel")

    @property
    def size(self) -> int:
        """As many as all parts have."""
        return sum(part.size for part in self.parts)

    def start(self, typical: Typical) -> Float64:
        """Of all parts."""
        return np.concatenate([part.start(typical) for part in self.parts])

    def _split(self, logs: Float64) -> Iterator[tuple[Kernel, Float64]]:
        ends = np.cumsum([part.size for part in self.parts])
        return zip(self.parts, np.split(logs, ends[:-1]), strict=True)


class Sum(_Compound, frozen=True, tag="sum"):
    """Rewards that are a sum of independent functions, one for each part."""

    def __call__(self, logs: Float64, pairs: Pairs) -> Float64:
        """The parts' sum."""
        return reduce(np.add, (part(own, pairs) for part, own in self._split(logs)))

    def slopes(self, logs: Float64, pairs: Pairs, adjoint: Float64) -> Slopes:
        """Every part's own."""
        return _joined([part.slopes(own, pairs, adjoint) for part, own in self._split(logs)])


class Product(_Compound, frozen=True, tag="product"):
    """Points are alike if they are alike for every part: a context kernel times an action kernel."""

    def __call__(self, logs: Float64, pairs: Pairs) -> Float64:
        """The parts' product."""
        return reduce(np.multiply, (part(own, pairs) for part, own in self._split(logs)))

    def slopes(self, logs: Float64, pairs: Pairs, adjoint: Float64) -> Slopes:
        """Every part's own, with the other parts as factors."""
        values = [part(own, pairs) for part, own in self._split(logs)]
        slopes = []
        for i, (part, own) in enumerate(self._split(logs)):
            others = reduce(np.multiply, values[:i] + values[i + 1 :], adjoint)
            slopes.append(part.slopes(own, pairs, others))
        return _joined(slopes)


Kernel = Constant | Independent | Linear | RBF | Matern | Sum | Product


def depends_on_action(kernel: Kernel) -> bool:
    """Whether rewards of different actions can differ at all."""
    if isinstance(kernel, (Sum, Product)):
        return any(depends_on_action(part) for part in kernel.parts)
    return isinstance(kernel, Independent) or getattr(kernel, "on", None) == "action"


def _joined(slopes: list[Slopes]) -> Slopes:
    inner = reduce(np.add, (part.context.inner for part in slopes))
    squared = reduce(np.add, (part.context.squared for part in slopes))
    return Slopes(np.concatenate([part.logs for part in slopes]), Geometry(inner, squared))


def _side(pairs: Pairs, on: Part) -> Geometry:
    return pairs.context if on == "context" else pairs.action


def _check_part(kernel: _Kernel, on: object) -> None:
    if on not in ("context", "action"):
        raise ValueError(f"{type(kernel).__name__}: on must be 'context' or 'action', got {on!r}")
