"""Gaussian process regression over (context, action): hyperparameters, the posterior, and what it says of a context.

The reward function is a draw of a Gaussian process and rewards are its values with normal noise, whose variance is
noise / weight for an observation of that weight. All in float64 on standardised rewards.

Exact: with K the covariances of the N observed points and Σ their noise, LLᵀ = K + Σ (the paper's formulas). Beyond
some N, inducing points Z stand for the observed ones as in FITC (Snelson & Ghahramani 2006): given the rewards at Z,
the observed ones are independent, and what Z does not explain of an observation is added to its noise, so that it
counts for less rather than being believed. That costs O(N·m²) for m inducing points; where Z holds all points it is
exact.

Both give a posterior of one form: mean k_Zᵀ·weights and covariance k - (root·k_Z)ᵀ(root·k_Z).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.optimize import minimize

from potstill.teachers.contract import Float32
from potstill.teachers.gp import pairs
from potstill.teachers.gp.kernels import Kernel
from potstill.teachers.gp.pairs import Float64, Points

#: Added to the diagonal, relative to its largest entry, so that rounding leaves covariances positive.
_JITTER = 1e-9
#: How far a logarithm may move from where it started: a factor of 150 either way.
_REACH = 5.0
#: Noise variance in units of the rewards' variance. The floor keeps the covariance of observations well conditioned.
NOISE = (1e-6, 10.0)
#: Observations whose covariance with the inducing points is held at a time.
_ROWS = 4096


class Model(NamedTuple):
    """A Gaussian process prior.

    Attributes:
        kernel: The covariance function.
        logs: Logarithms of the kernel's hyperparameters and, last, of the noise variance, float64[size + 1].
        relevance: Logarithms of factors on the columns of contexts, float64[d]: the kernel sees the products.
        features: Features of the actions, float64[K, e].
    """

    kernel: Kernel
    logs: Float64
    relevance: Float64
    features: Float64

    @property
    def noise(self) -> float:
        """The noise variance of an observation of weight 1."""
        return float(np.exp(self.logs[-1]))

    def seen(self, points: Points) -> Points:
        """Points as the kernel sees them."""
        return Points(points.contexts * np.exp(self.relevance), points.actions)

    def covariance(self, left: Points, right: Points) -> Float64:
        """Between N and M points, float64[N, M]."""
        values = self.kernel(self.logs[:-1], pairs.between(self.seen(left), self.seen(right), self.features))
        return np.broadcast_to(values, (len(left.actions), len(right.actions)))

    def variances(self, points: Points) -> Float64:
        """Of N points, float64[N]."""
        values = self.kernel(self.logs[:-1], pairs.selves(self.seen(points), self.features))
        return np.broadcast_to(values, len(points.actions))

    def over_actions(self, contexts: Float32) -> Float64:
        """Between all actions in each context of C, float64[C, K, K]."""
        k = len(self.features)
        values = self.kernel(self.logs[:-1], pairs.within(contexts * np.exp(self.relevance), self.features))
        return np.broadcast_to(values, (len(contexts), k, k))

    def with_points(self, contexts: Float32, points: Points) -> Float64:
        """Between all actions in each context of C and M points, float64[C, K, M]."""
        scaled = contexts * np.exp(self.relevance)
        values = self.kernel(self.logs[:-1], pairs.grid(scaled, self.seen(points), self.features))
        return np.broadcast_to(values, (len(contexts), len(self.features), len(points.actions)))


class Targets(NamedTuple):
    """What was observed at points: standardised rewards float64[N] and weights float64[N]."""

    values: Float64
    weights: Float64


class Posterior(NamedTuple):
    """The posterior by m points, which are the observed or the inducing ones.

    Attributes:
        points: M points.
        weights: The mean is k_Zᵀ·weights, float64[m].
        root: The covariance is k - (root·k_Z)ᵀ(root·k_Z), float64[m, m].
    """

    points: Points
    weights: Float64
    root: Float64


def prior(width: int) -> Posterior:
    """The posterior after no observations, for contexts of that many columns."""
    return Posterior(Points(np.zeros((0, width), np.float32), np.zeros(0, np.int32)), np.zeros(0), np.zeros((0, 0)))


def exact(model: Model, points: Points, targets: Targets) -> Posterior:
    """The posterior after N observations, in O(N³)."""
    lower = _cholesky(model.covariance(points, points), model.noise / targets.weights)
    root = np.ascontiguousarray(solve_triangular(lower, np.eye(len(lower)), lower=True))
    return Posterior(points, root.T @ (root @ targets.values), root)


def sparse(model: Model, points: Points, targets: Targets, inducing: Points) -> Posterior:
    """The posterior after N observations as m inducing points know it (FITC), in O(N·m²) and O(m²) memory."""
    lower = _cholesky(model.covariance(inducing, inducing), 0.0)
    whiten = solve_triangular(lower, np.eye(len(lower)), lower=True)
    gram, moment = np.zeros_like(lower), np.zeros(len(lower))
    for start in range(0, len(targets.values), _ROWS):
        rows = slice(start, start + _ROWS)
        some = points.at(rows)
        explained = whiten @ model.covariance(inducing, some)
        unexplained = np.maximum(model.variances(some) - (explained**2).sum(axis=0), 0.0)
        scaled = explained / (model.noise / targets.weights[rows] + unexplained)
        gram += scaled @ explained.T
        moment += scaled @ targets.values[rows]
    return _whitened(inducing, whiten, gram, moment)


def _whitened(inducing: Points, whiten: Float64, gram: Float64, moment: Float64) -> Posterior:
    """From the precision I + gram and the moment of whitened rewards at the inducing points."""
    size, vectors = np.linalg.eigh((gram + gram.T) / 2)
    size = np.maximum(size, 0.0)
    axes = vectors.T @ whiten
    weights = axes.T @ ((vectors.T @ moment) / (1 + size))
    return Posterior(inducing, weights, np.ascontiguousarray(np.sqrt(size / (1 + size))[:, None] * axes))


def predict(model: Model, posterior: Posterior, contexts: Float32) -> tuple[Float64, Float64]:
    """Of all actions in each context of C: means float64[C, K] and joint covariances float64[C, K, K]."""
    known = model.with_points(contexts, posterior.points)
    c, k, m = known.shape
    # One large product: a stack of small ones takes twice as long.
    half = (known.reshape(c * k, m) @ posterior.root.T).reshape(c, k, m)
    return known @ posterior.weights, model.over_actions(contexts) - half @ half.swapaxes(1, 2)


def fit(
    start: Model, warm: Model, points: Points, targets: Targets, *, steps: int, spread: float, relevance: bool
) -> Model:
    """Hyperparameters by the marginal likelihood of N observations, in `steps` of O(N³).

    Each logarithm has a normal prior around the one in `start`, with standard deviation `spread`: a handful of
    observations, or equal rewards, say nothing of most of them. The search begins at `warm`. Relevance stays as it is
    unless it is to be learnt too.
    """
    centre, size = np.append(start.logs, start.relevance), len(start.logs)

    def model(vector: Float64) -> Model:
        return start._replace(logs=vector[:size], relevance=vector[size:])

    def loss(vector: Float64) -> tuple[float, Float64]:
        value, slope = log_marginal_likelihood(model(vector), points, targets)
        gap = (vector - centre) / spread
        return 0.5 * float(gap @ gap) - value, gap / spread - slope

    first = np.append(warm.logs, warm.relevance)
    reach = np.where(np.arange(len(centre)) < size, _REACH, _REACH if relevance else 0.0)
    bounds = np.stack([centre - reach, centre + reach], axis=1)
    bounds[size - 1] = np.log(NOISE)
    found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return model(np.asarray(found.x, np.float64))


def log_marginal_likelihood(model: Model, points: Points, targets: Targets) -> tuple[float, Float64]:
    """The log density of the targets at N points, and its gradient by the logarithms and the relevance."""
    seen, n = model.seen(points), len(targets.values)
    among, noise = pairs.between(seen, seen, model.features), model.noise / targets.weights
    lower = _cholesky(np.broadcast_to(model.kernel(model.logs[:-1], among), (n, n)), noise)
    solved = cho_solve((lower, True), targets.values)
    value = -0.5 * targets.values @ solved - np.log(np.diag(lower)).sum() - 0.5 * n * np.log(2 * np.pi)
    adjoint = 0.5 * (np.outer(solved, solved) - cho_solve((lower, True), np.eye(n)))
    slopes = model.kernel.slopes(model.logs[:-1], among, adjoint)
    by_relevance = _by_relevance(seen.contexts, slopes.context.inner, slopes.context.squared)
    return float(value), np.concatenate([slopes.logs, [np.diag(adjoint) @ noise], by_relevance])


def _by_relevance(seen: Float64, inner: Float64, squared: Float64) -> Float64:
    """From derivatives by inner products and squared distances, which are symmetric and broadcast to [N, N].

    With u a column: ∂/∂log factor of Σ inner·uuᵀ is 2·uᵀ·inner·u, and of Σ squared·(u - uᵀ)² it is
    4·(Σ squared·u² - uᵀ·squared·u).
    """
    shape = (len(seen), len(seen))
    inner, squared = np.broadcast_to(inner, shape), np.broadcast_to(squared, shape)
    products = np.einsum("nd,nd->d", seen, (2 * inner - 4 * squared) @ seen)
    return np.asarray(products + 4 * squared.sum(axis=1) @ seen**2)


def _cholesky(covariance: Float64, noise: Float64 | float) -> Float64:
    diagonal = np.diag(covariance)
    noisy = covariance.copy()
    np.fill_diagonal(noisy, diagonal + noise + _JITTER * diagonal.max(initial=0.0))
    return np.asarray(cholesky(noisy, lower=True, overwrite_a=True, check_finite=False))
