"""What a table of past decisions holds: a feature for each column that was known before them, or why it is left out.

The rules are deliberately few, and each leaves a sentence that a person can overrule by naming columns:

- an identifier, a column without variation or without values, and a second name of the action are left out;
- a column that almost determines the reward is left out too: such columns are usually known only afterwards;
- numbers of heavy tail get a logarithmic or a quantile scale, many different strings are hashed, texts become n-grams.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.errors import InvalidLog, InvalidProblem
from potstill.problem import (
    LARGEST_FLOAT32,
    RFC_3339,
    Feature,
    Hashed,
    Numeric,
    Text,
    Timestamp,
    Vector,
    can_be_field,
)
from potstill.tables.columns import Columns, check_columns, check_context, is_plain
from potstill.tables.infer import MOST_VALUES, feature_of
from potstill.tables.scan import collected

#: Rows that a survey looks at: the latest ones.
SURVEYED = 200_000
#: Share of rows with a value of their own from which strings and whole numbers are taken for identifiers.
_IDENTIFIES = 0.95
#: Pairs of a value and an action, of rows, below which they repeat.
_REPEATS = 0.5
#: Share of the variance of the reward that a column may explain alone.
_LEAK = 0.95
#: Share of missing values that is worth a remark.
_MOSTLY = 0.5
#: How many times the largest number must be the median, or its distance the interquartile range, for a heavy tail.
_TAIL = 20
#: Quantiles that are knots of a quantile scale.
_KNOTS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
#: Fewest knots that make a scale.
_LEAST_KNOTS = 3
#: Columns of hashed strings: the power of two above twice their number, within these.
_SMALLEST_HASH, _LARGEST_HASH = 64, 1_024
#: Words of a text, on average.
_WORDS = 3
#: Share of texts that may be longer than the feature takes; their rows do not fit.
_TOO_LONG = 0.05
#: Values that are shown of a column, and characters of each.
_SHOWN, _LONGEST = 3, 20

_Missing = Literal["error", "flag"]


class SurveyedColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A column of a table, and what it is taken for.

    Attributes:
        name: Name of the column.
        feature: The feature that it becomes; None if it is left out.
        missing: Share of missing values.
        distinct: Number of different values.
        found: Some of its values, or their range.
        note: Why it is left out, or what to look at; empty if there is nothing to say.
    """

    name: str
    feature: Feature | None
    missing: float
    distinct: int
    found: str
    note: str = ""


def survey(
    table: pl.LazyFrame,
    columns: Columns,
    where: str,
    *,
    without: Collection[str] = (),
) -> list[SurveyedColumn]:
    """What each column is taken for that is no action, reward, propensity or time.

    Args:
        table: The rows; the latest `SURVEYED` are looked at.
        columns: Which column is what. Columns of `columns.context` are features whatever the rules say, and no others
            are if it names any.
        where: Name of the table, for errors.
        without: Columns to leave out.
    """
    present = table.collect_schema()
    check_columns(present, columns, [("--without", name) for name in without], where)
    check_context(columns, (), where)
    roles = {name for _, name in columns.roles}
    named = [name for name in present if name not in roles and name not in without]
    chosen = [name for name in named if name in columns.context] if columns.context else named
    rows = collected(table.select([*chosen, columns.action, columns.reward]).tail(SURVEYED), where)
    if not len(rows):
        raise InvalidLog(f"{where}: it has no rows")
    facts = _Facts(rows, columns)
    return _without_twins([_surveyed(rows[name], facts, wanted=name in columns.context) for name in chosen])


def _without_twins(found: Sequence[SurveyedColumn]) -> list[SurveyedColumn]:
    """Leave out features that are called as an earlier one but for the case of letters: the lake cannot hold both."""
    kept: dict[str, str] = {}
    result: list[SurveyedColumn] = []
    for column in found:
        twin = column.feature and kept.setdefault(column.name.lower(), column.name)
        if twin and twin != column.name:
            note = f"called as {twin!r} but for upper and lower case: rename one"
            result.append(msgspec.structs.replace(column, feature=None, note=note))
        else:
            result.append(column)
    return result


