"""Kernels over (context, action): the prior covariance of the rewards of two points.

A kernel is configuration. Its numbers are the initial hyperparameters. Learnt hyperparameters are a vector of
logarithms, kernel by kernel, each with its variance before its length scale.

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

from potstill.errors import InvalidOption
from potstill.teachers.gp.pairs import Float64, Geometry, Pairs

Part = Literal["context", "action"]
Smoothness = Literal["1/2", "3/2", "5/2"]


class Typical(NamedTuple):
    """Typical distances between two contexts and between two actions: the default length scales."""

    context: float
    action: float


class Slopes(NamedTuple):
    """Derivatives of a scalar function of the covariances.

    Attributes:
        logs: Gradient with respect to the log hyperparameters, float64[size].
        context: Gradient with respect to the context geometry; broadcasts to the shape of the pairs.
    """

    logs: Float64
    context: Geometry


_NONE = Geometry(np.zeros(()), np.zeros(()))


class _Kernel(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """Kernel interface. Hyperparameters are logarithms, float64[size]."""

    @property
    def size(self) -> int:
        """Number of hyperparameters."""
        raise NotImplementedError

    def start(self, typical: Typical) -> Float64:
        """Initial hyperparameters, float64[size]."""
        raise NotImplementedError

    def __call__(self, logs: Float64, pairs: Pairs) -> Float64:
        """Covariances of the pairs; broadcasts to the shape of the pairs."""
        raise NotImplementedError

    def slopes(self, logs: Float64, pairs: Pairs, adjoint: Float64) -> Slopes:
        """Backpropagate through the kernel; `adjoint` holds the derivatives with respect to the covariances."""
        raise NotImplementedError

    def __add__(self, other: Kernel) -> Sum:
        return Sum((self, other))  # type: ignore[arg-type]

    def __mul__(self, other: Kernel) -> Product:
        return Product((self, other))  # type: ignore[arg-type]

    def _check_positive(self, *fields: str) -> None:
        for field in fields:
            value = getattr(self, field)
            if not 0 < value < np.inf:
                raise InvalidOption(f"{type(self).__name__}: {field} must be a positive number, got {value!r}")


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
    """An unknown constant, equal for all contexts and actions."""

    variance: float = 1.0

    def _shape(self, pairs: Pairs) -> Float64:
        return np.ones(pairs.same.shape)


class Independent(_Scaled, frozen=True, tag="independent"):
    """Independent actions: variance if both actions are the same, else 0."""

    variance: float = 1.0

    def _shape(self, pairs: Pairs) -> Float64:
        return pairs.same.astype(np.float64)


class Linear(_Scaled, frozen=True, tag="linear"):
    """Linear functions through the origin: variance · xᵀx'. Add a Constant for an intercept."""

    on: Part
    variance: float = 1.0

    def __post_init__(self) -> None:
        _check_part(self, self.on)
        super().__post_init__()

    def slopes(self, logs: Float64, pairs: Pairs, adjoint: Float64) -> Slopes:
        """Derivatives with respect to the log variance and the inner products."""
        own = super().slopes(logs, pairs, adjoint)
        if self.on == "action":
            return own
        return Slopes(own.logs, Geometry(np.exp(logs[0]) * adjoint, np.zeros(())))

    def _shape(self, pairs: Pairs) -> Float64:
        return _side(pairs, self.on).inner


