"""Time and memory of a decision as contexts, actions, networks and ensembles grow, against the paper's big-O table.

Each method is built at each size with random parameters, which changes neither its arithmetic nor its memory. One
dimension grows at a time; the others are fixed at sizes where its term dominates.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from potstill.keys import Key
from potstill.lab.measure.deciders import Decider, by_features, by_networks, by_policy, by_posterior
from potstill.lab.measure.latency import timed
from potstill.lab.problems import Float64
from potstill.policy import Layer, Policy
from potstill.problem import Discrete, Numeric, Problem
from potstill.teachers.linear import Posterior
from potstill.teachers.neural import Networks, network

#: Sizes count for the exponent of time if they take this many times as long as the smallest; below, call overhead
#: hides the computation.
CLEAR_OF_FLOOR = 1.15
#: And if their parameters fit a core's cache; above, memory bandwidth dominates. Most servers have 1 MB or more.
CACHE = 2**20
#: Seconds of calls at each size.
SECONDS = 0.1


class Sizes(NamedTuple):
    """Columns d of a context, actions k, units h of each of two hidden layers, networks b of an ensemble."""

    d: int = 32
    k: int = 8
    h: int = 64
    b: int = 10

    @property
    def last_layer(self) -> int:
        """The paper's C_last-layer: the products of a forward pass up to the last hidden layer."""
        return self.d * self.h + self.h * self.h


class Built(NamedTuple):
    """A method at a size: its decider, and the bytes that it needs to decide."""

    decide: Decider
    bytes: int


class Method(NamedTuple):
    """A row of the paper's table.

    Attributes:
        title: Title of the method.
        formula: The paper's formula for time and, where it differs, for space.
        products: Value of the formula for time.
        numbers: Value of the formula for space.
        build: Builds the method at a size.
        grow: For each varied dimension, its sizes and the fixed sizes of the others.
    """

    title: str
    formula: str
    products: Callable[[Sizes], int]
    numbers: Callable[[Sizes], int]
    build: Callable[[Sizes], Built]
    grow: Mapping[str, tuple[Sequence[int], Mapping[str, int]]]


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """One method as one dimension grows.

    Attributes:
        method: Title of the method.
        formula: The paper's formula.
        dimension: Name of the varied dimension: ``d``, ``k``, ``h`` or ``b``.
        fixed: Sizes of the other dimensions.
        sizes: Sizes of the dimension.
        us: Microseconds per decision, the 10th percentile: slower calls were delayed by other programs.
        bytes: Number of bytes needed to take decisions.
        time_slope: Fitted exponent of time, over sizes that take clearly longer than the smallest one and fit the
            cache; None with fewer than two such sizes.
        time_expected: The exponent of the paper's formula, fitted alike.
        space_slope: Fitted exponent of bytes.
        space_expected: The exponent of the paper's formula for space, fitted alike.
    """

    method: str
    formula: str
    dimension: str
    fixed: dict[str, int]
    sizes: list[int]
    us: list[float]
    bytes: list[int]
    time_slope: float | None
    time_expected: float | None
    space_slope: float | None
    space_expected: float | None


def measure(calls: int, on_progress: Callable[[str], None] = lambda _: None) -> list[Growth]:
    """Grow every method in every dimension, with at most `calls` at each size."""
    grown = []
    for method in METHODS:
        for dimension in method.grow:
            on_progress(f"{method.title}, growing {dimension}")
            grown.append(_grown(method, dimension, calls))
    return grown


def _grown(method: Method, dimension: str, calls: int) -> Growth:
    sizes, fixed = method.grow[dimension]
    points = [Sizes(**{**fixed, dimension: size}) for size in sizes]
    us, held = zip(*(_measured(method.build(point), point.d, calls) for point in points), strict=True)
    products, numbers = [method.products(p) for p in points], [method.numbers(p) for p in points]
    return Growth(
        method=method.title,
        formula=method.formula,
        dimension=dimension,
        fixed=dict(fixed),
        sizes=list(sizes),
        us=list(us),
        bytes=list(held),
        time_slope=slope(sizes, us, products, used=_telling(us, held, products)),
        time_expected=slope(sizes, products, products, used=_telling(us, held, products)),
        space_slope=slope(sizes, held, numbers),
        space_expected=slope(sizes, numbers, numbers),
    )


def _telling(us: Sequence[float], held: Sequence[int], products: Sequence[int]) -> list[bool]:
    """Sizes whose time is dominated by arithmetic."""
    if products[0] == products[-1]:
        return [True] * len(us)
    return [t > CLEAR_OF_FLOOR * us[0] and size <= CACHE for t, size in zip(us, held, strict=True)]


def _measured(built: Built, d: int, calls: int) -> tuple[float, int]:
    """Microseconds of a decision, and bytes."""
    contexts = np.random.default_rng(0).random((16, d), np.float32)
    return float(np.percentile(timed(built.decide, contexts, calls, SECONDS), 10)) / 1000, built.bytes


