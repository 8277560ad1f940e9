"""Page of the report: order of figures and tables, and the text around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import dedent

import numpy as np

from potstill.lab.measure import LEARNT, Measurements
from potstill.lab.report import charts, tables
from potstill.lab.report.rows import Alike, Compared, Final, Imitated, Timed, with_cost
from potstill.lab.report.runs import PEERS, Run, Runs, problem_title
from potstill.lab.report.summary import Summary
from potstill.lab.runs import LEAST_TRIALS
from potstill.pages import Chart, Page, Section

_CURVES = """
    Mean over trials ± two standard errors, including the first batch, which is uniform. Solid lines: distilled policies
    and baselines. Dashed lines: undistilled Thompson sampling and other libraries.
"""
_PRESETS = {
    "paper": "the paper's hyperparameters",
    "paper-fresh": "the paper's hyperparameters, students that start afresh",
    "potstill": "Potstill's hyperparameters",
    PEERS: "other libraries",
}


def _flowed(text: str) -> str:
    """Paragraphs without the line breaks of the source."""
    return "\n\n".join(" ".join(part.split()) for part in dedent(text).split("\n\n"))


COMPARISON = _flowed("""
    Trials with the same number have the same requests and reward noise, so algorithms are compared by paired
    differences. The ratio is mean final regret of IL over that of TS (mean reward where a log is replayed). Its 95 %
    confidence interval is Fieller's, with t quantiles: all ratios ρ for which the mean of IL − ρ·TS over trials does
    not differ significantly from 0. The verdict compares the paired difference with two standard errors. In the figure,
    blue is within them, red is outside, and grey has too few trials for a verdict.

    The last column and the second figure compare along the curve: the cost so far in percent of the final result of TS,
    where it is the largest in standard errors, and the probability p of a distance as large at any batch if the sign of
    each trial's difference were chance (a sign-flip test, for all batches together).
""")


REGRET = _flowed(f"""
    Regret is the expected reward lost against the best action, summed over requests. {_CURVES} Where UniformRandom is
    missing, its curve is above the plotted range.
""")

REWARD = _flowed(f"""
    Running mean of the reward. Regret is unknown: a log does not hold the rewards of other actions. {_CURVES}
""")

PEERS_NOTE = "\n\n" + _flowed("""
    The last column of the table compares Potstill's algorithms with the best peer, the other library with the best
    mean: ratio minus 1, paired by trial, with its 95 % confidence interval. It says better or worse where the interval
    excludes 0.
""")

LATENCY = _flowed("""
    Time of one decision from an encoded context, including random draws, on {processor} with one thread, Python
    {python}, preset paper (Adaptive-TS: potstill), after {learnt} observations. The paper's numbers (its table of
    decision-making latency, Intel Xeon E5-2680 v4, 32-bit floats) come from another machine and another framework:
    compare ratios, not times.

    A distilled policy is timed as policy.decide, a C kernel that returns the decision with its propensity. Thompson
    sampling is timed as it would be served from NumPy, with everything precomputed that does not depend on the context.
    Linear posteriors take one matrix product for the scale of every action's Student-t reward, the same amount of
    arithmetic as the paper's triangular solves. Ensembles run one network chosen at random. GP-TS and Adaptive-TS
    sample from the joint posterior as the library does. Part of the ratio is therefore C against NumPy; the next
    section compares them in one language.

    TS / IL is the ratio of medians, because means include delays by other programs on the machine; the paper's is a
    ratio of means. Slow algorithms were stopped after 20 s; their number of calls is smaller.
""")

SAME_LANGUAGE = _flowed("""
    Medians in one language, on the same contexts, so that the ratio is not one of languages. In NumPy, Thompson
    sampling is as above, and the distilled policy is its network, a softmax and a draw in float32. In C, both go
    through the vectorised layers of the decision kernel, compiled with its flags, without Python between the calls. The
    scales of a linear posterior are one more layer there, and rewards are drawn by NumPy's C library. The policy also
    hashes the decision's id for its draw and returns the propensity, which Thompson sampling does not have.

    Thompson sampling from a linear posterior takes k·d² products for k actions and d columns, and a draw for each
    action. A policy with two layers of 100 units takes 100·(d + 100 + k) products. So Linear-TS with few columns and
    actions is faster than its policy (a ratio below 1), and the policy is faster where k or d is large. Bootstrap-NN-TS
    runs one network of the policy's size and is about as fast.
""")

COMPLEXITY = _flowed("""
    Measured scaling compared with the paper's table of complexity: one dimension grows, the others are fixed. C is
    d·h + h², a forward pass up to the last of two hidden layers of h units. Fitted is the exponent of the increase over
    the smallest size; expected is the same fit to the paper's formula.

    The exponent of time is fitted on sizes that take at least 15 % longer than the smallest and fit a core's cache. At
    smaller sizes call overhead (a few microseconds in NumPy, half a microsecond in the C kernel) hides the arithmetic;
    beyond 1 MB, memory bandwidth dominates. Memory is the parameters needed to take decisions, as 32-bit floats; for
    TS-IL, the policy file.
