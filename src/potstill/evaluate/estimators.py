"""Estimators of the value of a target: each turns `Terms` into `Parts`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.evaluate.terms import Terms
from potstill.spaces import Parts

#: Quantiles of the positive weights that are candidates for clipping levels, thresholds and shrinkages.
_QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999)

Float64 = NDArray[np.float64]


#: Turns terms into parts. `evaluate` also takes your own, by name.
Estimator: TypeAlias = Callable[[Terms], Parts]


def replay(terms: Terms) -> Parts:
    """Replay: the mean reward of rows on which the target draws the logged action.

    Li, Chu, Langford & Wang 2011, "Unbiased offline evaluation of contextual-bandit-based news article recommendation
    algorithms". Unbiased only for logs of uniformly random actions.
    """
    matched = terms.matched.astype(np.float64)
    return Parts(numerator=matched * terms.reward, denominator=matched, largest=1.0, weight=matched)


def ips(terms: Terms) -> Parts:
    """Inverse propensity scoring: each reward times its importance weight (Horvitz & Thompson 1952)."""
    return Parts(numerator=terms.weight * terms.reward, weight=terms.weight)


def clipped_ips(terms: Terms, clip: float | None = None) -> Parts:
    """IPS with weights clipped at `clip`, which trades bias for variance; chosen from the log if left out."""
    clip = _given("clip", clip) or _tuned(terms, _clipped, quantiles(terms), base=False)
    weight = _clipped(terms.weight, clip)
    return Parts(numerator=weight * terms.reward, largest=clip, parameter=clip, weight=weight)


def snips(terms: Terms) -> Parts:
    """Self-normalised IPS: the weighted mean of rewards.

    Swaminathan & Joachims 2015, "The self-normalized estimator for counterfactual learning".
    """
    return Parts(numerator=terms.weight * terms.reward, denominator=terms.weight, weight=terms.weight)


def dm(terms: Terms) -> Parts:
    """Direct method: the expectation of the reward model under the target. As biased as the model."""
    return Parts(base=terms.expected, largest=0.0)


def dr(terms: Terms) -> Parts:
    """Doubly robust: the direct method plus weighted residuals; consistent if the model or the weights are right.

    Dudík, Langford & Li 2011, "Doubly robust policy evaluation and learning".
    """
    return Parts(base=terms.expected, numerator=terms.weight * _residual(terms), weight=terms.weight)


def sndr(terms: Terms) -> Parts:
    """Self-normalised doubly robust: the correction is a weighted mean of residuals."""
    correction = terms.weight * _residual(terms)
    return Parts(base=terms.expected, numerator=correction, denominator=terms.weight, weight=terms.weight)


def switch_dr(terms: Terms, threshold: float | None = None) -> Parts:
    """Doubly robust where the weight is at most `threshold`, the direct method elsewhere.

    Wang, Agarwal & Dudík 2017, "Optimal and adaptive off-policy evaluation in contextual bandits". The threshold is
    chosen from the log if left out.
    """
    threshold = _given("threshold", threshold) or _tuned(terms, _switched, quantiles(terms))
    return _corrected(terms, _switched, threshold, largest=threshold)


def dr_os(terms: Terms, shrinkage: float | None = None) -> Parts:
    """Doubly robust with optimistic shrinkage: a weight w becomes λw/(w² + λ), at most √λ/2.

    Su, Dimakopoulou, Krishnamurthy & Dudík 2020, "Doubly robust off-policy evaluation with shrinkage". λ is
    `shrinkage`, chosen from the log if left out.
    """
    shrinkage = _given("shrinkage", shrinkage) or _tuned(terms, _shrunk, _shrinkages(terms))
    return _corrected(terms, _shrunk, shrinkage, largest=math.sqrt(shrinkage) / 2)


#: All estimators by name.
ESTIMATORS: dict[str, Estimator] = {
    "replay": replay,
    "ips": ips,
    "clipped-ips": clipped_ips,
    "snips": snips,
    "dm": dm,
    "dr": dr,
    "sndr": sndr,
    "switch-dr": switch_dr,
    "dr-os": dr_os,
}

#: Weights and a parameter to shrunken weights.
_Shrink: TypeAlias = Callable[[Float64, float], Float64]


def quantiles(terms: Terms) -> Float64:
    """Candidate thresholds, from infinity (no clipping) down to the median of the positive weights."""
    positive = terms.weight[terms.weight > 0]
    found = np.unique(np.quantile(positive, _QUANTILES)) if positive.size else np.empty(0)
    return np.append(np.inf, found[::-1])


def _shrinkages(terms: Terms) -> Float64:
    """Candidate shrinkages: squared weights, as a weight of √λ is halved, and two more below infinity."""
    squares = quantiles(terms) ** 2
    return np.concatenate([squares[:1], 100 * squares[1:2], 10 * squares[1:2], squares[1:]])


def _clipped(weight: Float64, clip: float) -> Float64:
    return np.minimum(weight, clip)


def _switched(weight: Float64, threshold: float) -> Float64:
    return np.where(weight <= threshold, weight, 0.0)


def _shrunk(weight: Float64, shrinkage: float) -> Float64:
    shrunk: Float64 = weight / (1 + weight**2 / shrinkage)
    return shrunk


def _residual(terms: Terms) -> Float64:
    return terms.reward - terms.predicted


def _corrected(terms: Terms, shrink: _Shrink, parameter: float, largest: float) -> Parts:
    weight = shrink(terms.weight, parameter)
    correction = weight * _residual(terms)
    return Parts(base=terms.expected, numerator=correction, largest=largest, parameter=parameter, weight=weight)


def _given(name: str, parameter: float | None) -> float | None:
    if parameter is not None and not parameter > 0:
        raise InvalidOption(f"{name} must be above 0 (infinity for none), got {parameter}")
    return parameter


def _tuned(terms: Terms, shrink: _Shrink, candidates: Float64, *, base: bool = True) -> float:
    """The candidate with the smallest estimated mean squared error: variance plus the square of a bound on the bias.

    As in Wang et al. 2017 and Su et al. 2020. The bound is the mean of the lost weight times the absolute value of what
    it would have multiplied. Ties go to the earlier candidate.
    """
    residual = _residual(terms) if base else terms.reward
    size, expected = np.abs(residual), terms.expected if base else 0.0

    def error(parameter: float) -> float:
        kept = shrink(terms.weight, parameter)
        bias = float(np.mean((terms.weight - kept) * size))
        return float(np.var(expected + kept * residual)) / len(terms) + bias**2

    return min(map(float, candidates), key=error)
