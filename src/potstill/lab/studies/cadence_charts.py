"""The cadence study as charts, tables, a page and advice."""

from __future__ import annotations

import math

import altair as alt
import polars as pl

from potstill.lab.runs import duration
from potstill.lab.studies.cadence import TOLERABLE, Estimate, Findings, Row
from potstill.pages import Chart, Page, Section, Table

_COPPER, _GREY = "#c8662b", "#8b919b"
_DELAYS = [_COPPER, "#4a83c4", "#2f9e72", "#8a63b8", "#c9a227", "#5f6670"]
_DAY = 86_400
#: Work is shown per this many decisions if the decisions per day are not known.
_MANY = 100_000


class Units:
    """Formats numbers of decisions, with the time they take if the decisions per day are known."""

    def __init__(self, per_day: int | None = None) -> None:
        self.per_day = per_day

    def span(self, decisions: int) -> str:
        """A number of decisions, with its time if known: ``1,000 (29 min)``."""
        time = self.time(decisions)
        return f"{decisions:,} ({time})" if time and decisions else f"{decisions:,}"

    def time(self, decisions: int) -> str | None:
        """Duration of a number of decisions; None if that is not known."""
        return duration(decisions / self.per_day * _DAY) if self.per_day else None

    def decisions(self, number: int) -> str:
        """Like `span`, for a sentence: ``1,000 decisions (29 min)``."""
        count, *time = self.span(number).split(" ", 1)
        return " ".join([count, "decisions", *time])

    def work(self, per_decision: float) -> str:
        """Time spent on updates, per day or per many decisions."""
        return _time(per_decision * (self.per_day or _MANY))

    @property
    def of_work(self) -> str:
        """Unit that update time is stated per."""
        return "day" if self.per_day else f"{_MANY:,} decisions"


def _time(seconds: float) -> str:
    """A duration, with fractions of a second if it is short."""
    return duration(seconds) if seconds >= 10 else f"{seconds:.2g} s" if seconds >= 0.1 else f"{1000 * seconds:.2g} ms"


def page(findings: Findings, units: Units) -> Page:
    """The whole page."""
    cadence = findings.cadence
    rate = f" {units.per_day:,} decisions per day." if units.per_day else ""
    return Page(
        "How often to update",
        f"Simulation of {cadence.algorithm} on {cadence.problem}: {cadence.decisions:,} decisions, an update at the "
        "end of each batch, and delayed rewards. The study varies the batch size and the delay. "
        f"{cadence.trials} trials, seed {cadence.seed}.{rate}",
        headlines(findings, units),
        [_advice(findings, units), _grid(findings, units), _trade(findings, units), _meaning(findings)],
        name=f"Potstill: cadence, {cadence.problem}",
    )


def headlines(findings: Findings, units: Units) -> list[tuple[str, str]]:
    """Recommended period for each delay, and its regret."""
    found = []
    for delay in findings.cadence.delays:
        row = findings.advised(delay)
        period = units.time(row.batch) or f"{row.batch:,}"
        found.append((f"every {period}", f"{_late(delay, units)}: regret {_regret(row)}."))
    return found


def advice(findings: Findings, units: Units) -> list[str]:
    """A sentence for each delay."""
    return [_sentence(findings, delay, units) for delay in findings.cadence.delays]


def _sentence(findings: Findings, delay: int, units: Units) -> str:
    shortest, *longer = findings.with_delay(delay)
    row, late = findings.advised(delay), _capital(_late(delay, units))
    if not any(row.work for row in (shortest, *longer)):
        total = units.decisions(findings.cadence.decisions)
        return f"{late}, no reward arrives in time to learn within {total}: give more --decisions."
    if not longer:
        return f"{late}, there is only one batch size to compare: give more with --batches."
    if findings.cadence.trials == 1:
        return f"{late}, one trial gives no standard error: give more --trials."
    if row is not shortest:
        return (
            f"{late}, updating every {units.decisions(row.batch)} costs {_more(row.cost_of_batch)} regret than every "
            f"{units.decisions(shortest.batch)}, for {_share(row, shortest)} of the work."
        )
    following = longer[0]
    price = f"costs {_more(following.cost_of_batch)} regret, for {_share(following, row)} of the work"
    if following.cost_of_batch.at_least > TOLERABLE:
        return f"{late}, update every {units.decisions(row.batch)}: every {units.decisions(following.batch)} {price}."
    return f"{late}, the trials are inconclusive: every {units.decisions(following.batch)} {price}. Give more --trials."