class _Facts:
    """Action and reward of the surveyed rows."""

    def __init__(self, rows: pl.DataFrame, columns: Columns) -> None:
        self.rows = rows
        self.actions = rows[columns.action]
        self.rewards = rows[columns.reward].cast(pl.Float64, strict=False)

    def explained(self, column: pl.Series) -> float:
        """Share of the variance of the reward that a column explains alone: linearly, or by group, adjusted."""
        both = pl.DataFrame({"x": column, "y": self.rewards}).drop_nulls()
        total, groups = _float(both["y"].var()), both["x"].n_unique()
        if column.dtype.is_numeric() and groups > MOST_VALUES:
            return _float(both.select(pl.corr("x", "y")).item()) ** 2
        if not total or groups >= len(both):
            return 0.0
        within = both.select((pl.col("y") - pl.col("y").mean().over("x")).pow(2).sum()).item() / (len(both) - groups)
        return 1 - _float(within) / total

    def names_the_action(self, column: pl.Series) -> bool:
        """Whether values and actions correspond one to one, in far fewer pairs than rows."""
        pairs = pl.DataFrame({"x": column.cast(pl.String, strict=False), "a": self.actions}).drop_nulls().unique()
        one_to_one = len(pairs) == pairs["x"].n_unique() == pairs["a"].n_unique()
        return one_to_one and 1 < len(pairs) < _REPEATS * len(column)


def _surveyed(column: pl.Series, facts: _Facts, *, wanted: bool) -> SurveyedColumn:
    values = column.drop_nulls()
    distinct = values.n_unique() if is_plain(column.dtype) else len(values)
    described: dict[str, Any] = {
        "name": column.name,
        "missing": 1 - len(values) / len(column),
        "distinct": distinct,
        "found": _found(values),
    }
    left_out = "" if wanted else _why_not(column, values, distinct, facts)
    if left_out:
        return SurveyedColumn(**described, feature=None, note=left_out)
    try:
        feature = _feature(column, values, distinct)
    except InvalidProblem as error:
        if wanted:
            raise
        return SurveyedColumn(**described, feature=None, note=str(error).split(";")[0])
    return SurveyedColumn(**described, feature=feature, note=_remark(described, feature))


def _why_not(column: pl.Series, values: pl.Series, distinct: int, facts: _Facts) -> str:
    """Why a column is no feature; empty if it is one."""
    if not column.name.strip():
        return "no name"
    if not can_be_field(column.name):
        return "its name has a quotation mark, a backslash or a control character: rename it"
    if distinct <= 1:
        return "no values" if not distinct else "always the same"
    if not is_plain(column.dtype):
        return ""
    if _identifies(values, distinct):
        return "nearly every row differs: an identifier?"
    if facts.names_the_action(column):
        return "the action under another name"
    explained = facts.explained(column)
    if explained > _LEAK:
        return f"explains {100 * explained:.0f} % of the reward: known only later?"
    return ""


def _identifies(values: pl.Series, distinct: int) -> bool:
    """Whether values tell rows apart: single words, or whole numbers in order, of which nearly each is another."""
    if distinct < _IDENTIFIES * len(values) or distinct <= MOST_VALUES:
        return False
    if values.dtype == pl.String:
        return not _is_moment(values) and _words(values) < _WORDS
    return bool(values.dtype.is_integer() and (values.is_sorted() or values.is_sorted(descending=True)))


