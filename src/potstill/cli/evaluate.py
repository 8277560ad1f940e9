"""`potstill evaluate`: off-policy evaluation on a log."""

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
from potstill.cli.table_options import (
    OF_TABLES,
    Action,
    Context,
    Density,
    Propensity,
    RewardColumn,
    SkipUnfit,
    Time,
    number,
    split,
)
from potstill.cli.table_options import columns as columns_of
from potstill.errors import InvalidOption
from potstill.evaluate import Evaluation, OffPolicyEstimate, SegmentEvaluation, text

if TYPE_CHECKING:
    from potstill.cli.evaluate_logs import EvaluationInputs, EvaluationRequest
    from potstill.evaluate import Progress, WeightHistogram
    from potstill.problem import Reward

_COLOURS = {"good": "green", "caution": "yellow", "no": "red"}


evaluate = default_group("evaluate", "log", "Estimate what another policy would have earned on what was logged.")
Many = list[str]


def show_evaluation(
    evaluation: Evaluation, span: tuple[int, int] | None, notes: Sequence[str], console: Console
) -> None:
    """Print estimates, segments, periods of time, and the verdict."""
    console.print(_title(evaluation, span), highlight=False, soft_wrap=True)
    tables = [_estimates(evaluation)]
    tables += [_segments(evaluation, f"by {feature}", segments) for feature, segments in evaluation.segments.items()]
    tables += [_segments(evaluation, "over time", evaluation.stretches)] if evaluation.stretches else []
    for table in tables:
        console.print(table, "")
    for note in (*text.footnotes(evaluation), *text.smoothing(evaluation), *notes):
        console.print(escape(note), highlight=False, soft_wrap=True, style="dim")
    console.print(escape(text.verdict(evaluation)), highlight=False, soft_wrap=True, style="bold")
    colour = _COLOURS[text.doubt(evaluation)[1].grade]
    console.print(escape(text.trusted(evaluation)), highlight=False, soft_wrap=True, style=colour)


def _title(evaluation: Evaluation, span: tuple[int, int] | None) -> str:
    against = f" against {evaluation.against.name}" if evaluation.against else ""
    rows = f"{evaluation.rows:,} decisions {text.spanned(span)}".strip()
    return escape(f"{evaluation.target.name}{against}, on {rows}; {text.percent(evaluation.level)} intervals")


