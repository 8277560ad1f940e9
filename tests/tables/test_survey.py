"""What columns of a table of past decisions are taken for, against tables whose columns are known."""

import numpy as np
import polars as pl
import pytest

import potstill as ps
from potstill.errors import InvalidLog
from potstill.events.validate import EventValidator
from potstill.problem import Hashed, Text, Timestamp, Vector
from potstill.tables import Columns, read_history

ROWS = 3_000
NAMED = Columns(action="offer", reward="profit", propensity=None)


def table(**others):
    rng = np.random.default_rng(0)
    profit = rng.normal(size=ROWS)
    columns = {
        "offer": rng.choice(["a2", "a10", "a1"], ROWS),
        "profit": profit,
        "age": rng.integers(18, 90, ROWS),
        "device": rng.choice(["ios", "web"], ROWS),
    }
    return pl.DataFrame(columns | others)


def surveyed(tmp_path, frame, columns=NAMED, **options):
    frame.write_parquet(tmp_path / "t.parquet")
    found = read_history(str(tmp_path / "t.parquet"), columns, "shop", **options)
    return found, {column.name: column for column in found.surveyed}


def test_numbers_categories_and_actions(tmp_path):
    history, columns = surveyed(tmp_path, table())
    assert columns["age"].feature == ps.Numeric("age", 18, 89)
    assert columns["device"].feature == ps.Categorical("device", ["ios", "web"])
    assert history.problem.actions == ps.Discrete(["a1", "a2", "a10"])
    assert history.problem.reward == ps.Reward()
    assert history.rows == ROWS


def test_rewards_of_0_and_1_are_of_a_kind_and_booleans_are_read(tmp_path):
    for clicks in (np.arange(ROWS) % 2, np.arange(ROWS) % 2 == 1):
        history, _ = surveyed(tmp_path, table(profit=clicks))
        assert history.problem.reward.kind == "yes/no"
        assert history.rewards == (0, 0.5, 1)


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ([f"o{i:05d}" for i in range(ROWS)], "an identifier?"),
        (np.arange(ROWS), "an identifier?"),
        (np.ones(ROWS), "always the same"),
        ([None] * ROWS, "no values"),
    ],
)
def test_columns_that_tell_nothing_are_left_out(tmp_path, column, why):
    _, columns = surveyed(tmp_path, table(x=column))
    assert columns["x"].feature is None
    assert why in columns["x"].note


def test_what_is_known_only_afterwards_is_left_out_unless_it_is_named(tmp_path):
    frame = table()
    frame = frame.with_columns(
        code=pl.col("offer").replace_strict({"a1": 7, "a2": 8, "a10": 9}),
        margin=pl.col("profit") * 0.9 + 0.01 * pl.Series(np.random.default_rng(1).normal(size=ROWS)),
        won=(pl.col("profit") > 0).cast(pl.String),
    )
    _, columns = surveyed(tmp_path, frame)
    assert columns["code"].note == "the action under another name"
    assert "explains" in columns["margin"].note
    assert columns["margin"].feature is None
    assert columns["won"].feature is not None  # it explains 64 % of a normal reward: a person has to tell
    clicks = frame.with_columns(profit=(pl.col("profit") > 0).cast(pl.Int8))
    assert surveyed(tmp_path, clicks)[1]["won"].feature is None
    _, named = surveyed(tmp_path, frame, Columns(action="offer", reward="profit", propensity=None, context=("margin",)))
    assert list(named) == ["margin"]
    assert named["margin"].feature is not None


def test_heavy_tails_get_a_scale(tmp_path):
    rng = np.random.default_rng(2)
    spent = np.exp(rng.normal(3, 2, ROWS))
    change = np.where(rng.random(ROWS) < 0.5, rng.normal(size=ROWS), rng.normal(size=ROWS) * 1e4)
    zeros = np.where(rng.random(ROWS) < 0.5, 0, spent)
    _, columns = surveyed(tmp_path, table(spent=spent, change=change, zeros=zeros))
    assert columns["spent"].feature.scale == "log"
    assert columns["change"].feature.scale in ("quantile", "linear")
    assert columns["zeros"].feature.scale == "quantile"
    assert columns["zeros"].note == "heavy tail: quantile scale"
    knots = np.array(columns["zeros"].feature.knots)
    assert (np.diff(knots) > 0).all()


def test_many_strings_are_hashed_texts_are_texts_and_moments_are_moments(tmp_path):
    rng = np.random.default_rng(3)
    city = [f"city-{i}" for i in rng.integers(200, size=ROWS)]
    title = [f"a title of item {i}" for i in rng.integers(900, size=ROWS)]
    at = [f"2026-11-{1 + i % 28:02d}T{i % 24:02d}:{i % 60:02d}:00Z" for i in range(ROWS)]
    vector = [[1.0, 2.0, float(i)] for i in range(ROWS)]
    _, columns = surveyed(tmp_path, table(city=city, title=title, at=at, vector=vector))
    assert columns["city"].feature == Hashed("city", size=512)
    assert columns["title"].feature == Text("title", size=1_024)
    assert isinstance(columns["at"].feature, Timestamp)
    assert columns["vector"].feature == Vector("vector", size=3)


def test_missing_values_get_a_flag(tmp_path):
    age = [None if i % 10 == 0 else i % 70 for i in range(ROWS)]
    _, columns = surveyed(tmp_path, table(age=age))
    assert columns["age"].feature.missing == "flag"
    assert columns["age"].missing == pytest.approx(0.1)


def test_a_number_with_many_values_is_an_action_that_is_a_number(tmp_path):
    frame = table(offer=np.random.default_rng(0).uniform(1, 9, ROWS))
    history, _ = surveyed(tmp_path, frame)
    assert isinstance(history.problem.actions, ps.Continuous)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profit": np.ones(ROWS)}, "column 'profit' is always 1"),
        ({"profit": ["much"] * ROWS}, "column 'profit' holds no numbers"),
        ({"offer": ["a"] * ROWS}, "column 'offer' always says 'a'"),
    ],
)
def test_tables_that_cannot_be_learnt_from_are_refused(tmp_path, change, message):
    with pytest.raises(InvalidLog, match=message):
        surveyed(tmp_path, table(**change))


def test_unknown_columns_are_refused_with_the_option(tmp_path):
    with pytest.raises(InvalidLog, match="no column 'nope'; name the right one with --without"):
        surveyed(tmp_path, table(), without=["nope"])
    with pytest.raises(InvalidLog, match="'offer' is --action already"):
        surveyed(tmp_path, table(), Columns(action="offer", reward="profit", propensity=None, context=("offer",)))


def test_hostile_names_and_values_do_not_break_the_file(tmp_path):
    from potstill.workspace import problem_text

    hostile, unloggable = "x'][evil] # \u202e", 'x"]\n[evil]\n# \u202e'
    values = np.random.default_rng(4).choice(["a\nb", "\u202e", "#"], ROWS)
    history, columns = surveyed(tmp_path, table(**{hostile: values, unloggable: values}))
    assert ps.Problem.from_toml(problem_text(history).encode(), "problem.toml") == history.problem
    assert hostile in [feature.name for feature in history.problem.context]
    assert columns[unloggable].feature is None
    assert "a quotation mark, a backslash or a control character" in columns[unloggable].note
    EventValidator(history.problem)
