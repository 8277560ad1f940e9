"""Columns that summaries group and add up: the action's label, the value, and importance weights."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import polars as pl

from potstill.problem import Problem
from potstill.spaces import Continuous, NamedActions
from potstill.summaries.cells import ACTIONS, ONLINE, OTHERS
from potstill.summaries.series import DAY, HOUR, MINUTE, Bounds
from potstill.tables import moment

#: Parts of a number's scale that are counted apart.
TENTHS = 10
#: Share of the scale within which a number counts as the same.
SAME = 0.05
#: Sources of observations whose propensities are exact: the log, and imports that state them.
EXACT = ("log", "import")
#: In mode apprentice the caller decides, and may state its own propensity.
_STATED = ((pl.col("source") == "apprentice") & pl.col("own_propensity").is_not_null()).fill_null(value=False)
#: Propensity with which the action was chosen, and whether it is known exactly.
PROPENSITY = pl.when(_STATED).then("own_propensity").otherwise("propensity")
IS_EXACT = (pl.col("source").is_in(EXACT) | _STATED) & (PROPENSITY > 0)


def start_of(bounds: Bounds) -> pl.Expr:
    """Start of the cell of each row, in microseconds since 1970."""
    time = pl.col("time").dt.epoch("us")
    width = (
        pl.when(pl.col("time") >= moment(bounds.minutes))
        .then(MINUTE)
        .when(pl.col("time") >= moment(bounds.hours))
        .then(HOUR)
        .otherwise(DAY)
    )
    return (time // width * width).alias("start")


def label_of(problem: Problem) -> pl.Expr:
    """Label of each row's action: its name, or the tenth of the scale that holds a number."""
    space = problem.actions
    if isinstance(space, NamedActions):
        known = pl.col("action").is_in(list(space.names[:ACTIONS]))
        return pl.when(known).then(pl.col("action")).otherwise(pl.lit(OTHERS)).alias("label")
    if isinstance(space, Continuous):
        place = (unit(space, pl.col("action").cast(pl.Float64)) * TENTHS).floor().clip(0, TENTHS - 1)
        return place.cast(pl.Int64).replace_strict(range(TENTHS), tenths(space), default=OTHERS).alias("label")
    return pl.lit(OTHERS).alias("label")


def labels(problem: Problem) -> list[str]:
    """Labels of a problem's actions, in their order."""
    space = problem.actions
    if isinstance(space, NamedActions):
        return list(space.names[:ACTIONS])
    return tenths(space) if isinstance(space, Continuous) else []


def tenths(space: Continuous) -> list[str]:
    """Labels of the tenths of a number's scale, such as ``1 – 1.9``."""
    edges = space.from_unit(np.linspace(0, 1, TENTHS + 1)).tolist()
    return [f"{low:.4g} – {high:.4g}" for low, high in pairwise(edges)]


def unit(space: Continuous, number: pl.Expr) -> pl.Expr:
    """Position on the scale of a space, from 0 to 1."""
    if space.scale == "log":
        return ((number / space.low).log() / float(np.log(space.high / space.low))).clip(0, 1)
    return ((number - space.low) / (space.high - space.low)).clip(0, 1)


def agrees(problem: Problem) -> pl.Expr:
    """Whether the action is the one that the policy would have drawn; null where that is not known."""
    space = problem.actions
    if isinstance(space, Continuous):
        done, would = (unit(space, pl.col(name).cast(pl.Float64)) for name in ("action", "would"))
        return (done - would).abs() <= SAME
    return pl.col("action") == pl.col("would")


def mode_of() -> pl.Expr:
    """Mode of each decision."""
    return pl.col("mode").fill_null(ONLINE)


def value_of(rows: pl.LazyFrame, problem: Problem) -> pl.LazyFrame:
    """Rows with the `value` that is maximised: the reward, or the objective of action and outcome."""
    objective = problem.objective
    if objective is None:
        return rows.with_columns(value=pl.col("reward"))

    def values(columns: pl.Series) -> pl.Series:
        frame = columns.struct.unnest()
        actions, outcomes = (frame[name].cast(pl.Float64).to_numpy() for name in ("action", "reward"))
        return pl.Series(objective.values(actions, outcomes))

    both = pl.struct("action", "reward")
    return rows.with_columns(value=both.map_batches(values, return_dtype=pl.Float64))


def uniform_weight(problem: Problem) -> pl.Expr:
    """Importance weight of a uniformly random eligible action, of each row; null where it is unknown."""
    space, p = problem.actions, PROPENSITY
    if isinstance(space, NamedActions):
        allowed = pl.col("eligible").list.len().cast(pl.Float64).fill_null(float(len(space)))
        return 1 / (allowed * p)
    if isinstance(space, Continuous):
        number = pl.col("action").cast(pl.Float64)
        ends = [
            unit(space, pl.col("eligible").list.get(place, null_on_oob=True).cast(pl.Float64).fill_null(bound))
            for place, bound in enumerate((space.low, space.high))
        ]
        slope = 1 / (space.high - space.low)
        stretch = 1 / (number * float(np.log(space.high / space.low))) if space.scale == "log" else pl.lit(slope)
        return stretch / ((ends[1] - ends[0]) * p)
    return pl.lit(None, pl.Float64)
