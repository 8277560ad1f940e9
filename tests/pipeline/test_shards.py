"""Tables of contexts in shards: every row once, drawn in proportion, and what does not fit left out and counted."""

from itertools import pairwise

import numpy as np
import polars as pl
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from worlds import contexts, made

from potstill.keys import Key
from potstill.pipeline.shards import READ_AT_MOST, SHARD_ROWS, Table, encode, read_shard, shards
from potstill.problem import InvalidContext
from potstill.tables import UnreadableTable

KEY = Key(3)


@pytest.fixture
def problem(tmp_path):
    return made(str(tmp_path / "workspace")).problem


def table(path, rows, **columns):
    pl.DataFrame(rows).with_columns(**columns).write_parquet(path, row_group_size=70)
    return Table.at(str(path))


@given(
    count=st.integers(0, 3_000_000), at_most=st.integers(0, 4_000_000), rows=st.sampled_from([100, 7_000, SHARD_ROWS])
)
def test_shards_follow_one_another_and_draw_what_was_asked_for(count, at_most, rows):
    found = shards(Table("t.parquet"), count, at_most, rows)
    if at_most and count:
        assert found[0].first == 0
        assert found[-1].first + found[-1].rows == count
    assert all(a.first + a.rows == b.first for a, b in pairwise(found))
    assert sum(shard.drawn for shard in found) == (min(count, at_most))
    assert all(0 <= shard.drawn <= shard.rows <= READ_AT_MOST for shard in found)
    assert all(shard.drawn <= rows + 1 for shard in found)


def test_shards_together_are_the_table(tmp_path, problem):
    rows = contexts(450)
    parquet = table(tmp_path / "t.parquet", rows)
    found = [read_shard(shard, problem, KEY) for shard in shards(parquet, 450, 10_000, rows=100)]
    assert [len(part.contexts) for part in found] == [100, 100, 100, 100, 50]
    np.testing.assert_array_equal(np.concatenate([part.contexts for part in found]), problem.encode_many(rows))
    assert sum(part.unfit for part in found) == 0


def test_a_sample_is_rows_of_the_table_each_at_most_once(tmp_path, problem):
    rows = contexts(450)
    parts = shards(table(tmp_path / "t.parquet", rows), 450, 90, rows=30)
    drawn, again = (np.concatenate([read_shard(part, problem, KEY).contexts for part in parts]) for _ in range(2))
    np.testing.assert_array_equal(drawn, again)
    everything = {row.tobytes() for row in problem.encode_many(rows)}
    assert len({row.tobytes() for row in drawn}) == len(drawn) == 90
    assert {row.tobytes() for row in drawn} <= everything
    other = np.concatenate([read_shard(part, problem, Key(4)).contexts for part in parts])
    assert (other != drawn).any()


def test_rows_that_do_not_fit_are_left_out_and_counted(tmp_path, problem):
    """A missing, an infinite and an unreadable number do not fit; an unknown or missing connection does."""
    bandwidth = ["100", None, "inf", "fast", "200", "nan"]
    rows = pl.DataFrame({"bandwidth_kbps": bandwidth, "connection": ["4g", "4g", "4g", "4g", "moon", "4g"]})
    found = encode(rows.lazy(), problem, "t")
    assert found.unfit == 4
    fitting = [{"bandwidth_kbps": 100, "connection": "4g"}, {"bandwidth_kbps": 200, "connection": "moon"}]
    np.testing.assert_array_equal(found.contexts, problem.encode_many(fitting))


def test_columns_may_be_named_as_in_the_lake(problem):
    rows = contexts(20)
    lake = pl.DataFrame(rows).rename(lambda name: f"context_{name}")
    np.testing.assert_array_equal(encode(lake.lazy(), problem, "t").contexts, problem.encode_many(rows))


def test_a_table_of_something_else_is_refused(problem):
    with pytest.raises(InvalidContext, match="none of the problem's features is a column; the columns are speed"):
        encode(pl.DataFrame({"speed": [1]}).lazy(), problem, "t")


def test_rows_that_are_added_to_delta_lake_meanwhile_do_not_count(place, problem):
    place = f"{place}/delta"
    write_deltalake(place, pl.DataFrame(contexts(120)))
    parts = shards(Table.at(place), 120, 1000, rows=50)
    write_deltalake(place, pl.DataFrame(contexts(30, seed=1)), mode="append")
    found = np.concatenate([read_shard(part, problem, KEY).contexts for part in parts])
    np.testing.assert_array_equal(found, problem.encode_many(contexts(120)))
    assert Table.at(place).count() == 150


def test_what_cannot_be_read_in_parts_is_named(tmp_path):
    with pytest.raises(
        UnreadableTable, match=r"t\.csv: text, here of 5 rows, cannot be read in parts; write it as Parquet"
    ):
        shards(Table("t.csv"), 5, 5)
    with pytest.raises(UnreadableTable, match="there is no such Delta Lake table"):
        Table.at(str(tmp_path / "nowhere"))
