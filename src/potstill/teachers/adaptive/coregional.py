"""Joint Bayesian linear regression of all actions, with a prior covariance between actions.

The reward of action a is Σ_b φ_b(x)ᵀθ_ba + noise of variance σ², over blocks b of features (a constant, the context
columns, the units of a network). A block's coefficients have the prior covariance B_b[a, a'] between actions, and are
independent between features: the intrinsic coregionalisation model (Álvarez, Rosasco, Lawrence 2012). With
B_b = U_bU_bᵀ the posterior is that of a regression on D = Σ_b r_b·p_b standard normal coefficients, where r_b is the
rank of B_b and p_b the number of features.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.linalg.lapack import dpotri

from potstill.teachers.joint_normal import Joint
from potstill.teachers.linear import Float64, Sums

#: Eigenvalues of a covariance between actions below this share of the largest are dropped.
_NEGLIGIBLE = 1e-4
#: Products of features computed at once: 32 MB.
_CHUNK = 4_000_000


class Posterior(NamedTuple):
    """The posterior of the D coefficients.

    Attributes:
        factors: U_b of each block, float64[K, r_b].
        mean: Posterior mean, float64[D], ordered by block, then rank, then feature.
        root: Lower Cholesky factor of the precision, float64[D, D].
        noise: Noise variance, float64[].
    """

    factors: tuple[Float64, ...]
    mean: Float64
    root: Float64
    noise: Float64


def factor(covariance: Float64, rank: int | None = None) -> Float64:
    """U with UUᵀ = B, float64[K, r], without negligible eigenvalues and of at most the given rank."""
    size, vectors = np.linalg.eigh(covariance)
    kept = size > _NEGLIGIBLE * max(size[-1], np.finfo(np.float64).tiny)
    root: Float64 = (vectors[:, kept] * np.sqrt(size[kept]))[:, ::-1]
    return np.ascontiguousarray(root[:, :rank])


def posterior(factors: tuple[Float64, ...], total: Sums, blocks: tuple[int, ...], noise: float) -> Posterior:
    """The posterior after the observations behind `total`; `blocks` are the numbers of columns of each block."""
    columns = [slice(*ends) for ends in pairwise(accumulate(blocks, initial=0))]
    rows = [
        np.concatenate([_pair(u, v, total.gram[:, i, j]) for v, j in zip(factors, columns, strict=True)], axis=1)
        for u, i in zip(factors, columns, strict=True)
    ]
    precision = np.concatenate(rows) / noise
    precision[np.diag_indices_from(precision)] += 1.0
    target = np.concatenate([(u.T @ total.moment[:, i]).ravel() for u, i in zip(factors, columns, strict=True)])
    root = np.linalg.cholesky(precision).astype(np.float64)
    return Posterior(factors, cho_solve((root, True), target / noise), root, np.array(noise))


def _pair(u: Float64, v: Float64, gram: Float64) -> Float64:
    """The part of the data's precision between two blocks: Σ_a u_a v_aᵀ ⊗ gram_a, float64[r·p, s·q]."""
    (k, r), s, (p, q) = u.shape, v.shape[1], gram.shape[1:]
    outer = (u[:, :, None] * v[:, None, :]).reshape(k, r * s)
    blocks = (outer.T @ gram.reshape(k, p * q)).reshape(r, s, p, q)
    return np.ascontiguousarray(blocks.transpose(0, 2, 1, 3)).reshape(r * p, s * q)


def coefficients(fitted: Posterior, blocks: tuple[int, ...]) -> Float64:
    """The posterior mean of each action's coefficients, float64[K, p]."""
    parts = [np.einsum("kr,rpn->kpn", u, part) for u, part in _parts(fitted, fitted.mean[:, None], blocks)]
    return np.concatenate(parts, axis=1)[..., 0]


def residuals(total: Sums, coefficients: Float64) -> float:
    """Sum of squared residuals, from sufficient statistics."""
    fit = np.einsum("kp,kpq,kq->", coefficients, total.gram, coefficients, optimize=True)
    squares = total.square.sum() - 2 * (coefficients * total.moment).sum() + fit
    # Rounding can make it slightly negative where the fit is perfect.
    return max(float(squares), 0.0)


def predictive(fitted: Posterior, regressors: Float64, actions: NDArray[np.int32], blocks: tuple[int, ...]) -> Joint:
    """Predictive mean and variance of observed rewards, as a joint of one action: float64[N, 1], float64[N, 1, 1]."""
    design = _design(fitted.factors, regressors, blocks)[np.arange(len(actions)), actions]
    spread = solve_triangular(fitted.root, design.T, lower=True)
    variance = (spread**2).sum(axis=0) + fitted.noise
    return Joint((design @ fitted.mean)[:, None], variance[:, None, None])


