"""The lab's data command: where the real files are, and how to get them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from potstill.cli.app import AsJson, needs, print_json, refusing
from potstill.cli.lab import lab


@lab.command()
def data(
    out: Annotated[Path | None, typer.Option(help="Folder to fetch to; a cache of its own if left out.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Only say where the files are.")] = False,
    as_json: AsJson = False,
) -> None:
    """Fetch the real data files that are not there yet, and say where each is.

    They are looked for in the folder that POTSTILL_DATA names, then beside the checkout, then in the cache.
    """
    with needs("lab"):
        from potstill.lab.problems.data import located
        from potstill.lab.problems.download import download
    # What is there already is fetched again only for a folder that somebody names.
    with refusing(OSError):
        wanted = [] if show else [file.source for file in located() if out or not file.path]
        for path in download(out, wanted):
            typer.echo(f"fetched {path}", err=True)
        files = located()
    if as_json:
        print_json(
            [{"name": file.source.name, "place": file.place, "path": file.path and str(file.path)} for file in files]
        )
        return
    for file in files:
        found = f"{file.path} ({file.place})" if file.path else "not there"
        typer.echo(f"{file.source.name}: {found}; {file.source.about}")
    if out and wanted:
        typer.echo(f"to use what was fetched: export POTSTILL_DATA={out}")
