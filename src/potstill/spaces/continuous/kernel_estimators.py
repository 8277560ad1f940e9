"""Off-policy estimators for actions that are numbers, such as doses, prices and bids.

No logged dose equals the target's exactly, so a kernel weights the rewards of nearby doses: Kallus & Zhou 2018, "Policy
evaluation and optimization with continuous treatments". A wide kernel uses many rows and has bias; a narrow one has
variance. The intervals of these estimates cover the variance and not the bias, which grows with the square of the
bandwidth.

The estimators give `Parts`, from which `potstill.evaluate` makes intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidLog, InvalidOption
from potstill.spaces.influence import Parts

Values: TypeAlias = NDArray[np.float64]
KernelName: TypeAlias = Literal["epanechnikov", "gaussian"]
#: A number, or a selection rule.
Bandwidth: TypeAlias = float | Literal["rule", "slope"]

#: Candidates of "slope", as multiples of the rule's bandwidth.
_MULTIPLES = np.geomspace(1 / 8, 8, 13)


@dataclass(frozen=True)
class Kernel:
    """A kernel.

    Attributes:
        density: Density at each point.
        below: Distribution function at each point.
        thumb: Constant of the rule of thumb: the bandwidth for N rows is this times the doses' standard deviation times
            N^(-1/5) (Silverman 1986, "Density estimation", section 3.4).
    """

    density: Callable[[Values], Values]
    below: Callable[[Values], Values]
    thumb: float


def _parabola(u: Values) -> Values:
    return 0.75 * np.maximum(1 - u * u, 0.0)


def _below_parabola(u: Values) -> Values:
    inside = np.clip(u, -1, 1)
    return 0.5 + 0.25 * inside * (3 - inside * inside)


def _bell(u: Values) -> Values:
    return np.exp(-0.5 * u * u) / math.sqrt(2 * math.pi)


def _below_bell(u: Values) -> Values:
    from scipy.special import ndtr

    return np.asarray(ndtr(u), np.float64)


KERNELS: dict[KernelName, Kernel] = {
    "epanechnikov": Kernel(_parabola, _below_parabola, 2.34),
    "gaussian": Kernel(_bell, _below_bell, 1.06),
}


@dataclass(frozen=True, eq=False)
class Doses:
    """N logged doses; checked on construction.

    Attributes:
        doses: Logged doses, float64[N].
        rewards: Rewards, float64[N].
        densities: Density with which each dose was drawn, given its context, float64[N], above 0.
        targets: Doses of the target in the same contexts: float64[N], or float64[N, S] for S draws each.
        low: Smallest possible dose, if there is one.
        high: Largest possible dose, if there is one.
    """

    doses: Values
    rewards: Values
    densities: Values
    targets: Values
    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        for name in ("doses", "rewards", "densities", "targets"):
            array = getattr(self, name)
            if array.shape[:1] != self.doses.shape or array.ndim > (2 if name == "targets" else 1):
                raise InvalidLog(
                    f"{name} must have one entry for each of the {len(self.doses)} doses, got {array.shape}"
                )
            self._refuse(np.isfinite(array), name, "a finite number")
        self._refuse(self.densities > 0, "densities", "above 0; leave out doses that were not drawn at random")
        for name in ("doses", "targets"):
            array = getattr(self, name)
            self._refuse((array >= self.low) & (array <= self.high), name, f"from {self.low} to {self.high}")

    def _refuse(self, good: NDArray[np.bool_], name: str, expected: str) -> None:
        bad = np.argwhere(~good)
        if bad.size:
            value, others = getattr(self, name)[tuple(bad[0])], f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
            raise InvalidLog(f"row {bad[0][0]}: {name} must be {expected}, got {value}{others}")


def weights(log: Doses, bandwidth: float, kernel: KernelName = "epanechnikov") -> Values:
    """Importance weights, float64[N]; 1 on average if the log could draw every dose near the target's.

    At the smallest and largest dose, the kernel is truncated and renormalised.
    """
    if not bandwidth > 0:
        raise InvalidOption(f"bandwidth must be above 0, got {bandwidth}")
    shape = KERNELS[kernel]
    draws = log.targets.reshape(len(log.doses), -1)
    total = np.zeros(len(log.doses))
    for targets in draws.T:
        inside = shape.below((log.high - targets) / bandwidth) - shape.below((log.low - targets) / bandwidth)
        total += shape.density((targets - log.doses) / bandwidth) / inside
    return total / (draws.shape[1] * bandwidth * log.densities)


def ips(log: Doses, bandwidth: Bandwidth = "rule", kernel: KernelName = "epanechnikov") -> Parts:
    """Kernel-smoothed inverse propensity scoring.

    Args:
        log: Logged doses and those of the target.
        bandwidth: Width of the kernel, in units of dose; ``"rule"`` for Silverman's rule of thumb; ``"slope"`` for the
            widest that the data allow, see `select_bandwidth`.
        kernel: Shape of the kernel.
    """
    return _estimate(log, bandwidth, kernel, lambda w: Parts(numerator=w * log.rewards))


def snips(log: Doses, bandwidth: Bandwidth = "rule", kernel: KernelName = "epanechnikov") -> Parts:
    """Self-normalised kernel-smoothed inverse propensity scoring; usually better than `ips`, with its arguments."""
    return _estimate(log, bandwidth, kernel, lambda w: Parts(numerator=w * log.rewards, denominator=w))


def dr(
    log: Doses,
    predicted: Values,
    expected: Values,
    bandwidth: Bandwidth = "rule",
    kernel: KernelName = "epanechnikov",
    *,
    self_normalised: bool = False,
) -> Parts:
    """The kernel-smoothed doubly robust estimate: consistent if the model or the densities are right.

    Args:
        log: Logged doses and those of the target.
        predicted: Reward model at the logged doses, float64[N].
        expected: Reward model at the target's doses, averaged over its draws, float64[N].
        bandwidth: See `ips`.
        kernel: Shape of the kernel.
        self_normalised: Whether to divide the correction by the average weight.
    """
    errors = log.rewards - predicted
    return _estimate(log, bandwidth, kernel, lambda w: Parts(expected, w * errors, w if self_normalised else None))


def rule(log: Doses, kernel: KernelName = "epanechnikov") -> float:
    """The bandwidth by Silverman's rule of thumb."""
    spread = float(np.std(log.doses, ddof=1)) if len(log.doses) > 1 else 0.0
    if not spread:
        raise InvalidLog(f"all {len(log.doses)} doses are the same; state a bandwidth, or log different doses")
    return KERNELS[kernel].thumb * spread / math.pow(len(log.doses), 0.2)


