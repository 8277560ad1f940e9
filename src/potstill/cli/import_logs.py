"""A workspace from the logs of another system: import dsjson."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from potstill.cli.common import USER_ERRORS, AsJson, exit_on, print_json
from potstill.cli.extras import requires
from potstill.cli.format import plural
from potstill.cli.init_from_table import check_teacher, make_workspace, problem_name, refuse_taken, show_made
from potstill.cli.root import app
from potstill.cli.table_options import split
from potstill.errors import InvalidOption

if TYPE_CHECKING:
    from potstill.events.join import ImportedFile
    from potstill.tables.dsjson import DsjsonReport, NameRule

logs = typer.Typer(
    name="import",
    help="Make a workspace of the logs of another system.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(logs)


@logs.callback()
def _group() -> None:
    """Make a workspace of the logs of another system."""


@logs.command()
def dsjson(
    places: Annotated[list[str], typer.Argument(metavar="LOGS", help="Logs, one event a line; also .gz.")],
    into: Annotated[str, typer.Option("--into", metavar="DIR", help="The new workspace.")],
    names: Annotated[
        str | None,
        typer.Option(
            help="What actions are named by: `tag` (`_tag`), `id` (a feature id), `features` (all of them) or `index` "
            "(their position). Default: the first of these that tells them apart in nearly all events."
        ),
    ] = None,
    context: Annotated[
        str | None, typer.Option(help="Features to use, comma-separated, such as user.age. Default: all that vary.")
    ] = None,
    without: Annotated[str | None, typer.Option(help="Features to leave out, comma-separated.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the problem. Default: that of the folder.")] = None,
    teacher: Annotated[
        str | None, typer.Option(help="Name of the teacher, such as linear-ts, which takes seconds. Default: auto-ts.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Import logs of Vowpal Wabbit's decision service (dsjson), as Azure Personalizer exports them too.

    Each event becomes an observation: its features by their path (`user.age`), the chosen action by name, its logged
    probability, and minus its cost as the reward. Outcomes that were logged apart are joined by EventId. A line that
    cannot be imported is counted by reason, with file and number; it does not keep others from being imported.

    The workspace has learnt from all events, and says what its policy would have earned on events that it has not seen.

    Examples:
    potstill import dsjson logs/*.json --into shop

    potstill import dsjson logs/*.json.gz --into shop --names id --without user.name
    """
    console = Console(stderr=as_json)
    with requires("lake", "learn"), exit_on(*USER_ERRORS), TemporaryDirectory(prefix="potstill-") as folder:
        from potstill.tables.dsjson import convert_dsjson, dsjson_history, unfit_events

        rule = _rule(names)
        refuse_taken(into, "name a new folder with --into: logs are imported into a workspace of their own")
        check_teacher(teacher)
        with _reading(console) as on_progress:
            found = convert_dsjson(places, Path(folder), named_by=rule, on_progress=on_progress)
        _show(found.report, console)
        history = dsjson_history(
            found, name or problem_name(into), _title(places), context=split(context), without=split(without)
        )
        unfit = unfit_events(history)
        for reason, events in unfit.items():
            _print(f"left out: {plural(events, 'event')}, {reason}", console)
        made = make_workspace(into, history, console, teacher=teacher, skip=True, source=_source(places), short=True)
    if as_json:
        print_json({**made.as_json, "logs": found.report, "unfit": unfit})
        return
    show_made(made, into, console)


def _rule(stated: str | None) -> NameRule | None:
    from potstill.tables.dsjson import RULES

    found = next((rule for rule in RULES if rule == stated), None)
    if stated is not None and found is None:
        raise InvalidOption(f"--names must be one of {', '.join(RULES)}, got {stated!r}")
    return found


@contextmanager
def _reading(console: Console) -> Iterator[Callable[[int, int, int], None]]:
    """A progress bar over the bytes of each of the two passes."""
    from potstill.cli.update_terminal import rows

    with rows(console, "bytes") as on_bytes:
        yield lambda step, done, of: on_bytes(done + (step - 1) * of, 2 * of)


def _title(places: Sequence[str]) -> str:
    return places[0] if len(places) == 1 else f"{places[0]} and {plural(len(places) - 1, 'more file')}"


def _source(places: Sequence[str]) -> ImportedFile:
    """What was imported: the logs, by the hash of their hashes."""
    from potstill.events.join import ImportedFile

    found = hashlib.sha256()
    for place in places:
        with Path(place).open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return ImportedFile(name=_title(places), sha256=found.hexdigest(), rows=0)


def _show(report: DsjsonReport, console: Console) -> None:
    """Print what became of each line."""
    for line in _lines(report):
        _print(line, console)


def _print(line: str, console: Console) -> None:
    console.print(escape(line), highlight=False, soft_wrap=True)


def _lines(report: DsjsonReport) -> Iterator[str]:
    from potstill.tables.dsjson import IN_WORDS

    yield f"{plural(report.lines, 'line')} of {plural(report.files, 'file')}: {plural(report.events, 'event')}"
    if report.outcomes:
        yield f"outcomes logged apart: {report.outcomes:,}, of which {report.dangling:,} belong to no event"
    for reason, left in sorted(report.left_out.items(), key=lambda one: -one[1].lines):
        more = ", …" if left.lines > len(left.places) else ""
        yield f"left out: {plural(left.lines, 'line')}, {reason} ({', '.join(left.places)}{more})"
    offered = f"; not all were offered in {plural(report.restricted, 'event')}" if report.restricted else ""
    yield f"{report.actions} actions, named by {IN_WORDS[report.named_by]}{offered}"
    if report.action_features:
        yield "features of actions are not used beyond their names: a policy here chooses from a list of names"
    if report.weighted:
        yield f"{plural(report.weighted, 'event')} with pdrop: 1/(1 - pdrop) is stored as their weight, and not used"
    if report.baselines:
        yield f"{plural(report.baselines, 'event')} with a baseline action (_ba), which is not stored"
    if report.untimed:
        yield f"{plural(report.untimed, 'event')} without a usable Timestamp: they have that of the event before"
    if report.left_out_features:
        found = plural(report.left_out_features, "feature")
        why = "others are more frequent, or differ only in upper and lower case, or a column cannot be called so"
        yield f"{found} left out: {why}"
