"""The study of Bayes regret as a chart, tables and a page."""

from __future__ import annotations

import altair as alt
import numpy as np
import polars as pl

from potstill.lab.studies.bayes import METHODS, Estimate, Findings
from potstill.pages import Chart, Page, Section, Table

_COLOURS = {"ts": "#4a83c4", "ts-il": "#c8662b", "ucb": "#2f9e72", "ucb-1": "#8a63b8", "uniform": "#8b919b"}
_TITLES = {
    "ts": "TS",
    "ts-il": "TS-IL",
    "ucb": "batch UCB, the paper's β",
    "ucb-1": "batch UCB, β = 1",
    "uniform": "uniform",
}
_TEACHERS = {"linear": ("Linear-TS", "LinUCB"), "gp": ("GP-TS", "GP-UCB")}


def page(findings: Findings) -> Page:
    """The whole page."""
    bayes = findings.bayes
    teacher, _ = _TEACHERS[bayes.prior]
    return Page(
        "Bayes regret, and what it is made of",
        f"{bayes.trials} reward functions drawn from the prior of {teacher}, {bayes.decisions:,} decisions in "
        f"{bayes.batches} batches on each, {bayes.actions} actions, {bayes.width} features, seed {bayes.seed}. The "
        "first batch is decided by the prior.",
        headlines(findings),
        [_regret(findings), _decomposition(findings), _method(findings)],
        name=f"Potstill: Bayes regret, {bayes.prior}",
    )


def headlines(findings: Findings) -> list[tuple[str, str]]:
    """Key figures, each with a caption."""
    cost, gap = findings.against_ts["ts-il"], findings.terms["ts-il"]["gap"]
    return [
        (amount(findings.regret["ts-il"]), "Bayes regret of the distilled policy (TS-IL), with two standard errors."),
        (amount(cost), "Its difference to Thompson sampling, paired by reward function."),
        (amount(gap), f"The imitation gap itself; the lemma's bound on it is {_number(findings.bound)}."),
    ]


def _regret(findings: Findings) -> Section:
    _, ucb = _TEACHERS[findings.bayes.prior]
    return Section(
        "Bayes regret",
        "Regret in expectation over each policy's draws, the mean over reward functions with two standard errors. All "
        f"methods have the same prior, contexts and noise. Batch UCB is {ucb} on the same posterior.",
        {"regret": curve(findings)},
        [regret_table(findings)],
    )


def _decomposition(findings: Findings) -> Section:
    return Section(
        "The decomposition",
        'Terms of the paper\'s lemma "imitation controls decomposition", summed over all decisions, with the bounds U '
        "of the paper's β on the history of each method. Optimism, width, matching and gap add up to the regret in "
        "every trial. Matching has mean 0 if labels have the posterior's distribution, and so has calibration, the "
        "probability that Thompson sampling gives to the best action less the one that it expects to. Optimism and "
        "width are the lemma's term (a), that of any batch UCB algorithm. Its term (b), L·Σ √(½ KL), bounds the gap.",
        tables=[terms_table(findings), lemma_table(findings)],
    )


def _method(findings: Findings) -> Section:
    bayes = findings.bayes
    drawn = (
        "Parameters and noise variances are drawn from the normal-inverse-gamma prior, contexts are uniform in a cube."
        if bayes.prior == "linear"
        else "A path of the Gaussian process is drawn at 100 contexts and all actions; hyperparameters are known and "
        "rewards are not standardised, so that the teacher's prior is the one drawn from."
    )
    return Section(
        "Method",
        f"{drawn} The distilled policy imitates on observed contexts and on others without rewards. L is "
        f"{_number(findings.range)}, the root mean square of the range of rewards over actions; the paper takes a "
        "bound on |f|, for which its constant in Pinsker's inequality is too small by a factor of two.",
    )


