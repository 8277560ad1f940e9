"""The one answer to "does this row fit the problem", for Polars frames.

`potstill.problem.validate` is the same rule on values and arrays; it is apart because deciding and logging run without
Polars. Both follow what `Problem.encode` and `Policy.decide` accept online. `tests/tables/test_validate.py` runs this
table through every door.

| value of a feature              | Numeric         | Categorical, Hashed, Text   | Boolean | Vector            |
|---------------------------------|-----------------|-----------------------------|---------|-------------------|
| absent, or null                 | missing         | missing                     | missing | missing           |
| NaN, infinite                   | refused         | refused                     | refused | refused, inside   |
| empty string                    | refused         | fits, as any other value    | refused | refused           |
| string that is not in the list  | refused         | fits, as an unknown value   | refused | refused           |
| string above 4,096 characters   | refused         | fits, but for Text: refused | refused | refused           |
| number outside ``low``…``high`` | fits, clipped   | refused                     | refused | clipped, inside   |
| list of another length          | refused         | refused                     | refused | refused           |
| another type                    | refused         | refused                     | refused | refused           |

A Timestamp takes strings of RFC 3339 and dates or, with a unit, numbers of the years 1 to 9999; all else is refused.
Columns of dates and times fit it: they are UTC without a time zone.
A missing value is refused if the feature says ``missing="error"``, and fits otherwise. An absent column is a column of
missing values.

Action: ``ActionSpace.parse`` accepts it. In tables, action columns of another scalar type are read as text where
the space has names: an integer column of a table spells names.
Reward: a finite number, at most `LARGEST` in size and within the bounds of the problem; a whole
number if its kind is ``yes/no`` or ``count``.
Propensity, as float32: above 0 and at most 1 for a probability; above 0 and finite for a density.
Time: from 1970 up to the year 2200.

Columns of tables hold one type, and two conveniences follow. Where a number, a boolean or a time is expected, a column
of strings is parsed, and text that does not parse is refused; a boolean is true, t, yes or y, or false, f, no or n, in
any case. A column of booleans is a column of rewards 0 and 1.
CSV has no types: an empty cell is null, every cell is text for a category, and 0 and 1 are booleans. Text for a list of
numbers is JSON, such as ``[0.5, 1]``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import NamedTuple

import msgspec
import polars as pl

from potstill.errors import MAX_SHOWN
from potstill.problem import (
    FIRST_SECOND,
    LARGEST_FLOAT32,
    LAST_SECOND,
    PER_SECOND,
    RFC_3339,
    YEAR_2200,
    Feature,
    Problem,
    action_must_be,
    propensity_must_be,
    propensity_range,
    reward_must_be,
    reward_range,
)
from potstill.spaces import ActionSpace, finite, lake_columns
from potstill.tables.columns import (
    TIME,
    Columns,
    check_propensity,
    context_column,
    context_type,
    feature_columns,
    is_plain,
)
from potstill.tables.scan import ROW, is_text

#: Columns of checked rows, beside those of contexts and `ROW`: whether a row fits, and why it does not.
FITS, REASON = "fits", "reason"
#: Rows that a message names.
NAMED = 5
_LIST = pl.List(pl.Float64)
_STRINGS = (pl.String, pl.Categorical, pl.Enum)
#: Spellings of a boolean in a column of strings, in any case.
_YES, _NO = ["true", "t", "yes", "y"], ["false", "f", "no", "n"]
_ACTION_TYPES: Mapping[str, pl.DataType] = {"string": pl.String(), "integer": pl.Int64(), "number": pl.Float64()}


class ColumnRule(NamedTuple):
    """How one column of a table is read and checked.

    Attributes:
        value: Values, typed as in the lake.
        fits: Whether a value fits; null counts as false.
        must: What a value must be, in words: one or two texts for all rows.
        found: The value as in the table, for messages; far slower than all the rest.
    """

    value: pl.Expr
    fits: pl.Expr
    must: pl.Expr
    found: pl.Expr


class RowRules:
    """How rows of a table are read and checked.

    Args:
        rules: Columns to make.
        carried: Columns to keep unchecked: their new names, and the table's.
    """

    def __init__(self, rules: Sequence[ColumnRule], carried: Mapping[str, str] | None = None) -> None:
        kept = [pl.col(column).alias(name) for name, column in (carried or {}).items()]
        self._values = [*(rule.value for rule in rules), *kept]
        fit = [rule.fits.fill_null(value=False) for rule in rules]
        self._fits = pl.all_horizontal(*fit, pl.lit(value=True))
        none = pl.lit(None, pl.String)
        unless = [(rule, pl.when(~fits)) for rule, fits in zip(rules, fit, strict=True)]
        self._must = pl.coalesce(*(when.then(rule.must) for rule, when in unless), none)
        reasons = (when.then(pl.format("{}, got {}", rule.must, rule.found)) for rule, when in unless)
        self._reason = pl.coalesce(*reasons, none)

    def rows(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """All rows of a table with row numbers: values, and whether they fit."""
        return table.select(ROW, *self._values, self._fits.alias(FITS))

    def unfit(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """Numbers of the rows that do not fit, and why."""
        return table.filter(~self._fits).select(ROW, self._reason.alias(REASON))

    def reasons(self, table: pl.LazyFrame) -> pl.LazyFrame:
        """Counts of rows that do not fit, by what they must be; a row counts once, for its first reason."""
        return table.filter(~self._fits).group_by(self._must.alias(REASON), maintain_order=True).len()


def refusal(where: str, unfit: Sequence[tuple[int, str]], count: int) -> str:
    """Message about `count` rows that do not fit, the first of which are given by number and reason."""
    more = f"; and {count - NAMED:,} more {'row' if count - NAMED == 1 else 'rows'}" if count > NAMED else ""
    header = " after the header" if is_text(where) else ""
    return f"{where}: {first_reasons(unfit)}{more}. Row 0 is the first{header}."


def first_reasons(unfit: Sequence[tuple[int, str]]) -> str:
    """Numbers and reasons of the first rows that do not fit."""
    return "; ".join(f"row {row}: {reason}" for row, reason in unfit[:NAMED])


def decision_fits(problem: Problem) -> pl.Expr:
    """Whether a row of the lake holds a decision that fits: its action, its propensity and every feature."""
    features = [_value_fits(feature, pl.col(context_column(feature.name))) for feature in problem.context]
    propensity = _propensity_fits(problem.actions, pl.col("propensity"))
    return _all(lake_columns(problem.actions).fits(), propensity, *features)


def context_fits(problem: Problem, columns: Iterable[str]) -> pl.Expr:
    """Whether a frame with these columns, typed as in the lake, holds an action and a context that fit."""
    present = set(columns)
    fits = [lake_columns(problem.actions).fits()]
    for feature in problem.context:
        name = context_column(feature.name)
        fits.append(_value_fits(feature, pl.col(name)) if name in present else pl.lit(feature.optional))
    return _all(*fits)


def reward_fits(problem: Problem) -> pl.Expr:
    """Whether a row of the lake holds a reward that fits."""
    return _all(_reward_fits(problem, pl.col("reward")))


def time_fits(column: str = "time") -> pl.Expr:
    """Whether a moment is from 1970 up to the year 2200."""
    return _all(pl.col(column).dt.epoch("us").is_between(0, YEAR_2200, closed="left"))


def context_rules(
    problem: Problem, columns: Mapping[str, str | None], schema: pl.Schema, *, text: bool
) -> list[ColumnRule]:
    """Rules for the features of a problem.

    Args:
        problem: The problem.
        columns: Column of each feature; None for a feature that the table does not have.
        schema: Types of the table's columns.
        text: Whether the table is text without types, as CSV is.
    """
    named = [(feature, columns[feature.name]) for feature in problem.context]
    return [
        _absent_rule(feature) if column is None else _feature_rule(feature, column, schema[column], text=text)
        for feature, column in named
    ]


def decision_rules(problem: Problem, columns: Columns, schema: pl.Schema, where: str) -> list[ColumnRule]:
    """Rules for rows of past decisions: action, reward, what else is known of them, and the features."""
    if isinstance(columns.propensity, float):
        check_propensity(columns, problem, where)
    rules = [action_rule(problem, columns.action), reward_rule(problem, columns.reward)]
    rules += [] if columns.propensity is None else [propensity_rule(problem, columns.propensity)]
    rules += [time_rule(columns.time, schema[columns.time])] if columns.time else []
    rules += [_eligible_rule(problem, columns.eligible, columns.action)] if columns.eligible else []
    rules += [_weight_rule(columns.weight)] if columns.weight else []
    rules += [_id_rule(columns.id)] if columns.id else []
    features = feature_columns(problem, columns, schema.names())
    return [*rules, *context_rules(problem, features, schema, text=is_text(where))]


def action_rule(problem: Problem, column: str, name: str = "action") -> ColumnRule:
    """Rule for a column of actions."""
    space, dtype = problem.actions, _ACTION_TYPES.get(problem.actions.columns["action"])
    value = pl.col(column) if dtype is None else pl.col(column).cast(dtype, strict=False)
    return _rule(name, pl.col(column), column, value, lake_columns(space).fits(value), action_must_be(space))


def reward_rule(problem: Problem, column: str) -> ColumnRule:
    """Rule for a column of rewards."""
    value = pl.col(column).cast(pl.Float64, strict=False)
    return _rule("reward", pl.col(column), column, value, _reward_fits(problem, value), reward_must_be(problem))


def propensity_rule(problem: Problem, column: str | float) -> ColumnRule:
    """Rule for a column of propensities, or for one propensity of all rows."""
    found = pl.col(column) if isinstance(column, str) else pl.lit(column)
    value, space = found.cast(pl.Float64, strict=False), problem.actions
    return _rule("propensity", found, str(column), value, _propensity_fits(space, value), propensity_must_be(space))


def probability_rule(column: str, name: str) -> ColumnRule:
    """Rule for a column of probabilities that may be 0."""
    value = pl.col(column).cast(pl.Float64, strict=False)
    return _rule(name, pl.col(column), column, value, value.is_between(0, 1), "a probability")


def time_rule(column: str, dtype: pl.DataType) -> ColumnRule:
    """Rule for a column of times: text, seconds since 1970, or dates and times, which are UTC without a time zone."""
    if dtype == pl.String:
        value = pl.col(column).str.to_datetime(time_unit="us", time_zone="UTC", strict=False)
    elif dtype.is_numeric():
        value = pl.from_epoch(pl.col(column), "s").cast(TIME)
    elif getattr(dtype, "time_zone", None):
        value = pl.col(column).cast(TIME)
    else:
        value = pl.col(column).cast(pl.Datetime("us")).dt.replace_time_zone("UTC")
    fits = value.dt.epoch("us").is_between(0, YEAR_2200, closed="left")
    must = "a time from 1970 to 2199, as ISO 8601 or seconds since 1970"
    return _rule("time", pl.col(column), column, value, fits, must)


def _eligible_rule(problem: Problem, column: str, action: str) -> ColumnRule:
    """Rule for a column of the actions that were allowed; null where all were."""
    value, names = pl.col(column), list(finite(problem.actions, "a column of eligible actions").labels)
    known = value.list.eval(pl.element().is_in(names)).list.all() & value.list.contains(pl.col(action))
    shown = value.map_batches(_texts, return_dtype=pl.String)
    must = "null, or a list of actions with the one that was taken"
    return _rule("eligible", shown, column, value, value.is_null() | known, must)


def _weight_rule(column: str) -> ColumnRule:
    value = pl.col(column).cast(pl.Float64, strict=False)
    return _rule("weight", pl.col(column), column, value, value.is_finite() & (value > 0), "a number above 0")


def _id_rule(column: str) -> ColumnRule:
    value = pl.col(column).cast(pl.String)
    return _rule("id", value, column, value, value.is_null() | (value != ""), "null, or a text that is not empty")


def item_rule(column: str) -> ColumnRule:
    """Rule for a column of the ids of items; numbers become text."""
    value = pl.col(column).cast(pl.String)
    return _rule("id", value, column, value, value.is_not_null() & (value != ""), "a text that is not empty")


def _absent_rule(feature: Feature) -> ColumnRule:
    value, fits = pl.lit(None, context_type(feature)), pl.lit(feature.optional)
    return _rule(context_column(feature.name), value, feature.name, value, fits, _feature_must_be(feature))


def _feature_rule(feature: Feature, column: str, dtype: pl.DataType, *, text: bool) -> ColumnRule:
    found = pl.col(column)
    value = _typed(feature, found, dtype, text=text)
    absent = found.is_null()
    if text and dtype == pl.String:
        absent |= found == ""
        value = pl.when(~absent).then(value)
    usable = _usable(feature, value)
    fits = usable.fill_null(value=False) | absent if feature.optional else usable
    shown = found if is_plain(dtype) else found.map_batches(_texts, return_dtype=pl.String)
    return _rule(context_column(feature.name), shown, column, value, fits, _feature_must_be(feature))


def _texts(values: pl.Series) -> pl.Series:
    """A column as text for messages, also of lists and other types that Polars does not cast."""
    texts = (None if value is None else str(value)[:MAX_SHOWN] for value in values.to_list())
    return pl.Series(values.name, texts, pl.String)


def _typed(feature: Feature, column: pl.Expr, dtype: pl.DataType, *, text: bool) -> pl.Expr:
    """A column as the type that the feature has in the lake; null where that is not possible."""
    if feature.moment is not None and dtype.is_temporal():
        return _moments(feature.moment, column, dtype)
    if feature.holds == "number" and (dtype.is_numeric() or dtype == pl.String):
        return column.cast(pl.Float64, strict=False)
    if feature.holds == "numbers":
        return _numbers(column, dtype)
    if feature.holds == "string" and (text or dtype in _STRINGS):
        return column.cast(pl.String)
    if feature.holds == "boolean":
        if dtype == pl.Boolean:
            return column
        if dtype == pl.String or (text and dtype.is_integer()):
            spelt = column.cast(pl.String).str.to_lowercase()
            yes, no = ([*words, digit] if text else words for words, digit in ((_YES, "1"), (_NO, "0")))
            return pl.when(spelt.is_in(yes)).then(pl.lit(True)).when(spelt.is_in(no)).then(pl.lit(False))
    return pl.lit(None, context_type(feature))


def _moments(moment: str, column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A column of dates, or of times, which are UTC without a time zone, as the lake has a feature's moments."""
    if moment == "text" and dtype == pl.Date:
        return column.dt.strftime("%Y-%m-%d")
    if dtype == pl.Date:
        column, dtype = column.cast(pl.Datetime("us")), pl.Datetime("us")
    if not isinstance(dtype, pl.Datetime):
        return pl.lit(None, pl.String if moment == "text" else pl.Float64)
    if moment == "text":
        return column.dt.strftime("%Y-%m-%dT%H:%M:%S%.f" + ("%:z" if dtype.time_zone else "Z"))
    return column.dt.epoch("us") / (1e6 / PER_SECOND[moment])


