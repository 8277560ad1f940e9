"""The page: what status where, and figures that can be drawn."""

import msgspec
import numpy as np
import polars as pl
import pytest
from experiment_examples import START, World, log

from potstill.experiments.analysis import Units, analyse
from potstill.experiments.analysis.page import report_page
from potstill.experiments.analysis.read import read_units
from potstill.experiments.analysis.report import effect_rows, segment_rows
from potstill.pages import png


@pytest.fixture(scope="module")
def units():
    rows = log(World(units=500, effect=0.1, days=4)).lazy()
    return read_units(rows, "hd-first", start=START, by="context_connection")


def test_the_page_has_a_figure_for_metrics_days_and_segments(units):
    report = analyse(units, experiment="hd-first", share=0.5, by="connection")
    made = report_page(report)
    assert list(made.figures) == ["metrics", "days", "segments"]
    assert png(made.figures["days"]).startswith(b"\x89PNG")
    assert [section.title for section in made.sections] == [
        "Effects",
        "Day by day",
        "By connection",
        "The split",
        "Set-up",
    ]
    assert report.verdict.sentence in made.subtitle
    assert "<h1>Experiment hd-first</h1>" in made.html()


def test_a_broken_split_comes_first_and_no_effect_is_shown(units):
    made = report_page(analyse(units, share=0.9, by="connection"))
    assert made.headlines[0][1] == "of units are in treatment, expected 90.0 %."
    assert [section.title for section in made.sections] == ["The split", "Set-up"]
    assert made.subtitle.startswith("Stop: sample ratio mismatch.")
    assert made.html().count("Stop:") == 1
    assert not made.figures


def test_a_page_about_nothing_can_be_written():
    nothing = Units(treated=np.empty(0, bool), decisions=np.empty(0), outcomes={"reward": np.empty(0)})
    made = report_page(analyse(nothing, share=0.5))
    assert "control has no units" in made.html()
    assert not made.figures
    assert not made.headlines
    assert [section.title for section in made.sections] == ["Set-up"]


def test_intervals_for_daily_looks_are_shown_from_a_hundred_units_on():
    def cells(n):
        rng = np.random.default_rng(1)
        few = Units(treated=np.arange(n) % 2 > 0, decisions=np.ones(n), outcomes={"reward": rng.normal(5, 1, n)})
        return analyse(few, share=0.5)

    assert effect_rows(cells(98))[1][0][5] == "–"
    assert "to" in effect_rows(cells(100))[1][0][5]
    drawn = report_page(cells(98)).figures["metrics"].to_dict()["datasets"].values()
    assert any("anytime_low" in row and row["anytime_low"] is None for rows in drawn for row in rows)


def test_a_past_that_explains_nothing_is_a_dash(units):
    report = analyse(units, share=0.5)
    worse = msgspec.structs.replace(report.main, variance_reduction=-0.002)
    assert effect_rows(msgspec.structs.replace(report, metrics=[worse]))[1][0][7] == "–"
    assert effect_rows(report)[1][0][7].endswith(" %")


def test_outcomes_below_zero_are_shown_as_they_are():
    rng = np.random.default_rng(0)
    treated = np.arange(200) % 2 > 0
    below = Units(
        treated=treated,
        decisions=np.ones(200),
        outcomes={"reward": rng.normal(-1, 1, 200)},
        segment=np.repeat(["a", "b"], 100),
    )
    report = analyse(below, share=0.5, by="kind")
    _, rows = effect_rows(report)
    assert rows[0][0] == "reward per decision"
    assert "%" not in rows[0][3] + rows[0][4] + rows[0][5]
    assert not any("%" in cell for row in segment_rows(report.segments)[1] for cell in row)
    title = report_page(report).figures["segments"].to_dict()["layer"][1]["encoding"]["x"]["title"]
    assert title == "effect, treatment minus control"


def test_tables_say_what_is_missing_and_why(units):
    few = analyse(units, share=0.5, by="connection")
    header, rows = effect_rows(few)
    assert {len(row) for row in rows} == {len(header)}
    names = pl.Series([row[0] for row in rows])
    assert names.to_list()[:2] == ["reward per decision", "reward per unit"]
    alone = Units(treated=np.array([True]), decisions=np.ones(1), outcomes={"reward": np.ones(1)})
    assert effect_rows(analyse(alone))[1][0][3] == "control has no units, and each arm needs two"
