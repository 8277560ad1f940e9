"""The report's page: which figures and tables stand where, and what is said about them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from potstill.lab.measure.latency import LEARNT
from potstill.lab.measure.measurements import Measurements
from potstill.lab.report import charts, tables
from potstill.lab.report import text as words
from potstill.lab.report.imitation import Imitated, with_cost
from potstill.lab.report.rows import Compared, Final, Timed
from potstill.lab.report.runs import PEERS, Run, Runs, problem_title
from potstill.lab.report.summary import Summary
from potstill.lab.runs.comparison import LEAST_TRIALS
from potstill.pages.page import Chart, Page, Section

_PRESETS = {"paper": "the paper's hyperparameters", "potstill": "Potstill's hyperparameters", PEERS: "other libraries"}


def page(runs: Runs, said: Summary) -> Page:
    """The whole page."""
    sections = [_comparison(said), *(_problem(runs, said, name) for name in runs.problems), *_measured(said)]
    if said.imitation:
        sections.append(_imitation(said.imitation))
    problems = ", ".join(problem_title(name) for name in runs.problems)
    return Page(
        "The paper's evaluation, rerun" if said.deviations else f"Trials on {problems}",
        f"Distilled policies (IL) against the Thompson sampling (TS) that they imitate, on {problems}. "
        f"{said.trials:,} trials in all.",
        _headlines(said),
        [section for section in sections if section] + [_origin(said)],
        name="Potstill lab: results",
    )


def _headlines(said: Summary) -> list[tuple[str, str]]:
    lines = []
    judged = [row.comparison for row in said.comparisons if row.comparison.outside is not None]
    if judged:
        within = sum(not one.outside for one in judged)
        lines.append(
            (
                f"{within} of {len(judged)}",
                "distilled policies are within two standard errors of their Thompson sampling, paired by trial.",
            )
        )
    lines += _peer_headline(said.finals)
    if distilled := [row for row in said.latency if row.speedup]:
        typical = float(np.median([row.median_us for row in distilled]))
        speedup = float(np.median([row.speedup for row in distilled if row.speedup]))
        lines.append(
            (
                f"{tables.microseconds(typical)} µs",
                f"per decision of a distilled policy. Thompson sampling takes {speedup:.0f} times as long (median).",
            )
        )
    return lines


def _peer_headline(finals: Sequence[Final]) -> list[tuple[str, str]]:
    """On how many problems some distilled policy of Potstill's preset beats the best of the other libraries."""
    distilled = [row for row in finals if row.preset == "potstill" and row.algorithm.endswith("-il")]
    rivals = [row for row in distilled if row.against_best_peer and row.final.trials >= LEAST_TRIALS]
    problems = {row.problem for row in rivals}
    won = [row for row in rivals if _is_better(row)]
    clearly = {row.problem for row in won if row.against_best_peer and row.against_best_peer.is_clear}
    if not problems:
        return []
    said = (
        "problems have a distilled policy of preset potstill whose mean is better than that of the best of the other "
        f"libraries; on {len(clearly)} of them the 95 % interval leaves out a tie."
    )
    return [(f"{len({row.problem for row in won})} of {len(problems)}", said)]


def _is_better(row: Final) -> bool:
    ratio = row.against_best_peer.ratio if row.against_best_peer else None
    return ratio is not None and (ratio < 1) == (row.measure == "regret")


def _comparison(said: Summary) -> Section | None:
    rows = said.comparisons
    if not rows:
        return None
    return Section(
        "Distilled policies against their Thompson sampling",
        f"{words.COMPARISON}\n\n{_by_chance(said)}",
        {"il-against-ts": charts.forest(rows)} if _has_intervals(rows) else {},
        tables.comparison_tables(rows),
    )


def _has_intervals(rows: Sequence[Compared]) -> bool:
    return any(row.comparison.low is not None for row in rows)


def _by_chance(said: Summary) -> str:
    judged = [row for row in said.comparisons if row.comparison.outside is not None]
    outside = [row for row in judged if row.comparison.outside]
    if not judged:
        return "There are too few trials for any verdict."
    made = "One comparison was made" if len(judged) == 1 else f"{len(judged)} comparisons were made"
    return (
        f"{made}. If no policy differed from its Thompson sampling, "
        f"{said.outside_by_chance:.1f} of them would be outside two standard errors by chance; {len(outside)} are."
    )