def _feature(column: pl.Series, values: pl.Series, distinct: int) -> Feature:
    """The feature that a column's values call for."""
    missing: _Missing = "flag" if len(values) < len(column) else "error"
    if isinstance(column.dtype, (pl.List, pl.Array)):
        return _vector(column, values, missing)
    if column.dtype.is_float() and not values.is_finite().all():
        raise InvalidProblem(f"column {column.name!r} holds NaN or an infinite number; write a missing value as null")
    if column.dtype.is_numeric() and distinct > MOST_VALUES:
        return _numeric(column.name, values.cast(pl.Float64).to_numpy(), missing)
    if column.dtype == pl.String and distinct > MOST_VALUES:
        return _strings(column.name, values, distinct, missing)
    return feature_of(column)


def _numeric(name: str, values: NDArray[np.float64], missing: _Missing) -> Feature:
    low, high = float(values.min()), float(values.max())
    median, spread = float(np.median(values)), float(np.subtract(*np.quantile(values, [0.75, 0.25])))
    if low > 0 and high > _TAIL * median:
        return Numeric(name, low, high, scale="log", missing=missing)
    knots = [float(each) for each in np.unique(np.quantile(values, _KNOTS)) if low < each < high]
    if max(high - median, median - low) > _TAIL * spread and len(knots) >= _LEAST_KNOTS:
        return Numeric(name, low, high, scale="quantile", knots=knots, missing=missing)
    return Numeric(name, low, high, missing=missing)


def _strings(name: str, values: pl.Series, distinct: int, missing: _Missing) -> Feature:
    if _is_moment(values):
        return Timestamp(name, ["day", "weekday", "year"], missing=missing)
    size = min(max(1 << (2 * distinct - 1).bit_length(), _SMALLEST_HASH), _LARGEST_HASH)
    if _words(values) < _WORDS:
        return Hashed(name, size=size, missing=missing)
    text = Text(name, size=size, missing=missing)
    lengths = values.str.len_chars()
    if _float((lengths > text.longest).mean()) > _TOO_LONG:
        raise InvalidProblem(
            f"column {name!r} holds texts of up to {_float(lengths.max()):,.0f} characters, and at most "
            f"{text.longest:,} are read; cut them, or leave it out"
        )
    return text


def _vector(column: pl.Series, values: pl.Series, missing: _Missing) -> Feature:
    inner = getattr(column.dtype, "inner", None)
    if inner is None or not inner.is_numeric():
        raise InvalidProblem(f"column {column.name!r} holds {column.dtype}, not lists of numbers; leave it out")
    lists = values.cast(pl.List(pl.Float64), strict=False)
    lengths = lists.list.len()
    fits = (pl.element().abs() <= LARGEST_FLOAT32).fill_null(value=False)
    if lengths.n_unique() != 1 or not lists.list.eval(fits).list.all().all():
        raise InvalidProblem(
            f"column {column.name!r} holds lists that are not finite numbers of one length; leave it out"
        )
    return Vector(column.name, size=int(lengths[0]), missing=missing)


def _remark(described: Mapping[str, Any], feature: Feature) -> str:
    if described["missing"] > _MOSTLY:
        return "mostly missing"
    scale = getattr(feature, "scale", "linear")
    return "" if scale == "linear" else f"heavy tail: {scale} scale"


def _found(values: pl.Series) -> str:
    if not len(values):
        return ""
    if values.dtype.is_numeric() or values.dtype.is_temporal():
        low, high = values.min(), values.max()
        return f"{_short(low)} to {_short(high)}"
    if not is_plain(values.dtype):
        return str(values.dtype)
    common = values.cast(pl.String).value_counts(sort=True).head(_SHOWN)[values.name].to_list()
    return ", ".join(map(_short, common)) + (", …" if values.n_unique() > _SHOWN else "")


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _is_moment(values: pl.Series) -> bool:
    return bool(values.head(1_000).str.contains(f"^(?:{RFC_3339})$").all())


def _words(values: pl.Series) -> float:
    return _float(values.head(1_000).str.count_matches(r"\S+").mean())


def _float(value: Any) -> float:
    """A statistic of Polars as a number; 0 where it is null or NaN."""
    return 0.0 if value is None or value != value else float(value)
