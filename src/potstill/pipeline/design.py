"""Make an initial design: the contexts and actions whose rewards are least certain, for the service to hand out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.events import now
from potstill.keys import Key
from potstill.pipeline.resume import start
from potstill.pipeline.shards import Table, drawn_rows, fitting_rows, none_fit
from potstill.problem import Problem
from potstill.spaces import finite
from potstill.tables import encode_contexts
from potstill.teachers import GaussianProcessTS, max_variance_design, to_config
from potstill.workspace import DesignPoint, InitialDesign, InvalidDesign, Workspace, write_design

#: Numbers that the selection may hold: 400 MB. It needs one for each point, context and action.
NUMBERS = 50_000_000
_UNIT = "unit"


def make_design(
    workspace: Workspace,
    contexts: str,
    size: int,
    *,
    unit: str = _UNIT,
    per_unit: int | None = 1,
    replace: bool = False,
) -> InitialDesign:
    """Select points by their posterior variance, and write them for the service.

    The Gaussian process is the configured teacher with what it has learnt, if it is one; otherwise one with default
    options. Of a table that is too large for memory, a random sample is considered.

    Args:
        workspace: The workspace.
        contexts: Table of units and their contexts (CSV, Parquet or Delta Lake).
        size: Number of points.
        unit: Column of the units, as requests state them.
        per_unit: Largest number of points of a unit; None for no limit, as in the paper.
        replace: Whether an existing design may be replaced.
    """
    if size < 1:
        raise InvalidDesign(f"--size must be 1 or more, got {size}")
    problem = workspace.problem
    most = max(NUMBERS // (size * len(finite(problem.actions, "an initial design"))), 1)
    pool = _read(contexts, problem, unit, most, Key(workspace.config.policy.seed).child("design"))
    teacher, state = _process(workspace)
    owners = np.unique(pool.units, return_inverse=True)[1]
    found = max_variance_design(teacher, problem, pool.contexts, size, state, per_unit=per_unit, units=owners)
    if len(found.actions) < size:
        raise InvalidDesign(
            f"{contexts} has {owners.max() + 1:,} units, too few for {size:,} points with {per_unit} for each; "
            "choose a smaller --size, or a larger --per-unit"
        )
    names, actions = pool.units, problem.actions.decode(found.actions)
    points = [
        DesignPoint(names[place], action, float(variance))
        for place, action, variance in zip(found.contexts.tolist(), actions, found.variances, strict=True)
    ]
    made = now()
    design = InitialDesign(
        id=InitialDesign.name(made, points),
        time=made,
        problem=problem.hash,
        teacher=to_config(teacher),
        contexts={"table": contexts, "unit": unit, "rows": len(names), "of": pool.rows, "unfit": pool.unfit},
        information_gain=found.information_gain,
        points=points,
    )
    write_design(workspace.storage, design, replace=replace)
    return design


class _Pool(NamedTuple):
    """Contexts to choose from, their units, the number of rows of the table, and of those that do not fit."""

    contexts: NDArray[np.float32]
    units: list[str]
    rows: int
    unfit: int


def _read(place: str, problem: Problem, unit: str, most: int, key: Key) -> _Pool:
    table = Table.at(place)
    columns = table.scan().collect_schema().names()
    if unit not in columns:
        raise InvalidDesign(f"{place} has no column {unit!r}, of the units; state --unit, one of: {', '.join(columns)}")
    count = table.count()
    rows = table.scan() if count <= most else drawn_rows(table.scan(), count, most, key)
    fitting, unfit = fitting_rows(rows, problem, place, {_UNIT: unit})
    named = fitting.with_columns(pl.col(_UNIT).cast(pl.String)).filter(pl.col(_UNIT).fill_null("") != "")
    unfit += len(fitting) - len(named)
    if not len(named):
        raise none_fit(place, unfit)
    return _Pool(encode_contexts(named, problem), named[_UNIT].to_list(), count, unfit)


def _process(workspace: Workspace) -> tuple[GaussianProcessTS, Any]:
    """The Gaussian process to select by, and its state; None for the prior."""
    still = start(workspace, workspace.serving()).still
    if isinstance(still.teacher, GaussianProcessTS):
        return still.teacher, still.state
    return GaussianProcessTS(), None
