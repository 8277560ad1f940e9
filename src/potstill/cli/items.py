"""Items of a workspace's catalogue: list, sync and remove them while it serves."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from potstill.cli.actions import observed_by_action
from potstill.cli.common import USER_ERRORS, AsJson, Place, author, default_group, exit_on, fail, print_json
from potstill.cli.extras import requires
from potstill.cli.format import plural
from potstill.cli.root import app
from potstill.cli.table_options import SkipUnfit
from potstill.cli.versions import Author, Reason

if TYPE_CHECKING:
    from potstill.workspace import ItemsReport

items = default_group("items", "list", "Items of a workspace's catalogue: list, sync and remove them while it serves.")
app.add_typer(items)

#: Rows of a list on a terminal.
_ROWS = 50


@items.command("list", no_args_is_help=True)
@requires("lake")
def list_(
    place: Place,
    rows: Annotated[int, typer.Option("--rows", "-n", min=1, help="Number of items to show.")] = _ROWS,
    as_json: AsJson = False,
) -> None:
    """List the items of a catalogue with their features, and what was observed of each.

    `potstill items sync` replaces them without a restart: services follow within seconds.
    """
    from potstill.workspace import Workspace, catalog_of

    with exit_on(*USER_ERRORS):
        workspace = Workspace(place)
        space = catalog_of(workspace)
        observed = observed_by_action(place)
    if as_json:
        print_json({"items": [{**item, "observations": observed.get(item["id"], 0)} for item in space.items]})
        return
    table = Table()
    names = [feature.name for feature in space.features]
    for name in ("id", *names, "observations"):
        table.add_column(name, justify="right" if name == "observations" else "left")
    for item in space.items[:rows]:
        values = (_shown(item.get(name)) for name in names)
        table.add_row(item["id"], *values, f"{observed.get(item['id'], 0):,}")
    Console().print(table)
    if len(space) > rows:
        typer.echo(f"… and {len(space) - rows:,} more; --rows shows them, and --json all")


@items.command()
@requires("lake")
def sync(
    place: Place,
    table: Annotated[
        str,
        typer.Argument(
            help="A table with a column `id` and one for each feature: .csv, .tsv, .jsonl, .parquet, also .gz, or a "
            "Delta Lake folder. Other columns are ignored.",
            show_default=False,
        ),
    ],
    skip_unfit: SkipUnfit = False,
    reason: Reason = "",
    by: Author = None,
    as_json: AsJson = False,
) -> None:
    """Replace the items of a catalogue by those of a table, while the workspace serves.

    New items get their propensities at once, by their features; changed features count at once; items that are not in
    the table are removed, and their observations are left out from then on. Repeat the command if it was interrupted.

    Example: potstill items sync shop items.parquet --reason "new season"
    """
    from potstill.tables import read_items
    from potstill.workspace import Workspace, catalog_of, sync_items

    with exit_on(*USER_ERRORS):
        found = read_items(table, catalog_of(Workspace(place)).features, skip=skip_unfit)
    left_out = len(found.unfit)
    _apply(lambda: sync_items(place, found.items, reason=reason, by=author(by)), as_json=as_json, left_out=left_out)


@items.command()
@requires("lake")
def remove(
    place: Place,
    names: Annotated[list[str], typer.Argument(metavar="ID", help="Ids of the items.", show_default=False)],
    reason: Reason = "",
    by: Author = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask, although observations are left out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take items out of a catalogue. What the teacher has learnt from them about features stays.

    Requests that name them are refused from then on. Observations that no update has learnt from are left out.

    Example: potstill items remove shop A17 A18
    """
    from potstill.workspace import Workspace, catalog_of, remove_items

    with exit_on(*USER_ERRORS):
        present = set(catalog_of(Workspace(place)).names)
        observed = observed_by_action(place)
    count = sum(observed.get(name, 0) for name in names if name in present)
    if count and not yes:
        told = f"{plural(count, 'observation')} of {plural(len(names), 'item')} will be left out of evaluation"
        if as_json:
            fail(f"{told}; confirm it with --yes")
        typer.confirm(f"{told}, and of learning where no update has seen them. Remove?", abort=True)
    _apply(lambda: remove_items(place, names, reason=reason, by=author(by)), as_json=as_json)


def _apply(change: Callable[[], ItemsReport], *, as_json: bool, left_out: int = 0) -> None:
    with exit_on(*USER_ERRORS):
        found = change()
    if as_json:
        print_json({**msgspec.to_builtins(found), "left_out": left_out})
        return
    typer.echo(found.text)
    if left_out:
        typer.echo(f"{plural(left_out, 'row')} of the table do not fit, and were left out")
    if found.serving is None:
        typer.echo("no version is published yet; the first one follows the items")
    elif found.published:
        typer.echo(f"version {found.serving} serves; running services follow within seconds")


def _shown(value: object) -> str:
    """A value in a cell."""
    if isinstance(value, list):
        listed = ", ".join(f"{number:g}" for number in value[:3])
        return f"[{listed}, …]" if len(value) > 3 else f"[{listed}]"
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
