"""Terminal output of updates, audits and imports: progress bars, and a summary at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from potstill.cli.common import print_json
from potstill.cli.format import duration, mask_fidelity, plural, size, stamp, timestamp
from potstill.clock import now
from potstill.progress import bars
from potstill.spaces import ActionSpace, Continuous

if TYPE_CHECKING:
    from potstill.distill import ChoiceReport
    from potstill.pipeline import Audit, ImportReport, Reproduction, Status, UpdateReport
    from potstill.summaries import UpdateRun

#: Why observations are left out.
_UNFIT = "their action, features or reward do not fit problem.toml, which has changed"
_COUNT = "{task.completed:,.0f} of {task.total:,.0f} {task.fields[unit]}"


@contextmanager
def steps(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar for each step; steps over rows show rows per second and the time left."""
    with bars(console, Pace()) as progress:
        shown: dict[str, TaskID] = {}

        def show(step: str, done: int, of: int) -> None:
            if step not in shown:
                for bar in shown.values():
                    progress.update(bar, total=1, completed=1)
                    progress.stop_task(bar)
                shown[step] = progress.add_task(f"{step:8}", total=None)
            progress.update(shown[step], completed=done, total=of or None)

        yield show


class Pace(ProgressColumn):
    """Rows done, total rows, and rows per second."""

    def render(self, task: Task) -> Text:
        """The text of the column; empty if the total is not known."""
        if not task.total or task.finished:
            return Text("")
        pace = f", {task.speed:,.0f}/s" if task.speed else ""
        return Text(f"{task.completed:,.0f} of {task.total:,.0f}{pace}")


