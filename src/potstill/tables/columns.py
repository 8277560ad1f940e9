"""Which column of a table is what, and what the columns of a context are called and typed."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
import polars as pl

from potstill.errors import InvalidLog, InvalidOption, PotstillError, shown
from potstill.problem import (
    ActionSpace,
    Continuous,
    Feature,
    Holds,
    Problem,
    propensities_fit,
    propensity_must_be,
)

CONTEXT = "context_"
#: Times are microseconds since 1970, UTC.
TIME = pl.Datetime("us", "UTC")
#: Chance of refusing a table whose propensity is constant as stated.
CONSTANT_LEVEL = 1e-6
#: Microseconds in a second.
SECOND = 1_000_000
#: Rounding of a density that a user states.
_ROUNDING = 1e-2
#: Columns that a message names, and characters of each.
_LISTED, _LONGEST_NAME = 30, 40
_TYPES: Mapping[Holds, pl.DataType] = {
    "number": pl.Float64(),
    "string": pl.String(),
    "boolean": pl.Boolean(),
    "numbers": pl.List(pl.Float64()),
}


def is_plain(dtype: pl.DataType) -> bool:
    """Whether a type holds numbers, strings, booleans, or dates and times."""
    if dtype.is_numeric() or dtype in (pl.String, pl.Categorical, pl.Enum, pl.Boolean, pl.Null):
        return True
    return dtype == pl.Date or isinstance(dtype, pl.Datetime)


def is_number(dtype: pl.DataType) -> bool:
    """Whether a type can be read as numbers: text is parsed."""
    return dtype.is_numeric() or dtype in (pl.Boolean, pl.String, pl.Null)


def is_moment(dtype: pl.DataType) -> bool:
    """Whether a type can be read as moments."""
    return is_plain(dtype) and dtype != pl.Boolean


class _Role(NamedTuple):
    """What types a column can have."""

    takes: Callable[[pl.DataType], bool]
    must_be: str


_ROLES = {
    "--action": _Role(is_plain, "names or numbers"),
    "--reward": _Role(is_number, "numbers"),
    "--propensity": _Role(is_number, "numbers"),
    "--density": _Role(is_number, "numbers"),
    "--time": _Role(is_moment, "times"),
    "weight": _Role(is_number, "numbers"),
    "id": _Role(is_plain, "texts"),
}


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Which column of a table is what.

    Attributes:
        action: Column of the action that was taken.
        reward: Column of its reward.
        propensity: Column of the probability, or density, of the action; a number if it was always the same; None if it
            is not known.
        time: Column of the time; None if it is not known, and rows are then taken to be in order.
        is_density: Whether the action is a number, and the propensity its density.
        context: Columns that become the features of a problem that is inferred from the table. Leave out what was known
            only after the decision.
        features: Column of each feature of a given problem, where it is not called as the feature is.
        eligible: Column of the lists of actions that were allowed, null where all were; None if all always were.
        weight: Column of what each row weighs; None if all weigh 1. It is stored, and neither learning nor evaluation
            uses it.
        id: Column of ids of decisions; None if they are to be generated, as they are where it is null.
    """

    action: str = "action"
    reward: str = "reward"
    propensity: str | float | None = "propensity"
    is_density: bool = False
    time: str | None = None
    context: tuple[str, ...] = ()
    features: Mapping[str, str] = {}
    eligible: str | None = None
    weight: str | None = None
    id: str | None = None

    def __post_init__(self) -> None:
        for what, name in (("action", self.action), ("reward", self.reward)):
            if not isinstance(name, str):
                raise InvalidOption(f"{what} must be the name of a column, got {shown(name)}")
        if self.propensity is not None and not isinstance(self.propensity, str):
            if isinstance(self.propensity, bool) or not isinstance(self.propensity, (int, float)):
                raise InvalidOption(
                    f"the propensity must be the name of a column or one number, got {shown(self.propensity)}"
                )
            msgspec.structs.force_setattr(self, "propensity", float(self.propensity))

    @property
    def propensity_option(self) -> str:
        """Option of the command line that names the propensity."""
        return "--density" if self.is_density else "--propensity"

    @property
    def roles(self) -> list[tuple[str, str]]:
        """Options of the command line and the columns that they name, without those of contexts."""
        named = {
            "--action": self.action,
            "--reward": self.reward,
            self.propensity_option: self.propensity,
            "--time": self.time,
            "eligible": self.eligible,
            "weight": self.weight,
            "id": self.id,
        }
        return [(option, name) for option, name in named.items() if isinstance(name, str)]


def check_columns(
    schema: pl.Schema,
    columns: Columns,
    others: Iterable[tuple[str, str]],
    where: str,
    error: type[PotstillError] = InvalidLog,
) -> None:
    """Raise if a table lacks a column, one is stated twice, or one has a type that its role cannot have.

    Args:
        schema: Names and types of the table's columns.
        columns: Which column is what.
        others: Pairs of an option and its column.
        where: Name of the table.
        error: What to raise.
    """
    for option, name in [*columns.roles, *(("--context", name) for name in columns.context), *others]:
        if name not in schema:
            near = difflib.get_close_matches(name, schema, 1)
            meant = f" (did you mean {near[0]!r}?)" if near else ""
            raise error(
                f"{where}: there is no column {name!r}{meant}; name the right one with {option}. The columns are "
                f"{listed(schema)}"
            )
    for option, name in columns.roles:
        if option in _ROLES and not _ROLES[option].takes(schema[name]):
            raise error(
                f"{where}: column {name!r} holds {schema[name]}, and {option} must be {_ROLES[option].must_be}; "
                "convert it, or name another column"
            )
    stated: dict[str, str] = {}
    for option, name in columns.roles:
        if name in stated:
            raise error(f"{where}: column {name!r} cannot be both {stated[name]} and {option}; name another one")
        stated[name] = option


