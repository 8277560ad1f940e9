"""A first look at a table of past decisions: would a policy that learnt from the earlier ones have earned more?

The rows are split by time. A policy learns from the earlier part, and is compared on the later part, which it has not
seen, with what was done. Nothing is stored: the look answers a question, and the workspace then learns from all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill import tables
from potstill.distill import Still
from potstill.errors import InvalidLog
from potstill.evaluate import (
    ArrayLog,
    Block,
    Evaluation,
    PropensityModel,
    WeightHistogram,
    estimate_propensities,
    evaluate,
    target,
    with_estimated_propensities,
)
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.spaces import FiniteSpace, NamedActions, lake_columns
from potstill.tables import FITS, NAMED, ROW, History, RowRules
from potstill.teachers import AnyTeacher

#: Rows that a look uses: the latest ones.
MOST_ROWS = 200_000
#: Share of the rows that is held out.
HELD_OUT = 0.2
#: Fewer rows than this tell nothing.
FEWEST = 50

OnStage = Callable[[str], None]


class FirstLook(msgspec.Struct, frozen=True, kw_only=True):
    """What a first look found.

    Attributes:
        rows: Rows that were used.
        unfit: Rows of the table that do not fit the problem and were left out.
        learnt_from: Number of earlier rows that the policy learnt from; 0 if the table is too short to look at.
        by_time: Whether rows were split by their time, or by their order in the table.
        propensities: How propensities were estimated; None if the table has them.
        evaluation: The policy against what was done, on the rows that it has not seen; None if the table cannot tell.
        why_not: Why there is no evaluation; empty if there is one.
    """

    rows: int
    unfit: int
    learnt_from: int
    by_time: bool
    propensities: PropensityModel | None
    evaluation: Evaluation | None
    why_not: str = ""


class Looked(NamedTuple):
    """A first look with what its page needs beside it.

    Attributes:
        look: The look.
        weights: Histogram of the policy's weights, if it was evaluated.
    """

    look: FirstLook
    weights: WeightHistogram | None


def run_first_look(
    history: History,
    teacher: AnyTeacher | None = None,
    *,
    skip: bool = False,
    seed: int = 0,
    on_stage: OnStage | None = None,
) -> Looked:
    """Learn from the earlier rows of a table, and evaluate on the later ones.

    Args:
        history: The table and its problem.
        teacher: The teacher; the default one of the action space if left out.
        skip: Leave out rows that do not fit, instead of refusing the table.
        seed: Seed of everything random.
        on_stage: Called with the name of each stage as it begins.
    """
    told, still = on_stage or _silent, Still(history.problem, teacher, seed=seed)
    told("read")
    frame, unfit = _latest(history, skip=skip)
    by_time = history.columns.time is not None
    if len(frame) < FEWEST:
        raise InvalidLog(f"{history.shown}: {len(frame)} rows fit, and at least {FEWEST} are needed to learn from")
    first = len(frame) - round(HELD_OUT * len(frame))
    found: dict[str, Any] = {"rows": len(frame), "unfit": unfit, "learnt_from": first, "by_time": by_time}
    told("propensities")
    propensities, model = _propensities(frame, history, Key(seed).child("propensities"))
    if propensities is None:
        why = "off-policy evaluation of a number needs the density of each choice: name its column with --density"
        return Looked(FirstLook(**found, propensities=None, evaluation=None, why_not=why), None)
    rows = _block(frame, history.problem, propensities)
    told("learn")
    still.update(_observations(history.problem, rows[:first]))
    told("evaluate")
    one = target(history.problem, still.policy, "the new policy")
    weights = WeightHistogram(one)
    log = _log(history.problem, rows[first:])
    evaluation = evaluate(log, weights, "logged", learnt={one.name: 0}, seed=seed)
    evaluation = evaluation if model is None else with_estimated_propensities(evaluation)
    return Looked(FirstLook(**found, propensities=model, evaluation=evaluation), weights)


def no_look(history: History) -> Looked | None:
    """What is said of a table that is too short to look at; None if it is not."""
    if history.rows >= FEWEST:
        return None
    why = f"there are {history.rows} rows, and a comparison needs at least {FEWEST}"
    by_time = history.columns.time is not None
    look = FirstLook(
        rows=history.rows, unfit=0, learnt_from=0, by_time=by_time, propensities=None, evaluation=None, why_not=why
    )
    return Looked(look, None)


def _silent(stage: str) -> None:
    """Tell nobody."""


def _block(frame: pl.DataFrame, problem: Problem, propensities: NDArray[np.float64]) -> Block:
    """Rows as arrays."""
    return Block(
        contexts=tables.encode_contexts(frame, problem),
        actions=lake_columns(problem.actions).actions(frame["action"]),
        rewards=frame["reward"].to_numpy(),
        propensities=propensities,
        eligible=lake_columns(problem.actions).allowed(frame["eligible"]) if "eligible" in frame.columns else None,
        times=frame["time"].dt.epoch("us").to_numpy() if "time" in frame.columns else None,
    )


def _log(problem: Problem, rows: Block) -> ArrayLog:
    return ArrayLog(
        problem,
        contexts=rows.contexts,
        actions=rows.actions,
        rewards=rows.rewards,
        propensities=rows.propensities,
        eligible=rows.eligible,
        times=rows.times,
    )


def _latest(history: History, *, skip: bool) -> tuple[pl.DataFrame, int]:
    """The latest `MOST_ROWS` that fit, oldest first, and how many of the table do not fit."""
    table, problem = history.table.with_row_index(ROW), history.problem
    rules = RowRules(tables.decision_rules(problem, history.columns, table.collect_schema(), history.place))
    checked = rules.rows(table)
    total, fitting = tables.collected(checked.select(pl.len(), pl.col(FITS).sum().alias("fitting")), history.shown).row(
        0
    )
    if fitting < total and not skip:
        first = tables.collected(rules.unfit(table).head(NAMED), history.shown).rows()
        way_out = "Correct these rows, or leave them out with --skip-unfit"
        raise InvalidLog(f"{tables.refusal(history.shown, first, total - fitting)} {way_out}")
    rows = checked.filter(FITS)
    if history.columns.time is None:
        return tables.collected(rows.tail(MOST_ROWS), history.shown), total - fitting
    # Only times of all rows are held in memory, to find where the latest begin.
    times = tables.collected(rows.select("time"), history.shown).to_series()
    if len(times) > MOST_ROWS:
        rows = rows.filter(pl.col("time") >= times.top_k(MOST_ROWS).min())
    return tables.collected(rows, history.shown).sort("time", maintain_order=True).tail(MOST_ROWS), total - fitting


def _propensities(
    frame: pl.DataFrame, history: History, key: Key
) -> tuple[NDArray[np.float64] | None, PropensityModel | None]:
    """Propensities as the table states them, or estimated; None for numbers without densities."""
    stated, space = history.columns.propensity, history.problem.actions
    if stated is not None:
        if isinstance(stated, float) and isinstance(space, NamedActions):
            counts = dict(frame["action"].value_counts().rows())
            tables.check_constant_propensity(stated, counts, history.shown)
        return frame["propensity"].to_numpy(), None
    if not isinstance(space, FiniteSpace):
        return None, None
    contexts = tables.encode_contexts(frame, history.problem)
    actions = lake_columns(space).actions(frame["action"])
    return estimate_propensities(contexts, actions, len(space), key)


def _observations(problem: Problem, rows: Block) -> Observations:
    propensities = rows.propensities.astype(np.float32)
    return Observations(problem, rows.contexts, rows.actions, rows.rewards, propensities)