@contextmanager
def rows(console: Console, unit: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar over rows."""
    with bars(console, TextColumn(_COUNT)) as progress:
        yield _Rows(progress, progress.add_task("", total=0, unit=unit))


class _Rows:
    def __init__(self, progress: Progress, bar: TaskID) -> None:
        self._progress, self._bar = progress, bar

    def __call__(self, done: int, of: int) -> None:
        self._progress.update(self._bar, completed=done, total=of)


def show_report(
    report: UpdateReport,
    console: Console,
    *,
    as_json: bool,
    timed: bool = False,
    space: ActionSpace | None = None,
) -> None:
    """Print what an update did, or would do.

    Args:
        report: The report.
        console: Console to print on.
        as_json: Whether to print JSON.
        timed: Whether to begin every line with the time, as in a log.
        space: The action space, for the unit of distances.
    """
    if as_json:
        print_json(report)
        return
    at = f"{stamp()} " if timed else ""
    _show_lines(_lines(report, space), console, at)
    colour = {"published": "green", "refused": "red"}.get(report.outcome, "bold")
    console.print(f"{at}[{colour}]{report.outcome}[/]: {escape(report.why)}", highlight=False, soft_wrap=True)
    for line in (*report.reasons, *report.notices):
        console.print(f"{at}  {escape(line)}", highlight=False, soft_wrap=True)


def _show_lines(lines: dict[str, str], console: Console, at: str) -> None:
    """Print as a table for people, or as lines of a log, each with its time."""
    if at:
        for name, line in lines.items():
            console.print(f"{at}{name}: {escape(line)}", highlight=False, soft_wrap=True)
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name, line in lines.items():
        table.add_row(name, escape(line))
    console.print(table)


def _lines(report: UpdateReport, space: ActionSpace | None) -> dict[str, str]:
    lines = {}
    joined, flushed, still = report.joined, report.flushed, report.still
    if flushed is not None:
        lines["log → lake"] = f"{flushed.decisions:,} decisions, {flushed.rewards:,} rewards"
        if flushed.error:
            lines["log → lake"] += f"; stopped: {flushed.error}"
    if joined is None:
        return lines
    lines["joined"] = (
        f"{joined.decisions:,} decisions are final, {joined.rewarded:,} with a reward; {joined.pending:,} pending"
    )
    if unused := _unused(joined.rewards.late, joined.rewards.too_late, joined.rewards.orphans):
        lines["not used"] = unused
    if joined.ambiguous:
        lines["ambiguous"] = _ambiguous(joined.ambiguous)
    lines["observations"] = f"{report.observations:,} to learn from, up to cut {report.cut}"
    if report.unfit:
        lines["do not fit"] = f"{report.unfit:,} observations, left out: {_UNFIT}"
    if report.why_anew:
        lines["restart"] = f"the teacher learns from all observations again: {report.why_anew}"
    if still is not None:
        measured = msgspec.to_builtins(still.fidelity)
        lines["distilled"] = (
            f"on {still.contexts:,} contexts, {still.steps:,} steps"
            + (", warm start" if still.warm else "")
            + f"; held-out {_divergence_in_words(measured, space)}"
        )
        if measured.get("eligible"):
            lines["eligible"] = mask_fidelity(measured["eligible"])
        if still.choice is not None:
            lines["student"] = _chosen(still.choice)
        if still.selection is not None:
            lines["models"] = _selection_in_words(still.selection)
        if still.information_gain is not None:
            lines["information"] = f"{still.information_gain:.3g} nats gained by the teacher from these observations"
        if words := _cost_in_words(measured.get("cost"), _imitation_bound(measured)):
            lines["imitation"] = words
        if still.fidelity.floor_tv:
            lines["floor"] = _floor_in_words(measured)
        if report.contexts_unfit:
            lines["left out"] = f"{report.contexts_unfit:,} rows of further contexts that do not fit the problem"
        if (compared := report.compared) is not None:
            doubt = compared.trust.sentence.rstrip(".")
            sure = "" if compared.trust.grade == "good" else f"; {doubt[0].lower()}{doubt[1:]}"
            lines["by the log"] = f"{compared.in_words} against version {compared.against}{sure}"
        lines["took"] = ", ".join(f"{step} {took:.1f} s" for step, took in report.seconds.items() if took >= 0.05)
    return lines


def _chosen(choice: ChoiceReport) -> str:
    """The chosen student, its size and speed, and how it was chosen."""
    best = choice.tried[0]
    made = f"searched in {choice.seconds:.0f} s" if choice.searched else f"kept since version {choice.version}"
    return (
        f"{_network(choice.hidden)}, at most {choice.steps:,} steps: {size(choice.file_bytes)}, "
        f"{choice.microseconds:.2g} µs per decision; {made}, as {choice.why}; "
        f"of {len(choice.tried)} tried the lowest KL had {_network(best.hidden)}: {best.kl:.2g} nats"
    )


def _network(hidden: Sequence[int]) -> str:
    return " × ".join(map(str, hidden)) + " units" if hidden else "a linear softmax"


def _ambiguous(decisions: int) -> str:
    why = "logged with different actions or by different versions under one id (repeated requests)"
    return f"{plural(decisions, 'decision')} left out: {why}"


def _unused(late: int, too_late: int, orphans: int) -> str:
    """Rewards that were not used, in words; empty if all were."""
    counts = {
        "after their window": late,
        "after their decision was joined": too_late,
        "of no known decision": orphans,
    }
    return ", ".join(f"{plural(count, 'reward')} {what}" for what, count in counts.items() if count)


def _divergence_in_words(fidelity: dict[str, Any], space: ActionSpace | None) -> str:
    """KL from the teacher, and the Wasserstein distance in the unit of the action if actions have distances."""
    words, w1 = f"KL {fidelity['kl_mean']:.2g} nats", fidelity.get("w1_mean")
    if w1 is None:
        return words
    words += f", Wasserstein distance {w1:.2g}"
    if isinstance(space, Continuous):
        words += f" in {space.name}, {100 * w1 / (space.high - space.low):.2g} % of its range"
    return words


def _imitation_bound(fidelity: dict[str, Any]) -> float | None:
    """The smaller bound on the cost of imitation: by KL, or by the Wasserstein distance times the steepest slope."""
    return min(
        (fidelity[name] for name in ("regret_price", "w1_price") if fidelity.get(name) is not None), default=None
    )


def _floor_in_words(fidelity: dict[str, Any]) -> str:
    moved = f"it changes {100 * fidelity['floor_tv']:.2g} % of decisions"
    cost = _cost_in_words(fidelity.get("floor_cost"), fidelity.get("floor_price"))
    return f"{moved}, {cost}" if cost else moved


def _cost_in_words(cost: float | None, bound: float | None) -> str:
    """What imitation or a floor costs: by the teacher's mean rewards, and at most; empty if neither is known."""
    if cost is None:
        return "" if bound is None else f"costs at most {bound:.2g} reward per decision"
    atmost = "no bound: the problem declares no range of rewards" if bound is None else f"at most {bound:.2g}"
    return f"costs {cost:.2g} reward per decision by the teacher's mean rewards ({atmost})"


def _selection_in_words(selection: dict[str, dict[str, float]]) -> str:
    """Weights of the teacher's candidates and their errors, the largest weight first."""
    ranked = sorted(selection.items(), key=lambda named: -named[1]["weight"])
    return ", ".join(f"{name} {figures['weight']:.0%} (error {figures['rmse']:.3g})" for name, figures in ranked)


def show_status(found: Status, *, as_json: bool, space: ActionSpace | None = None) -> None:
    """Print the status of a workspace."""
    if as_json:
        print_json(found)
        return
    fidelity = "" if found.fidelity is None else f"; held-out {_divergence_in_words(found.fidelity, space)}"
    since = "not published yet" if found.since is None else f"since {timestamp(found.since)}"
    waits = f"{plural(found.log.segments, 'segment')}, {size(found.log.bytes)}" if found.log.segments else "nothing"
    joined = found.next.joined
    if found.fidelity is not None and found.fidelity.get("floor_tv"):
        fidelity += f"; floor: {_floor_in_words(found.fidelity)}"
    lines = {
        "workspace": found.workspace,
        "problem": f"{found.problem} ({found.problem_hash})",
        "serving": f"version {found.serving}, {since}",
        "decides": f"{found.decides}{fidelity}",
        "log": f"{waits} not in the lake yet",
        "joined": f"{joined.decisions:,} decisions to join; {joined.pending:,} pending",
        "update": found.next.why,
    }
    if by_mask := (found.fidelity or {}).get("eligible"):
        lines["eligible"] = mask_fidelity(by_mask)
    if found.selection is not None:
        lines["models"] = _selection_in_words(found.selection)
    if joined.ambiguous:
        lines["ambiguous"] = _ambiguous(joined.ambiguous)
    totals = found.rewards
    if unused := _unused(totals.late, totals.too_late, totals.orphans):
        lines["rewards"] = f"{totals.matched:,} used so far; not used: {unused}"
    if totals.uncounted:
        lines["not counted"] = f"rewards of {totals.uncounted:,} earlier joins"
    if found.latest is not None and found.latest > found.serving:
        lines["serving"] += f"; the latest is {found.latest} (potstill versions)"
    if found.pinned is not None:
        lines["pinned"] = f"{found.pinned.in_words}; updates stage their versions until potstill unpin or promote"
    if found.paused is not None:
        lines["paused"] = f"{found.paused.in_words}; no update is made until potstill resume"
    if found.experiment is not None:
        lines["experiment"] = f"{found.experiment.name}, {found.experiment.in_words}"
    if found.apprentice is not None:
        lines["apprentice"] = found.apprentice.words
    if found.update is not None:
        lines["last run"] = _run_in_words(found.update)
    if found.design is not None:
        lines["design"] = found.design.in_words
    if found.next.unfit:
        lines["update"] += f"; {found.next.unfit:,} are left out: {_UNFIT}"
    if others := [mark for mark in found.logs if mark.open and mark.gone is None]:
        behind = max(now() - mark.time for mark in others) / 1e6
        lines["logs"] = f"{plural(len(others), 'open log')}; the last one is {duration(max(behind, 0.0))} behind"
    for name, line in [*lines.items(), *(("notice", notice) for notice in found.notices)]:
        typer.echo(f"{name:10} {line}")


def _run_in_words(run: UpdateRun) -> str:
    """The last update."""
    if run.seconds is None:
        return f"began {timestamp(run.began)} and has not ended"
    times = f", {run.runs:,} times in a row" if run.runs > 1 else ""
    why = f": {run.why}" if run.outcome == "failed" else ""
    return f"{run.outcome} {timestamp(run.ended or run.began)} after {duration(run.seconds)}{times}{why}"


def show_reproduction(found: Reproduction, console: Console, *, as_json: bool) -> None:
    """Print whether a reproduced version is identical."""
    if as_json:
        print_json(found)
        return
    said = "[green]identical, byte for byte[/]" if found.identical else "[red]different[/]"
    console.print(f"version {found.version} reproduced: {said}", highlight=False)
    if found.replayed:
        console.print(f"  by replaying versions {', '.join(map(str, found.replayed))}", highlight=False)
    for line in found.differs:
        console.print(f"  {escape(line)}", highlight=False, soft_wrap=True)


def show_audit(found: Audit, console: Console, *, as_json: bool) -> None:
    """Print the result of an audit."""
    if as_json:
        print_json({**msgspec.to_builtins(found), "clean": found.clean})
        return
    fixed = f"; {found.fixed:,} had a fixed action" if found.fixed else ""
    console.print(f"{found.checked:,} of {found.decisions:,} decisions recomputed{fixed}", highlight=False)
    if found.clean:
        largest = f"largest relative difference {found.largest:.2g}"
        console.print(f"[green]all propensities and actions match[/] ({largest})", highlight=False)
    problems = {
        "propensities that differ": found.propensities,
        "actions that the draw does not give": found.actions,
        "decisions whose context or action does not fit the policy's problem": found.unfit,
        **{f"decisions of version {v}, which is not in the registry": n for v, n in found.missing.items()},
    }
    for what, count in problems.items():
        if count:
            console.print(f"[red]{count:,}[/] {what}", highlight=False)
    if found.mismatches:
        table = Table("decision", "version", "what", "logged", "computed")
        for one in found.mismatches:
            table.add_row(escape(one.id), str(one.policy), one.what, escape(str(one.logged)), escape(str(one.computed)))
        console.print(table)


def show_import(found: ImportReport, console: Console, *, as_json: bool) -> None:
    """Print the result of an import."""
    if as_json:
        print_json(found)
        return
    console.print(f"{found.observations:,} observations imported, as cut {found.cut}", highlight=False)
    if found.skipped:
        console.print(f"{found.skipped:,} rows that do not fit were skipped", highlight=False)
    if found.estimated:
        how = "each action's share of it, or a histogram of a number"
        console.print(f"propensities are estimated from the log: {how}", highlight=False)
    console.print("the next potstill update learns from them", highlight=False)
