"""A linear mixed model of rewards: coefficients that all items share, and an effect of each item.

reward = φᵀθ + u_i + ε, with φ = (1, x) ⊗ (1, z) for context x and features z of item i, ε ~ N(0, σ²),
θ ~ N(0, σ²/λ · I), u_i ~ N(0, σ²ρ) and σ² ~ IG(α, β). With the effects integrated out, θ and σ² have a
normal-inverse-gamma posterior. Given θ and σ², the effects are independent:
u_i ~ N(r_i(s_i - S_iᵀθ), σ²r_i) with r_i = ρ / (1 + n_iρ), where item i has n_i observations, whose rewards add up to
s_i and whose φ to S_i. Everything is float64, because sums of squares lose precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.special import gammaln

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

#: Rows per matrix product: with some hundreds of regressors they stay in the processor cache.
_BLOCK = 2048
#: Prior precisions of coefficients to choose from, relative to the noise.
PRECISIONS = 4.0 ** np.arange(-4, 7)
#: Variances of effects to choose from, relative to the noise. Never 0: items with equal features would be tied.
EFFECTS = 4.0 ** np.arange(-9, 3)
#: Smallest variance of rewards, relative to their square: equal rewards leave only rounding errors.
_LEAST_VARIANCE = 1e-12


class Sums(NamedTuple):
    """Sufficient statistics with p regressors and K items. The sum of two covers both sets of observations.

    Attributes:
        gram: Σφφᵀ, float64[p, p].
        moment: Σφy, float64[p].
        square: Σy², float64[].
        item_regressors: Σφ of each item, float64[K, p].
        item_rewards: Σy of each item, float64[K].
    """

    gram: Float64
    moment: Float64
    square: Float64
    item_regressors: Float64
    item_rewards: Float64

    def __add__(self, other: Sums) -> Sums:  # type: ignore[override]
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    def scaled(self, factor: float) -> Sums:
        """All sums times a factor: the same observations with their weights scaled."""
        return Sums(*(factor * a for a in self))

    @property
    def counts(self) -> Float64:
        """Number of observations of each item, float64[K]: the first regressor is 1."""
        return self.item_regressors[:, 0]


class Marginal(NamedTuple):
    """Statistics of θ with effects integrated out: those of ordinary regression, less what effects explain.

    Attributes:
        gram: Float64[p, p].
        moment: Float64[p].
        square: Float64[].
    """

    gram: Float64
    moment: Float64
    square: Float64

    def __add__(self, other: Marginal) -> Marginal:  # type: ignore[override]
        return Marginal(*(a + b for a, b in zip(self, other, strict=True)))

    def standardised(self, mean: float, variance: float) -> Marginal:
        """The same for rewards less `mean`, over the root of `variance`; the first regressor is 1."""
        moment = (self.moment - mean * self.gram[:, 0]) / np.sqrt(variance)
        square = (self.square - 2 * mean * self.moment[0] + mean**2 * self.gram[0, 0]) / variance
        return Marginal(self.gram, moment, np.maximum(square, 0.0))


class Scales(NamedTuple):
    """Prior scales, relative to the noise.

    Attributes:
        precision: Precision of coefficients, λ, float64[].
        effect: Variance of effects, ρ, float64[].
    """

    precision: Float64
    effect: Float64


class Posterior(NamedTuple):
    """Posterior of coefficients and noise.

    Attributes:
        mean: Posterior mean of θ, float64[p].
        root: Lower Cholesky factor of its precision, relative to the noise, float64[p, p].
        alpha: Shape of the noise variance, float64[].
        beta: Scale of the noise variance, float64[].
        scales: Prior scales.
    """

    mean: Float64
    root: Float64
    alpha: Float64
    beta: Float64
    scales: Scales

    @property
    def noise(self) -> float:
        """Estimate of the noise variance."""
        return float(self.beta / self.alpha)


class Prior(NamedTuple):
    """Prior of the noise, and of the rest before any observation.

    Attributes:
        scales: Prior scales before any observation.
        alpha: Shape of the noise variance.
        beta: Scale of the noise variance, in units of the variance of rewards.
    """

    scales: Scales
    alpha: float
    beta: float


def with_one(features: NDArray[np.floating[Any]]) -> Float64:
    """Float64[n, d + 1]: a constant 1, and the features."""
    return np.concatenate([np.ones((len(features), 1)), features], axis=1, dtype=np.float64)


def sums_of(contexts: NDArray[np.float32], items: Float64, places: NDArray[np.int32], rewards: Float64) -> Sums:
    """Sufficient statistics of contexts [N, d], positions of items [N] with features [K, e], and rewards [N]."""
    features, count = with_one(items), len(items)
    p = (contexts.shape[1] + 1) * features.shape[1]
    gram, moment = np.zeros((p, p)), np.zeros(p)
    of_items = np.zeros((count, contexts.shape[1] + 1))
    for first in range(0, len(rewards), _BLOCK):
        rows = slice(first, first + _BLOCK)
        x = with_one(contexts[rows])
        phi = _crossed(x, features[places[rows]])
        gram += phi.T @ phi
        moment += phi.T @ rewards[rows]
        np.add.at(of_items, places[rows], x)
    item_rewards = np.bincount(places, rewards, minlength=count).astype(np.float64)
    return Sums(gram, moment, np.array(rewards @ rewards), _crossed(of_items, features), item_rewards)


def _crossed(x: Float64, z: Float64) -> Float64:
    """Kronecker products of rows, float64[n, p]."""
    return (x[:, :, None] * z[:, None, :]).reshape(len(x), -1)


def shrinkage(counts: Float64, effect: float) -> Float64:
    """r_i of each item: the posterior variance of its effect, relative to the noise."""
    return np.asarray(effect / (1 + counts * effect))


class Gone(NamedTuple):
    """What removed items leave: for each of `EFFECTS` what their effects explain, and their part of the evidence.

    Attributes:
        gram: Float64[E, p, p].
        moment: Float64[E, p].
        square: Float64[E].
        determinants: Σ log(1 + nρ) over these items, float64[E].
    """

    gram: Float64
    moment: Float64
    square: Float64
    determinants: Float64

    @classmethod
    def nothing(cls, p: int) -> Gone:
        """No item was removed."""
        count = len(EFFECTS)
        return cls(np.zeros((count, p, p)), np.zeros((count, p)), np.zeros(count), np.zeros(count))

    @classmethod
    def of(cls, sums: Sums) -> Gone:
        """What these items leave."""
        parts = [explained(sums, float(effect)) for effect in EFFECTS]
        determinants = np.log1p(sums.counts * EFFECTS[:, None]).sum(axis=1)
        gram, moment, square = (np.stack(part) for part in zip(*parts, strict=True))
        return cls(gram, moment, square, determinants)

    def __add__(self, other: Gone) -> Gone:  # type: ignore[override]
        return Gone(*(a + b for a, b in zip(self, other, strict=True)))

    def scaled(self, factor: float) -> Gone:
        """All parts times a factor."""
        return Gone(*(factor * part for part in self))

    def at(self, effect: float) -> Marginal:
        """What is explained at the nearest of `EFFECTS`."""
        place = int(np.argmin(np.abs(np.log(EFFECTS / effect))))
        return Marginal(self.gram[place], self.moment[place], self.square[place])


def explained(sums: Sums, effect: float) -> Marginal:
    """What the effects of items explain, to be added to the statistics of all observations: all of it is negative."""
    seen = sums.counts > 0
    root = np.sqrt(shrinkage(sums.counts[seen], effect))
    regressors, rewards = sums.item_regressors[seen] * root[:, None], sums.item_rewards[seen] * root
    return Marginal(-regressors.T @ regressors, -regressors.T @ rewards, -np.array(rewards @ rewards))


def fit(sums: Sums, gone: Gone, prior: Prior, scales: Scales | None = None) -> Posterior:
    """The posterior.

    Args:
        sums: Statistics of all observations.
        gone: What items leave that are no longer in the catalogue.
        prior: Prior of the noise, and prior scales before any observation.
        scales: Prior scales; if left out, those of the highest marginal likelihood.
    """
    total, n = Marginal(sums.gram, sums.moment, sums.square), float(sums.gram[0, 0])
    if not n:
        return _posterior(total, n, scales or prior.scales, prior)
    mean = float(sums.moment[0]) / n
    variance = max(float(sums.square) / n - mean**2, _LEAST_VARIANCE * max(mean**2, 1.0))

    def standardised(effect: float) -> Marginal:
        return (total + explained(sums, effect) + gone.at(effect)).standardised(mean, variance)

    if scales is None:
        scales = _likeliest(standardised, sums.counts, gone, n, prior)
    found = _posterior(standardised(float(scales.effect)), n, scales, prior)
    coefficients = found.mean * np.sqrt(variance)
    coefficients[0] += mean
    return found._replace(mean=coefficients, beta=found.beta * variance)


def _posterior(marginal: Marginal, n: float, scales: Scales, prior: Prior) -> Posterior:
    root = np.linalg.cholesky(marginal.gram + scales.precision * np.eye(len(marginal.gram))).astype(np.float64)
    mean = np.asarray(cho_solve((root, True), marginal.moment))
    # Rounding can make the residual sum of squares negative when rewards are huge and nearly equal.
    residual = max(float(marginal.square - mean @ marginal.moment), 0.0)
    return Posterior(mean, root, np.array(prior.alpha + n / 2), np.array(prior.beta + residual / 2), scales)


def _likeliest(
    standardised: Callable[[float], Marginal], counts: Float64, gone: Gone, n: float, prior: Prior
) -> Scales:
    """The prior scales on the grid with the highest marginal likelihood."""
    determinants = np.log1p(counts * EFFECTS[:, None]).sum(axis=1) + gone.determinants
    found = np.stack(
        [
            log_evidence(standardised(float(effect)), determinant, n, prior)
            for effect, determinant in zip(EFFECTS, determinants, strict=True)
        ]
    )
    row, column = np.unravel_index(int(np.argmax(found)), found.shape)
    return Scales(np.array(PRECISIONS[column]), np.array(EFFECTS[row]))


def log_evidence(marginal: Marginal, of_effects: float, n: float, prior: Prior) -> Float64:
    """Log marginal likelihood of n rewards for each of `PRECISIONS`, under one variance ρ of effects.

    Args:
        marginal: Statistics with effects integrated out.
        of_effects: Σ log(1 + n_iρ) over items, the log determinant that effects add.
        n: Number of rewards.
        prior: Prior of the noise.
    """
    size, vectors = np.linalg.eigh(marginal.gram)
    along, p = (vectors.T @ marginal.moment) ** 2, len(size)
    precisions = np.maximum(size, 0.0) + PRECISIONS[:, None]
    residual = np.maximum(marginal.square - (along / precisions).sum(axis=1), 0.0)
    determinants = p * np.log(PRECISIONS) - np.log(precisions).sum(axis=1) - of_effects
    alpha = prior.alpha + n / 2
    noise = prior.alpha * np.log(prior.beta) - alpha * np.log(prior.beta + residual / 2)
    constant = gammaln(alpha) - gammaln(prior.alpha) - n / 2 * np.log(2 * np.pi)
    return np.asarray(determinants / 2 + noise + constant)


class JointDraw(NamedTuple):
    """Joint draws of the rewards of all items, up to what is the same for all items of a context.

    Attributes:
        coefficients: Of context and item, float32[n, d + 1, e + 1].
        effects: Effects of items, float32[n, K].
    """

    coefficients: Float32
    effects: Float32


class JointSampler:
    """Draws coefficients and noise, and the effects of all items given them.

    Args:
        posterior: The posterior.
        sums: The statistics behind it.
        width: Columns of an item's features, e.
    """

    def __init__(self, posterior: Posterior, sums: Sums, width: int) -> None:
        self._posterior, self._width = posterior, width
        shrunk = shrinkage(sums.counts, float(posterior.scales.effect))
        self.effects = shrunk * (sums.item_rewards - sums.item_regressors @ posterior.mean)
        self._spread = np.sqrt(shrunk).astype(np.float32)
        self._regressors = (shrunk[:, None] * sums.item_regressors).astype(np.float32)

    def draw(self, n: int, rng: np.random.Generator) -> JointDraw:
        """Joint draws."""
        posterior = self._posterior
        noise = np.sqrt(posterior.beta / rng.standard_gamma(posterior.alpha, n))
        normal = rng.standard_normal((len(posterior.mean), n))
        deviations = (solve_triangular(posterior.root, normal, lower=True, trans="T") * noise).T.astype(np.float32)
        effects = rng.standard_normal((n, len(self._spread)), dtype=np.float32) * self._spread
        effects *= noise.astype(np.float32)[:, None]
        effects += self.effects.astype(np.float32) - deviations @ self._regressors.T
        coefficients = posterior.mean.astype(np.float32) + deviations
        by_item = coefficients.reshape(n, -1, self._width + 1)
        by_item[:, :, 0] = 0.0  # the same for all items: leaving it out saves precision
        return JointDraw(by_item, effects)
