"""Page of the report: order of figures and tables, and the text around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import dedent

import numpy as np

from potstill.lab.measure import LEARNT, Measurements
from potstill.lab.report import charts, tables
from potstill.lab.report.rows import Compared, Final, Imitated, Timed, with_cost
from potstill.lab.report.runs import PEERS, Run, Runs, problem_title
from potstill.lab.report.summary import Summary
from potstill.lab.runs import LEAST_TRIALS
from potstill.pages import Chart, Page, Section

_CURVES = """
    Mean over trials with two standard errors, the first, uniform batch included. Solid lines are distilled policies and
    baselines; dashed ones act on posterior samples, or are other libraries'.
"""
_PRESETS = {"paper": "the paper's hyperparameters", "potstill": "Potstill's hyperparameters", PEERS: "other libraries"}


def _flowed(text: str) -> str:
    """Paragraphs without the line breaks of the source."""
    return "\n\n".join(" ".join(part.split()) for part in dedent(text).split("\n\n"))


COMPARISON = _flowed("""
    Trials of equal number meet the same requests with the same luck, so algorithms are compared in pairs. The ratio is
    that of mean final regret, IL over TS (of mean reward where a log is replayed). Its 95 % interval is Fieller's, with
    t quantiles: all ratios ρ for which the mean of IL − ρ·TS over trials is not significantly away from 0. The verdict
    goes by two standard errors of the paired difference. In the figure, blue is within them, red is outside, and grey
    has too few trials to tell.
""")


REGRET = _flowed(f"""
    Regret is the expected reward given up against the best action for each request, added up. {_CURVES} Where
    UniformRandom is not to be seen, it has left the frame at the top.
""")

REWARD = _flowed(f"""
    Running mean of the reward: a log does not say what the best action would have earned. {_CURVES}
""")

PEERS_NOTE = "\n\n" + _flowed("""
    In the table, Potstill's own stand against the best of the other libraries, by its mean: the ratio less 1, paired by
    trial, with its 95 % interval, and better or worse where that leaves out 0.
""")

LATENCY = _flowed("""
    One decision at a time from an encoded context, drawing of randomness included, on {processor} with one thread,
    Python {python}, preset paper (Adaptive-TS: potstill), after {learnt} observations. The paper's numbers (its table
    of decision-making latency, Intel Xeon E5-2680 v4, 32-bit floats) are from another machine and another framework:
    compare ratios.

    A distilled policy is policy.decide, a C kernel that returns the decision with its propensity. Thompson sampling is
    timed as one would serve it from NumPy, with everything computed beforehand that does not depend on the context: one
    matrix product for the scale of every action's Student-t reward, as much arithmetic as the paper's triangular
    solves; one network at random for the ensemble; for GP-TS and Adaptive-TS the joint posterior, as the library
    computes it. So part of the ratio is C against NumPy: a network of about the policy's size in NumPy is the row of
    Neural-Greedy. TS / IL is the ratio of the medians, since means also hold what other programs on the machine cost;
    in the paper, of means. Slow algorithms were stopped after 20 s, which the number of calls shows.
""")

COMPLEXITY = _flowed("""
    The paper's table of complexity, measured: one dimension grows while the others are held. C is d·h + h², a forward
    pass up to the last of two hidden layers of h units. Fitted is the exponent of what a size adds to the smallest one;
    expected is the same fit to the paper's formula. At small sizes the overhead of the calls (some microseconds in
    NumPy, half of one in the C kernel) hides the arithmetic, and beyond 1 MB it is the speed of memory that is
    measured: the exponent of time is fitted in between, on sizes that take 15 % longer than the smallest and fit a
    core's cache. Memory is what must be where decisions are taken, as 32-bit floats; for TS-IL the policy file.
""")

IMITATION = _flowed("""
    The divergence KL(teacher ‖ policy) on held-out contexts after each update, the mean over trials. By the paper's
    decomposition it can cost at most L·√(KL/2) per decision, L the range of mean rewards seen; the price adds that up
    over a trial, each batch at the price of the policy that decided it. Seen is what the policy gave up against its
    Thompson sampling, paired by trial. It also holds what learning from other actions changed, of which the bound does
    not speak. Both are in reward over a whole trial.
""")


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
    """Number of problems on which a distilled policy of Potstill's preset beats the best of the other libraries."""
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
        f"{COMPARISON}\n\n{_by_chance(said)}",
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
    """How to read the figures and table of a problem, unless an earlier section explains it."""
    earlier = said.finals[: next(i for i, row in enumerate(said.finals) if row.problem == problem)]
    rows = [row for row in said.finals if row.problem == problem]
    measure = REGRET if rows[0].measure == "regret" else REWARD
    peers = PEERS_NOTE if any(row.best_peer for row in rows) else ""
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
    """Note on what other libraries are compared with."""
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
        LATENCY.format(processor=measured.machine.processor, python=measured.machine.python, learnt=LEARNT),
        {"latency": charts.latencies(rows)},
        tables.latency_tables(rows),
        wide=True,
    )


def _complexity(measured: Measurements) -> Section:
    grown = measured.complexity
    return Section(
        "Time and memory as problems grow",
        COMPLEXITY,
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
        IMITATION,
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
    """Name of a figure and its file."""
    return re.sub(r"[^\w-]+", "-", "-".join(names))
