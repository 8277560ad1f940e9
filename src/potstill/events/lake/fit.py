"""Which rows of the lake fit the present problem, as Polars expressions."""

from __future__ import annotations

from functools import reduce

import polars as pl

from potstill.problem import Feature, Numeric, Problem
from potstill.problem.observations import LARGEST
from potstill.tables.columns import context_column


def decision_fits(problem: Problem) -> pl.Expr:
    """True for a decision that the problem can learn from: a known action, a probability, no feature amiss."""
    # Observations keep propensities in float32, where a very small one is zero.
    propensity = pl.col("propensity").cast(pl.Float32)
    action = pl.col("action").is_in(list(problem.actions.names))
    parts = [action, propensity > 0, propensity <= 1, *(_feature_fits(feature) for feature in problem.context)]
    return reduce(lambda one, other: one & other, parts).fill_null(value=False)


def reward_fits(problem: Problem) -> pl.Expr:
    """True for a reward within the problem's bounds."""
    reward, stated = pl.col("reward"), problem.reward
    low = -LARGEST if stated.low is None else max(stated.low, -LARGEST)
    high = LARGEST if stated.high is None else min(stated.high, LARGEST)
    return (reward.is_finite() & (reward >= low) & (reward <= high)).fill_null(value=False)


def _feature_fits(feature: Feature) -> pl.Expr:
    column = pl.col(context_column(feature.name))
    required = feature.missing == "error"
    if isinstance(feature, Numeric):
        return column.is_finite().fill_null(value=not required)
    return column.is_not_null() if required else pl.lit(value=True)
