"""The bake-off as charts, tables and a page."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import altair as alt
import polars as pl

from potstill.lab.report import estimate
from potstill.lab.studies.bakeoff import LEAST_TRIALS, OURS, BakeOff, Standing
from potstill.pages import Chart, Page, Section, Table

_COPPER, _BLUE, _GREY, _RED = "#c8662b", "#4a83c4", "#8b919b", "#cf4436"
_KINDS = {"Potstill": _COPPER, "other libraries": _BLUE}

RELATIVE = (
    "Mean regret of an algorithm over that of the best algorithm on the same table, so that 1 is the best. Small dots "
    "are tables; the large one is their geometric mean, by which algorithms are sorted."
)


def page(found: BakeOff, command: Sequence[str]) -> Page:
    """The whole page.

    Args:
        found: Results.
        command: Command line that made them.
    """
    count = len(found.tables)
    return Page(
        f"Bake-off on {_counted(count, 'table')}",
        f"{_counted(len(found.standings), 'algorithm')} that learn from the reward of their own decisions alone, on "
        f"tables whose right answers are known. {_counted(found.trials, 'trial')} of each, with the same requests for "
        f"all, seed {found.seed}. Regret is the number of wrong answers, or the reward lost.",
        headlines(found),
        [
            Section(
                "Regret relative to the best", RELATIVE, {"relative": relative(found)}, [standings(found)], wide=True
            ),
            _wins(found),
            Section("Regret on each table", "Mean over trials ± two standard errors.", {}, [regrets(found)]),
            _origin(found, command),
        ],
        name="Potstill: bake-off",
    )


def _wins(found: BakeOff) -> Section:
    """The win/loss matrix, where anything was tested."""
    figures: dict[str, Chart] = {"wins": matrix(found)} if found.tested else {}
    return Section("Who beats whom", _test(found), figures, [wins_table(found)] if found.tested else [], wide=True)


def headlines(found: BakeOff) -> list[tuple[str, str]]:
    """The best algorithm, and where Potstill's default is."""
    best = found.standings[0]
    lines = [
        (
            best.title,
            f"has the least regret over all tables: {_times(best.relative)} the best of each, as a geometric mean.",
        )
    ]
    place = next((place for place, one in enumerate(found.standings) if one.algorithm == OURS), None)
    if place is None:
        return lines
    ours = found.standings[place]
    lines.append(
        (
            f"{_times(ours.relative)}",
            f"regret of {ours.title}, Potstill's default, against the best of each table; {_times(ours.worst)} on "
            f"{ours.worst_table}, its worst. Place {place + 1} of {len(found.standings)}.",
        )
    )
    if found.tested:
        won, lost = against_peers(found, place)
        lines.append((f"{won} : {lost}", f"significant wins and losses of {ours.title} against other libraries."))
    return lines


def against_peers(found: BakeOff, place: int) -> tuple[int, int]:
    """Wins and losses of the algorithm at a place of the standings against other libraries."""
    peers = [other for other, one in enumerate(found.standings) if one.peer]
    return sum(found.wins[place][other] for other in peers), sum(found.wins[other][place] for other in peers)


def relative(found: BakeOff) -> Chart:
    """Relative regret of each algorithm on each table, and the geometric mean."""
    titles = [one.title for one in found.standings]
    by_name = {one.algorithm: one for one in found.standings}
    dots = [
        {
            "algorithm": by_name[cell.algorithm].title,
            "table": cell.table,
            "relative": cell.relative,
            "kind": _kind(by_name[cell.algorithm]),
        }
        for cell in found.cells
        if cell.relative is not None
    ]
    means = [
        {"algorithm": one.title, "table": "geometric mean", "relative": one.relative, "kind": _kind(one)}
        for one in found.standings
        if one.relative is not None
    ]
    y = alt.Y("algorithm:N", title=None, sort=titles, axis=alt.Axis(labelLimit=260, grid=True))
    x = alt.X(
        "relative:Q",
        title="regret relative to the best of the table (logarithmic)",
        scale=alt.Scale(type="log", nice=False, padding=12),
        axis=alt.Axis(values=_ticks([row["relative"] for row in dots]), format=".3~g"),
    )
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=list(_KINDS), range=list(_KINDS.values())),
        legend=alt.Legend(orient="top"),
    )
    tooltip = ["algorithm:N", "table:N", alt.Tooltip("relative:Q", format=".3f")]
    schema = {"algorithm": pl.String, "table": pl.String, "relative": pl.Float64, "kind": pl.String}
    small = alt.Chart(pl.DataFrame(dots, schema=schema), width="container", height=alt.Step(20))
    large = alt.Chart(pl.DataFrame(means, schema=schema))
    return alt.layer(
        small.mark_point(filled=True, size=34, opacity=0.55).encode(x=x, y=y, color=colour, tooltip=tooltip),
        large.mark_point(filled=True, size=150, opacity=1).encode(x=x, y=y, color=colour, tooltip=tooltip),
    )


def _ticks(values: Sequence[object]) -> list[float]:
    """Ticks of the logarithmic axis, fewer where it is long."""
    most = max((value for value in values if isinstance(value, float)), default=1.0)
    steps = (
        [1, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100, 1_000, 10_000]
        if most < 4
        else [1, 1.5, 2, 3, 5, 10, 20, 50, 100, 1_000, 10_000]
    )
    return [step for step in steps if step <= most]


