"""Which column of a table is what, and what the columns of a context are called and typed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import polars as pl

from potstill.errors import InvalidLog, PotstillError
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
_TYPES: Mapping[Holds, pl.DataType] = {
    "number": pl.Float64(),
    "string": pl.String(),
    "boolean": pl.Boolean(),
    "numbers": pl.List(pl.Float64()),
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
    present: Iterable[str],
    columns: Columns,
    others: Iterable[tuple[str, str]],
    where: str,
    error: type[PotstillError] = InvalidLog,
) -> None:
    """Raise if a table lacks a column, or one is stated twice; `others` are pairs of an option and its column."""
    present = list(present)
    for option, name in [*columns.roles, *(("--context", name) for name in columns.context), *others]:
        if name not in present:
            raise error(
                f"{where}: there is no column {name!r}; name the right one with {option}. "
                f"The columns are {', '.join(present)}"
            )
    stated: dict[str, str] = {}
    for option, name in columns.roles:
        if name in stated:
            raise error(f"{where}: column {name!r} cannot be both {stated[name]} and {option}; name another one")
        stated[name] = option


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