""")

IMITATION = _flowed("""
    KL(teacher ‖ policy) on held-out contexts after each update, mean over trials. What it costs by the teacher's own
    estimate is Σ (teacher − policy)·posterior mean reward per decision. By the paper's decomposition it costs at most
    L·√(KL/2), where L is the range of rewards; a problem that declares none, such as the wheel, has no bound. Both are
    summed over a trial, each batch with the policy that decided it. The measured difference is the reward lost against
    undistilled Thompson sampling, paired by trial; it includes the effect of learning from different actions, which the
    other two do not cover. All are total reward over a trial. A dash stands for what was not measured.
""")


def page(runs: Runs, said: Summary) -> Page:
    """The whole page."""
    sections = [_comparison(said), *(_problem(runs, said, name) for name in runs.problems), *_measured(said)]
    if said.imitation:
        sections.append(_imitation(said.imitation))
    problems = ", ".join(problem_title(name) for name in runs.problems)
    return Page(
        "The paper's evaluation, rerun" if said.deviations else f"Trials on {problems}",
        f"Distilled policies (IL) compared with the Thompson sampling (TS) that they imitate, on {problems}. "
        f"{said.trials:,} trials in total.",
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
                f"per decision with a distilled policy. Thompson sampling takes {speedup:.0f} times as long (median)"
                f"{_in_one_language(said.same_language)}.",
            )
        )
    return lines


def _in_one_language(rows: Sequence[Alike]) -> str:
    """The median ratio in each language, in words."""
    ratios = {name: [row.speedup for row in rows if row.language == name] for name in ("numpy", "c")}
    told = [f"{float(np.median(found)):.1f} times in {name}" for name, found in ratios.items() if found]
    return f"; in one language {' and '.join(told)}".replace("numpy", "NumPy").replace(" c", " C") if told else ""


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
        "problems where a distilled policy of preset potstill has a better mean than the best of the other libraries; "
        f"on {len(clearly)} of them the 95 % confidence interval excludes a tie."
    )
    return [(f"{len({row.problem for row in won})} of {len(problems)}", said)]


def _is_better(row: Final) -> bool:
    ratio = row.against_best_peer.ratio if row.against_best_peer else None
    return ratio is not None and (ratio < 1) == (row.measure == "regret")


def _comparison(said: Summary) -> Section | None:
    rows = said.comparisons
    if not rows:
        return None
    figures: dict[str, Chart] = {"il-against-ts": charts.forest(rows)} if _has_intervals(rows) else {}
    if any(row.along for row in rows):
        figures["il-against-ts-along"] = charts.differences(rows)
    return Section(
        "Distilled policies against their Thompson sampling",
        f"{COMPARISON}\n\n{_by_chance(said)}",
        figures,
        tables.comparison_tables(rows),
    )


def _has_intervals(rows: Sequence[Compared]) -> bool:
    return any(row.comparison.low is not None for row in rows)


def _by_chance(said: Summary) -> str:
    judged = [row for row in said.comparisons if row.comparison.outside is not None]
    outside = [row for row in judged if row.comparison.outside]
    if not judged:
        return "Too few trials for a verdict."
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
    """Potstill's distilled policies, drawn beside the other libraries."""
    return [run for run in runs.of(problem, "potstill") if run.imitates]


def _measured(said: Summary) -> list[Section]:
    measured = said.measurements
    if measured is None:
        return []
    sections = [_latency(said.latency, measured)] if said.latency else []
    if said.same_language:
        sections.append(_same_language(said.same_language))
    return [*sections, _complexity(measured)]


def _latency(rows: Sequence[Timed], measured: Measurements) -> Section:
    return Section(
        "Decision latency",
        LATENCY.format(processor=measured.machine.processor, python=measured.machine.python, learnt=LEARNT),
        {"latency": charts.latencies(rows)},
        tables.latency_tables(rows),
        wide=True,
    )


def _same_language(rows: Sequence[Alike]) -> Section:
    return Section("Decision latency in one language", SAME_LANGUAGE, {}, [tables.same_language_table(rows)], wide=True)


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
        "Imitation error: bound and measured cost",
        IMITATION,
        figures,
        [tables.imitation_table(rows)],
        wide=True,
    )


def _origin(said: Summary) -> Section:
    commit = said.commit or "unknown (not run from a git checkout)"
    trials = "; ".join(f"{count:,} by {name}" for name, count in said.commits.items())
    deviations = "Deviations from the paper. " + "\n\n".join(said.deviations) + "\n\n" if said.deviations else ""
    notes = f"{said.notes.strip()}\n\n" if said.notes.strip() else ""
    return Section(
        "How to reproduce",
        f"{notes}{deviations}"
        f"Potstill {said.library}, commit {commit}. {f'Trials were run by commit: {trials}. ' if trials else ''}"
        "Commands, derived from the results:",
        code="\n".join(said.commands),
    )


def identifier(*names: str) -> str:
    """Name of a figure and its file."""
    return re.sub(r"[^\w-]+", "-", "-".join(names))