class _Stationary(_Kernel, frozen=True):
    """variance · shape(‖x - x'‖² / length_scale²).

    Args:
        on: Whether the inputs are contexts or action features.
        length_scale: Distance over which rewards stay correlated. Default: a typical distance.
        variance: Variance of the rewards that the kernel explains.
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
        """Derivatives with respect to log variance, log length scale and the squared distances."""
        scaled, adjoint = self._scaled(logs, pairs), np.exp(logs[0]) * adjoint
        stretched = adjoint * self._stretch(scaled)
        own = np.array([(adjoint * self._shape(scaled)).sum(), stretched.sum()])
        if self.on == "action":
            return Slopes(own, _NONE)
        # ∂/∂log length_scale = -2·squared·∂/∂squared. At distance 0 the derivative is 0.
        squared = pairs.context.squared
        return Slopes(own, Geometry(np.zeros(()), -stretched / np.where(squared > 0, 2 * squared, np.inf)))

    def _scaled(self, logs: Float64, pairs: Pairs) -> Float64:
        return np.asarray(_side(pairs, self.on).squared * np.exp(-2 * logs[1]))

    def _shape(self, scaled: Float64) -> Float64:
        """The kernel as a function of the squared distance in length scales."""
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
    """Rougher functions: smoothness 1/2 is continuous, 3/2 once and 5/2 twice differentiable."""

    smoothness: Smoothness = "5/2"

    def __post_init__(self) -> None:
        if self.smoothness not in _MATERN:
            raise InvalidOption(f"Matern: smoothness must be one of {', '.join(_MATERN)}, got {self.smoothness!r}")
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
    """A combination of kernels; its hyperparameters are those of its parts, concatenated."""

    parts: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise InvalidOption(f"{type(self).__name__}: parts must hold at least one kernel")

    @property
    def size(self) -> int:
        """Total number of hyperparameters of all parts."""
        return sum(part.size for part in self.parts)

    def start(self, typical: Typical) -> Float64:
        """Initial hyperparameters of all parts, concatenated."""
        return np.concatenate([part.start(typical) for part in self.parts])

    def _split(self, logs: Float64) -> Iterator[tuple[Kernel, Float64]]:
        ends = np.cumsum([part.size for part in self.parts])
        return zip(self.parts, np.split(logs, ends[:-1]), strict=True)


class Sum(_Compound, frozen=True, tag="sum"):
    """A reward that is a sum of independent functions, one per part."""

    def __call__(self, logs: Float64, pairs: Pairs) -> Float64:
        """The sum of the parts."""
        return reduce(np.add, (part(own, pairs) for part, own in self._split(logs)))

    def slopes(self, logs: Float64, pairs: Pairs, adjoint: Float64) -> Slopes:
        """The derivatives of each part."""
        return _join([part.slopes(own, pairs, adjoint) for part, own in self._split(logs)])


class Product(_Compound, frozen=True, tag="product"):
    """Points are similar if they are similar under every part, such as a context kernel times an action kernel."""

    def __call__(self, logs: Float64, pairs: Pairs) -> Float64:
        """The product of the parts."""
        return reduce(np.multiply, (part(own, pairs) for part, own in self._split(logs)))

    def slopes(self, logs: Float64, pairs: Pairs, adjoint: Float64) -> Slopes:
        """The derivatives of each part, with the other parts as factors."""
        values = [part(own, pairs) for part, own in self._split(logs)]
        slopes = []
        for i, (part, own) in enumerate(self._split(logs)):
            others = reduce(np.multiply, values[:i] + values[i + 1 :], adjoint)
            slopes.append(part.slopes(own, pairs, others))
        return _join(slopes)


Kernel = Constant | Independent | Linear | RBF | Matern | Sum | Product


def depends_on_action(kernel: Kernel) -> bool:
    """Whether the rewards of different actions can differ under a kernel."""
    if isinstance(kernel, (Sum, Product)):
        return any(depends_on_action(part) for part in kernel.parts)
    return isinstance(kernel, Independent) or getattr(kernel, "on", None) == "action"


def _join(slopes: list[Slopes]) -> Slopes:
    inner = reduce(np.add, (part.context.inner for part in slopes))
    squared = reduce(np.add, (part.context.squared for part in slopes))
    return Slopes(np.concatenate([part.logs for part in slopes]), Geometry(inner, squared))


def _side(pairs: Pairs, on: Part) -> Geometry:
    return pairs.context if on == "context" else pairs.action


def _check_part(kernel: _Kernel, on: object) -> None:
    if on not in ("context", "action"):
        raise InvalidOption(f"{type(kernel).__name__}: on must be 'context' or 'action', got {on!r}")
