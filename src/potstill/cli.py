"""The command line: one thin command per verb. What a command needs is imported when it runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from potstill._version import __version__

app = typer.Typer(
    name="potstill",
    help="Thompson sampling, distilled in batches into a small explicit policy.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def main() -> None:
    """The `potstill` command."""
    app()


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"potstill {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


@contextlib.contextmanager
def _needs(extra: str) -> Iterator[None]:
    """Say what to install when a command's libraries are not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "potstill").split(".")[0] == "potstill":
            raise
        _fail(f"this command needs {error.name!r}, which is not installed: pip install 'potstill[{extra}]'")


def _make_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _fail(f"cannot make the directory {path}: {error.strerror}; name another one with --out")


def _fail(message: str) -> NoReturn:
    typer.secho(f"potstill: {message}", err=True, fg=typer.colors.RED)
    raise typer.Exit(1)


@app.command()
def demo(
    decisions: Annotated[int, typer.Option(min=1, help="Uploads to decide on, in all.")] = 20_000,
    batch: Annotated[int, typer.Option(min=1, help="Decisions between two updates of the policy.")] = 1_000,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal results, apart from timings.")] = 0,
    out: Annotated[Path, typer.Option(help="Directory for the policy and the report.")] = Path("potstill-demo"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON; progress goes to stderr.")
    ] = False,
    open_report: Annotated[bool, typer.Option("--open/--no-open", help="Open the report in a browser.")] = False,
) -> None:
    """Run the whole circle on a simulated upload service.

    A policy starts out uniform, decides batch after batch of uploads, and is distilled anew after each one. It is shown
    beside undistilled Thompson sampling, uniform choice and the best possible. Ends with a policy file, a report page
    to open in a browser, and three lines of Python to use the policy.
    """
    with _needs("lab"):
        from potstill.lab.demo import Demo
        from potstill.lab.demo_terminal import run
    _make_directory(out)
    report = run(Demo(decisions=decisions, batch=batch, seed=seed), out, as_json=as_json)
    if open_report:
        typer.launch(str(report))


if __name__ == "__main__":
    main()
