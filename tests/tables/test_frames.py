"""Tables in memory give the same problem and observations as the file with the same rows."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import potstill as ps
from potstill.errors import InvalidLog
from potstill.tables import UnreadableTable

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
