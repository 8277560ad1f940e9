"""Further contexts to imitate on: a table without actions or rewards, such as yesterday's requests."""

from __future__ import annotations

import hashlib
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.events.observed import encoded_contexts
from potstill.events.schema import context_column, context_schema
from potstill.keys import Key
from potstill.problem import InvalidContext, Problem
from potstill.storage import child
from potstill.tables.reading import scan_table
from potstill.workspace import Workspace


class Further(NamedTuple):
    """Contexts, and what a lineage says of them."""

    encoded: NDArray[np.float32]
    described: dict[str, Any]


def further_contexts(workspace: Workspace) -> Further | None:
    """A sample of the table that `update.contexts` names; the same table gives the same sample."""
    stated = workspace.config.update
    if stated.contexts is None or not stated.contexts_at_most:
        return None
    place = stated.contexts if _is_absolute(stated.contexts) else child(workspace.url, stated.contexts)
    table = _features(scan_table(place), workspace.problem, place)
    count = table.select(pl.len()).collect().item()
    if count > stated.contexts_at_most:
        key = Key(workspace.config.policy.seed).child("contexts")
        chosen = np.sort(key.generator().choice(count, stated.contexts_at_most, replace=False))
        table = table.filter(pl.int_range(pl.len()).is_in(pl.Series(chosen).implode()))
    frame = _collected(table, workspace.problem, place)
    encoded = encoded_contexts(frame, workspace.problem)
    digest = hashlib.sha256(encoded.tobytes()).hexdigest()
    return Further(encoded, {"table": stated.contexts, "rows": len(encoded), "sha256": digest})


def _features(table: pl.LazyFrame, problem: Problem, place: str) -> pl.LazyFrame:
    """The table's columns for the problem's features, named and typed as in the lake."""
    there = table.collect_schema().names()
    if not any(feature.name in there for feature in problem.context):
        raise InvalidContext(f"{place}: none of the problem's features is a column; the columns are {', '.join(there)}")
    return table.select(
        (pl.col(feature.name).cast(dtype) if feature.name in there else pl.lit(None, dtype)).alias(column)
        for feature, (column, dtype) in zip(problem.context, context_schema(problem).items(), strict=True)
    )


def _collected(table: pl.LazyFrame, problem: Problem, place: str) -> pl.DataFrame:
    """The rows, refused if one lacks what it must not."""
    try:
        frame = table.collect(engine="streaming")
    except pl.exceptions.PolarsError as error:
        raise InvalidContext(f"{place}: a column is not of its feature's type: {error}") from error
    for feature in problem.context:
        column = frame[context_column(feature.name)]
        bad = column.is_null() if feature.missing == "error" else pl.Series([False])
        if column.dtype == pl.Float64:
            bad = bad | ~column.is_finite().fill_null(value=True)
        if bad.any():
            raise InvalidContext(f"{place}: row {bad.arg_max()} has no usable value of feature {feature.name!r}")
    return frame


def _is_absolute(place: str) -> bool:
    return "://" in place or place.startswith("/")
