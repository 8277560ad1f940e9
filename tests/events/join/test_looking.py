"""Looking over a cut in partitions of the ids: as in one go, in slices of about the same size."""

from itertools import chain, pairwise
from pathlib import Path
from unittest import mock

import numpy as np
import polars as pl
import pytest
from events.join_oracle import DAY, SECOND, R
from events.worlds import BASE, Workspace, after, counts, mixed_events, world
from hypothesis import given
from hypothesis import strategies as st

from potstill.events.join import dedup, execute
from potstill.events.join.changes import BEGINNING, END, CutInputs, rows_of_cut
from potstill.events.join.cuts import Cut, read_cut
from potstill.events.join.dedup import Index, partitions
from potstill.events.join.execute import plan_cut
from potstill.parallel import in_turn


@pytest.fixture
def sources(tmp_path: Path) -> CutInputs:
    """Those of a second cut: some of its ids were observed before."""
    workspace = Workspace(tmp_path, world())
    workspace.add(*mixed_events(1, 150))
    workspace.join(after(BASE + DAY))
    observed = [R(row["id"], row["time"] + SECOND) for row in workspace.observed()[::3]]
    workspace.add(*mixed_events(2, 150), *observed)
    lake, previous = workspace.lake, read_cut(workspace.cuts, 1)
    given = {"decisions": lake.version("decisions"), "rewards": lake.version("rewards"), "window": previous.window}
    cut = Cut(number=2, kind="join", made=0, after=1, until=BASE + 2 * DAY, problem="", **given)
    return CutInputs.of(lake, cut, previous, rows_of_cut(lake, "decisions", cut, previous))


def looked_over(sources: CutInputs, partition_rows: int) -> tuple[object, ...]:
    with mock.patch.object(execute, "PARTITION", partition_rows):
        found = plan_cut(sources, sources.decisions.count(), 20, in_turn)
    return found.counts, found.copies.firsts.sort("id").rows(), found.slices


@pytest.mark.parametrize("partition_rows", [100, 5])
def test_what_is_found_does_not_depend_on_the_partitions(sources, partition_rows):
    expected_counts, expected_copies, _ = looked_over(sources, 10_000)
    found_counts, found_copies, slices = looked_over(sources, partition_rows)
    assert found_counts == expected_counts
    assert found_copies == expected_copies
    rewards = found_counts.rewards
    assert min(found_counts.duplicates, found_counts.conflicting, rewards.late, rewards.orphans, rewards.too_late) > 0
    rows = [sources.decisions.count(*stretch) for stretch in slices]
    assert sum(rows) == sources.decisions.count()
    assert max(rows) <= 40  # 20 are wanted; some are of one time


@pytest.mark.parametrize("slice_rows", [1, 7])
def test_a_join_in_three_partitions_and_tiny_slices_is_the_oracles(tmp_path, slice_rows):
    workspace = Workspace(tmp_path, world("mean"))
    seen = []
    cut_in = lambda count: seen.append(count) or partitions(3)  # noqa: E731
    with mock.patch.object(execute, "partitions", cut_in), mock.patch.object(execute, "SLICE", slice_rows):
        for seed, until in [(1, BASE + DAY), (2, BASE + DAY), (3, BASE + 3 * DAY)]:
            workspace.add(*mixed_events(seed, 60), files=2)
            assert counts(workspace.join(after(until))) == workspace.world.join(after(until))
    assert workspace.observed() == workspace.world.observed
    assert seen == [1, 1, 1]


def test_every_row_is_in_one_partition_with_all_of_its_id():
    names = pl.LazyFrame({"id": [f"{i % 500}" for i in range(1000)]})
    parts = [part.rows(names).collect()["id"].to_list() for part in partitions(3)]
    assert sorted(chain(*parts)) == sorted(names.collect()["id"])
    assert sum(len(set(part)) for part in parts) == 500
    assert min(map(len, parts)) > 250


def test_a_machine_that_hashes_otherwise_is_found_out(sources, monkeypatch):
    for part in partitions(3):
        part.check()
    (whole,), (other, *_) = partitions(1), partitions(3)
    monkeypatch.setattr(dedup, "_PROBE", "another hash")
    whole.check()  # alone it does not matter
    with pytest.raises(RuntimeError, match=r"hashes ids otherwise .* the same version of Polars on all machines"):
        execute.summarize_partition(other, sources, 1)


@given(
    times=st.lists(st.integers(-(10**15), 10**15) | st.sampled_from([0, 1, 5]), min_size=1, max_size=60),
    parts=st.integers(1, 4),
    slice_rows=st.integers(1, 12),
    every=st.integers(1, 3),
)
def test_slices_are_all_of_time_and_about_as_long_as_wanted(times, parts, slice_rows, every):
    """Whatever the partitions: each can be wrong by one mark, and rows of one time stay together."""
    every = min(every, slice_rows)
    dealt = [np.array(times[i::parts], np.int64) for i in range(parts)]
    marks = np.concatenate([Index(np.zeros(len(part), np.uint64), part).every(every) for part in dealt])
    found = execute._slices(np.sort(marks), slice_rows // every)
    assert (found[0][0], found[-1][1]) == (BEGINNING, END)
    assert all(one[1] == other[0] for one, other in pairwise(found))
    for begin, end in found:
        inside = [time for time in times if begin < time <= end]
        alike = max((inside.count(time) for time in inside), default=0)
        assert len(inside) <= slice_rows + 2 * parts * every + alike
