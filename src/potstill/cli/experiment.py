"""Randomised experiments: what one has shown, and how long one has to be."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from potstill.cli.app import AsJson, app, fail, make_directory, needs, print_json, refusing
from potstill.cli.common import MENDABLE, Place
from potstill.cli.groups import group

if TYPE_CHECKING:
    from potstill.experiments.analysis.planning import Need, Plan
    from potstill.experiments.analysis.report import Report

_COLOURS = {"stop": "bold red", "worse": "red", "better": "green", "unknown": "yellow"}


experiment = group(
    "experiment", "report", "What a randomised experiment has shown, and how many units one needs (`plan`)."
)
MetricName = Annotated[str, typer.Option("--metric", help="The outcome: reward, or the name of a metric.")]
PerWhat = Annotated[Literal["decision", "unit"], typer.Option("--per", help="Taken per decision, or summed per unit.")]
Level = Annotated[float, typer.Option(help="The confidence of each interval.")]
Share = Annotated[
    float | None,
    typer.Option(help="Of units that should be in treatment; as potstill.toml says if left out.", show_default=False),
]


def show_report(report: Report, console: Console) -> None:
    """The verdict first, then what it rests on."""
    from potstill.experiments.analysis.report import LEFT_OUT, segment_rows, split_sentence

    colour = _COLOURS.get(report.verdict.kind, "bold")
    _say(console, f"[{colour}]{escape(report.verdict.sentence)}[/]")
    for line in (report.verdict.often, *report.warnings):
        _say(console, escape(line))
    if not report.split.control + report.split.treatment:
        return
    console.print()
    if report.split.broken:
        _say(console, LEFT_OUT)
    else:
        _show_effects(report, console)
    if report.segments is not None and not report.split.broken:
        console.print()
        _table(console, *segment_rows(report.segments))
        _say(console, escape(report.segments.sentence))
    console.print()
    _show_set_up(report, console)
    _say(console, split_sentence(report))


def _show_effects(report: Report, console: Console) -> None:
    """All columns where there is room; else those that matter most, so that no cell is broken."""
    from potstill.experiments.analysis.report import ADJUSTED, NARROW, effect_rows, is_adjusted

    header, rows = effect_rows(report)
    whole = _made(header, rows)
    if Measurement.get(console, console.options.update(max_width=10_000), whole).maximum > console.width:
        _table(console, [header[one] for one in NARROW], [[row[one] for one in NARROW] for row in rows])
        _say(console, "A wider window, --json and --out show means, p and what the past explains.")
        return
    console.print(whole)
    if is_adjusted(report):
        _say(console, ADJUSTED)


def _show_set_up(report: Report, console: Console) -> None:
    from potstill.experiments.analysis.report import set_up

    lines, units, decisions = set_up(report), report.split, report.decisions
    for arm in ("control", "treatment"):
        said = f": {lines[arm]}" if arm in lines else ""
        lines[arm] = f"{getattr(units, arm):,} units, {getattr(decisions, arm):,} decisions{said}"
    for name in ("control", "treatment", "start", "period", "level", "planned"):
        if name in lines:
            _say(console, f"{name:10} {escape(lines[name])}")


def show_plan(plan: Plan, metric: str, place: str | None, console: Console) -> None:
    """What is needed, and what other lengths would give."""
    from potstill.experiments.analysis import text

    size = text.number(plan.effect) + (f", {text.percent(plan.relative)} of the mean," if plan.relative else "")
    mean = "" if plan.mean is None else f"mean {text.number(plan.mean)}, "
    _say(console, f"To find an effect of {size} on {metric} with probability {plan.power:g}")
    _say(
        console,
        f"({mean}standard deviation {text.number(plan.sd)} over units; level {plan.level:g}, share {plan.share:g}):",
    )
    for name, line in _lines(plan).items():
        _say(console, f"  {name:18} {line}")
    if plan.outlook:
        console.print()
        _table(
            console,
            ("days", "units", "effect that could be seen"),
            [
                (
                    str(one.days),
                    f"{one.units:,}",
                    text.number(one.effect) if one.relative is None else text.percent(one.relative),
                )
                for one in plan.outlook
            ],
        )
    if plan.log_days is not None and plan.new_each_day is None:
        console.print()
        _say(
            console,
            f"How many days that takes is not said: the log has {text.counted(plan.log_days, 'day')}, and a week is "
            "needed to see how many units come back.",
        )
    if place is not None:
        console.print()
        _say(console, f"To look every day: potstill experiment {escape(shlex.quote(place))} {_options(plan, metric)}")


def _options(plan: Plan, metric: str) -> str:
    """With which a report is about what was planned."""
    outcome, _, per = metric.rpartition(" per ")
    stated = {
        "--metric": "" if outcome == "reward" else shlex.quote(outcome),
        "--per": "" if per == "decision" else per,
        "--level": "" if plan.level == 0.95 else f"{plan.level:g}",
        "--planned": str(plan.every_day.units),
    }
    return " ".join(f"{name} {value}" for name, value in stated.items() if value)


def _lines(plan: Plan) -> dict[str, str]:
    from potstill.experiments.analysis import text

    lines = {"looking once": _need(plan.once, plan)}
    if plan.with_past is not None and plan.explained is not None:
        share = text.percent(plan.explained)
        lines["with CUPED"] = f"{_need(plan.with_past, plan)}: the past explains {share} of the variance"
    dearer = plan.every_day.units / plan.once.units
    lines["looking every day"] = f"at most {_need(plan.every_day, plan)}, {dearer:.1f} times as many"
    lines[""] = f"half of such experiments end by {_need(plan.half_by, plan)}, and those with larger effects sooner"
    return lines


def _need(need: Need, plan: Plan) -> str:
    units = f"{need.units:,} units"
    if plan.new_each_day is None:
        return units
    if need.days is None:
        return f"{units} (more than ten years: {plan.new_each_day:,.3g} new units a day)"
    return f"{units} ({need.days:,} {'day' if need.days == 1 else 'days'})"


def _say(console: Console, line: str) -> None:
    if line:
        console.print(line, highlight=False, soft_wrap=True)


def _table(console: Console, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    console.print(_made(header, rows))


def _made(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(*header, box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*map(escape, row))
    return table


app.add_typer(experiment)


@experiment.command(no_args_is_help=True)
def report(
    place: Place,
    name: Annotated[
        str | None, typer.Option(help="Of the experiment; the one in potstill.toml if left out.", show_default=False)
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="FEATURE", help="Also show effects by a context feature.", show_default=False),
    ] = None,
    metric: MetricName = "reward",
    per: PerWhat = "decision",
    level: Level = 0.95,
    planned: Annotated[
        int,
        typer.Option(min=2, help="Units that were planned: there the interval for daily looks is narrowest."),
    ] = 1_000,
    past: Annotated[int, typer.Option(min=1, help="Days before the start to adjust by (CUPED).")] = 28,
    share: Share = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="That was randomised: unit, or a feature; as potstill.toml says if left out.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the report as a page, such as experiment.html.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what a randomised experiment has shown: effects with intervals, checks, and a verdict.

        potstill experiment video --by connection --out experiment.html

    Units whose decisions have become final are compared, treatment against control. State `--metric` and `--planned`
    once, before you look: choosing them by what is seen makes intervals void. `potstill experiment plan` says how many
    units you need.
    """
    with needs("lake"), needs("learn"):
        from potstill.events import now
        from potstill.experiments.analysis.workspace import Options, report_of
        from potstill.workspace import Workspace

    options = Options(
        share=share,
        unit=unit,
        metric=metric,
        per=per,
        by=_one(by),
        level=level,
        planned=planned,
        past_days=past,
    )
    with refusing(*MENDABLE), Console(stderr=True).status("reading observations"):
        found = report_of(Workspace(place), name, options, now())
    if out is not None:
        _write(found, out)
    if as_json:
        print_json(found)
        return
    from potstill.cli.experiment import show_report

    show_report(found, Console())
    if out is not None:
        typer.echo(str(out))


