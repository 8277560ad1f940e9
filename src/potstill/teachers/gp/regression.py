"""Gaussian process regression over (context, action): hyperparameters, posterior and predictions.

The reward function is a draw of a Gaussian process. Rewards are its values plus normal noise, whose variance is
noise / weight for a weighted observation. Everything is float64, on standardised rewards.

Exact: with K the covariances of the N observed points and Σ their noise, LLᵀ = K + Σ (the paper's formulas). For large
N, inducing points Z approximate the posterior as in FITC (Snelson & Ghahramani 2006). Given the rewards at Z,
observations are independent, and the variance of an observation that Z does not explain is added to its noise, so that
it gets less weight. That costs O(N·m²) for m inducing points. It is exact if Z contains all points.

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

#: Added to the diagonal, relative to its largest entry, so that covariances stay positive definite under rounding.
_JITTER = 1e-9
#: Bound on the change of a logarithm from its initial value: a factor of 150 either way.
_REACH = 5.0
#: Bounds of the noise variance in units of the rewards' variance. The lower bound keeps covariances well conditioned.
NOISE = (1e-6, 10.0)
#: Number of observations whose covariance with the inducing points is held at once.
_ROWS = 4096


class Model(NamedTuple):
    """A Gaussian process prior.

    Attributes:
        kernel: The covariance function.
        logs: Logarithms of the kernel's hyperparameters and, last, of the noise variance, float64[size + 1].
        relevance: Logarithms of factors on the context columns, float64[d], applied before the kernel.
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

    def scaled(self, points: Points) -> Points:
        """Points with their context columns multiplied by the relevance factors."""
        return Points(points.contexts * np.exp(self.relevance), points.actions)

    def covariance(self, left: Points, right: Points) -> Float64:
        """Covariances between N and M points, float64[N, M]."""
        values = self.kernel(self.logs[:-1], pairs.between(self.scaled(left), self.scaled(right), self.features))
        return np.broadcast_to(values, (len(left.actions), len(right.actions)))

    def variances(self, points: Points) -> Float64:
        """Prior variances of N points, float64[N]."""
        values = self.kernel(self.logs[:-1], pairs.selves(self.scaled(points), self.features))
        return np.broadcast_to(values, len(points.actions))

    def over_actions(self, contexts: Float32, at: Float64 | None = None) -> Float64:
        """Covariances between all actions, or those with features `at`, in each of C contexts, float64[C, K, K]."""
        features = self.features if at is None else at
        values = self.kernel(self.logs[:-1], pairs.within(contexts * np.exp(self.relevance), features))
        return np.broadcast_to(values, (len(contexts), len(features), len(features)))

    def with_points(self, contexts: Float32, points: Points, at: Float64 | None = None) -> Float64:
        """Covariances between these actions in each of C contexts and M points, float64[C, K, M]."""
        scaled = contexts * np.exp(self.relevance)
        values = self.kernel(self.logs[:-1], pairs.grid(scaled, self.scaled(points), self.features, at))
        return np.broadcast_to(values, (len(contexts), len(self.features if at is None else at), len(points.actions)))


class Targets(NamedTuple):
    """Observations at points: standardised rewards float64[N] and weights float64[N]."""

    values: Float64
    weights: Float64


class Posterior(NamedTuple):
    """The posterior in terms of m points: the observed ones (exact) or the inducing ones (sparse).

    Attributes:
        points: The m points.
        weights: The mean is k_Zᵀ·weights, float64[m].
        root: The covariance is k - (root·k_Z)ᵀ(root·k_Z), float64[m, m].
    """

    points: Points
    weights: Float64
    root: Float64


def prior(width: int) -> Posterior:
    """The posterior without observations, for contexts of `width` columns."""
    return Posterior(Points(np.zeros((0, width), np.float32), np.zeros(0, np.int32)), np.zeros(0), np.zeros((0, 0)))


def exact(model: Model, points: Points, targets: Targets) -> Posterior:
    """The posterior after N observations, in O(N³)."""
    lower = _cholesky(model.covariance(points, points), model.noise / targets.weights)
    root = np.ascontiguousarray(solve_triangular(lower, np.eye(len(lower)), lower=True))
    return Posterior(points, root.T @ (root @ targets.values), root)


def sparse(model: Model, points: Points, targets: Targets, inducing: Points) -> Posterior:
    """The FITC approximation of the posterior with m inducing points, in O(N·m²) time and O(m²) memory."""
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
    """The posterior from the precision I + gram and the moment of whitened rewards at the inducing points."""
    size, vectors = np.linalg.eigh((gram + gram.T) / 2)
    size = np.maximum(size, 0.0)
    axes = vectors.T @ whiten
    weights = axes.T @ ((vectors.T @ moment) / (1 + size))
    return Posterior(inducing, weights, np.ascontiguousarray(np.sqrt(size / (1 + size))[:, None] * axes))


