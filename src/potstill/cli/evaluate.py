"""Off-policy evaluation: what a policy would have earned on what was logged."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from potstill.cli.common import USER_ERRORS, AsJson, default_group, exit_on, fail, make_directory, print_json
from potstill.cli.extras import requires
from potstill.cli.root import app
from potstill.evaluate.estimates import Estimate
from potstill.evaluate.evaluation import Evaluation, Segment
from potstill.evaluate.text import Figures, doubt, doubtful, footnotes, percent, spanned, starred, trusted, verdict

if TYPE_CHECKING:
    from potstill.cli.evaluate_logs import Asked, Compared
    from potstill.evaluate.diagnostics import Weighing
    from potstill.evaluate.evaluation import Evaluation
    from potstill.evaluate.lake_log import Progress
    from potstill.problem import Reward
    from potstill.tables.columns import Columns

_COLOURS = {"good": "green", "caution": "yellow", "no": "red"}


evaluate = default_group("evaluate", "log", "Estimate what another policy would have earned on what was logged.")
Many = list[str]
_OF_TABLES = "Of someone else's log"


def show_evaluation(
    evaluation: Evaluation, span: tuple[int, int] | None, notes: Sequence[str], console: Console
) -> None:
    """The estimates, segments and stretches of time, and what to think of them."""
    console.print(_title(evaluation, span), highlight=False, soft_wrap=True)
    tables = [_estimates(evaluation)]
    tables += [_segments(evaluation, f"by {feature}", segments) for feature, segments in evaluation.segments.items()]
    tables += [_segments(evaluation, "over time", evaluation.stretches)] if evaluation.stretches else []
    for table in tables:
        console.print(table, "")
    for note in (*footnotes(evaluation), *notes):
        console.print(escape(note), highlight=False, soft_wrap=True, style="dim")
    console.print(escape(verdict(evaluation)), highlight=False, soft_wrap=True, style="bold")
    colour = _COLOURS[doubt(evaluation)[1].grade]
    console.print(escape(trusted(evaluation)), highlight=False, soft_wrap=True, style=colour)


def _title(evaluation: Evaluation, span: tuple[int, int] | None) -> str:
    against = f" against {evaluation.against.name}" if evaluation.against else ""
    rows = f"{evaluation.rows:,} decisions {spanned(span)}".strip()
    return escape(f"{evaluation.target.name}{against}, on {rows}; {percent(evaluation.level)} intervals")


def _table(evaluation: Evaluation, *first: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(escape(first[0]))
    names = [evaluation.target.name, *([evaluation.against.name, "difference"] if evaluation.against else [])]
    for name in (*first[1:], *names):
        table.add_column(escape(name), justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=True)
    return table


def _cells(figures: Figures, target: Estimate, against: Estimate | None, difference: Estimate | None) -> list[str]:
    """What the target would have earned, with an interval; where there are two, that of the difference."""
    if against is None or difference is None:
        return [figures.number(target.value), figures.interval(target)]
    values = [figures.number(target.value), figures.number(against.value), figures.change(difference.value)]
    return [*values, figures.interval(difference, signed=True)]


def _estimates(evaluation: Evaluation) -> Table:
    table, figures = _table(evaluation, "estimator"), Figures(evaluation)
    others = evaluation.against.estimates if evaluation.against else {}
    for name, estimate in evaluation.target.estimates.items():
        cells = _cells(figures, estimate, others.get(name), (evaluation.difference or {}).get(name))
        style = "bold" if name == evaluation.headline else None
        table.add_row(escape(starred(estimate)), *cells, style=style)
    return table


def _segments(evaluation: Evaluation, title: str, segments: Sequence[Segment]) -> Table:
    table, figures = _table(evaluation, title, "rows"), Figures(evaluation)
    table.add_column("", no_wrap=True)
    for one in segments:
        cells = _cells(figures, one.target, one.against, one.difference)
        word = doubtful(one) if one.trust.grade == "no" else ""  # nearly all segments want some caution
        table.add_row(escape(one.name), f"{one.rows:,}", *cells, word, style="dim" if word else None)
    return table


app.add_typer(evaluate)


@evaluate.command(no_args_is_help=True)
def log(
    place: Annotated[
        str,
        typer.Argument(
            metavar="DIR|LOG", help="A workspace; or a log of your own: .csv, .parquet.", show_default=False
        ),
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            help="What to evaluate: a version, `current`, `action:NAME`, `uniform`, or the file of a policy; of a "
            "table also `column:NAME`, which names its action in each row, or `columns:PREFIX`, which hold its "
            "probability of each action. The serving version if left out."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="What to compare with: the same, or `logged` for what was done. The serving version, or "
            "what was done, if left out."
        ),
    ] = None,
    by: Annotated[Many | None, typer.Option(help="Also for each value of this feature; repeat for more.")] = None,
    over: Annotated[str | None, typer.Option(help="Also over time: `day`, `week`, or a number of stretches.")] = None,
    since: Annotated[str | None, typer.Option(help="Only decisions from this day or moment on, UTC.")] = None,
    until: Annotated[str | None, typer.Option(help="Only decisions before this day or moment.")] = None,
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Only decisions that the policies have not learnt from.")
    ] = False,
    estimators: Annotated[
        str | None, typer.Option(help="Such as `dr,snips`; all if left out. `dr` speaks for the others.")
    ] = None,
    interval: Annotated[
        str,
        typer.Option(help="`normal`, `bootstrap`, `bernstein`, `exact`; several by commas, the first one is shown."),
    ] = "normal",
    level: Annotated[float, typer.Option(help="The confidence of intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Of what is drawn: replay, bootstrap.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write a page with figures here, such as evaluation.html.")] = None,
    action: Annotated[str | None, typer.Option(help="The column of what was done.", rich_help_panel=_OF_TABLES)] = None,
    reward: Annotated[
        str | None, typer.Option(help="The column of what came of it.", rich_help_panel=_OF_TABLES)
    ] = None,
    propensity: Annotated[
        str | None,
        typer.Option(
            help="The column of the probability with which it was done; or a number, if that was always the same.",
            rich_help_panel=_OF_TABLES,
        ),
    ] = None,
    moment: Annotated[
        str | None, typer.Option("--time", help="The column of when it was done.", rich_help_panel=_OF_TABLES)
    ] = None,
    context: Annotated[
        str | None,
        typer.Option(
            help="Columns of what was known beforehand, by commas: a reward model of them makes intervals narrower.",
            rich_help_panel=_OF_TABLES,
        ),
    ] = None,
    reward_range: Annotated[
        str | None,
        typer.Option(help="The least and the most that a reward can be, such as 0,1.", rich_help_panel=_OF_TABLES),
    ] = None,
    skip_unfit: Annotated[
        bool,
        typer.Option(
            "--skip-unfit", help="Leave out rows that will not do, instead of refusing.", rich_help_panel=_OF_TABLES
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Estimate what a policy would have earned on what was logged, and whether that can be trusted.

    Uses decisions whose exact probability was logged and whose reward is final. `potstill evaluate plan` says how well
    a policy's own log will do for that.

    Examples:
    potstill evaluate video --policy 12 --against current --by connection --out evaluation.html

    potstill evaluate clicks.csv --action banner --reward clicked --propensity p --policy action:blue
    """
    with requires("lake"):
        from potstill.cli import evaluate_logs as logs
        from potstill.cli.evaluate import show_evaluation
        from potstill.cli.update_terminal import rows
        from potstill.evaluate.estimators import ESTIMATORS
    if out is not None:
        if out.is_dir():
            fail(f"--out must name a file, such as {out / 'evaluation.html'}; {out} is a folder")
        make_directory(out.parent)
        with requires("lab"):
            from potstill.evaluate.report import page
    columns = {"action": action, "reward": reward, "propensity": propensity, "time": moment, "context": context}
    manner = {
        "estimators": _split(estimators) or list(ESTIMATORS),
        "intervals": _split(interval),
        "level": level,
        "seed": seed,
    }
    console = Console(stderr=as_json)
    with exit_on(*USER_ERRORS):
        span = logs.moment(since, "--since"), logs.moment(until, "--until")
        asked = logs.Asked(place, policy, against, _split(",".join(by or ())), _over(over), *span, unseen)
        with rows(console, "rows") as on_progress:
            compared = _compared(asked, columns, reward_range, on_progress, skip=skip_unfit)
            found, weights = _evaluated(compared, asked, manner)
        if out is not None:
            page(found, span=compared.log.span, notes=compared.notes, weights=weights).write(out)
    if as_json:
        read = {"log": place, "left_out": compared.log.left_out, "notes": compared.notes}
        print_json({**read, **msgspec.to_builtins(found)})
        return
    show_evaluation(found, compared.log.span, compared.notes, console)
    if out is not None:
        console.print(f"see it all in {out}", highlight=False, soft_wrap=True)


