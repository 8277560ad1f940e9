"""Tables of the report, formatted for people."""

from __future__ import annotations

from collections.abc import Sequence

from potstill.lab.measure import Growth
from potstill.lab.report.along import Along
from potstill.lab.report.rows import Alike, Compared, Final, Imitated, Timed
from potstill.lab.report.runs import problem_title
from potstill.lab.runs import Comparison, Estimate
from potstill.pages import Table


def final_table(rows: Sequence[Final]) -> Table:
    """Table of one problem, best first."""
    regret = rows[0].measure == "regret"
    ranked = sorted(rows, key=lambda row: row.final.mean if regret else -row.final.mean)
    title = "final regret" if regret else "mean reward"
    header = ("algorithm", "preset", "trials", f"{title}, mean ± 2 s.e.", "compared with the best peer")
    peers = any(row.best_peer for row in rows)
    cells = [
        (row.title, row.preset, str(row.final.trials), estimate(row.final), _against_best_peer(row, regret))
        for row in ranked
    ]
    return Table(header, cells) if peers else Table(header[:-1], [row[:-1] for row in cells])


def _against_best_peer(row: Final, regret: bool) -> str:
    if row.best_peer:
        return "the best peer"
    one = row.against_best_peer
    if one is None or one.ratio is None:
        return ""
    span = "" if one.low is None or one.high is None else f" ({percent(one.low - 1)} to {percent(one.high - 1)})"
    word = "" if not one.is_clear else ", better" if (one.ratio < 1) == regret else ", worse"
    return f"{percent(one.ratio - 1)}{span}{word}"


def comparison_tables(rows: Sequence[Compared]) -> list[Table]:
    """Distilled policies compared with their Thompson sampling, one table for each problem."""
    return [_comparison_table([row for row in rows if row.problem == name], name) for name in _problems(rows)]


def _problems(rows: Sequence[Compared] | Sequence[Timed]) -> list[str]:
    return list(dict.fromkeys(row.problem for row in rows))


def _comparison_table(rows: Sequence[Compared], problem: str) -> Table:
    header = (
        "preset",
        "distilled policy",
        "trials",
        "ratio",
        "95 % interval",
        "paired difference ± 2 s.e.",
        "verdict",
        "largest along the curve",
    )
    cells = [
        (
            row.preset,
            row.title,
            str(row.comparison.difference.trials),
            _or_dash(row.comparison.ratio, ".3f"),
            _interval(row.comparison),
            estimate(row.comparison.difference),
            row.comparison.verdict,
            _along(row.along),
        )
        for row in rows
    ]
    of = "final regret" if rows[0].measure == "regret" else "mean reward"
    return Table(header, cells, f"{problem_title(problem)}, {of}:")


def _interval(one: Comparison) -> str:
    return "–" if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"


def _along(found: Along | None) -> str:
    if found is None:
        return "–"
    return f"{percent(found.worst)} after {found.at:,.0f}, p {found.p:.2g}"


def latency_tables(rows: Sequence[Timed]) -> list[Table]:
    """One row for each algorithm, one table for each problem."""
    return [_latency_table([row for row in rows if row.problem == name], name) for name in _problems(rows)]


def _latency_table(rows: Sequence[Timed], problem: str) -> Table:
    header = ("algorithm", "mean ± 2 s.e., µs", "median", "p99", "calls", "paper, µs", "TS / IL", "TS / IL, paper")
    cells = [
        (
            row.title,
            f"{microseconds(row.mean_us)} ± {_significant(row.two_se_us, 1)}",
            microseconds(row.median_us),
            microseconds(row.p99_us),
            f"{row.calls:,}",
            _or_dash(row.paper_us, ",.0f"),
            _or_dash(row.speedup, ".1f"),
            _or_dash(row.paper_speedup, ".1f"),
        )
        for row in rows
    ]
    return Table(header, cells, f"{problem_title(problem)}:")


def same_language_table(rows: Sequence[Alike]) -> Table:
    """One row for each problem and algorithm; medians and their ratio in each language."""
    header = ("problem", "algorithm", *(f"{name}, {what}" for name in _LANGUAGES.values() for what in _ALIKE))
    by_name: dict[tuple[str, str], dict[str, Alike]] = {}
    for row in rows:
        by_name.setdefault((row.problem, row.title), {})[row.language] = row
    cells = [
        (problem_title(problem), title, *(cell for language in _LANGUAGES for cell in _alike(found.get(language))))
        for (problem, title), found in by_name.items()
    ]
    return Table(header, cells)


_LANGUAGES = {"numpy": "NumPy", "c": "C"}
_ALIKE = ("TS µs", "IL µs", "TS / IL")


def _alike(row: Alike | None) -> tuple[str, ...]:
    if row is None:
        return ("–",) * len(_ALIKE)
    return microseconds(row.ts_us), microseconds(row.il_us), f"{row.speedup:.1f}"


def complexity_table(rows: Sequence[Growth]) -> Table:
    """Fitted exponents, and those of the paper's formulas."""
    header = ("method", "paper's formula", "growing", "at", "time: fitted", "expected", "space: fitted", "expected")
    cells = [
        (
            row.method,
            row.formula,
            row.dimension.replace("b", "B"),
            ", ".join(f"{name.replace('b', 'B')} = {value}" for name, value in row.fixed.items()),
            *(
                _or_dash(exponent, ".2f").replace("-0.00", "0.00")
                for exponent in (row.time_slope, row.time_expected, row.space_slope, row.space_expected)
            ),
        )
        for row in rows
    ]
    return Table(header, cells)


def imitation_table(rows: Sequence[Imitated]) -> Table:
    """Imitation error, its bound on cost, and the measured cost."""
    header = (
        "problem",
        "preset",
        "distilled policy",
        "mean KL, nats",
        "last KL, nats",
        "cost by the teacher",
        "bound",
        "IL − TS, measured ± 2 s.e.",
    )
    cells = [
        (
            problem_title(row.problem),
            row.preset,
            row.title,
            _significant(row.mean_kl, 2),
            _significant(row.kl[-1], 2),
            "–" if row.given_up is None else _significant(row.given_up.mean, 2),
            "–" if row.price is None else _significant(row.price.mean, 3),
            "–" if row.cost is None else estimate(row.cost),
        )
        for row in rows
    ]
    return Table(header, cells)


def estimate(one: Estimate) -> str:
    """A mean with two standard errors, rounded to the digits that the error supports."""
    if one.two_se is None:
        return _minus(_significant(one.mean, 4))
    digits = _digits(one.two_se) if one.two_se else _digits(one.mean)
    return _minus(f"{one.mean:,.{digits}f} ± {one.two_se:,.{digits}f}")


def percent(share: float) -> str:
    """A share in percent, with its sign."""
    return _minus(f"{100 * share:+.1f} %")


def microseconds(us: float) -> str:
    """A time in microseconds with three significant digits."""
    return f"{us:,.0f}" if us >= 100 else f"{us:.3g}"


def _digits(error: float) -> int:
    """Number of decimals that show two digits of an error."""
    size = abs(error)
    return next((digits for digits in range(8) if size * 10**digits >= 9.5), 8)


def _significant(value: float, digits: int) -> str:
    return _minus(f"{float(f'{value:.{digits}g}'):,g}" if abs(value) >= 1e-4 else f"{value:.{digits}g}")


def _or_dash(value: float | None, form: str) -> str:
    return "–" if value is None else _minus(f"{value:{form}}")


def _minus(text: str) -> str:
    return text.replace("-", "−")
