"""From dsjson logs to a table of decisions, in two passes: features and outcomes first, then rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from potstill.errors import InvalidLog
from potstill.tables.columns import TIME, Columns
from potstill.tables.dsjson.features import FeatureColumn, FeatureTypes
from potstill.tables.dsjson.files import Line, check_files, read_lines
from potstill.tables.dsjson.line import Event, Outcome, UnfitLine, parse_line
from potstill.tables.dsjson.names import IN_WORDS, NameRule, RuleChoice, name_actions
from potstill.tables.dsjson.report import DsjsonReport, LeftOut
from potstill.tables.infer import MOST_ACTIONS, natural

#: Columns of the table beside the features.
ACTION, REWARD, PROPENSITY, TIMES = "_action", "_reward", "_propensity", "_time"
ELIGIBLE, WEIGHT, ID = "_eligible", "_weight", "_id"
_COLUMNS: dict[str, pl.DataType] = {
    ID: pl.String(),
    TIMES: TIME,
    ACTION: pl.String(),
    PROPENSITY: pl.Float64(),
    REWARD: pl.Float64(),
    ELIGIBLE: pl.List(pl.String()),
    WEIGHT: pl.Float64(),
}
#: Events of one part of the table, and events that decide how actions are named.
_ROWS, _SAMPLE = 20_000, 10_000
DUPLICATE = "the event was logged before (same `EventId`)"
_UNREADABLE = "the rest of the file cannot be read: truncated or damaged"

#: Called with the pass (1 or 2), bytes read, and bytes in all.
Progress = Callable[[int, int, int], None]


class Converted(NamedTuple):
    """A table that was made of logs.

    Attributes:
        table: The table, a Parquet file.
        columns: Which column is what.
        actions: Names of all actions that were offered.
        report: What became of each line.
        indicators: Features that are false where they are absent.
    """

    table: str
    columns: Columns
    actions: list[str]
    report: DsjsonReport
    indicators: frozenset[str]


def convert_dsjson(
    places: Sequence[str],
    folder: Path,
    *,
    named_by: NameRule | None = None,
    on_progress: Progress | None = None,
) -> Converted:
    """Make a table of decisions of dsjson logs.

    Args:
        places: The logs: one event a line, plain or compressed by gzip.
        folder: An empty folder for the table.
        named_by: What actions are named by; chosen by the first events if left out.
        on_progress: Called as lines are read.

    Raises:
        InvalidLog: No line is an event that can be imported, or there are too many actions.
    """
    conversion = _Conversion(check_files(places), on_progress)
    conversion.scan(named_by)
    return conversion.write(folder)


class _Conversion:
    """Two passes over logs: `scan`, then `write`."""

    def __init__(self, paths: Sequence[Path], on_progress: Progress | None) -> None:
        self._paths, self._on_progress = paths, on_progress
        self._outcomes: dict[str, list[Outcome]] = {}
        self._types, self._rule = FeatureTypes(), RuleChoice()
        self._named_by: NameRule = "index"
        self._left_out: dict[str, LeftOut] = {}
        self._counts = dict.fromkeys(("lines", "events", "outcomes", "weighted", "baselines", "untimed"), 0)
        self._features = False
        self._ids: set[str] = set()
        self._names: set[str] = set()

    def scan(self, named_by: NameRule | None) -> None:
        """Find outcomes, features, and what actions are named by."""
        sampled = 0
        for _, found in self._parsed(1):
            if isinstance(found, Outcome):
                self._outcomes.setdefault(found.id, []).append(found)
            elif isinstance(found, Event):
                self._types.see(found.context)
                if sampled < _SAMPLE:
                    sampled += 1
                    self._rule.see(found.offered)
        self._named_by = named_by or self._rule.rule

    def write(self, folder: Path) -> Converted:
        """Write the table."""
        columns = self._types.columns
        for number, rows in enumerate(self._parts()):
            _frame(rows, columns).write_parquet(folder / f"part-{number:06d}.parquet")
        if not self._counts["events"]:
            raise InvalidLog(f"no line is an event that can be imported: {self._reasons()}")
        table = folder / "events.parquet"
        actions = sorted(self._names, key=natural)
        everything = pl.col(ELIGIBLE).list.len() == len(actions)
        parts = pl.scan_parquet(folder / "part-*.parquet")
        parts.with_columns(pl.when(~everything).then(ELIGIBLE).alias(ELIGIBLE)).sink_parquet(table)
        restricted = pl.scan_parquet(table).select(pl.col(ELIGIBLE).is_not_null().sum()).collect().item()
        return Converted(
            str(table),
            self._roles(),
            actions,
            self._report(len(actions), restricted),
            frozenset(column.name for column in columns if column.indicator),
        )

    def _reasons(self) -> str:
        """Reasons and counts of lines that were left out."""
        found = [f"{one.lines:,} × {reason} ({', '.join(one.places)})" for reason, one in self._left_out.items()]
        if outcomes := self._counts["outcomes"]:
            found.append(f"{outcomes:,} × an outcome of an event that is not in these logs")
        return "; ".join(found) or "the logs are empty"

    def _roles(self) -> Columns:
        timed = self._counts["untimed"] < self._counts["events"]
        return Columns(
            action=ACTION,
            reward=REWARD,
            propensity=PROPENSITY,
            time=TIMES if timed else None,
            eligible=ELIGIBLE,
            weight=WEIGHT,
            id=ID,
        )

    def _parts(self) -> Iterator[list[_Row]]:
        """The rows, some at a time; the time of an event without one is that of the event before."""
        rows: list[_Row] = []
        time: int | None = None
        for line, found in self._parsed(2):
            self._counts["lines"] += 1
            if isinstance(found, Outcome):
                self._counts["outcomes"] += 1
                continue
            try:
                row = self._row(found)
            except UnfitLine as error:
                self._left_out.setdefault(str(error), LeftOut()).add(f"{line.file}:{line.number}")
                continue
            time = time if row.event.time is None else row.event.time
            rows.append(row._replace(time=time))
            if len(rows) == _ROWS:
                yield rows
                rows = []
        if rows:
            yield rows

    def _row(self, found: Event | UnfitLine) -> _Row:
        if isinstance(found, UnfitLine):
            raise found
        names = name_actions(self._named_by, found.offered)
        if names is None:
            raise UnfitLine(f"actions cannot be told apart by {IN_WORDS[self._named_by]}")
        if found.id is not None and found.id in self._ids:
            raise UnfitLine(DUPLICATE)
        reward = found.earned(self._outcomes.get(found.id or "", ()))
        self._count(found, names)
        return _Row(found, names, reward, None)

    def _count(self, event: Event, names: Sequence[str]) -> None:
        if event.id is not None:
            self._ids.add(event.id)
        self._names.update(names)
        if len(self._names) > MOST_ACTIONS:
            raise InvalidLog(
                f"there are more than {MOST_ACTIONS:,} actions by {IN_WORDS[self._named_by]}; actions are a list of "
                "names here: name them by another rule with --names, such as --names index"
            )
        self._counts["events"] += 1
        self._counts["weighted"] += event.pdrop > 0
        self._counts["baselines"] += event.baseline
        self._counts["untimed"] += event.time is None
        self._features = self._features or any(any(key[:1] != "_" for key in action) for action in event.offered)

    def _report(self, actions: int, restricted: int) -> DsjsonReport:
        dangling = sum(len(found) for name, found in self._outcomes.items() if name not in self._ids)
        return DsjsonReport(
            files=len(self._paths),
            dangling=dangling,
            left_out=self._left_out,
            named_by=self._named_by,
            actions=actions,
            action_features=self._features,
            restricted=restricted,
            left_out_features=self._types.left_out,
            **self._counts,
        )

    def _parsed(self, number: int) -> Iterator[tuple[Line, Event | Outcome | UnfitLine]]:
        """All lines, parsed."""
        total, before = sum(path.stat().st_size for path in self._paths), 0
        for path in self._paths:
            for line in read_lines(path):
                yield line, _parsed(line)
                if self._on_progress is not None and line.number % 1_000 == 0:
                    self._on_progress(number, before + line.at, total)
            before += path.stat().st_size
        if self._on_progress is not None:
            self._on_progress(number, total, total)


class _Row(NamedTuple):
    event: Event
    names: list[str]
    reward: float
    time: int | None


def _parsed(line: Line) -> Event | Outcome | UnfitLine:
    if line.text is None:
        return UnfitLine(_UNREADABLE)
    try:
        return parse_line(line.text)
    except UnfitLine as error:
        return error


def _frame(rows: Sequence[_Row], columns: Sequence[FeatureColumn]) -> pl.DataFrame:
    """Rows as a part of the table."""
    events = [row.event for row in rows]
    roles: dict[str, list[Any]] = {
        ID: [event.id for event in events],
        TIMES: [row.time for row in rows],
        ACTION: [row.names[row.event.chosen] for row in rows],
        PROPENSITY: [event.propensity for event in events],
        REWARD: [row.reward for row in rows],
        ELIGIBLE: [row.names for row in rows],
        WEIGHT: [1 / (1 - event.pdrop) for event in events],
    }
    contexts = [event.context for event in events]
    series = [pl.Series(name, values, _COLUMNS[name]) for name, values in roles.items()]
    return pl.DataFrame([*series, *(pl.Series(one.name, one.values(contexts), one.dtype) for one in columns)])