def _kind(one: Standing) -> str:
    return "other libraries" if one.peer else "Potstill"


def matrix(found: BakeOff) -> Chart:
    """Wins of the row over the column; the colour is wins less losses."""
    titles = [one.title for one in found.standings]
    rows = [
        {
            "row": one.title,
            "column": other.title,
            "wins": found.wins[i][j],
            "losses": found.wins[j][i],
            "size": abs(found.wins[i][j] - found.wins[j][i]),
            "balance": found.wins[i][j] - found.wins[j][i],
        }
        for i, one in enumerate(found.standings)
        for j, other in enumerate(found.standings)
        if i != j
    ]
    most = max((abs(count) for line in found.wins for count in line), default=0) or 1
    schema = {
        "row": pl.String,
        "column": pl.String,
        "wins": pl.Int64,
        "losses": pl.Int64,
        "size": pl.Int64,
        "balance": pl.Int64,
    }
    base = alt.Chart(pl.DataFrame(rows, schema=schema), width="container", height=alt.Step(22)).encode(
        x=alt.X("column:N", sort=titles, title=None, axis=alt.Axis(orient="top", labelAngle=-90, labelLimit=200)),
        y=alt.Y("row:N", sort=titles, title=None, axis=alt.Axis(labelLimit=260)),
        tooltip=["row:N", "column:N", "wins:Q", "losses:Q"],
    )
    return alt.layer(
        base.mark_rect().encode(
            color=alt.condition("datum.balance > 0", alt.value(_BLUE), alt.value(_RED)),
            opacity=alt.Opacity("size:Q", scale=alt.Scale(domain=[0, most], range=[0, 1]), legend=None),
        ),
        base.mark_text(fontSize=11).encode(
            text="wins:Q",
            color=alt.condition(f"datum.size >= {most / 2}", alt.value("white"), alt.value(_GREY)),
        ),
    )


def standings(found: BakeOff) -> Table:
    """Algorithms over all tables, best first."""
    header = ("", "algorithm", "mean", "worst", "on", "wins", "losses")
    return Table(
        header,
        [
            (
                str(place + 1),
                _with_tables(one, found),
                _ratio(one.relative),
                _ratio(one.worst),
                one.worst_table or "–",
                str(one.wins) if found.tested else "–",
                str(one.losses) if found.tested else "–",
            )
            for place, one in enumerate(found.standings)
        ],
    )


def _with_tables(one: Standing, found: BakeOff) -> str:
    """Title of an algorithm, with the number of its tables if it lacks some."""
    return one.title if one.tables == len(found.tables) else f"{one.title} ({one.tables} of {len(found.tables)} tables)"


def wins_table(found: BakeOff) -> Table:
    """The win/loss matrix; columns have the numbers of the rows."""
    places = [str(place + 1) for place in range(len(found.standings))]
    rows = [
        (
            place,
            one.title,
            *("–" if place == other else str(count) for other, count in zip(places, counts, strict=True)),
        )
        for place, one, counts in zip(places, found.standings, found.wins, strict=True)
    ]
    return Table(("", "tables where the row beats the column", *places), rows)


def regrets(found: BakeOff) -> Table:
    """Mean regret of each algorithm on each table."""
    rows = []
    for one in found.standings:
        cells = (found.cell(table.name, one.algorithm) for table in found.tables)
        rows.append((one.title, *("–" if cell is None else estimate(cell.regret) for cell in cells)))
    return Table(("algorithm", *(table.name for table in found.tables)), rows)


def tables_table(found: BakeOff) -> Table:
    """The tables, and what is decided in each."""
    header = ("table", "label or target", "taken", "rows", "columns", "actions", "decisions", "update every")
    return Table(
        header,
        [
            (
                one.name,
                one.column,
                one.why,
                f"{one.rows:,}",
                f"{one.columns:,}",
                f"{one.actions:,}",
                f"{one.decisions:,}",
                f"{one.batch:,}",
            )
            for one in found.tables
        ],
    )


def _test(found: BakeOff) -> str:
    if not found.tested:
        return f"Not tested: there are {found.trials} trials, and a test needs {LEAST_TRIALS}. Give more --trials."
    wins = sum(map(sum, found.wins))
    return (
        "Number of tables on which the algorithm of the row has significantly less regret than that of the column. "
        f"Test: two-sided paired t-test over trials on final regret, level {found.level:g}, the same for all pairs. It "
        "asks whether more trials on the same tables would confirm a difference, not whether other tables would. "
        "Colours are wins less losses: blue for the row, red for the column."
        f"\n\nNothing is corrected for the number of comparisons. {found.tested:,} pairs were tested; if no two "
        f"algorithms differed, {found.by_chance:.1f} of them would be significant by chance. {wins:,} are."
    )


def _origin(found: BakeOff, command: Sequence[str]) -> Section:
    left_out = "\n\n".join(f"Left out: {name}: {reason}" for name, reason in found.skipped.items())
    return Section(
        "Tables, and how to repeat it",
        "A row is a request, its other columns are the context, and the answer is an action: reward 1 if it is right "
        "and 0 if not, or less with the distance to an amount. The first batch is uniform for every algorithm. "
        "Hyperparameters are the same for all tables."
        f"{f'{chr(10) * 2}{left_out}' if left_out else ''}",
        tables=[tables_table(found)],
        code=shlex.join(command),
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f} ×"


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