def _late(delay: int, units: Units) -> str:
    return f"with rewards delayed by {units.decisions(delay)}" if delay else "with immediate rewards"


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _share(row: Row, other: Row) -> str:
    """Work of a row as a share of another's; a dash if batches are larger than the run."""
    return f"{100 * row.work / other.work:.0f} %" if other.work else "–"


def _more(cost: Estimate) -> str:
    direction = "more" if cost.mean >= 0 else "less"
    error = "" if cost.two_se is None else f" ± {100 * cost.two_se:.1f}"
    return f"{100 * abs(cost.mean):.1f}{error} % {direction}"


def percent(cost: Estimate) -> str:
    """A cost as text: ``+4.2 ± 1.1 %``."""
    if not math.isfinite(cost.mean):
        return "–"
    if cost == (0, 0):
        return "–"
    error = "" if not cost.two_se else f" ± {100 * cost.two_se:.1f}"
    return f"{100 * cost.mean:+.1f}{error} %".replace("-", "−")


def _against_base(row: Row) -> str:
    return "base" if row.cost == (0, 0) else percent(row.cost)


def _regret(row: Row) -> str:
    return amount(row.regret)


def amount(value: Estimate) -> str:
    """A regret as text."""
    digits = 0 if abs(value.mean) >= 100 else 2
    error = "" if value.two_se is None else f" ± {value.two_se:,.{digits}f}"
    return f"{value.mean:,.{digits}f}{error}"


# ---- sections


def _advice(findings: Findings, units: Units) -> Section:
    rule = (
        f"The recommended period is the longest that costs at most {100 * TOLERABLE:.0f} % more regret than the "
        "shortest one, two standard errors included. There is one recommendation per delay, because the product sets "
        "the delay and you choose the period."
    )
    return Section("Advice", "\n\n".join([*advice(findings, units), rule]))


def _grid(findings: Findings, units: Units) -> Section:
    return Section(
        "Cost of waiting",
        "Total regret of a run, and its increase over the smallest batch and the shortest delay, ± two standard "
        "errors, paired by trial. Uniform choice, which never learns, has a regret of "
        f"{amount(findings.uniform)}.",
        {"grid": grid(findings, units)},
        [table(findings, units)],
    )


def _trade(findings: Findings, units: Units) -> Section:
    return Section(
        "Cost of updating",
        f"Regret against update time per {units.of_work}, on one core of the machine that ran the study. Labels are "
        "decisions between updates. Where a line is flat, updating more often gains nothing.",
        {"trade": trade(findings, units)},
    )


def _meaning(findings: Findings) -> Section:
    cadence = findings.cadence
    return Section(
        "Limits of this study",
        f"Regret covers the first {cadence.decisions:,} decisions, when most is learnt; the longer a policy runs, the "
        "less the first updates matter. It includes the uniform decisions: the first batch, and all others before the "
        "first reward is known. The simulated problem does not drift; drift is a further reason to update often. "
        "Batches of different sizes get the same requests, but different reward noise.",
    )


def table(findings: Findings, units: Units) -> Table:
    """A row for each delay and batch size."""
    header = ["reward delay", "update every", "updates", "regret", "cost", "cost at this delay", "time per update"]
    rows = [
        [
            units.span(row.delay),
            units.span(row.batch),
            f"{row.updates:,}",
            _regret(row),
            percent(row.cost),
            percent(row.cost_of_batch),
            _time(row.seconds) if row.seconds else "–",
            units.work(row.work) if row.seconds else "–",
        ]
        for row in findings.rows
    ]
    return Table([*header, f"update time per {units.of_work}"], rows)


