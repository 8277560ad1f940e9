"""Tables in memory give the same problem and observations as the file with the same rows."""

from datetime import timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest

import potstill as ps
from potstill.errors import InvalidLog, PotstillError
from potstill.tables import Columns, UnreadableTable, read_history

duckdb = pytest.importorskip("duckdb")

N = 400


def pandas_frame():
    rng = np.random.default_rng(0)
    device, offer = rng.choice(["ios", "web"], N).astype(object), rng.choice(["a", "b", "c"], N)
    device[::9] = None
    age = rng.integers(18, 80, N)
    return pd.DataFrame(
        {
            "age": age,
            "spend": np.where(np.arange(N) % 7, rng.random(N) * 5, np.nan),
            "visits": pd.array([None if i % 11 == 0 else i % 5 for i in range(N)], dtype="Int64"),
            "device": device,
            "segment": pd.Categorical(np.where(age > 50, "old", "young")),
            "new": rng.random(N) < 0.5,
            "at": pd.Timestamp("2026-01-01") + pd.to_timedelta(np.arange(N), "h"),
            "zoned": pd.Timestamp("2026-01-01", tz="Europe/Berlin") + pd.to_timedelta(np.arange(N), "h"),
            "offer": offer,
            "p": 1 / 3,
            "profit": (offer == "a") * (age > 50) + 0.1 * rng.normal(size=N),
        }
    )


def polars_frame():
    frame = pandas_frame()
    return pl.DataFrame({k: frame[k].astype(object).where(frame[k].notna(), None).to_list() for k in frame.columns})


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("frames") / "t.parquet")
    polars_frame().write_parquet(path)
    return path


def infer(table):
    return ps.Problem.infer(table, name="shop", action="offer", reward="profit", without=["p"])


def observe(problem, table, **options):
    stated = {"action": "offer", "reward": "profit", "propensity": "p"}
    return ps.Observations.from_frame(problem, table, **stated | options)


