"""How much of an initial design has been carried out. Imports nothing from the learning half."""

from __future__ import annotations

from collections import Counter

import msgspec
import polars as pl

from potstill.events.lake import Table
from potstill.workspace import InitialDesign, InvalidDesign, Workspace, read_design


class DesignProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Progress of an initial design, by the lake.

    Attributes:
        id: Name of the design; empty if it cannot be read.
        points: Number of points.
        assigned: Number of points whose action was handed to their unit.
        rewarded: Number of these with a reward, among those whose rewards are final.
        information_gain: Information gain of the whole design, in nats.
        why: Why it is not carried out; empty if it is.
    """

    id: str
    points: int
    assigned: int
    rewarded: int
    information_gain: float
    why: str = ""

    @property
    def in_words(self) -> str:
        """Progress, and what is wrong."""
        done = f"{self.assigned:,} of {self.points:,} points assigned, {self.rewarded:,} with a reward"
        return f"refused: {self.why}" if self.why else done


def read_design_progress(workspace: Workspace) -> DesignProgress | None:
    """Progress of the design of a workspace; None if there is none."""
    try:
        design = read_design(workspace.storage)
    except InvalidDesign as error:
        return DesignProgress(id="", points=0, assigned=0, rewarded=0, information_gain=0.0, why=str(error))
    if design is None:
        return None
    try:
        design.check(workspace.problem)
        why = ""
    except InvalidDesign as error:
        why = str(error)
    observed = pl.col("source") == "design"
    wanted = Counter((point.unit, str(point.action)) for point in design.points if point.unit is not None)
    return DesignProgress(
        id=design.id,
        points=len(design.points),
        assigned=_covered(workspace, design, wanted, "decisions", pl.col("mode") == "design"),
        rewarded=_covered(workspace, design, wanted, "observations", observed & pl.col("rewarded")),
        information_gain=design.information_gain,
        why=why,
    )


def _covered(
    workspace: Workspace, design: InitialDesign, wanted: Counter[tuple[str, str]], table: Table, rows: pl.Expr
) -> int:
    """Number of points that rows of a table cover; a point that two machines handed out counts once."""
    if workspace.lake.version(table) is None:
        return 0
    since = pl.col("time") >= pl.lit(design.time).cast(pl.Datetime("us", "UTC"))
    found = (
        workspace.lake.scan(table)
        .filter(rows & since)
        .group_by("unit", pl.col("action").cast(pl.String))
        .len()
        .collect(engine="streaming")
    )
    return sum(min(count, wanted[unit, action]) for unit, action, count in found.iter_rows())
