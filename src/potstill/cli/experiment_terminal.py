"""Experiments and plans in a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

if TYPE_CHECKING:
    from potstill.experiments.analysis.plan import Need, Plan
    from potstill.experiments.analysis.report import Report

_COLOURS = {"stop": "bold red", "worse": "red", "better": "green", "unknown": "yellow"}


def show_report(report: Report, console: Console) -> None:
    """The verdict first, then what it rests on."""
    from potstill.experiments.analysis.rows import LEFT_OUT, segment_rows, split_sentence

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
    from potstill.experiments.analysis.rows import ADJUSTED, NARROW, effect_rows, is_adjusted

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
    from potstill.experiments.analysis.rows import set_up

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