def _one(by: list[str] | None) -> str | None:
    """The feature to show effects by. Intervals and p-values are corrected for its values, and not for a second one."""
    if by and len(by) > 1:
        fail(f"--by can be stated once, got {' and '.join(by)}; run it again for each of the others")
    return by[0] if by else None


def _write(found: Report, out: Path) -> None:
    with needs("lab"):
        from potstill.experiments.analysis.page import page
    make_directory(out.parent)
    with refusing(OSError):
        page(found).write(out)


@experiment.command()
def plan(
    place: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="A workspace to take mean, spread and traffic from.")
    ] = None,
    effect: Annotated[
        str, typer.Option(help="To be found: 2% of the mean, or 0.01 as it is.", show_default=False)
    ] = "",
    mean: Annotated[float | None, typer.Option(help="Of the metric, without a workspace.", show_default=False)] = None,
    sd: Annotated[
        float | None, typer.Option(help="Its standard deviation over units, without a workspace.", show_default=False)
    ] = None,
    explained: Annotated[
        float | None,
        typer.Option(min=0, max=0.99, help="The share of variance that a unit's past explains.", show_default=False),
    ] = None,
    metric: MetricName = "reward",
    per: PerWhat = "decision",
    power: Annotated[float, typer.Option(help="The probability with which the effect is to be found.")] = 0.8,
    level: Level = 0.95,
    share: Share = None,
    as_json: AsJson = False,
) -> None:
    """Say how many units an experiment needs for an effect, and how many days that is.

        potstill experiment plan video --effect 2%

        potstill experiment plan --mean 0.43 --sd 0.9 --effect 0.01

    With a workspace, mean, spread and traffic are those of the last four weeks of its log.
    """
    if not effect:
        fail("state the effect that you want to find: --effect 2% of the mean, or --effect 0.01 as it is")
    with needs("lake"), needs("learn"):
        from potstill.experiments.analysis.planning import Wanted, plan_for
        from potstill.workspace import Workspace

    wanted = Wanted(
        effect=effect,
        mean=mean,
        sd=sd,
        explained=explained,
        metric=metric,
        per=per,
        power=power,
        level=level,
        share=share,
    )
    with refusing(*MENDABLE), Console(stderr=True).status("reading observations"):
        made = plan_for(wanted, None if place is None else Workspace(place))
    if as_json:
        print_json(made)
        return
    from potstill.cli.experiment import show_plan

    show_plan(made, f"{metric} per {per}", place, Console())
