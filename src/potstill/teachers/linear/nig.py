"""Bayesian linear regression per action, with the conjugate normal-inverse-gamma (NIG) prior.

For action a: reward = xᵀθ + ε, ε ~ N(0, σ²), θ | σ² ~ N(0, σ²Λ⁻¹), σ² ~ IG(α, β). The posterior has the same form (the
paper, appendix on posterior inference). Given x, the mean reward xᵀθ is a Student-t variable with 2α degrees of
freedom, location xᵀμ and scale √(β/α · xᵀΛ⁻¹x). Everything is float64, because sums of squares lose precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular

from potstill.keys import Key

Float64 = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]

#: Rows per matrix product: with some tens of regressors they stay in the processor cache.
_BLOCK = 2048
#: Rows and columns of the products behind squared norms: 32 MB, large enough for several threads.
_ROWS, _COLUMNS = 4096, 1024


class Sums(NamedTuple):
    """Sufficient statistics per action, with p regressors. The sum of two covers both sets of observations.

    Attributes:
        gram: XᵀX, float64[K, p, p].
        moment: Xᵀy, float64[K, p].
        square: yᵀy, float64[K].
        n: Total weight of the observations, float64[K]; their number if unweighted.
    """

    gram: Float64
    moment: Float64
    square: Float64
    n: Float64

    def __add__(self, other: Sums) -> Sums:  # type: ignore[override]
        return Sums(*(a + b for a, b in zip(self, other, strict=True)))

    def scaled(self, factor: float) -> Sums:
        """All sums times a factor: the same observations with their weights scaled."""
        return Sums(*(factor * a for a in self))

    def normalised(self) -> Sums:
        """These sums: equal weights need no normalisation."""
        return self


class WeightedSums(NamedTuple):
    """Sufficient statistics of weighted observations, before their weights are normalised.

    The sum of two covers both sets, however observations are divided: only the total says what the mean weight is.

    Attributes:
        sums: Statistics with the weights as they are.
        rows: Number of observations, float64[]; less after a discount.
    """

    sums: Sums
    rows: Float64

    def __add__(self, other: WeightedSums) -> WeightedSums:  # type: ignore[override]
        return WeightedSums(self.sums + other.sums, self.rows + other.rows)

    def scaled(self, factor: float) -> WeightedSums:
        """All sums times a factor."""
        return WeightedSums(self.sums.scaled(factor), factor * self.rows)

    def normalised(self) -> Sums:
        """Statistics with weights of mean 1."""
        weight = float(self.sums.n.sum())
        return self.sums.scaled(float(self.rows) / weight) if weight else self.sums


class Prior(NamedTuple):
    """Means and precisions of the coefficients of each action before any observation, float64[K, p] each."""

    mean: Float64
    precision: Float64

    def added_to(self, total: Sums) -> Sums:
        """Sufficient statistics with those of the prior, as if it had been observed too, though not counted in n."""
        weighted = self.precision * self.mean
        gram = total.gram + self.precision[:, :, None] * np.eye(self.precision.shape[1])
        return Sums(gram, total.moment + weighted, total.square + np.einsum("kp,kp->k", weighted, self.mean), total.n)


class Posterior(NamedTuple):
    """NIG(mean, Λ, alpha, beta) for each action.

    Attributes:
        mean: Posterior mean of θ, float64[K, p].
        root: Lower Cholesky factor of the precision Λ, float64[K, p, p]; for a diagonal Λ its diagonal, float64[K, p].
        alpha: Shape of the noise variance, float64[K].
        beta: Scale of the noise variance, float64[K].
    """

    mean: Float64
    root: Float64
    alpha: Float64
    beta: Float64


class Marginals(NamedTuple):
    """Each action's mean reward in each context: independent Student-t variables, or normal ones.

    Attributes:
        location: Locations, float64[N, K].
        scale: Scales, float64[N, K].
        dof: Degrees of freedom, float64[K]; infinite for all actions if they are normal.
    """

    location: Float64
    scale: Float64
    dof: Float64


def sums(
    regressors: Floats,
    actions: NDArray[np.int32],
    rewards: Float64,
    weights: Float64,
    k: int,
    *,
    intercept: bool = False,
) -> Sums:
    """Sufficient statistics of regressors [N, p], actions int32[N], rewards and weights float64[N].

    With `intercept` a constant 1 is appended to the regressors, without copying them all. Rows are sorted by action and
    processed in blocks that fit the processor cache, so that the time is that of the matrix products.
    """
    p = regressors.shape[1] + intercept
    total = np.zeros((k, p + 1, p + 1))
    block = np.ones((_BLOCK, p + 1))  # columns: regressors, intercept, reward
    gathered = np.empty((_BLOCK, regressors.shape[1]), regressors.dtype)
    roots = None if (weights == 1).all() else np.sqrt(weights)
    for a, rows in _blocks(actions, k):
        n = len(rows)
        np.take(regressors, rows, axis=0, out=gathered[:n], mode="clip")  # clip: the default mode allocates a buffer
        block[:n, : regressors.shape[1]] = gathered[:n]
        block[:n, regressors.shape[1] : p] = 1.0
        block[:n, p] = rewards[rows]
        if roots is not None:
            block[:n] *= roots[rows, None]
        total[a] += block[:n].T @ block[:n]
    n_of = np.bincount(actions, weights, minlength=k).astype(np.float64)
    return Sums(total[:, :p, :p].copy(), total[:, :p, p].copy(), total[:, p, p].copy(), n_of)


def _blocks(actions: NDArray[np.int32], k: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Row positions in blocks of one action each; in order within an action."""
    order = np.argsort(actions.astype(np.min_scalar_type(-k)), kind="stable")  # 8 and 16 bits: radix sort
    first = 0
    for a, last in enumerate(np.cumsum(np.bincount(actions, minlength=k)).tolist()):
        for at in range(first, last, _BLOCK):
            yield a, order[at : min(at + _BLOCK, last)]
        first = last


