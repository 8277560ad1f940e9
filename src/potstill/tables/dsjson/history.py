"""Events of dsjson logs as a history, with the problem that is inferred from them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from potstill.errors import InvalidLog
from potstill.problem import Feature
from potstill.tables.dsjson.convert import Converted
from potstill.tables.history import History, read_history
from potstill.tables.scan import ROW, collected, scan_table
from potstill.tables.validate import RowRules, decision_rules


def dsjson_history(
    converted: Converted, name: str, title: str, *, context: Sequence[str] = (), without: Collection[str] = ()
) -> History:
    """The problem of converted logs. Every feature may be missing, as in Vowpal Wabbit.

    Args:
        converted: The logs as a table.
        name: Name of the problem.
        title: What the logs are called, for people.
        context: Features that are used; all that say something if there are none.
        without: Features to leave out.
    """
    columns = msgspec.structs.replace(converted.columns, context=tuple(context))
    try:
        found = read_history(converted.table, columns, name, without=without, actions=converted.actions, title=title)
    except InvalidLog as error:  # the table is no place that a user knows
        raise InvalidLog(str(error).replace(converted.table, title)) from error
    surveyed = [
        one if one.feature is None else msgspec.structs.replace(one, feature=_optional(one.feature, converted))
        for one in found.surveyed
    ]
    features = [one.feature for one in surveyed if one.feature is not None]
    problem = msgspec.structs.replace(found.problem, context=features)
    return found._replace(problem=problem, surveyed=surveyed)


def unfit_events(history: History) -> dict[str, int]:
    """Number of events that do not fit the problem, by reason.

    Raises:
        InvalidLog: None fits.
    """
    table = scan_table(history.place).with_row_index(ROW)
    rules = RowRules(decision_rules(history.problem, history.columns, table.collect_schema(), history.place))
    found = dict(collected(rules.reasons(table), history.place).rows())
    if sum(found.values()) == history.rows:
        raise InvalidLog(f"no event fits the problem that was inferred: {'; '.join(found)}")
    return found


def _optional(feature: Feature, converted: Converted) -> Feature:
    """The feature, which may be missing: an indicator is then false, and others say so in a column of their own."""
    if feature.name in converted.indicators:
        return msgspec.structs.replace(feature, missing=False)
    return feature if feature.optional else msgspec.structs.replace(feature, missing="flag")