def listed(names: Iterable[str]) -> str:
    """Names of columns for a message: the first of many, and each in few characters."""
    all_names = list(names)
    short = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in all_names[:_LISTED]]
    more = len(all_names) - len(short)
    return ", ".join(short) + (f" and {more:,} more" if more else "")


def feature_columns(problem: Problem, columns: Columns, present: Iterable[str]) -> dict[str, str | None]:
    """Column of each feature; None for a feature that may be missing and has no column.

    A column that is named for a feature, or that a required feature needs, is listed even if the table lacks it:
    `check_columns` then names it.
    """
    there = set(present)
    found: dict[str, str | None] = {}
    for feature in problem.context:
        name = columns.features.get(feature.name, feature.name)
        needed = not feature.optional or feature.name in columns.features
        found[feature.name] = name if needed or name in there else None
    return found


def check_context(columns: Columns, stated: Iterable[str], where: str) -> None:
    """Raise if a context column is also an action, a reward or the like, or one of the `stated` columns of policies."""
    taken = {**dict.fromkeys(stated, "a policy's column"), **{name: option for option, name in columns.roles}}
    for name in columns.context:
        if name in taken:
            raise InvalidLog(
                f"{where}: column {name!r} is {taken[name]} already; a context is what was known before the decision. "
                "Leave it out of --context"
            )


def check_propensity(columns: Columns, problem: Problem, where: str) -> None:
    """Raise if rows have no propensity, or if the one of all rows does not fit."""
    propensity = columns.propensity
    if propensity is None:
        raise InvalidLog(
            f"{where}: off-policy estimates need propensities; name their column with --propensity, or "
            "with --density if the action is a number"
        )
    if isinstance(propensity, str):
        return
    if not propensities_fit(problem.actions, np.array([propensity]))[0]:
        raise InvalidLog(
            f"{columns.propensity_option} must be a column, or {propensity_must_be(problem.actions)} if it was always "
            f"the same, got {propensity:g}"
        )


def check_constant_propensity(
    propensity: float, counts: Mapping[str, int], where: str, error: type[PotstillError] = InvalidLog
) -> None:
    """Raise if actions cannot have been drawn with one propensity for all: none can be taken more often than that.

    In every row, an action has this probability or is never taken, so its share of all rows is at most the propensity,
    but for chance. The chance of a share as high as seen is bounded by Chernoff's inequality, times the number of
    actions. The level is `CONSTANT_LEVEL`: a right propensity is refused for fewer than one table in a million.

    Args:
        propensity: The propensity of all rows.
        counts: Number of rows of each action.
        where: Name of the table.
        error: What to raise.
    """
    rows = sum(counts.values())
    action = max(counts, key=counts.__getitem__)
    share = counts[action] / rows
    if share > propensity and math.log(len(counts)) - rows * _divergence(share, propensity) < math.log(CONSTANT_LEVEL):
        raise error(
            f"{where}: {action!r} was taken in {100 * share:.3g} % of {rows:,} rows. If the propensity was "
            f"{propensity:g} in all rows, no action can be taken in more than {100 * propensity:.3g} % but for chance. "
            "Name the column of the propensities with --propensity"
        )


def check_constant_density(density: float, space: ActionSpace, where: str) -> None:
    """Raise if a density that is the same for all numbers from the smallest to the largest has a mass above 1."""
    if isinstance(space, Continuous) and density * (space.high - space.low) > 1 + _ROUNDING:
        raise InvalidLog(
            f"{where}: {space.name} is between {space.low:g} and {space.high:g}, so a density that is the same in all "
            f"rows is at most {1 / (space.high - space.low):g}, got --density {density:g}. Name the column of the "
            "densities"
        )


def _divergence(share: float, p: float) -> float:
    """Kullback-Leibler divergence between two events of these probabilities."""
    rest = (1 - share) * math.log((1 - share) / (1 - p)) if share < 1 and p < 1 else 0.0
    return share * math.log(share / p) + rest


def moment(time: int) -> pl.Expr:
    """Microseconds since 1970, UTC, as an expression to compare a table's times with."""
    return pl.lit(time).cast(TIME)


def context_schema(problem: Problem) -> dict[str, pl.DataType]:
    """Types of the columns of a problem's features, in their order."""
    return {context_column(feature.name): context_type(feature) for feature in problem.context}


def context_type(feature: Feature) -> pl.DataType:
    """Type of the column that holds a feature's values."""
    return _TYPES[feature.holds]


def context_column(feature: str) -> str:
    """Name of the column that holds a feature's values, as they were sent."""
    return CONTEXT + feature
