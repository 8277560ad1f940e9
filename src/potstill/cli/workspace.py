"""A new workspace: init."""

from __future__ import annotations

import shlex
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from potstill.cli.common import USER_ERRORS, AsJson, Place, exit_on, fail, print_json
from potstill.cli.extras import requires
from potstill.cli.init_from_table import FromTable, init_from_table
from potstill.cli.root import app
from potstill.cli.table_options import (
    OF_TABLES,
    Action,
    Context,
    Density,
    Propensity,
    RewardColumn,
    SkipUnfit,
    Time,
    split,
)

if TYPE_CHECKING:
    from potstill.workspace import Workspace


@app.command()
@requires("lake")
def init(
    place: Place,
    problem: Annotated[
        Path | None,
        typer.Option(help="Your problem.toml, or a policy file with the problem. Default: an example."),
    ] = None,
    items: Annotated[
        str | None,
        typer.Option(help="With --problem: a table of items, for a problem whose actions are a catalogue."),
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Also log a simulated day of uploads, to try the other commands on.")
    ] = False,
    table: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="A table of your past decisions: .csv, .tsv, .jsonl, .parquet, also .gz, or a Delta Lake folder. The "
            "problem is inferred from it.",
            rich_help_panel=OF_TABLES,
        ),
    ] = None,
    sql: Annotated[
        str | None,
        typer.Option(
            help="In place of --from: a query of DuckDB, which reads files, and other databases by ATTACH.",
            rich_help_panel=OF_TABLES,
        ),
    ] = None,
    action: Action = None,
    reward: RewardColumn = None,
    propensity: Propensity = None,
    density: Density = None,
    moment: Time = None,
    context: Context = None,
    without: Annotated[
        str | None, typer.Option(help="Columns to leave out, comma-separated.", rich_help_panel=OF_TABLES)
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Name of the problem. Default: that of the folder.", rich_help_panel=OF_TABLES),
    ] = None,
    teacher: Annotated[
        str | None,
        typer.Option(
            help="Name of the teacher, such as linear-ts, which takes seconds. Default: auto-ts.",
            rich_help_panel=OF_TABLES,
        ),
    ] = None,
    skip_unfit: SkipUnfit = False,
    as_json: AsJson = False,
) -> None:
    """Create a workspace: a problem, a configuration with every option explained, events and policies.

    With `--from` it learns from your past decisions at once, and says what a policy would have earned on rows that it
    has not seen.

    Examples:
    potstill init try --example

    potstill init s3://bucket/video --problem problem.toml

    potstill init shop --problem problem.toml --items items.parquet

    potstill init shop --from decisions.csv --action offer --reward profit --time at

    potstill init shop --sql "SELECT * FROM 'sales/*.parquet' WHERE at > '2026-01-01'" --action offer --reward profit
    """
    from potstill.workspace import Workspace, template

    stated = {
        "action": action,
        "reward": reward,
        "propensity": propensity,
        "density": density,
        "time": moment,
        "context": context,
    }
    if table is not None or sql is not None:
        if example or problem or items:
            fail("--from and --sql infer the problem from the table; remove --example, --problem and --items")
        if table is not None and sql is not None:
            fail("--from and --sql are two tables; remove one of them")
        with TemporaryDirectory(prefix="potstill-") as folder:
            found = table if table is not None else str(Path(folder) / "query.parquet")
            options = FromTable(place, found, sql, split(without), name, teacher, skip_unfit)
            init_from_table(options, stated, as_json=as_json)
        return
    others = {**stated, "without": without, "name": name, "teacher": teacher}
    if needless := [option for option, value in others.items() if value is not None]:
        fail(f"--{needless[0]} is about a table of past decisions; name the table with --from")
    if example and problem:
        fail("--example has a problem of its own; remove --problem")
    if items and not problem:
        fail("--items are those of a problem whose actions are a catalogue; state it with --problem")
    with exit_on(*USER_ERRORS):
        text = template.PROBLEM.encode() if problem is None else _problem_text(problem)
        listed = None if items is None else _items_text(text, items, str(problem))
        workspace = Workspace.create(place, text, template.CONFIG.encode(), listed)
        events = _log_example(workspace) if example else 0
    if as_json:
        made = workspace.problem
        print_json({"workspace": workspace.url, "problem": made.name, "hash": made.hash, "events": events})
        return
    typer.echo(f"created a workspace for {workspace.problem.name!r} in {workspace.url}")
    typer.echo(_try_it(place, events) if example else _next_steps(workspace, place, own=problem is not None))


def _problem_text(file: Path) -> bytes:
    """The text of a problem, from its file or from a policy file."""
    import tomli_w

    from potstill.policy import InvalidPolicy, Policy

    if file.suffix == ".toml":
        return file.read_bytes()
    try:
        return tomli_w.dumps(msgspec.to_builtins(Policy.load(file).problem)).encode()
    except InvalidPolicy as error:
        raise ValueError(f"{error}; --problem must be a .toml file or a policy file") from None


def _items_text(problem: bytes, table: str, where: str) -> bytes:
    """The text of `items.json` for a table of items."""
    from potstill.tables import read_items
    from potstill.workspace import item_features, items_text

    return items_text(read_items(table, item_features(problem, where)).items)


def _log_example(workspace: Workspace) -> int:
    from potstill.workspace import log_example

    return log_example(workspace)


def _try_it(place: str, events: int) -> str:
    where = shlex.quote(place)
    return f"""and logged {events:,} events of a simulated day. Next:
  potstill events {where}      show logged events
  potstill update {where}      learn from them, and serve a new policy
  potstill versions {where}    list the versions"""


def _next_steps(workspace: Workspace, place: str, *, own: bool) -> str:
    where = shlex.quote(place)
    first = "read potstill.toml" if own else "replace the example problem.toml by yours, and read potstill.toml"
    context = {feature.name: feature.example for feature in workspace.problem.context}
    reward = 1.0 if workspace.problem.reward.high is None else workspace.problem.reward.high
    return f"""Next:
  1. {first}: it explains every option
  2. decide and log, in Python:
       from potstill.events import LoggedDecision, LoggedReward
       from potstill.workspace import Workspace
       workspace = Workspace({place!r})
       policy = workspace.start()
       context = {context!r}
       with workspace.event_log() as log:
           decision = policy.decide(context)
           log.append(LoggedDecision.of(decision, context))
           log.append(LoggedReward(id=decision.id, reward={reward}))  # once it is known
  3. potstill events {where}    show logged events
  4. potstill update {where}    learn from them, and serve a new policy"""
