"""A workspace from past decisions, and whether it would have earned more: `potstill init --from`, and imports."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from potstill.cli.common import USER_ERRORS, exit_on, fail, print_json
from potstill.cli.extras import requires
from potstill.cli.table_options import columns

if TYPE_CHECKING:
    from potstill.events.join import ImportedFile
    from potstill.pipeline import FirstLook, Looked, UpdateReport
    from potstill.tables import Columns, History
    from potstill.workspace import Workspace

_STAGES = {
    "read": "reading the rows",
    "propensities": "working out the propensities",
    "learn": "learning from the earlier rows",
    "evaluate": "comparing on the later rows",
}
_COLOURS = {"good": "green", "caution": "yellow", "no": "red"}
_PAGE = "first-look.html"
_LONGEST_TITLE = 70


class FromTable(NamedTuple):
    """Options of `potstill init --from`.

    Attributes:
        place: The new workspace.
        table: The table; the file that holds the result of `sql` if that is stated.
        sql: The query that made the table; None if there was none.
        without: Columns to leave out.
        name: Name of the problem; that of the folder by default.
        teacher: Name of the teacher; the default one of the action space by default.
        skip: Whether to leave out rows that do not fit.
    """

    place: str
    table: str
    sql: str | None
    without: Sequence[str]
    name: str | None
    teacher: str | None
    skip: bool


def init_from_table(options: FromTable, stated: Mapping[str, str | None], *, as_json: bool) -> None:
    """Create the workspace: look, import, learn; each step says what it found.

    Args:
        options: The options.
        stated: Columns by role, as stated by options.
        as_json: Print JSON at the end instead of text.
    """
    console, place, table = Console(stderr=as_json), options.place, options.table
    with requires("lake", "learn"), exit_on(*USER_ERRORS):
        from potstill.tables import read_history, run_query

        refuse_taken(place, f"to add history to it: potstill warm-start {shlex.quote(place)} TABLE")
        check_teacher(options.teacher)
        with console.status(f"looking at {escape(options.sql or table)}"):
            if options.sql is not None:
                run_query(options.sql, Path(table))
            history = read_history(
                table,
                _columns(stated, table),
                options.name or problem_name(place),
                without=options.without,
                title="" if options.sql is None else _title(options.sql),
            )
        source = None if options.sql is None else _source(options.sql, Path(table))
        made = make_workspace(place, history, console, teacher=options.teacher, skip=options.skip, source=source)
    if as_json:
        print_json(made.as_json)
        return
    show_made(made, place, console)


def _title(sql: str) -> str:
    """A query in one short line."""
    line = " ".join(sql.split())
    return line if len(line) <= _LONGEST_TITLE else f"{line[: _LONGEST_TITLE - 1]}…"


def _source(sql: str, table: Path) -> ImportedFile:
    """What was imported: a query, by the hash of its rows."""
    from potstill.events.join import ImportedFile

    with table.open("rb") as file:
        return ImportedFile(name=sql, sha256=hashlib.file_digest(file, "sha256").hexdigest(), rows=0)


class Made(NamedTuple):
    """A workspace that was made of a history.

    Attributes:
        workspace: The workspace.
        history: The history.
        look: What a first look found.
        update: What the first update did.
        page: Page of the first look, if there is one.
    """

    workspace: Workspace
    history: History
    look: FirstLook
    update: UpdateReport
    page: Path | None

    @property
    def as_json(self) -> dict[str, Any]:
        """What is printed as JSON."""
        return {
            "workspace": self.workspace.url,
            "problem": self.workspace.problem.name,
            "hash": self.workspace.problem.hash,
            "columns": self.history.surveyed,
            "first_look": self.look,
            "update": self.update,
            "page": None if self.page is None else str(self.page),
        }


def check_teacher(name: str | None) -> None:
    """Refuse an unknown teacher, or that what learns is not installed, before anything takes time."""
    from potstill.pipeline import run_update  # noqa: F401
    from potstill.teachers import from_config

    if name is not None:
        from_config({"type": name})


def make_workspace(
    place: str,
    history: History,
    console: Console,
    *,
    teacher: str | None,
    skip: bool = False,
    source: ImportedFile | None = None,
    short: bool = False,
) -> Made:
    """Look at a history, create a workspace, import the history and learn from it.

    Args:
        place: The new workspace.
        history: The history.
        console: Where progress is shown.
        teacher: Name of the teacher; the default one of the action space if None.
        skip: Whether to leave out rows that do not fit.
        source: What the table was made of, if it is not what is imported.
        short: Whether a history that is too short for a first look goes without.
    """
    from potstill.cli.update_terminal import rows, steps
    from potstill.pipeline import import_history, run_update
    from potstill.workspace import Workspace, problem_text, staging, template

    _show_survey(history, console)
    looked = _look(history, console, teacher=teacher, skip=skip, short=short)
    config = template.config_text(teacher)
    with staging(place) as staged:
        workspace = Workspace.create(staged, problem_text(history).encode(), config.encode())
        with rows(console, "rows") as on_progress:
            import_history(workspace, history.place, history.columns, skip=skip, source=source, on_progress=on_progress)
        with steps(console) as on_step:
            report = run_update(workspace, on_step=on_step)
        page = _write_page(staged, looked)
    return Made(Workspace(place), history, looked.look, report, page and Path(place) / page.name)


def _look(history: History, console: Console, *, teacher: str | None, skip: bool, short: bool) -> Looked:
    from potstill.pipeline import no_look, run_first_look
    from potstill.teachers import from_config

    if short and (without := no_look(history)) is not None:
        return without
    chosen = None if teacher is None else from_config({"type": teacher})
    with console.status("") as shown:
        return run_first_look(history, chosen, skip=skip, on_stage=lambda stage: shown.update(_STAGES[stage]))


def refuse_taken(place: str, way_out: str) -> None:
    """Refuse a place that has a workspace, before anything takes time; the message ends with what to do instead."""
    from potstill.workspace import NoWorkspace, Workspace, recover

    recover(place)
    try:
        there = Workspace(place)
    except NoWorkspace:
        return
    fail(f"{there.url} is a workspace already; {way_out}")


def _columns(stated: Mapping[str, str | None], table: str) -> Columns:
    """The columns as stated; a propensity that is neither stated nor in the table is to be estimated."""
    from potstill.cli.evaluate_logs import ESTIMATED
    from potstill.tables import scan_table

    present = scan_table(table).collect_schema().names()
    if stated["propensity"] == ESTIMATED and ESTIMATED not in present:
        return columns({**stated, "propensity": None}, None)
    return columns(stated, "propensity" if "propensity" in present else None)


def problem_name(place: str) -> str:
    """A problem's name from that of the folder: it is part of URLs."""
    name = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(str(Path(place).resolve())).name.lower()).strip("-")
    return name or "decisions"