def joints(fitted: Posterior, regressors: Float64, blocks: tuple[int, ...], rows: int) -> Iterator[Joint]:
    """Joint normals of the mean rewards of all actions, in chunks of at most `rows` contexts."""
    n, k = len(regressors), len(fitted.factors[0])
    if n * k <= len(fitted.mean):
        # Few contexts: solving for them costs less than inverting the precision.
        yield from (joint(fitted, regressors[i : i + rows], blocks) for i in range(0, n, rows))
        return
    counted = _counted(fitted, blocks)
    x, means, packed = regressors[:, counted], coefficients(fitted, blocks)[:, counted], _packed(fitted, blocks)
    rows = min(rows, max(1, _CHUNK // len(packed)))
    for i in range(0, n, rows):
        yield Joint(x[i : i + rows] @ means.T, _unpacked(_pairs(x[i : i + rows]) @ packed, k))


def joint(fitted: Posterior, regressors: Float64, blocks: tuple[int, ...]) -> Joint:
    """Joint normal of the mean rewards of all actions in each context."""
    design = _design(fitted.factors, regressors, blocks)
    n, k, d = design.shape
    spread = solve_triangular(fitted.root, design.reshape(n * k, d).T, lower=True).T.reshape(n, k, d)
    return Joint(design @ fitted.mean, spread @ spread.transpose(0, 2, 1))


def _packed(fitted: Posterior, blocks: tuple[int, ...]) -> Float64:
    """Posterior covariances of coefficients, float64[p(p + 1)/2, K(K + 1)/2], such that `_pairs` of the features times
    it are the covariances of rewards, of each pair of actions once.

    One matrix product then gives the covariances of many contexts: the cost of a context does not depend on D.
    """
    k, counted = len(fitted.factors[0]), _counted(fitted, blocks)
    p = int(counted.sum())
    lower, _ = dpotri(fitted.root, lower=1)
    covariance = np.tril(lower) + np.tril(lower, -1).T
    i, j = np.triu_indices(p)
    packed = np.empty((len(i), k * (k + 1) // 2))
    column = 0
    for a in range(k):
        of_action = np.concatenate([np.tensordot(u[a], part, 1) for u, part in _parts(fitted, covariance, blocks)])
        others = np.concatenate(
            [np.einsum("ks,sqp->kpq", u[a:], part) for u, part in _parts(fitted, of_action.T, blocks)], axis=2
        )
        both = others[:, i, j] + others[:, j, i]
        both[:, i == j] /= 2
        packed[:, column : column + k - a] = both.T
        column += k - a
    return packed


def _pairs(x: Float64) -> Float64:
    """Products of each pair of features once, float64[N, p(p + 1)/2]."""
    i, j = np.triu_indices(x.shape[1])
    return x[:, i] * x[:, j]


def _unpacked(values: Float64, k: int) -> Float64:
    """Symmetric matrices, float64[N, k, k], from their upper triangles."""
    i, j = np.triu_indices(k)
    whole = np.empty((len(values), k, k))
    whole[:, i, j] = whole[:, j, i] = values
    return whole


def _counted(fitted: Posterior, blocks: tuple[int, ...]) -> NDArray[np.bool_]:
    """Which features are of blocks of rank 1 or more: an unused network block would cost more than all others."""
    return np.repeat([u.shape[1] > 0 for u in fitted.factors], blocks)


def _design(factors: tuple[Float64, ...], regressors: Float64, blocks: tuple[int, ...]) -> Float64:
    """The design of each action's reward in the D coefficients, float64[N, K, D]."""
    ends = pairwise(accumulate(blocks, initial=0))
    parts = [
        (u[:, :, None] * regressors[:, None, None, slice(*end)]).reshape(len(regressors), len(u), u.shape[1] * width)
        for u, end, width in zip(factors, ends, blocks, strict=True)
    ]
    return np.concatenate(parts, axis=2)


def _parts(fitted: Posterior, drawn: Float64, blocks: tuple[int, ...]) -> list[tuple[Float64, Float64]]:
    """Each block's factor, and its slice of the coefficients [D, n] as [r, p, n]."""
    shapes = [(u.shape[1], p) for u, p in zip(fitted.factors, blocks, strict=True)]
    ends = pairwise(accumulate((r * p for r, p in shapes), initial=0))
    return [
        (u, drawn[slice(*end)].reshape(*shape, drawn.shape[1]))
        for u, end, shape in zip(fitted.factors, ends, shapes, strict=True)
    ]
