"""Rewards by class and action, from a file.

    class,eat,abstain
    edible,5,0
    poisonous,5|-35,0

The first column names the class, the others are the actions. A cell is a number, or several that are equally likely.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from potstill.errors import LabError
from potstill.lab.problems.table import RewardTable, read_table


def read_rewards(path: Path) -> RewardTable:
    """Rewards by class, then by action, of a CSV or Parquet file; `LabError` names the cell that is not a reward."""
    table = read_table(path)
    if len(table.columns) < 3:
        raise LabError(
            f"{path}: rewards need a first column of classes and a column for each of two or more actions; "
            f"the columns are {', '.join(table.columns)}"
        )
    rows = table.select(pl.all().cast(pl.String)).rows()
    _refuse_twice([row[0] for row in rows], path)
    actions = table.columns[1:]
    return {
        row[0]: {
            action: _outcomes(cell, f"{path}: reward of {action!r} on class {row[0]!r}")
            for action, cell in zip(actions, row[1:], strict=True)
        }
        for row in rows
    }


def _refuse_twice(classes: list[str | None], path: Path) -> None:
    for number, name in enumerate(classes):
        if name is None:
            raise LabError(f"{path}: row {number} names no class; row 0 is the first after the header")
        if classes.index(name) < number:
            raise LabError(f"{path}: class {name!r} has two rows; give one")


def _outcomes(cell: str | None, where: str) -> list[float]:
    try:
        return [float(part) for part in (cell or "").split("|")]
    except ValueError:
        got = "nothing" if cell is None else repr(cell)
        raise LabError(f"{where} must be a number, or equally likely ones as in 5|-35; got {got}") from None
