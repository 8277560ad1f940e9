"""Distributions of rewards with their canonical links: Bernoulli (logit) and Poisson (log).

With a canonical link, the log likelihood y·η − b(η) of a linear predictor η is concave, its gradient is y − b'(η) and
its negative second derivative, the curvature, is b''(η), which does not depend on the reward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtr

from potstill.problem import LARGEST, RewardKind

Float64 = NDArray[np.float64]

#: Largest size of a linear predictor: beyond it rates are 0 or 1, and counts exceed the largest reward.
_FARTHEST = float(np.log(LARGEST))
#: The logistic function as a mixture of eight normal distribution functions, to 5e-9 (Monahan and Stefanski 1992):
#: weights, and inverse standard deviations.
_WEIGHTS = np.array([
    0.003246343272134, 0.051517477033972, 0.195077912673858, 0.315569823632818,
    0.274149576158423, 0.131076880695470, 0.027912418727972, 0.001449567805354,
])  # fmt: skip
_INVERSE_SCALES = np.array([
    1.365340806296348, 1.059523971016916, 0.830791313765644, 0.650732166639391,
    0.508135425366489, 0.396313345166341, 0.308904252267995, 0.238212616409306,
])  # fmt: skip


class Family(NamedTuple):
    """A distribution of rewards, by functions of arrays.

    Attributes:
        must_be: What rewards must be, in words.
        kinds: Kinds of reward that it is for, the best first.
        fits: Which rewards it can have, bool[N].
        link: Linear predictor of an expected reward.
        mean: Expected reward of a linear predictor: the inverse of the link.
        curvature: Curvature of the log likelihood, from the expected reward.
        log_normaliser: b(η): the log likelihood is y·η − b(η), up to a constant of the rewards.
        expected: Expected reward of a normal linear predictor, from its mean and standard deviation.
    """

    must_be: str
    kinds: tuple[RewardKind, ...]
    fits: Callable[[Float64], NDArray[np.bool_]]
    link: Callable[[Float64], Float64]
    mean: Callable[[Float64], Float64]
    curvature: Callable[[Float64], Float64]
    log_normaliser: Callable[[Float64], Float64]
    expected: Callable[[Float64, Float64], Float64]


def within_reach(predictor: Float64) -> Float64:
    """Linear predictors clipped to where rewards and likelihoods stay finite."""
    return np.clip(predictor, -_FARTHEST, _FARTHEST)


def _is_yes_or_no(rewards: Float64) -> NDArray[np.bool_]:
    return np.asarray((rewards == 0) | (rewards == 1))


def _is_not_negative(rewards: Float64) -> NDArray[np.bool_]:
    return np.asarray(rewards >= 0)


def _rate_curvature(rate: Float64) -> Float64:
    return rate * (1 - rate)


def _log_one_plus_exp(predictor: Float64) -> Float64:
    return np.logaddexp(0.0, predictor)


def _expected_rate(mean: Float64, scale: Float64) -> Float64:
    """E[logistic(η)]: a mixture of normal distribution functions is closed under normal η."""
    rate = np.zeros(mean.shape)
    for weight, inverse in zip(_WEIGHTS, _INVERSE_SCALES, strict=True):
        rate += weight * ndtr(inverse * mean / np.sqrt(1 + (inverse * scale) ** 2))
    return np.clip(rate, 0.0, 1.0)  # the weights add up to 1 + 1e-15


def _count_curvature(count: Float64) -> Float64:
    return count


def _expected_count(mean: Float64, scale: Float64) -> Float64:
    """E[exp(η)], at most the largest reward."""
    return np.exp(np.minimum(mean + scale**2 / 2, _FARTHEST))


BERNOULLI = Family(
    "0 or 1", ("yes/no",), _is_yes_or_no, logit, expit, _rate_curvature, _log_one_plus_exp, _expected_rate
)
POISSON = Family(
    "0 or more", ("count", "yes/no"), _is_not_negative, np.log, np.exp, _count_curvature, np.exp, _expected_count
)
