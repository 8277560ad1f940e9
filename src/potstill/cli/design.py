"""The initial design of a workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from potstill.cli.common import USER_ERRORS, AsJson, Place, exit_on, fail, print_json
from potstill.cli.extras import requires
from potstill.cli.format import plural
from potstill.cli.root import app

if TYPE_CHECKING:
    from potstill.workspace import InitialDesign, Workspace


@app.command()
@requires("lake")
def design(
    place: Place,
    contexts: Annotated[
        str | None, typer.Option(help="Table of units and their contexts: CSV, Parquet or Delta Lake.")
    ] = None,
    size: Annotated[int, typer.Option(min=1, help="Number of points.")] = 100,
    unit: Annotated[str, typer.Option(help="Column of the units, as requests state them.")] = "unit",
    per_unit: Annotated[
        int, typer.Option(min=0, help="Largest number of points of a unit; 0 for no limit, as in the paper.")
    ] = 1,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing design.")] = False,
    end: Annotated[bool, typer.Option("--end", help="End the design: its points are no longer handed out.")] = False,
    as_json: AsJson = False,
) -> None:
    """Try first what is least certain: select units and actions by their variance, for the service to hand out.

    The service gives each selected unit its action, once, and marks the decision. Without --contexts, the progress is
    shown.

    Examples: potstill design video --contexts users.parquet --size 200 --unit user_id

    potstill design video
    """
    from potstill.workspace import Workspace, end_design, read_design

    with exit_on(*USER_ERRORS):
        workspace = Workspace(place)
        if end:
            end_design(workspace.storage)
            return
        if contexts is None:
            _show_progress(workspace, as_json=as_json)
            return
        if not replace and read_design(workspace.storage) is not None:
            fail("there is a design already; replace it with --replace, or end it with --end")
        _make(workspace, contexts, size, unit, per_unit or None, replace=replace, as_json=as_json)


@requires("lake", "learn")
def _make(
    workspace: Workspace, contexts: str, size: int, unit: str, per_unit: int | None, *, replace: bool, as_json: bool
) -> None:
    from potstill.pipeline import make_design

    made = make_design(workspace, contexts, size, unit=unit, per_unit=per_unit, replace=replace)
    if as_json:
        print_json(made)
        return
    for line in _lines(made):
        typer.echo(line)


def _lines(made: InitialDesign) -> list[str]:
    pool, units = made.contexts, {point.unit for point in made.points}
    sample = f", a sample of {pool['of']:,}" if pool["rows"] + pool["unfit"] < pool["of"] else ""
    unfit = f"; {plural(pool['unfit'], 'row')} left out" if pool["unfit"] else ""
    chosen = f"{plural(len(made.points), 'point')} for {plural(len(units), 'unit')}"
    return [
        f"{chosen}, of {pool['rows']:,} contexts{sample}{unfit}",
        f"variance   {made.points[0].variance:.3g} of the first point, {made.points[-1].variance:.3g} of the last",
        f"gain       {made.information_gain:.4g} nats, by {made.teacher['type']}",
        "services hand these actions out within seconds, once each; potstill design DIR shows the progress",
    ]


def _show_progress(workspace: Workspace, *, as_json: bool) -> None:
    from potstill.pipeline import read_design_progress

    found = read_design_progress(workspace)
    if found is None:
        fail("there is no design; make one with --contexts, such as potstill design video --contexts users.parquet")
    if as_json:
        print_json(msgspec.to_builtins(found))
    else:
        typer.echo(f"{found.in_words}; information gain of all points {found.information_gain:.4g} nats")