def posterior(total: Sums, precision: float, alpha: float, beta: float) -> Posterior:
    """The posterior after the observations behind `total`, from the prior NIG(0, precision·I, alpha, beta).

    For another mean or precision, add a `Prior` to `total` and let `precision` be 0.
    """
    root = np.linalg.cholesky(total.gram + precision * np.eye(total.gram.shape[-1])).astype(np.float64)
    mean = np.stack([cho_solve((L, True), m) for L, m in zip(root, total.moment, strict=True)])
    # Rounding can make the residual sum of squares negative when rewards are huge and nearly equal.
    residual = np.maximum(total.square - np.einsum("kp,kp->k", mean, total.moment), 0.0)
    return Posterior(mean, root, alpha + total.n / 2, beta + residual / 2)


def diagonal(fitted: Posterior) -> Posterior:
    """The mean-field posterior: the Gaussian with independent parameters that minimises KL(q‖p) to the exact one.

    It has the same mean and the diagonal of the precision.
    """
    return fitted._replace(root=np.sqrt(np.einsum("kij,kij->ki", fitted.root, fitted.root)))


def marginals(fitted: Posterior, regressors: Float64) -> Marginals:
    """The mean reward of each action, for regressors float64[N, p]."""
    scale = np.sqrt(_spread(fitted.root, regressors) * fitted.beta / fitted.alpha)
    return Marginals(regressors @ fitted.mean.T, scale, 2 * fitted.alpha)


def _spread(root: Float64, x: Float64) -> Float64:
    """xᵀΛ⁻¹x, float64[N, K]."""
    if root.ndim == 2:
        return x**2 @ (root**-2).T
    # Multiplying by the inverse is several times faster than solving, and the prior keeps the root well conditioned.
    (k, p), spread = root.shape[:2], np.empty((len(x), len(root)))
    together = max(_COLUMNS // p, 1)
    for first in range(0, k, together):
        inverses = [solve_triangular(L, np.eye(p), lower=True).T for L in root[first : first + together]]
        columns = np.concatenate(inverses, axis=1)
        for at in range(0, len(x), _ROWS):
            z = (x[at : at + _ROWS] @ columns).reshape(-1, len(inverses), p)
            spread[at : at + _ROWS, first : first + together] = np.einsum("nkp,nkp->nk", z, z)
    return spread


def sample_best(drawn_from: Marginals, n: int, key: Key) -> NDArray[np.int64]:
    """The best action of each of n independent draws per context, int64[N, n]."""
    rng, size = key.generator(), (n, *drawn_from.location.shape)
    draws = rng.standard_normal(size) if np.isinf(drawn_from.dof).all() else rng.standard_t(drawn_from.dof, size=size)
    best: NDArray[np.int64] = (drawn_from.location + drawn_from.scale * draws).argmax(axis=-1).T
    return best


def with_intercept(features: NDArray[np.float32]) -> Float64:
    """Regressors float64[N, d + 1]: the features and a constant 1."""
    return np.concatenate([features.astype(np.float64), np.ones((len(features), 1))], axis=1)