def pivot(findings: Findings, units: Units) -> Table:
    """The table as a grid that fits a terminal: delays down, batch sizes across."""
    rows = [
        [units.span(delay), *(f"{_regret(row)}\n{_against_base(row)}" for row in findings.with_delay(delay))]
        for delay in findings.cadence.delays
    ]
    soonest = findings.with_delay(findings.cadence.delays[0])
    work = ["work", *(units.work(row.work) if row.work else "–" for row in soonest)]
    return Table(["late by", *(units.span(batch) for batch in findings.cadence.batches)], [*rows, work])


# ---- charts


def grid(findings: Findings, units: Units) -> Chart:
    """Cost by batch size and delay, as a heat map."""
    data = pl.DataFrame([_cell(row, units) for row in findings.rows])
    batches = [units.span(batch) for batch in findings.cadence.batches]
    delays = [units.span(delay) for delay in findings.cadence.delays]
    base = alt.Chart(data, width="container", height=70 + 58 * len(delays)).encode(
        x=alt.X("batch:N", sort=batches, title="decisions between updates", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("delay:N", sort=delays, title="reward delay, decisions"),
    )
    # Starts at white: the best cell is nearly empty. Text is dark on all but the darkest cells.
    scale = alt.Scale(range=["#f6e7dc", _COPPER], domainMin=0)
    cells = base.mark_rect(stroke="white", strokeWidth=2).encode(
        color=alt.Color("cost:Q", scale=scale, title="cost", legend=alt.Legend(format="+.0%")),
        tooltip=["batch:N", "delay:N", "regret:N", "text:N"],
    )
    text = base.mark_text(fontSize=13, dy=-8, color="#1f2328", fontWeight="bold").encode(text="text:N")
    below = base.mark_text(fontSize=11, dy=10, color="#3a3f46").encode(text="regret:N")
    return alt.layer(cells, text, below)


def _cell(row: Row, units: Units) -> dict[str, object]:
    return {
        "batch": units.span(row.batch),
        "delay": units.span(row.delay),
        "cost": row.cost.mean,
        "text": _against_base(row),
        "regret": f"regret {_regret(row)}",
    }


def trade(findings: Findings, units: Units) -> Chart:
    """Regret against work, a line for each delay."""
    names = [units.span(delay) for delay in findings.cadence.delays]
    rows = [_traded(row, units) for row in findings.rows if row.work]
    schema = {"work": pl.Float64, "regret": pl.Float64, "low": pl.Float64, "high": pl.Float64}
    data = pl.DataFrame(rows, schema={**schema, "delay": pl.String, "batch": pl.String})
    colour = alt.Color("delay:N", scale=alt.Scale(domain=names, range=_DELAYS), title="reward delay", sort=None)
    x = alt.X(
        "work:Q",
        title=f"update time per {units.of_work}, s",
        scale=alt.Scale(type="log", nice=False, padding=30),
        axis=alt.Axis(format=",~g", tickCount=6),
    )
    base = alt.Chart(data, width="container", height=300).encode(x=x, color=colour)
    y = alt.Y("regret:Q", title="regret", scale=alt.Scale(zero=False))
    lines = base.mark_line(point={"filled": True, "size": 55}).encode(y=y, tooltip=["delay:N", "batch:N", "regret:Q"])
    bars = base.mark_rule().encode(y=alt.Y("low:Q", title="regret"), y2="high:Q")
    text = base.mark_text(dy=-12, fontSize=11).encode(y=y, text="batch:N")
    return alt.layer(*_never(findings.uniform), bars, lines, text)


def _never(uniform: Estimate) -> list[alt.Chart]:
    """The regret of uniform choice, as a horizontal line."""
    base = alt.Chart(pl.DataFrame({"regret": [uniform.mean], "text": ["uniform"]})).encode(y="regret:Q")
    name = base.mark_text(align="left", dx=4, dy=-7, color=_GREY).encode(x=alt.value(0), text="text:N")
    return [base.mark_rule(strokeDash=[4, 4], color=_GREY), name]


def _traded(row: Row, units: Units) -> dict[str, object]:
    half = row.regret.two_se or 0.0
    return {
        "work": row.work * (units.per_day or _MANY),
        "regret": row.regret.mean,
        "low": row.regret.mean - half,
        "high": row.regret.mean + half,
        "delay": units.span(row.delay),
        "batch": f"{row.batch:,}",
    }