def predict(
    model: Model, posterior: Posterior, contexts: Float32, at: Float64 | None = None
) -> tuple[Float64, Float64]:
    """Posterior means float64[C, K] and covariances float64[C, K, K] of all actions in each of C contexts.

    Instead of the model's actions, those with features `at` if given.
    """
    known = model.with_points(contexts, posterior.points, at)
    c, k, m = known.shape
    # One large product: a batch of small ones takes twice as long.
    half = (known.reshape(c * k, m) @ posterior.root.T).reshape(c, k, m)
    return known @ posterior.weights, model.over_actions(contexts, at) - half @ half.swapaxes(1, 2)


def information_gain(model: Model, points: Points, weights: Float64) -> float:
    """½ log det(I + Σ⁻¹K) of N observations with noise Σ, in nats: what they tell about the function, in O(N³)."""
    scale = np.sqrt(weights / model.noise)
    lower = _cholesky(scale[:, None] * model.covariance(points, points) * scale, 1.0)
    return float(np.log(np.diag(lower)).sum())


def sparse_information_gain(model: Model, points: Points, weights: Float64, inducing: Points) -> float:
    """The same of what m inducing points explain, a lower bound, in O(N·m²)."""
    lower = _cholesky(model.covariance(inducing, inducing), 0.0)
    gram = np.eye(len(lower))
    for start in range(0, len(weights), _ROWS):
        rows = slice(start, start + _ROWS)
        explained = solve_triangular(lower, model.covariance(inducing, points.at(rows)), lower=True)
        gram += (explained * (weights[rows] / model.noise)) @ explained.T
    return 0.5 * float(np.linalg.slogdet(gram)[1])


def fit(
    start: Model,
    warm: Model,
    points: Points,
    targets: Targets,
    *,
    steps: int,
    spread: float,
    relevance: bool,
    fixed: int = 0,
) -> Model:
    """Hyperparameters that maximise the marginal likelihood of N observations times a prior, in `steps` of O(N³).

    Each logarithm has a normal prior around its value in `start`, with standard deviation `spread`, because a handful
    of observations, or equal rewards, do not identify most of them. The search is warm-started at `warm`. Relevance
    factors stay fixed unless `relevance` is set, and so do the last `fixed` hyperparameters of the kernel.
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
    reach[size - 1 - fixed : size - 1] = 0.0
    bounds = np.stack([centre - reach, centre + reach], axis=1)
    bounds[size - 1] = np.log(NOISE)
    found = minimize(loss, first, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps})
    return model(np.asarray(found.x, np.float64))


def log_marginal_likelihood(model: Model, points: Points, targets: Targets) -> tuple[float, Float64]:
    """The log density of the targets at N points, and its gradient with respect to `logs` and `relevance`."""
    scaled, n = model.scaled(points), len(targets.values)
    among, noise = pairs.between(scaled, scaled, model.features), model.noise / targets.weights
    lower = _cholesky(np.broadcast_to(model.kernel(model.logs[:-1], among), (n, n)), noise)
    solved = cho_solve((lower, True), targets.values)
    value = -0.5 * targets.values @ solved - np.log(np.diag(lower)).sum() - 0.5 * n * np.log(2 * np.pi)
    adjoint = 0.5 * (np.outer(solved, solved) - cho_solve((lower, True), np.eye(n)))
    slopes = model.kernel.slopes(model.logs[:-1], among, adjoint)
    by_relevance = _by_relevance(scaled.contexts, slopes.context.inner, slopes.context.squared)
    return float(value), np.concatenate([slopes.logs, [np.diag(adjoint) @ noise], by_relevance])


def _by_relevance(scaled: Float64, inner: Float64, squared: Float64) -> Float64:
    """The gradient with respect to relevance, from those of inner products and squared distances.

    Both are symmetric and broadcast to [N, N].

    With u a column: ∂/∂log factor of Σ inner·uuᵀ is 2·uᵀ·inner·u, and of Σ squared·(u - uᵀ)² it is
    4·(Σ squared·u² - uᵀ·squared·u).
    """
    shape = (len(scaled), len(scaled))
    inner, squared = np.broadcast_to(inner, shape), np.broadcast_to(squared, shape)
    products = np.einsum("nd,nd->d", scaled, (2 * inner - 4 * squared) @ scaled)
    return np.asarray(products + 4 * squared.sum(axis=1) @ scaled**2)


def _cholesky(covariance: Float64, noise: Float64 | float) -> Float64:
    diagonal = np.diag(covariance)
    noisy = covariance.copy()
    np.fill_diagonal(noisy, diagonal + noise + _JITTER * diagonal.max(initial=0.0))
    return np.asarray(cholesky(noisy, lower=True, overwrite_a=True, check_finite=False))
