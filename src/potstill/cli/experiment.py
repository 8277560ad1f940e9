"""Randomised experiments: what one has shown, and how long one has to be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from potstill.cli.app import AsJson, app, fail, make_directory, needs, print_json, refusing
from potstill.cli.common import MENDABLE, Place
from potstill.cli.groups import group

if TYPE_CHECKING:
    from potstill.experiments.analysis.report import Report

experiment = group(
    "experiment", "report", "What a randomised experiment has shown, and how many units one needs (`plan`)."
)
app.add_typer(experiment)

MetricName = Annotated[str, typer.Option("--metric", help="The outcome: reward, or the name of a metric.")]
PerWhat = Annotated[Literal["decision", "unit"], typer.Option("--per", help="Taken per decision, or summed per unit.")]
Level = Annotated[float, typer.Option(help="The confidence of each interval.")]
Share = Annotated[
    float | None,
    typer.Option(help="Of units that should be in treatment; as potstill.toml says if left out.", show_default=False),
]


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
        from potstill.events.records import now
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
    from potstill.cli.experiment_terminal import show_report

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
    from potstill.cli.experiment_terminal import show_plan

    show_plan(made, f"{metric} per {per}", place, Console())
