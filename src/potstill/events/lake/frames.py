"""Logged events as frames of the lake's tables, typed from the problem under which they were logged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import polars as pl

from potstill.events.lake.schema import Table, table_schema
from potstill.events.records import DECISION_COLUMNS, DecisionRow, ObservationRow, RewardRow, Row
from potstill.events.reward_keys import OBSERVATION, stored_key
from potstill.problem import Problem
from potstill.tables import context_schema


def split(events: Iterable[Row]) -> tuple[list[DecisionRow], list[RewardRow]]:
    """Decisions and rewards in the order in which they were logged; an observation is one of each.

    Rewards have their keys as the lake stores them.
    """
    decisions: list[DecisionRow] = []
    rewards: list[RewardRow] = []
    for event in events:
        match event:
            case DecisionRow():
                decisions.append(event)
            case RewardRow(_, _, _, key):
                stored = stored_key(key)
                rewards.append(event if stored == key else msgspec.structs.replace(event, key=stored))
            case ObservationRow(decision, reward, time, metrics):
                decisions.append(decision)
                if reward is not None:
                    rewards.append(RewardRow(decision.id, time, reward, OBSERVATION, metrics))
    return decisions, rewards


def decision_frame(rows: Sequence[DecisionRow], problem: Problem) -> pl.DataFrame:
    """Rows of the table ``decisions``, without `day`."""
    schema = table_schema("decisions", problem)
    series = [pl.Series(name, list(map(attrgetter(name), rows)), schema[name]) for name in DECISION_COLUMNS]
    frame = pl.DataFrame(series).with_columns(pl.lit(problem.hash).alias("problem"))
    return frame.hstack(_contexts(rows, problem))


def reward_frame(rows: Sequence[RewardRow], problem: Problem) -> pl.DataFrame:
    """Rows of the table ``rewards``, without `day`."""
    schema = table_schema("rewards", problem)
    columns: dict[str, list[Any]] = {
        "id": [row.id for row in rows],
        "time": [row.time for row in rows],
        "reward": [row.reward for row in rows],
        "key": [row.key for row in rows],
        "metrics": [_named(row.metrics) for row in rows],
    }
    return pl.DataFrame([pl.Series(name, values, schema[name]) for name, values in columns.items()])


def _named(metrics: Mapping[str, float] | None) -> list[dict[str, Any]] | None:
    """Metrics as the tables store them."""
    return [{"name": name, "value": metrics[name]} for name in sorted(metrics)] if metrics else None


def _contexts(rows: Sequence[DecisionRow], problem: Problem) -> list[pl.Series]:
    """One column per feature. Rows are transposed before Polars sees them, which is what makes it fast."""
    columns = zip(*(row.values for row in rows), strict=True) if rows else ((),) * len(problem.context)
    return [
        pl.Series(name, values, dtype)
        for (name, dtype), values in zip(context_schema(problem).items(), columns, strict=True)
    ]


#: How the rows of each table are made from logged events.
FRAMES: dict[Table, Callable[[Any, Problem], pl.DataFrame]] = {"decisions": decision_frame, "rewards": reward_frame}
