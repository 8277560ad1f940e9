"""The exact probability that each action is best, when each action's value is one of G equally likely draws.

Draws of different actions are independent, so that a context has G^K equally likely outcomes. In each, the action of
the largest value wins, and actions that tie share the win evenly. For distinct values this is

    P_a = 1/G · Σ_i ∏_{b≠a} F_b(v_ai),    F_b the empirical distribution function of the values of b.

All values of a context are sorted once, and the product is updated along the sorted values. Where several actions have
the same value v, with shares E_b of values equal to v and L_b below it, an even split of ties gives action a
E_a · ∫₀¹ ∏_{b≠a} (L_b + t·E_b) dt. The integrand is a polynomial of degree K - 1 at most, for which a Gauss-Legendre
rule of ⌈K/2⌉ nodes is exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from potstill.teachers.contract import Bool, Float32, Float64

#: Values per chunk of contexts: some 10 arrays of this size are in memory at once.
_CHUNK = 1_000_000


def vote_shares(values: Float32, eligible: Bool | None = None) -> Float32:
    """The probability that each action is best, float32[N, K], from equally likely values float32[N, K, G].

    Exact up to rounding of the last digits. Ties between actions are split evenly.
    With `eligible`, bool[N, K], it is the best of the eligible actions; the others get 0.
    """
    if eligible is not None:
        values = np.where(eligible[:, :, None], values, np.float32(-np.inf))
    n, k, g = values.shape
    rows = max(1, _CHUNK // max(1, k * g))
    parts = [_shares(values[first : first + rows]) for first in range(0, n, rows)]
    return np.concatenate([np.zeros((0, k), np.float32), *parts])


def _shares(values: Float32) -> Float32:
    n, k, g = values.shape
    within = np.sort(values, axis=2)
    merged = within.reshape(n, k * g)
    order = np.argsort(merged, axis=1)
    ranked = np.take_along_axis(merged, order, axis=1)
    tied = _tied(ranked, order // g)
    wins = np.where(tied | (ranked < _reach(within, order // g)), 0.0, _untied(order, k, g))
    total = _sum_by_action(wins, order // g, k)
    _add_ties(total, within, ranked, tied)
    total /= total.sum(axis=1, keepdims=True)  # it is 1 up to rounding
    return total.astype(np.float32)


def _untied(order: NDArray[np.int64], k: int, g: int) -> Float64:
    """The probability that each sorted value is drawn and wins, if no other action has an equal one, float64[N, K·G].

    The product of the counts of all other actions, in logs. Actions without a smaller value count as 1 here; the caller
    leaves such values out.
    """
    count = np.arange(1, g + 1)
    growth = np.log(count / np.maximum(count - 1, 1))  # of an action's count, at each of its values
    own = np.log(count)
    product: Float64 = np.cumsum(np.tile(growth, k)[order], axis=1)
    product -= np.tile(own, k)[order]
    product -= k * np.log(g)
    np.exp(product, out=product)
    return product


def _reach(within: Float32, actions: NDArray[np.int64]) -> Float32:
    """The smallest value with which an action can win, at each sorted value: every other action has one no larger."""
    smallest = within[:, :, 0]
    if smallest.shape[1] == 1:
        return np.full((len(smallest), 1), -np.inf, np.float32)
    second, first = np.partition(smallest, -2, axis=1)[:, -2:].T
    limits = np.where(smallest == first[:, None], second[:, None], first[:, None])
    return np.take_along_axis(limits, actions, axis=1)


def _tied(ranked: Float32, actions: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether another action has the same value, at each sorted value, bool[N, K·G]."""
    equal = ranked[:, 1:] == ranked[:, :-1]
    differ = equal & (actions[:, 1:] != actions[:, :-1])
    tied = np.zeros(ranked.shape, bool)
    rows = np.flatnonzero(differ.any(axis=1))
    if len(rows):
        starts = np.concatenate([np.ones((len(rows), 1), bool), ~equal[rows]], axis=1)
        run = np.cumsum(starts.ravel()) - 1  # number of the run of equal values; runs do not cross contexts
        mixed = np.zeros(run[-1] + 1, bool)
        mixed[run.reshape(starts.shape)[:, 1:][differ[rows]]] = True
        tied[rows] = mixed[run].reshape(starts.shape)
    return tied


def _sum_by_action(wins: Float64, actions: NDArray[np.int64], k: int) -> Float64:
    slots = actions + k * np.arange(len(actions))[:, None]
    return np.bincount(slots.ravel(), wins.ravel(), minlength=k * len(actions)).reshape(-1, k).astype(np.float64)


def _add_ties(total: Float64, within: Float32, ranked: Float32, tied: NDArray[np.bool_]) -> None:
    """Add to total, float64[N, K], the wins of tied values: one term for each context and distinct tied value."""
    new = tied.copy()
    new[:, 1:] &= ~(tied[:, :-1] & (ranked[:, 1:] == ranked[:, :-1]))
    contexts, positions = np.nonzero(new)
    levels = ranked[contexts, positions]
    step = max(1, _CHUNK // (within.shape[1] * within.shape[2]))
    for first in range(0, len(levels), step):
        rows = contexts[first : first + step]
        np.add.at(total, rows, _level_shares(within[rows], levels[first : first + step, None, None]))


def _level_shares(within: Float32, level: Float32) -> Float64:
    """The probability that each action wins at a tied value, float64[R, K], for values float32[R, K, G]."""
    below, equal = (within < level).mean(axis=2), (within == level).mean(axis=2)
    won = np.zeros(below.shape)
    nodes, weights = np.polynomial.legendre.leggauss((below.shape[1] + 1) // 2)
    for t, weight in zip((nodes + 1) / 2, weights / 2, strict=True):
        factors = below + t * equal
        # A factor of 0 is an action all of whose values are larger: nobody wins here, and the product is 0.
        won += weight * factors.prod(axis=1, keepdims=True) / np.where(factors > 0, factors, 1.0)
    shares: Float64 = equal * won
    return shares
