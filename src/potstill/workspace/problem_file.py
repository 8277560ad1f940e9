"""The text of a `problem.toml` that was inferred from a table, with what was found in each column as comments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec
import tomli_w

if TYPE_CHECKING:
    from potstill.tables import History, SurveyedColumn

_HEAD = """\
# The problem, as inferred from {place}. Read it before the first decision is logged: which columns are known when a
# decision is made, and what their values can be, is more than a table can say.

"""
_REWARD = """\
# Reward to maximise. The table has rewards from {low:.6g} to {high:.6g}, with mean {mean:.6g}.
[reward]
window = "1h"  # how long after a decision a reward counts: a table does not tell; the service waits as long
default = 0.0  # reward of a decision without rewards in the window
"""
_BOUNDS = """\
# low = {low:.6g}  # rewards outside low..high are refused; with both, bounds of imitation errors are known
# high = {high:.6g}
"""


def problem_text(history: History) -> str:
    """The text of the file."""
    parts = [_HEAD.format(place=_one_line(history.shown)), tomli_w.dumps({"name": history.problem.name}), "\n"]
    parts += [part for column in history.surveyed if column.feature for part in _feature(column)]
    parts += list(_left_out(history.surveyed))
    actions = tomli_w.dumps(msgspec.to_builtins(history.problem.actions))
    return "".join([*parts, f"# Actions to choose from.\n[actions]\n{actions}\n", _reward(history)])


def _feature(column: SurveyedColumn) -> Iterator[str]:
    missing = f"; {100 * column.missing:.3g} % missing" if column.missing else ""
    note = f"; {column.note}" if column.note else ""
    yield _comment(f"{column.distinct:,} values: {column.found}{missing}{note}")
    yield f"[[context]]\n{tomli_w.dumps(msgspec.to_builtins(column.feature))}\n"


def _left_out(surveyed: list[SurveyedColumn]) -> Iterator[str]:
    columns = [column for column in surveyed if column.feature is None]
    if columns:
        yield "# Columns that were left out:\n"
        yield "".join(_comment(f"  {column.name or '(no name)'}: {column.note}") for column in columns) + "\n"


def _reward(history: History) -> str:
    low, mean, high = history.rewards
    text = _REWARD.format(low=low, mean=mean, high=high)
    kind = history.problem.reward.kind
    if kind is not None:
        return f'{text}kind = "{kind}"  # all rewards are 0 or 1; others are refused\n'
    return text + _BOUNDS.format(low=low, high=high)


def _comment(text: str) -> str:
    """A line of comment; what a table holds must not end it."""
    return f"# {_one_line(text)}\n"


def _one_line(text: str) -> str:
    return " ".join(text.split())