def _compared(
    asked: Asked, columns: dict[str, str | None], reward_range: str | None, on_progress: Progress, *, skip: bool
) -> Compared:
    from potstill.cli import evaluate_logs as logs

    if logs.is_table(asked.place):
        if asked.unseen:
            fail("--unseen is for workspaces, which know what their policies have learnt from")
        if asked.over is not None and not columns["time"]:
            fail("--over needs to know when rows were: name their column with --time")
        return logs.of_table(asked, _columns(columns), _range(reward_range), on_progress, skip=skip)
    stated = [f"--{name}" for name, column in {**columns, "reward-range": reward_range}.items() if column]
    if stated or skip:
        option = (stated or ["--skip-unfit"])[0]
        fail(f"{option} is for tables such as log.csv; {asked.place} is taken as a workspace, which needs none")
    return logs.of_workspace(asked, on_progress)


def _columns(stated: dict[str, str | None]) -> Columns:
    from potstill.tables.columns import Columns

    propensity = stated["propensity"] or "propensity"
    return Columns(
        action=stated["action"] or "action",
        reward=stated["reward"] or "reward",
        propensity=number if (number := _number(propensity)) is not None else propensity,
        time=stated["time"],
        context=tuple(_split(stated["context"])),
    )


def _range(stated: str | None) -> Reward:
    from potstill.problem import Reward

    if stated is None:
        return Reward()
    low, comma, high = stated.partition(",")
    ends = _number(low), _number(high)
    if not comma or None in ends:
        raise ValueError(f"--reward-range must be two numbers, such as 0,1, got {stated!r}")
    return Reward(low=ends[0], high=ends[1])


def _evaluated(compared: Compared, asked: Asked, manner: dict[str, Any]) -> tuple[Evaluation, Weighing | None]:
    """The evaluation, and the weights of its target; None if it is what was logged."""
    from potstill.evaluate.diagnostics import Weighing
    from potstill.evaluate.evaluation import evaluate as evaluated
    from potstill.evaluate.targets import Logged

    weighing = None if isinstance(compared.target, Logged) else Weighing(compared.target)
    found = evaluated(
        compared.log,
        weighing or compared.target,
        compared.against,
        by=asked.by,
        over=asked.over,
        learnt=compared.learnt,
        **manner,
    )
    return found, weighing


def _over(stated: str | None) -> Any:
    return int(stated) if stated is not None and stated.isdecimal() else stated


def _split(names: str | None) -> list[str]:
    return [name.strip() for name in (names or "").split(",") if name.strip()]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
