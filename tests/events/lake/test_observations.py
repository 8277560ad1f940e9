"""Observations of a range of cuts: which, in which order and chunks, and encoded as row by row."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import potstill as ps
from potstill.events.lake import Lake, count_observations, read_observations
from potstill.events.lake.schema import table_schema
from potstill.tables import TIME, encode_contexts

PROBLEM = ps.Problem(
    name="observed",
    context=[
        ps.Numeric("required", low=-1, high=1),
        ps.Numeric("filled", low=0, high=10, missing=2.5),
        ps.Numeric("flagged", low=1, high=1000, scale="log", missing="flag"),
        ps.Categorical("category", ["a", "ü", "a longer one"]),
        ps.Categorical("sure", ["x", "y"], missing="error"),
        ps.Boolean("off", missing=False),
        ps.Boolean("on", missing=True),
        ps.Boolean("unsure", missing="flag"),
    ],
    actions=ps.Discrete(["l", "r"]),
    reward=ps.Reward(low=-1, high=1),
)
numbers = st.floats(-2000, 2000, width=32)
contexts = st.fixed_dictionaries(
    {
        "required": numbers,
        "filled": st.none() | numbers,
        "flagged": st.none() | numbers,
        "category": st.none() | st.sampled_from(["a", "ü", "a longer one", "", "other", "a\0", "x" * 500]),
        "sure": st.sampled_from(["x", "y", "z"]),
        "off": st.none() | st.booleans(),
        "on": st.none() | st.booleans(),
        "unsure": st.none() | st.booleans(),
    }
)


def frame_of(rows: list[dict[str, object]], **columns: object) -> pl.DataFrame:
    """Rows of the table of observations, in no order."""
    schema = table_schema("observations", PROBLEM)
    values = {f"context_{name}": [row[name] for row in rows] for name in rows[0]}
    stated = {"action": ["l"] * len(rows), "propensity": [0.5] * len(rows), "reward": [0.0] * len(rows), **columns}
    return pl.DataFrame(stated | values, schema_overrides={n: t for n, t in schema.items() if n in {*stated, *values}})


@given(st.lists(contexts, min_size=1, max_size=20))
def test_whole_columns_are_encoded_as_single_rows_are(rows):
    expected = np.stack([PROBLEM.encode(row) for row in rows])
    assert np.array_equal(encode_contexts(frame_of(rows), PROBLEM), expected)


def test_a_problem_without_features_has_contexts_without_columns():
    problem = ps.Problem(name="none", context=[], actions=ps.Discrete(["l", "r"]))
    assert encode_contexts(pl.DataFrame({"id": ["a", "b"]}), problem).shape == (2, 0)


@pytest.fixture
def lake(tmp_path) -> Lake:
    """Three cuts, many equal times, rows in no order, in several files."""
    lake = Lake(tmp_path, PROBLEM)
    rng = np.random.default_rng(0)
    for cut in (1, 2, 5):
        size = 40 * cut
        rows = [CONTEXT | {"required": float(x)} for x in rng.uniform(-1, 1, size)]
        frame = frame_of(
            rows,
            id=[f"id-{cut}-{i}" for i in rng.permutation(size)],
            time=pl.Series(rng.integers(0, 30, size) * 20_000_000_000).cast(TIME),
            reward=rng.uniform(-1, 1, size).tolist(),
            cut=[cut] * size,
        )
        lake.append("observations", frame, writer="cuts", number=cut)
    return lake


CONTEXT = {"required": 0.0, "filled": 1.0, "flagged": None, "category": "a", "sure": "x"}
CONTEXT |= {"off": None, "on": True, "unsure": False}


def rewards(lake: Lake, after: int, to: int, rows: int) -> list[list[float]]:
    return [chunk.rewards.tolist() for chunk in read_observations(lake, PROBLEM, after, to, rows)]


@pytest.mark.parametrize(("after", "to", "size"), [(0, 9, 320), (1, 2, 80), (2, 5, 200), (5, 9, 0), (2, 4, 0)])
def test_observations_come_by_cut_time_and_id(lake, after, to, size):
    table = lake.scan("observations").filter(pl.col("cut") > after, pl.col("cut") <= to).collect()
    expected = table.sort("cut", "time", "id")["reward"].to_list()
    assert [value for chunk in rewards(lake, after, to, 30) for value in chunk] == expected
    assert count_observations(lake, after, to) == len(expected) == size


def test_chunks_are_about_as_long_as_asked_for_and_do_not_depend_on_files(lake):
    before = rewards(lake, 0, 9, 30)
    assert len(before) > 5
    assert all(15 <= len(chunk) <= 45 for chunk in before[:-1])
    lake.tables["observations"].current().optimize.compact()
    assert rewards(lake, 0, 9, 30) == before
    assert [len(chunk) for chunk in rewards(lake, 0, 9, 1000)] == [320]


def test_of_many_observations_those_of_one_cut_and_second_stay_together(tmp_path, monkeypatch):
    """Nothing is lost or doubled at the borders, before 1970 either."""
    monkeypatch.setattr("potstill.events.lake.observations.EXACT", 99)
    lake, rng, size = Lake(tmp_path, PROBLEM), np.random.default_rng(1), 200
    times = rng.integers(-5_000_000, 5_000_000, size)
    frame = frame_of(
        [CONTEXT] * size,
        id=[f"id-{i}" for i in range(size)],
        time=pl.Series(times).cast(TIME),
        reward=rng.uniform(-1, 1, size).tolist(),
        cut=rng.integers(1, 3, size).tolist(),
    )
    lake.append("observations", frame, writer="cuts", number=2)
    expected = frame.sort("cut", "time", "id")["reward"].to_list()
    found = rewards(lake, 0, 2, 30)
    assert [value for chunk in found for value in chunk] == expected
    seconds = dict(zip(frame["reward"], zip(frame["cut"], times // 1_000_000, strict=True), strict=True))
    borders = [(seconds[one[-1]], seconds[other[0]]) for one, other in pairwise(found)]
    assert len(borders) >= 4
    assert all(one < other for one, other in borders)


def test_an_empty_lake_has_no_observations(tmp_path):
    assert count_observations(Lake(tmp_path, PROBLEM), 0, 9) == 0
    assert list(read_observations(Lake(tmp_path, PROBLEM), PROBLEM, 0, 9)) == []


def test_observations_that_do_not_fit_a_changed_problem_are_left_out(tmp_path):
    lake = Lake(tmp_path, PROBLEM)
    cases = {"fits": 0.5, "unlikely": 1e-50, "reward": 0.5, "nan": 0.5, "gone": 0.5, "missing": 0.5}
    names = list(cases)
    frame = frame_of(
        [CONTEXT | {"required": {"nan": float("nan"), "missing": None}.get(name, 0.0)} for name in names],
        id=names,
        time=pl.Series([0] * len(names)).cast(TIME),
        action=["m" if name == "gone" else "r" for name in names],
        propensity=list(cases.values()),
        reward=[2.0 if name == "reward" else 0.25 for name in names],
        cut=[1] * len(names),
    )
    lake.append("observations", frame, writer="cuts", number=1)
    (chunk,) = read_observations(lake, PROBLEM, 0, 1)
    assert (len(chunk), chunk.actions.tolist(), chunk.rewards.tolist()) == (1, [1], [0.25])
    assert chunk.propensities.dtype == np.float32
    assert count_observations(lake, 0, 1) == len(names)