def _problem(runs: Runs, said: Summary, problem: str) -> Section:
    rows = [row for row in said.finals if row.problem == problem]
    return Section(
        problem_title(problem),
        _how_to_read(said, problem),
        _curves(runs, problem),
        [tables.final_table(rows)],
    )


def _how_to_read(said: Summary, problem: str) -> str:
    """How to read a problem's figures and table, unless an earlier section has said it."""
    earlier = said.finals[: next(i for i, row in enumerate(said.finals) if row.problem == problem)]
    rows = [row for row in said.finals if row.problem == problem]
    measure = words.REGRET if rows[0].measure == "regret" else words.REWARD
    peers = words.PEERS if any(row.best_peer for row in rows) else ""
    said_before = any(row.measure == rows[0].measure for row in earlier)
    peers_before = any(row.best_peer for row in earlier)
    return ("" if said_before else measure) + ("" if peers_before else peers)


def _curves(runs: Runs, problem: str) -> dict[str, Chart]:
    shown: dict[str, Chart] = {}
    for preset in runs.presets(problem):
        lines = runs.of(problem, preset)
        if preset == PEERS:
            lines = [*_distilled(runs, problem), *lines]
        heading = f"{problem_title(problem)}: {_PRESETS.get(preset, preset)}"
        shown[identifier(problem, preset)] = charts.curves(lines, heading)
    return shown


def _distilled(runs: Runs, problem: str) -> list[Run]:
    """What other libraries are to be seen beside."""
    return [run for run in runs.of(problem, "potstill") if run.imitates]


def _measured(said: Summary) -> list[Section]:
    measured = said.measurements
    if measured is None:
        return []
    sections = [_latency(said.latency, measured)] if said.latency else []
    return [*sections, _complexity(measured)]


def _latency(rows: Sequence[Timed], measured: Measurements) -> Section:
    return Section(
        "Decision latency",
        words.LATENCY.format(processor=measured.machine.processor, python=measured.machine.python, learnt=LEARNT),
        {"latency": charts.latencies(rows)},
        tables.latency_tables(rows),
        wide=True,
    )


def _complexity(measured: Measurements) -> Section:
    grown = measured.complexity
    return Section(
        "Time and memory as problems grow",
        words.COMPLEXITY,
        {
            "growth-time": charts.growth(grown, "us", "µs per decision"),
            "growth-memory": charts.growth(grown, "bytes", "bytes"),
        },
        [tables.complexity_table(grown)],
        wide=True,
    )


def _imitation(rows: Sequence[Imitated]) -> Section:
    figures: dict[str, Chart] = {}
    for preset in dict.fromkeys(row.preset for row in rows):
        chosen = [row for row in rows if row.preset == preset]
        figures[identifier("imitation-error", preset)] = charts.imitation_error(chosen, _PRESETS.get(preset, preset))
    if with_cost(rows):
        figures["imitation-price"] = charts.price(with_cost(rows))
    return Section(
        "Imitation error, its price, and what it cost",
        words.IMITATION,
        figures,
        [tables.imitation_table(rows)],
        wide=True,
    )


def _origin(said: Summary) -> Section:
    commit = said.commit or "not known: it was not made from a checkout"
    trials = "; ".join(f"{count:,} by {name}" for name, count in said.commits.items())
    deviations = "What is not as in the paper. " + "\n\n".join(said.deviations) + "\n\n" if said.deviations else ""
    notes = f"{said.notes.strip()}\n\n" if said.notes.strip() else ""
    return Section(
        "How this was made",
        f"{notes}{deviations}"
        f"Potstill {said.library}, commit {commit}. {f'Trials were run by commit: {trials}. ' if trials else ''}"
        "The commands, read off the results:",
        code="\n".join(said.commands),
    )


def identifier(*names: str) -> str:
    """A name for a figure and its file."""
    return re.sub(r"[^\w-]+", "-", "-".join(names))