def regret_table(findings: Findings) -> Table:
    """Bayes regret of each method, and its difference to Thompson sampling."""
    rows = [
        [
            _TITLES[name],
            amount(findings.regret[name]),
            amount(_after_the_first(findings, name)),
            amount(findings.against_ts[name]) if name in findings.against_ts else "–",
        ]
        for name in METHODS
    ]
    header = ["method", "Bayes regret ± 2 s.e.", "after batch 1", "less TS"]
    return Table(header, rows)


def terms_table(findings: Findings) -> Table:
    """Terms of the decomposition, for Thompson sampling and its distilled policy."""
    titles = {
        "optimism": "optimism, f(A*) − U(A*)",
        "width": "width, U(Ā) − f(Ā)",
        "matching": "matching, U(A*) − U(Ā)",
        "gap": "gap, f(Ā) − f(A)",
        "regret": "sum: Bayes regret",
    }
    rows = [
        [title, *(amount(findings.terms[name][term]) for name in ("ts", "ts-il"))] for term, title in titles.items()
    ]
    rows.append(["calibration, per decision", *(_small(findings.calibration[name]) for name in ("ts", "ts-il"))])
    return Table(["term, summed over decisions", "TS ± 2 s.e.", "TS-IL ± 2 s.e."], rows)


def lemma_table(findings: Findings) -> Table:
    """Both sides of the lemma."""
    terms = findings.terms["ts-il"]
    first = terms["optimism"].mean + terms["width"].mean
    rows = [
        ["measured: Bayes regret of TS-IL", _number(findings.regret["ts-il"].mean)],
        ["term (a): optimism + width", _number(first)],
        ["term (b): L·Σ √(½ KL)", _number(findings.bound)],
        ["bound: (a) + (b)", _number(first + findings.bound)],
        ["Bayes regret of batch UCB, the paper's β", _number(findings.regret["ucb"].mean)],
    ]
    return Table(["lemma, for the distilled policy", "value"], rows)


def curve(findings: Findings) -> Chart:
    """Mean cumulative regret against decisions."""
    rows, highest = [], 0.0
    for name in METHODS:
        totals = np.cumsum([[batch.regret for batch in trial[name]] for trial in findings.trials], axis=1)
        for i, column in enumerate(totals.T):
            found = Estimate.of(column)
            highest = max(highest, found.mean + 2 * found.error) if name != "uniform" else highest
            rows.append(
                {
                    "method": _TITLES[name],
                    "decisions": (i + 1) * findings.bayes.batch,
                    "regret": found.mean,
                    "low": found.mean - 2 * found.error,
                    "high": found.mean + 2 * found.error,
                }
            )
    shown = alt.Scale(domain=list(_TITLES.values()), range=list(_COLOURS.values()))
    base = alt.Chart(pl.DataFrame(rows), width="container", height=340).encode(
        x=alt.X("decisions:Q", title="decisions"), color=alt.Color("method:N", scale=shown, sort=None, title=None)
    )
    y = alt.Scale(domain=[0, 1.1 * highest], clamp=False)
    unlisted = alt.Color("method:N", scale=shown, legend=None)
    band = base.mark_area(opacity=0.15, clip=True).encode(
        y=alt.Y("low:Q", scale=y, title="Bayes regret"), y2="high:Q", color=unlisted
    )
    return alt.layer(band, base.mark_line(clip=True).encode(y=alt.Y("regret:Q", scale=y, title="Bayes regret")))


def amount(found: Estimate) -> str:
    """A mean with two standard errors."""
    return f"{_number(found.mean)} ± {_number(2 * found.error)}"


def _small(found: Estimate) -> str:
    return f"{found.mean:.4f} ± {2 * found.error:.4f}".replace("-", "−")


def _after_the_first(findings: Findings, name: str) -> Estimate:
    return Estimate.of([sum(batch.regret for batch in trial[name][1:]) for trial in findings.trials])


def _number(value: float) -> str:
    """A number with as many decimals as its size warrants."""
    value = round(value, 2) + 0.0  # adding 0 makes a plain zero of a negative one
    text = f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return text.replace("-", "−")