def _numbers(column: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """A column of lists of numbers as the lake has it; text is JSON such as ``[0.5, 1]``."""
    if dtype == pl.String:
        return column.map_batches(_parsed, return_dtype=_LIST)
    inner = getattr(dtype, "inner", None)
    if inner is not None and (inner.is_numeric() or inner == pl.Null):
        return column.cast(_LIST)
    return pl.lit(None, _LIST)


def _parsed(texts: pl.Series) -> pl.Series:
    """Lists of numbers from JSON texts; null where a text is none."""
    return pl.Series(texts.name, [_list_or_none(text) for text in texts], _LIST)


def _list_or_none(text: str | None) -> list[float] | None:
    try:
        return None if text is None else msgspec.json.decode(text, type=list[float])
    except msgspec.DecodeError:
        return None


def _usable(feature: Feature, value: pl.Expr) -> pl.Expr:
    """Whether a value of the lake's type fits; null or false for a missing one."""
    if feature.moment == "text":
        return value.str.contains(f"^(?:{RFC_3339})$")
    if feature.moment is not None:
        seconds = value / PER_SECOND[feature.moment]
        return (seconds >= FIRST_SECOND) & (seconds < LAST_SECOND)
    if feature.holds == "number":
        return value.is_finite()
    if feature.holds == "numbers":
        # Null and NaN are not within the range, and an empty list is not of the length.
        within = value.list.eval((pl.element().abs() <= LARGEST_FLOAT32).fill_null(value=False)).list.all()
        return (value.list.len() == feature.length) & within
    if feature.longest is not None:
        return value.str.len_chars() <= feature.longest
    return value.is_not_null()


def _value_fits(feature: Feature, value: pl.Expr) -> pl.Expr:
    """Whether a value of the lake's type fits; null is a missing value."""
    usable = _usable(feature, value).fill_null(value=False)
    return usable | value.is_null() if feature.optional else usable


def _reward_fits(problem: Problem, value: pl.Expr) -> pl.Expr:
    fits = value.is_between(*reward_range(problem))
    return fits & (value == value.floor()) if problem.reward.whole else fits


def _propensity_fits(space: ActionSpace, value: pl.Expr) -> pl.Expr:
    low, high = propensity_range(space)
    return (value > low) & (value <= high)


def _feature_must_be(feature: Feature) -> str:
    return feature.must_be + (" or null" if feature.optional else "")


def _rule(name: str, found: pl.Expr, label: str, value: pl.Expr, fits: pl.Expr, must: str) -> ColumnRule:
    shown = found.cast(pl.String).fill_null("null")
    return ColumnRule(value.alias(name), fits, pl.lit(f"{label} must be {must}"), shown)


def _all(*conditions: pl.Expr) -> pl.Expr:
    return reduce(and_, conditions).fill_null(value=False)