def _table(evaluation: Evaluation, *first: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(escape(first[0]))
    names = [evaluation.target.name, *([evaluation.against.name, "difference"] if evaluation.against else [])]
    for name in (*first[1:], *names):
        table.add_column(escape(name), justify="right", no_wrap=True)
    table.add_column("interval", no_wrap=True)
    return table


def _cells(
    figures: text.Figures,
    target: OffPolicyEstimate,
    against: OffPolicyEstimate | None,
    difference: OffPolicyEstimate | None,
) -> list[str]:
    """The value of the target with its interval; with two targets, the interval of the difference."""
    if against is None or difference is None:
        return [figures.number(target.value), figures.interval(target)]
    values = [figures.number(target.value), figures.number(against.value), figures.change(difference.value)]
    return [*values, figures.interval(difference, signed=True)]


def _estimates(evaluation: Evaluation) -> Table:
    table, figures = _table(evaluation, "estimator"), text.Figures(evaluation)
    others = evaluation.against.estimates if evaluation.against else {}
    for name, estimate in evaluation.target.estimates.items():
        cells = _cells(figures, estimate, others.get(name), (evaluation.difference or {}).get(name))
        style = "bold" if name == evaluation.headline else None
        table.add_row(escape(text.starred(estimate)), *cells, style=style)
    return table


def _segments(evaluation: Evaluation, title: str, segments: Sequence[SegmentEvaluation]) -> Table:
    table, figures = _table(evaluation, title, "rows"), text.Figures(evaluation)
    table.add_column("", no_wrap=True)
    for one in segments:
        cells = _cells(figures, one.target, one.against, one.difference)
        word = text.doubtful(one) if one.trust.grade == "no" else ""  # nearly all segments deserve some caution
        table.add_row(escape(one.name), f"{one.rows:,}", *cells, word, style="dim" if word else None)
    return table


app.add_typer(evaluate)


@evaluate.command(no_args_is_help=True)
def log(
    place: Annotated[
        str,
        typer.Argument(
            metavar="DIR|LOG", help="A workspace, or a log of your own: .csv, .parquet.", show_default=False
        ),
    ],
    policy: Annotated[
        str | None,
        typer.Option(
            help="Policy to evaluate: a version, `current`, `action:NAME` (or `action:9.99`), `uniform`, or a policy "
            "file; for a table also `column:NAME`, a column with its action in each row, `columns:PREFIX`, columns "
            "with its probability of each action, or `FILE.npy`, an array of these. Default: the serving version."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Policy to compare with, stated likewise, or `logged` for what was done. Default: the serving "
            "version, or `logged` if that is evaluated."
        ),
    ] = None,
    by: Annotated[Many | None, typer.Option(help="Also evaluate each value of this feature. Repeatable.")] = None,
    over: Annotated[
        str | None, typer.Option(help="Also evaluate periods of time: `day`, `week`, or a number of periods.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="Only decisions from this day or time on, UTC.")] = None,
    until: Annotated[str | None, typer.Option(help="Only decisions before this day or time, UTC.")] = None,
    unseen: Annotated[
        bool, typer.Option("--unseen", help="Only decisions that the policies were not trained on.")
    ] = False,
    held_out: Annotated[
        bool,
        typer.Option("--held-out", help="State that policies of other places were not trained on these decisions."),
    ] = False,
    estimators: Annotated[
        str | None, typer.Option(help="Estimators, such as `dr,snips`. `dr` is the headline. Default: all.")
    ] = None,
    interval: Annotated[
        str,
        typer.Option(
            help="`likelihood`, `normal`, `bootstrap`, `bernstein`, `exact`; comma-separated, the first one is shown."
        ),
    ] = "likelihood",
    level: Annotated[float, typer.Option(help="Confidence level of intervals.")] = 0.95,
    bandwidth: Annotated[
        float | None,
        typer.Option(
            help="If actions are numbers: how far rewards of nearby numbers count for a policy without a density, as "
            "a share of the interval. Default: chosen from the log."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of replay and bootstrap.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write an HTML page with charts, such as evaluation.html.")] = None,
    action: Action = None,
    reward: RewardColumn = None,
    propensity: Propensity = None,
    density: Density = None,
    low: Annotated[
        float | None,
        typer.Option(
            help="Smallest possible number. Default: the smallest in the action column.", rich_help_panel=OF_TABLES
        ),
    ] = None,
    high: Annotated[
        float | None,
        typer.Option(
            help="Largest possible number. Default: the largest in the action column.", rich_help_panel=OF_TABLES
        ),
    ] = None,
    moment: Time = None,
    context: Context = None,
    position: Annotated[
        str | None,
        typer.Option(
            help="Column of the position that an action was shown at: also evaluates each, and the reward model "
            "distinguishes them.",
            rich_help_panel=OF_TABLES,
        ),
    ] = None,
    reward_range: Annotated[
        str | None,
        typer.Option(help="Smallest and largest possible reward, such as 0,1.", rich_help_panel=OF_TABLES),
    ] = None,
    skip_unfit: SkipUnfit = False,
    as_json: AsJson = False,
) -> None:
    """Estimate what a policy would have earned on logged decisions, and whether the estimate can be trusted.

    Uses decisions whose exact probability was logged and whose reward is final. `potstill evaluate plan` says how
    precise such estimates will be before a policy serves.

    Examples:
    potstill evaluate video --policy 12 --against current --by connection --out evaluation.html

    potstill evaluate clicks.csv --action banner --reward clicked --propensity p --policy action:blue

    potstill evaluate doses.csv --action dose --density f --policy column:target_dose
    """
    with requires("lake"):
        from potstill.cli import evaluate_logs as logs
        from potstill.cli.evaluate import show_evaluation
        from potstill.cli.update_terminal import rows
    if out is not None:
        if out.is_dir():
            fail(f"--out must be a file, such as {out / 'evaluation.html'}; {out} is a folder")
        make_directory(out.parent)
        with requires("lab"):
            from potstill.evaluate import page
    columns = {
        "action": action,
        "reward": reward,
        "propensity": propensity,
        "density": density,
        "time": moment,
        "context": context,
    }
    options = {
        "estimators": split(estimators),
        "intervals": split(interval),
        "level": level,
        "seed": seed,
        "bandwidth": bandwidth,
    }
    console = Console(stderr=as_json)
    with exit_on(*USER_ERRORS):
        span = logs.moment(since, "--since"), logs.moment(until, "--until")
        segments = split(",".join(by or ()))
        request = logs.EvaluationRequest(
            place,
            policy,
            against,
            segments,
            _over(over),
            *span,
            unseen,
            held_out=held_out,
            position=position,
            interval=(low, high),
        )
        with rows(console, "rows") as on_progress:
            inputs = _inputs(request, columns, reward_range, on_progress, skip=skip_unfit)
            found, weights = _evaluate(inputs, request, options)
        if out is not None:
            page(found, span=inputs.log.span, notes=inputs.notes, weights=weights).write(out)
    if as_json:
        read = {"log": place, "left_out": inputs.log.left_out, "notes": inputs.notes}
        print_json({**read, **msgspec.to_builtins(found)})
        return
    show_evaluation(found, inputs.log.span, inputs.notes, console)
    if out is not None:
        console.print(f"page written to {out}", highlight=False, soft_wrap=True)


def _inputs(
    request: EvaluationRequest,
    columns: dict[str, str | None],
    reward_range: str | None,
    on_progress: Progress,
    *,
    skip: bool,
) -> EvaluationInputs:
    from potstill.cli import evaluate_logs as logs

    if logs.is_table(request.place):
        if request.unseen:
            fail("--unseen needs a workspace, which knows what its policies were trained on")
        if request.over is not None and not columns["time"]:
            fail("--over needs the time of each row: name its column with --time")
        return logs.of_table(request, columns_of(columns, "propensity"), _range(reward_range), on_progress, skip=skip)
    ends = dict(zip(("low", "high"), request.interval, strict=True))
    of_tables = {**columns, "position": request.position, "reward-range": reward_range, **ends}
    stated = [f"--{name}" for name, column in of_tables.items() if column is not None]
    if stated or skip:
        option = (stated or ["--skip-unfit"])[0]
        fail(f"{option} is for tables such as log.csv; {request.place} is taken as a workspace, which needs none")
    return logs.of_workspace(request, on_progress)


def _range(stated: str | None) -> Reward:
    from potstill.problem import Reward

    if stated is None:
        return Reward()
    low, comma, high = stated.partition(",")
    ends = number(low), number(high)
    if not comma or None in ends:
        raise InvalidOption(f"--reward-range must be two numbers, such as 0,1, got {stated!r}")
    return Reward(low=ends[0], high=ends[1])


def _evaluate(
    inputs: EvaluationInputs, request: EvaluationRequest, options: dict[str, Any]
) -> tuple[Evaluation, WeightHistogram | None]:
    """The evaluation, and the histogram of the target's weights; None for `logged`."""
    from potstill.cli import evaluate_logs as logs
    from potstill.evaluate import ESTIMATORS, LoggedTarget, WeightHistogram, with_estimated_propensities
    from potstill.evaluate import evaluate as run_evaluation

    histogram = None if isinstance(inputs.target, LoggedTarget) else WeightHistogram(inputs.target)
    # Replay needs rows whose action the target draws; no number is drawn twice.
    unfit = () if inputs.log.problem.actions.measure == "counting" else ("replay",)
    options["estimators"] = options["estimators"] or [name for name in ESTIMATORS if name not in unfit]
    found = run_evaluation(
        inputs.log,
        histogram or inputs.target,
        inputs.against,
        by=logs.by_position(request),
        over=request.over,
        learnt=inputs.learnt,
        **options,
    )
    return with_estimated_propensities(found) if inputs.estimated else found, histogram


def _over(stated: str | None) -> Any:
    return int(stated) if stated is not None and stated.isdecimal() else stated