def select_bandwidth(estimate: Callable[[float], Parts], bandwidths: Values) -> float:
    """The widest bandwidth whose estimate agrees with those of all narrower ones, within two standard errors.

    SLOPE: Su, Srinath & Krishnamurthy 2020, "Adaptive estimator selection for off-policy evaluation".

    Args:
        estimate: The estimate for a bandwidth.
        bandwidths: Candidates, ascending.
    """
    best, low, high = float(bandwidths[0]), -math.inf, math.inf
    for bandwidth in bandwidths:
        parts = estimate(float(bandwidth))
        reach = 2 * float(np.std(parts.influence, ddof=1)) / math.sqrt(len(parts))
        low, high = max(low, parts.value - reach), min(high, parts.value + reach)
        if not low <= high:
            break
        best = float(bandwidth)
    return best


def _estimate(log: Doses, bandwidth: Bandwidth, kernel: KernelName, made: Callable[[Values], Parts]) -> Parts:
    def estimate(width: float) -> Parts:
        return made(weights(log, width, kernel))

    if not isinstance(bandwidth, str):
        width = bandwidth
    elif bandwidth == "rule":
        width = rule(log, kernel)
    else:
        width = select_bandwidth(estimate, rule(log, kernel) * _MULTIPLES)
    return replace(estimate(width), parameter=width)
