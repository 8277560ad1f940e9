"""Randomised experiments: report one, and plan its size."""

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

from potstill.cli.common import USER_ERRORS, AsJson, Place, default_group, exit_on, fail, make_directory, print_json
from potstill.cli.extras import requires
from potstill.cli.root import app

if TYPE_CHECKING:
    from potstill.experiments.analysis import Need, Plan, Report

_COLOURS = {"stop": "bold red", "worse": "red", "better": "green", "unknown": "yellow"}


experiment = default_group(
    "experiment", "report", "Report a randomised experiment, or plan how many units it needs (`plan`)."
)
MetricName = Annotated[str, typer.Option("--metric", help="Outcome: reward, or the name of a metric.")]
PerWhat = Annotated[Literal["decision", "unit"], typer.Option("--per", help="Mean per decision, or sum per unit.")]
Level = Annotated[float, typer.Option(help="Confidence level of each interval.")]
Share = Annotated[
    float | None,
    typer.Option(help="Expected share of units in treatment. Default: that of potstill.toml.", show_default=False),
]


def show_report(report: Report, console: Console) -> None:
    """Print the verdict, then the effects and checks behind it."""
    from potstill.experiments.analysis import LEFT_OUT, segment_rows, split_sentence

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
    """Print all columns if the terminal is wide enough, otherwise the most important ones."""
    from potstill.experiments.analysis import ADJUSTED, NARROW, effect_rows, is_adjusted

    header, rows = effect_rows(report)
    whole = _made(header, rows)
    if Measurement.get(console, console.options.update(max_width=10_000), whole).maximum > console.width:
        _table(console, [header[one] for one in NARROW], [[row[one] for one in NARROW] for row in rows])
        _say(console, "A wider terminal, --json and --out also show means, p-values and what CUPED explains.")
        return
    console.print(whole)
    if is_adjusted(report):
        _say(console, ADJUSTED)


def _show_set_up(report: Report, console: Console) -> None:
    from potstill.experiments.analysis import set_up

    lines, units, decisions = set_up(report), report.split, report.decisions
    for arm in ("control", "treatment"):
        said = f": {lines[arm]}" if arm in lines else ""
        lines[arm] = f"{getattr(units, arm):,} units, {getattr(decisions, arm):,} decisions{said}"
    for name in ("control", "treatment", "start", "period", "level", "planned"):
        if name in lines:
            _say(console, f"{name:10} {escape(lines[name])}")


def show_plan(plan: Plan, metric: str, place: str | None, console: Console) -> None:
    """Print the needed number of units, and the effects that other durations could detect."""
    from potstill.experiments.analysis import text

    size = text.number(plan.effect) + (f", {text.percent(plan.relative)} of the mean," if plan.relative else "")
    mean = "" if plan.mean is None else f"mean {text.number(plan.mean)}, "
    _say(console, f"To detect an effect of {size} on {metric} with power {plan.power:g}")
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
            ("days", "units", "detectable effect"),
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
            f"The number of days is not estimated: the log has {text.counted(plan.log_days, 'day')}, and a week is "
            "needed to estimate how many units return.",
        )
    if place is not None:
        console.print()
        _say(console, f"To look every day: potstill experiment {escape(shlex.quote(place))} {_options(plan, metric)}")


def _options(plan: Plan, metric: str) -> str:
    """Options with which a report matches the plan."""
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
    lines[""] = f"half of such experiments end by {_need(plan.half_by, plan)}; larger effects end sooner"
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
@requires("lake")
def report(
    place: Place,
    name: Annotated[
        str | None, typer.Option(help="Name of the experiment. Default: the one in potstill.toml.", show_default=False)
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="FEATURE", help="Show effects by a context feature too.", show_default=False),
    ] = None,
    metric: MetricName = "reward",
    per: PerWhat = "decision",
    level: Level = 0.95,
    planned: Annotated[
        int,
        typer.Option(min=2, help="Planned number of units; the interval for daily looks is narrowest there."),
    ] = 1_000,
    past: Annotated[int, typer.Option(min=1, help="Days before the start to adjust by (CUPED).")] = 28,
    share: Share = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="What was randomised: unit, or a feature. Default: that of potstill.toml.", show_default=False
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the report as a page, such as experiment.html.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Report a randomised experiment: effects with intervals, checks, and a verdict.

        potstill experiment video --by connection --out experiment.html

    Compares treatment with control on units whose decisions are final. Choose `--metric` and `--planned` before you
    look: choosing them by the results makes the intervals invalid. `potstill experiment plan` says how many units you
    need.
    """
    from potstill.events import now
    from potstill.experiments.analysis import Options, report_of
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
    with exit_on(*USER_ERRORS), Console(stderr=True).status("reading observations"):
        found = report_of(Workspace(place), name, options, now())
    if out is not None:
        _write(found, out)
    if as_json:
        print_json(found)
        return
    show_report(found, Console())
    if out is not None:
        typer.echo(str(out))


def _one(by: list[str] | None) -> str | None:
    """The feature to show effects by; one only, since intervals are corrected for the values of one feature."""
    if by and len(by) > 1:
        fail(f"--by can be given once, got {' and '.join(by)}; run the command once for each")
    return by[0] if by else None


@requires("lab")
def _write(found: Report, out: Path) -> None:
    from potstill.experiments.analysis import report_page

    make_directory(out.parent)
    with exit_on(OSError):
        report_page(found).write(out)


@experiment.command()
@requires("lake")
def plan(
    place: Annotated[
        str | None, typer.Argument(metavar="[DIR]", help="Workspace to take mean, deviation and traffic from.")
    ] = None,
    effect: Annotated[
        str, typer.Option(help="Effect to detect: relative, such as 2%, or absolute, such as 0.01.", show_default=False)
    ] = "",
    mean: Annotated[float | None, typer.Option(help="Mean of the metric, if no workspace.", show_default=False)] = None,
    sd: Annotated[
        float | None, typer.Option(help="Standard deviation over units, if no workspace.", show_default=False)
    ] = None,
    explained: Annotated[
        float | None,
        typer.Option(min=0, max=0.99, help="Share of variance that a unit's past explains.", show_default=False),
    ] = None,
    metric: MetricName = "reward",
    per: PerWhat = "decision",
    power: Annotated[float, typer.Option(help="Probability of detecting the effect.")] = 0.8,
    level: Level = 0.95,
    share: Share = None,
    as_json: AsJson = False,
) -> None:
    """Plan an experiment: how many units, and days, it needs to detect an effect.

        potstill experiment plan video --effect 2%

        potstill experiment plan --mean 0.43 --sd 0.9 --effect 0.01

    With a workspace, mean, deviation and traffic are those of the last four weeks of its log.
    """
    if not effect:
        fail("state the effect to detect: --effect 2% (of the mean), or --effect 0.01 (absolute)")
    from potstill.experiments.analysis import Wanted, plan_for
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
    with exit_on(*USER_ERRORS), Console(stderr=True).status("reading observations"):
        made = plan_for(wanted, None if place is None else Workspace(place))
    if as_json:
        print_json(made)
        return
    show_plan(made, f"{metric} per {per}", place, Console())