@pytest.mark.parametrize(
    "table",
    [
        pytest.param(lambda _: pandas_frame(), id="pandas"),
        pytest.param(lambda _: polars_frame(), id="polars"),
        pytest.param(lambda _: polars_frame().lazy(), id="lazy"),
        pytest.param(lambda path: duckdb.connect().sql(f"SELECT * FROM '{path}'"), id="duckdb"),
    ],
)
def test_a_table_in_memory_is_as_its_file(table, parquet):
    wanted = infer(parquet)
    assert [type(feature).__name__ for feature in wanted.context] == (
        ["Numeric"] * 2 + ["Numeric", "Categorical", "Categorical", "Boolean", "Timestamp", "Timestamp"]
    )
    assert infer(table(parquet)) == wanted
    found, expected = observe(wanted, table(parquet)), observe(wanted, parquet)
    for name in ("contexts", "actions", "rewards", "propensities"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


def test_observations_are_those_of_the_records():
    frame = polars_frame().select("age", "device", "offer", "p", "profit")
    problem = infer(frame)
    records = [
        {"context": {"age": row["age"], "device": row["device"]}, "action": row["offer"], "reward": row["profit"]}
        | {"propensity": row["p"]}
        for row in frame.to_dicts()
    ]
    found, expected = observe(problem, frame), ps.Observations.from_records(problem, records)
    for name in ("contexts", "actions", "rewards", "propensities"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    still = ps.Still(problem, ps.teachers.LinearTS(), seed=0)
    assert still.update(found).observations == N


def test_what_does_not_fit_is_named():
    frame = polars_frame()
    problem = infer(frame)
    bad = frame.with_columns(pl.when(pl.int_range(N) == 5).then(2.0).otherwise("p").alias("p"))
    with pytest.raises(ps.InvalidObservation, match=r"row 5: p must be a probability.*got 2\.0.*skip=True"):
        observe(problem, bad)
    assert len(observe(problem, bad, skip=True)) == N - 1
    with pytest.raises(ps.InvalidObservation, match=r"there is no column 'ofer'.*The columns are age, spend"):
        observe(problem, frame, action="ofer")
    with pytest.raises(ps.InvalidObservation, match="there is no column 'age'"):
        observe(problem, frame.drop("age"))
    with pytest.raises(ps.InvalidObservation, match=r"the propensity was 0\.1 in all rows"):
        observe(problem, frame, propensity=0.1)
    with pytest.raises(ps.InvalidObservation, match="observations need the probability of each action"):
        observe(problem, frame, propensity=None)
    with pytest.raises(UnreadableTable, match="a frame of Polars, pandas or Arrow, got 7"):
        infer(7)
    with pytest.raises(InvalidLog, match="there is no column 'offer'"):
        infer(pl.DataFrame())
    with pytest.raises(UnreadableTable, match="there is no such file"):
        infer("nothing.csv")


def test_a_number_is_inferred_with_its_density():
    frame = polars_frame().with_columns((pl.col("age") * 1.5).alias("price"), pl.lit(0.01).alias("d"))
    problem = ps.Problem.infer(frame, name="x", action="price", reward="profit", density="d", context=["new"])
    assert isinstance(problem.actions, ps.Continuous)
    assert len(observe(problem, frame, action="price", propensity="d")) == N


@pytest.mark.parametrize("kind", ["period", "interval", "complex", "object"])
def test_columns_of_pandas_that_hold_no_values_of_a_feature_are_left_out(kind):
    column = {
        "period": lambda: pd.period_range("2020", periods=N, freq="D"),
        "interval": lambda: pd.cut(pd.Series(np.arange(N)), 3),
        "complex": lambda: [1j, 2j] * (N // 2),
        "object": lambda: [object(), object()] * (N // 2),
    }[kind]()
    frame = pandas_frame().assign(odd=column)
    assert infer(frame) == infer(pandas_frame())
    assert len(observe(infer(frame), frame)) == N


def test_missing_booleans_of_pandas():
    frame = pandas_frame().assign(new=pd.array([True, False, None, True] * (N // 4), dtype="boolean"))
    assert ps.Boolean("new", missing="flag") in infer(frame).context
    frame["offer"] = frame["new"]
    with pytest.raises(ps.InvalidObservation, match="row 2: offer must be one of false, true, got null"):
        observe(infer(frame), frame)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: pd.concat([frame, frame[["age"]]], axis=1), "the table: column 'age' is named twice"),
        (lambda frame: frame.assign(**{"0": 1, "x": 2}).rename(columns={"x": 0}), "column '0' is named twice"),
        (
            lambda frame: frame.assign(age=[1, "old"] * (N // 2)),
            "column 'age' cannot be read: .*; convert it to one type",
        ),
        (lambda frame: frame.assign(device=["\ud800", "b"] * (N // 2)), "column 'device' cannot be read"),
        (lambda frame: frame["age"], "the table cannot be read|a table is a path"),
        (lambda frame: pl.DataFrame({"*": [1], "offer": ["a"]}), r"a column cannot be called '\*'"),
    ],
)
def test_frames_that_cannot_be_read_name_the_column(change, message):
    with pytest.raises(UnreadableTable, match=message):
        infer(change(pandas_frame()))


@pytest.mark.parametrize(
    ("column", "values", "message"),
    [
        (
            "offer",
            pl.Series([["a"]] * N),
            r"column 'offer' holds List\(String\), and --action must be names or numbers",
        ),
        ("offer", pl.Series([b"a", b"b"] * (N // 2)), "column 'offer' holds Binary"),
        ("profit", pl.Series([[1.0]] * N), r"column 'profit' holds List\(Float64\), and --reward must be numbers"),
        ("profit", pl.Series([pd.Timestamp("2026-01-01")] * N), "column 'profit' holds Datetime"),
        ("profit", pl.Series(["$1.50"] * N), r"column 'profit' holds no numbers, but '\$1\.50'"),
    ],
)
def test_columns_of_a_type_that_their_role_cannot_have_are_refused(column, values, message):
    with pytest.raises(InvalidLog, match=message):
        infer(polars_frame().with_columns(values.alias(column)))


def test_one_propensity_of_all_rows_is_checked_whatever_its_type():
    frame, problem = polars_frame(), infer(polars_frame())
    for wrong, message in ((2, "a probability above 0 and at most 1"), (float("nan"), "got nan")):
        with pytest.raises(PotstillError, match=message):
            observe(problem, frame, propensity=wrong)
    for wrong in (True, [1 / 3] * N):
        with pytest.raises(PotstillError, match="the name of a column or one number"):
            observe(problem, frame, propensity=wrong)
    with pytest.raises(PotstillError, match="action must be the name of a column, got 3"):
        infer_as(frame, 3)


def infer_as(table, action):
    return ps.Problem.infer(table, name="shop", action=action, reward="profit")


def test_a_path_is_a_table_too(tmp_path):
    polars_frame().write_parquet(tmp_path / "t.parquet")
    assert infer(tmp_path / "t.parquet") == infer(polars_frame())


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ([timedelta(hours=i) for i in range(N)], "Duration"),
        ([object() for _ in range(N)], "Object"),
        ([[[1.0]]] * N, "not lists of numbers"),
        ([[1.0, float("nan")]] * N, "not finite numbers of one length"),
        ([[1.0, 1e300]] * N, "not finite numbers of one length"),
        ([f"lorem ipsum dolor {i} " * 300 for i in range(N)], "texts of up to 6,600 characters, and at most 4,096"),
    ],
)
def test_a_feature_takes_the_values_that_it_was_inferred_from(values, note):
    frame = polars_frame().with_columns(pl.Series("odd", values))
    columns = Columns(action="offer", reward="profit", propensity="p")
    (odd,) = (column for column in read_history(frame, columns, "shop").surveyed if column.name == "odd")
    assert odd.feature is None
    assert note in odd.note
    assert len(observe(infer(frame), frame)) == N
