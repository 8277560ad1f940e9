"""Greedy maximum-variance selection of points: for the design of a first batch, and for inducing points."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.problem import Contexts, Problem
from potstill.spaces import finite
from potstill.teachers.gp import regression
from potstill.teachers.gp.pairs import Float64, Points

if TYPE_CHECKING:
    from potstill.teachers.gp.gp_ts import GaussianProcessState, GaussianProcessTS

#: Stop adding inducing points when the others explain all but this share of the largest variance: the rest is rounding.
_EXPLAINED = 1e-6


class Design(NamedTuple):
    """The (context, action) pairs to try first, in order of selection.

    Attributes:
        contexts: Positions in the pool, int64[n].
        actions: Positions in the action list, int64[n].
        variances: Posterior variance of each mean reward given the pairs before it, float64[n], in units of the reward;
            before the first observation, those of the prior.
        information_gain: ½ log det(I + σ⁻²K) of the pairs, in nats.
    """

    contexts: NDArray[np.int64]
    actions: NDArray[np.int64]
    variances: Float64
    information_gain: float


def max_variance_design(
    teacher: GaussianProcessTS,
    problem: Problem,
    pool: Contexts,
    n: int,
    state: GaussianProcessState | None = None,
    *,
    per_unit: int | None = None,
    units: NDArray[np.int64] | None = None,
) -> Design:
    """Greedily select the n (context, action) pairs of a pool with the largest posterior variance.

    This is the paper's initialisation. Trying these pairs first bounds the information gain of a batch, and with it
    the regret from learning in batches. Each pair is conditioned on before the next is selected. That needs no reward,
    because the posterior variance of a Gaussian process does not depend on rewards. A pair can be selected twice if
    the noise is large.

    Costs O(P·n²) time and O(P·n) memory for the P pairs of the pool.

    Args:
        teacher: Teacher with the kernel and the noise.
        problem: Decision problem.
        pool: Candidate contexts.
        n: Number of pairs to select.
        state: State to start from, with its hyperparameters. Default: the prior.
        per_unit: Largest number of pairs of one unit, which may ask only so often; None for no limit, as in the paper.
        units: Number of the unit of each context, int64[P]. Default: each context is a unit.
    """
    contexts, k = problem.encode_many(pool), len(finite(problem.actions, "max_variance_design"))
    if n < 0 or not len(contexts):
        raise InvalidOption(
            f"max_variance_design: needs n >= 0 and a non-empty pool, got n={n} and {len(contexts)} contexts"
        )
    state = teacher.init(problem) if state is None else state
    model, posterior = teacher.model(state), state.posterior
    inputs = teacher.inputs(state, contexts)
    candidates = Points(np.repeat(inputs, k, axis=0), np.tile(np.arange(k, dtype=np.int32), len(inputs)))
    known = posterior.root @ model.covariance(posterior.points, candidates)
    owners = np.repeat(np.arange(len(contexts)) if units is None else units, k)
    limit = None if per_unit is None else Limit(owners, per_unit)
    chosen, variances = _least_certain(model, candidates, n, known, model.noise, floor=-np.inf, limit=limit)
    # By the chain rule, the information gains of the pairs, each given those before it, add up.
    gain = 0.5 * float(np.log1p(variances / model.noise).sum())
    return Design(chosen // k, chosen % k, state.unit[1] ** 2 * variances, gain)


def inducing_points(model: regression.Model, candidates: Points, m: int) -> Points:
    """Greedily select up to m candidates that explain the others best (analysed by Burt et al. 2020)."""
    floor = _EXPLAINED * float(model.variances(candidates).max())
    return candidates.at(_least_certain(model, candidates, m, np.zeros((0, len(candidates.actions))), 0.0, floor)[0])


class Limit(NamedTuple):
    """At most `most` candidates of one owner; `owners` of all candidates are int64[P]."""

    owners: NDArray[np.int64]
    most: int


def _least_certain(
    model: regression.Model,
    candidates: Points,
    n: int,
    known: Float64,
    noise: float,
    floor: float,
    limit: Limit | None = None,
) -> tuple[NDArray[np.int64], Float64]:
    """Positions of n candidates and their variances, or fewer once all variances are at most `floor`.

    The posterior covariance of candidates is k - rowsᵀrows. Each selection adds a row (a step of a pivoted Cholesky
    factorisation). `known` holds the rows of earlier observations, float64[m, P].
    """
    start = len(known)
    rows = np.concatenate([known, np.empty((n, known.shape[1]))])
    variances = model.variances(candidates) - (known**2).sum(axis=0)
    chosen: list[int] = []
    had: list[float] = []
    for i in range(start, start + n):
        best = int(variances.argmax())
        if variances[best] <= floor:
            break
        had.append(max(float(variances[best]), 0.0))
        one = candidates.at(slice(best, best + 1))
        covariances = model.covariance(one, candidates)[0] - rows[:i, best] @ rows[:i]
        rows[i] = covariances / np.sqrt(max(variances[best], 0.0) + noise)
        variances -= rows[i] ** 2
        chosen.append(best)
        if limit is not None:
            owner = limit.owners == limit.owners[best]
            if owner[chosen].sum() >= limit.most:
                variances[owner] = -np.inf
    return np.array(chosen, np.int64), np.array(had)