def slope(
    sizes: Sequence[float], values: Sequence[float], formula: Sequence[float], used: Sequence[bool] | None = None
) -> float | None:
    """The exponent p in value ≈ floor + c·sizeᵖ; None where fewer than two sizes can be used.

    The floor is the value at the smallest size. Where the formula is constant, no floor is subtracted: the exponent
    should be 0 and is fitted to the values themselves.

    Args:
        sizes: Sizes in ascending order.
        values: One value per size.
        formula: Formula that the values should be proportional to.
        used: Sizes to fit on; all by default.
    """
    x, y = np.log(np.asarray(sizes, np.float64)), np.asarray(values, np.float64)
    chosen = np.ones(len(x), bool) if used is None else np.asarray(used)
    if formula[0] != formula[-1]:
        y = y - y[0]
        chosen = chosen & (y > 0)
    return _fitted(x[chosen], np.log(y[chosen])) if chosen.sum() > 1 else None


def _fitted(x: Float64, y: Float64) -> float:
    return float(np.polyfit(x, y, 1)[0])


def _random_networks(sizes: Sizes, count: int) -> Networks:
    return network.random((sizes.d, sizes.h, sizes.h, sizes.k), count, Key(0).child("weights"))


def _random_posterior(p: int, k: int) -> Posterior:
    """A posterior on p regressors after few observations: its root is near the identity, but a dense matrix."""
    rng = Key(0).child("posterior").generator()
    root = np.tril(rng.standard_normal((k, p, p)) / p) + np.eye(p)
    return Posterior(rng.standard_normal((k, p)), root, np.full(k, 9.0), np.full(k, 9.0))


def _greedy(sizes: Sizes) -> Built:
    networks = _random_networks(sizes, 1)
    return Built(by_networks(networks, np.random.default_rng(0)), _float32_bytes(networks))


def _bootstrap(sizes: Sizes) -> Built:
    networks = _random_networks(sizes, sizes.b)
    return Built(by_networks(networks, np.random.default_rng(0)), _float32_bytes(networks))


def _linear(sizes: Sizes) -> Built:
    posterior = _random_posterior(sizes.d + 1, sizes.k)
    return Built(by_posterior(posterior, np.random.default_rng(0)), _float32_bytes(posterior))


def _neural_linear(sizes: Sizes) -> Built:
    networks, posterior = _random_networks(sizes, 1), _random_posterior(sizes.h + 1, sizes.k)
    features = Networks(networks.weights[:-1], networks.biases[:-1])
    decide = by_features(networks, posterior, np.random.default_rng(0))
    return Built(decide, _float32_bytes(features) + _float32_bytes(posterior))


def _imitation(sizes: Sizes) -> Built:
    problem = Problem(
        name="grown",
        context=tuple(Numeric(f"x{i}", low=0, high=1) for i in range(sizes.d)),
        actions=Discrete(tuple(f"a{i}" for i in range(sizes.k))),
    )
    weights, biases = _random_networks(sizes, 1)
    layers = [Layer(w[0].astype(np.float32), b[0].astype(np.float32)) for w, b in zip(weights, biases, strict=True)]
    policy = Policy.build(problem, layers, version=1)
    return Built(by_policy(policy), len(policy.to_bytes()))


def _float32_bytes(arrays: Networks | Posterior) -> int:
    """Bytes of all parameters, as on a device."""
    parts = [part for field in arrays for part in (field if isinstance(field, tuple) else (field,))]
    return sum(4 * part.size for part in parts)


_FORWARD = "C + k·h"
_WIDE = (8, 256, 512, 1024, 2048, 3072, 16384)
_LONG = (2, 256, 512, 1024, 2048, 3072, 16384)
_DEEP = (4, 128, 192, 256, 384, 480, 1024)
_FORWARD_SIZES = {
    "d": (_WIDE, {"k": 4, "h": 64}),
    "k": (_LONG, {"d": 4, "h": 64}),
    "h": (_DEEP, {"d": 8, "k": 4}),
}
_SQUARE = (2, 64, 96, 128, 192, 224, 512)
_MANY = (2, 32, 64, 128, 160, 224, 1024)

#: C is the paper's C_last-layer = d·h + h², for two hidden layers of h units.
METHODS = (
    Method(
        "Neural-Greedy",
        _FORWARD,
        lambda n: n.last_layer + n.k * n.h,
        lambda n: n.last_layer + n.k * n.h,
        _greedy,
        _FORWARD_SIZES,
    ),
    Method(
        "Linear-TS",
        "k·d²",
        lambda n: n.k * n.d**2,
        lambda n: n.k * n.d**2,
        _linear,
        {"d": (_SQUARE, {"k": 4}), "k": (_MANY, {"d": 32})},
    ),
    Method(
        "NeuralLinear-TS",
        "C + k·h²",
        lambda n: n.last_layer + n.k * n.h**2,
        lambda n: n.last_layer + n.k * n.h**2,
        _neural_linear,
        {
            "d": (_WIDE, {"k": 4, "h": 64}),
            "k": (_MANY, {"d": 4, "h": 32}),
            "h": (_SQUARE, {"d": 8, "k": 4}),
        },
    ),
    Method(
        "Bootstrap-NN-TS",
        f"{_FORWARD}; space ×B",
        lambda n: n.last_layer + n.k * n.h,
        lambda n: n.b * (n.last_layer + n.k * n.h),
        _bootstrap,
        {name: (sizes, {**fixed, "b": 2}) for name, (sizes, fixed) in _FORWARD_SIZES.items()}
        | {"b": ((1, 16, 32, 64, 128), {"d": 32, "k": 8, "h": 64})},
    ),
    Method(
        "TS-IL",
        _FORWARD,
        lambda n: n.last_layer + n.k * n.h,
        lambda n: n.last_layer + n.k * n.h,
        _imitation,
        _FORWARD_SIZES,
    ),
)