def _show_survey(history: History, console: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("column", "taken for", "values", "found", ""):
        table.add_column(title, justify="right" if title == "values" else "left", overflow="fold")
    for column in history.surveyed:
        kind = _kind(column.feature) if column.feature else "left out"
        missing = f"{100 * column.missing:.3g} % missing" if column.missing else ""
        note = "; ".join(part for part in (missing, column.note) if part)
        cells = (column.name or "(no name)", kind, f"{column.distinct:,}", column.found, note)
        table.add_row(*map(escape, cells), style=None if column.feature else "dim")
    console.print(f"{escape(history.shown)}: {history.rows:,} rows", highlight=False, soft_wrap=True)
    console.print(table)
    low, mean, high = history.rewards
    kind = f", {history.problem.reward.kind}" if history.problem.reward.kind else ""
    console.print(f"actions: {escape(_actions(history))}", highlight=False, soft_wrap=True)
    source = "" if history.title else f"{history.columns.reward}, "
    reward = f"reward:  {source}{low:.6g} to {high:.6g}, mean {mean:.4g}{kind}"
    console.print(escape(reward), highlight=False, soft_wrap=True)


def _kind(feature: Any) -> str:
    kind: str = type(feature).__struct_config__.tag
    return kind


def _actions(history: History) -> str:
    from potstill.problem import Continuous
    from potstill.spaces import finite

    space = history.problem.actions
    if isinstance(space, Continuous):
        return f"{space.name}, a number from {space.low:g} to {space.high:g}"
    labels = finite(space, "potstill init --from").labels
    source = "" if history.title else f" of column {history.columns.action}"
    return f"{len(labels)}{source}: {', '.join(labels[:8])}{', …' * (len(labels) > 8)}"


def show_made(made: Made, place: str, console: Console) -> None:
    """Print what a first look found, and what to do next."""
    _show_look(made.look, console)
    _show_next(made.workspace, made.update, place, made.page, console)


def _show_look(look: FirstLook, console: Console) -> None:
    from potstill.evaluate import text

    def line(words: str, style: str | None = None) -> None:
        console.print(escape(words), highlight=False, soft_wrap=True, style=style)

    how = "by time" if look.by_time else "by their order in the table: name the column of the time with --time"
    line("")
    line("Would it have earned more, on rows that it has not seen?", "bold")
    if not look.learnt_from:
        line(f"not known: {look.why_not}", "yellow")
        return
    line(f"split: learnt from the first {look.learnt_from:,} rows, compared on the last {_held_out(look):,}, {how}")
    if look.unfit:
        line(f"left out: {look.unfit:,} rows that do not fit")
    if look.propensities is not None:
        line(look.propensities.in_words)
    if look.evaluation is None:
        line(f"not known: {look.why_not}", "yellow")
        return
    line(text.verdict(look.evaluation), "bold")
    line(text.trusted(look.evaluation), _COLOURS[text.doubt(look.evaluation)[1].grade])


def _held_out(look: FirstLook) -> int:
    return look.rows - look.learnt_from


def _show_next(workspace: Workspace, report: UpdateReport, place: str, page: Path | None, console: Console) -> None:
    where = shlex.quote(place)
    learnt = f"it has learnt from all rows, version {report.version} serves"
    served = learnt if report.outcome == "published" else f"all rows are imported; no version serves yet: {report.why}"
    console.print("")
    console.print(
        f"created {escape(workspace.url)}: {escape(' '.join(served.split()))}", highlight=False, soft_wrap=True
    )
    if page is not None:
        console.print(f"page: {escape(str(page))}", highlight=False)
    for command, what in (
        (f"potstill serve {where} --update-every 10m", "decide over HTTP, and keep learning"),
        (f"potstill explain {where} …", "why a decision is taken"),
        (f"edit {where}/problem.toml", "what was found in each column, and the window of rewards"),
    ):
        console.print(f"  {command:48} {what}", highlight=False, soft_wrap=True)


def _write_page(place: str, looked: Looked) -> Path | None:
    """The page of the evaluation in the workspace's folder; None without one, in an object store, or without charts."""
    from potstill.cli.extras import is_installed

    if looked.look.evaluation is None or "://" in place or not is_installed("lab"):
        return None
    from potstill.evaluate import page

    path = Path(place) / _PAGE
    page(looked.look.evaluation, weights=looked.weights, notes=_notes(looked.look)).write(path)
    return path


def _notes(look: FirstLook) -> list[str]:
    return [] if look.propensities is None else [look.propensities.in_words]
