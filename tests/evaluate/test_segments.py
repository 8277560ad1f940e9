"""Segments: every row is in one, and their order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.evaluate.segments import MOST, PARTS, by_value, over_time

DAY = 86_400_000_000
#: Monday 16 November 2026, midnight UTC.
MONDAY = 20_773 * DAY


def rows_of(grouping):
    return {name: np.flatnonzero(grouping.codes == i).tolist() for i, name in enumerate(grouping.names)}


def test_values_are_segments_with_the_frequent_ones_first_and_missing_ones_last():
    values = np.array(["wifi", None, "4g", "wifi", "", "日本"], dtype=object)
    assert rows_of(by_value(values)) == {"wifi": [0, 3], "4g": [2], "日本": [5], "missing": [1, 4]}


def test_segments_of_the_same_name_can_be_told_apart():
    assert by_value(np.array(["missing", None, "a", "a"], dtype=object)).names == ("a", "missing", "missing (2)")
    assert over_time(np.arange(4), 2).names == ("1970-01-01 00:00", "1970-01-01 00:00 (2)")


def test_booleans_are_yes_and_no():
    assert rows_of(by_value(np.array([True, False, None, True], dtype=object))) == {
        "yes": [0, 3],
        "no": [1],
        "missing": [2],
    }


def test_rare_values_share_a_segment():
    values = np.array([f"v{i % 20}" for i in range(200)] + ["often"] * 50, dtype=object)
    found = by_value(values)
    assert found.names[0] == "often"
    assert found.names[-1] == f"others ({21 - (MOST - 1)} values)"
    assert len(found.names) == MOST


def test_numbers_fall_into_fifths_named_by_the_edges_that_part_them():
    values = np.arange(10_000, dtype=float)
    found = by_value(values)
    assert found.names == ("below 2,000", "2,000 to 4,000", "4,000 to 6,000", "6,000 to 8,000", "8,000 and up")
    assert found.codes[[1999, 2000, 9999]].tolist() == [0, 1, 4]


def test_few_numbers_are_named_one_by_one():
    assert rows_of(by_value(np.array([3.0, 1.5, np.nan, 3.0]))) == {"1.5": [1], "3": [0, 3], "missing": [2]}


@given(st.lists(st.none() | st.floats(-1e9, 1e9), min_size=1, max_size=80))
def test_every_number_is_in_one_segment_and_no_segment_is_empty(numbers):
    values = np.array([np.nan if number is None else number for number in numbers])
    found = by_value(values)
    assert np.array_equal(np.unique(found.codes), np.arange(len(found.names)))
    assert len(found.names) <= PARTS + 1
    known = found.codes[~np.isnan(values)]
    assert (np.diff(known[np.argsort(values[~np.isnan(values)])]) >= 0).all()


def test_days_and_weeks_are_utc_and_weeks_begin_on_monday():
    times = np.array([MONDAY + 7 * DAY, MONDAY, MONDAY - 1, MONDAY + 6 * DAY + 5])
    days = over_time(times, "day")
    assert days.names == ("2026-11-15", "2026-11-16", "2026-11-22", "2026-11-23")
    assert days.codes.tolist() == [3, 1, 0, 2]
    weeks = over_time(times, "week")
    assert weeks.names == ("2026-11-09", "2026-11-16", "2026-11-23")
    assert weeks.codes.tolist() == [2, 1, 0, 1]
    assert weeks.starts == (MONDAY - 7 * DAY, MONDAY, MONDAY + 7 * DAY)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(1, 12))
def test_equal_parts_are_equal_and_in_order(seconds, parts):
    times = np.array(seconds) * 1_000_000
    found = over_time(times, parts)
    sizes = np.bincount(found.codes)
    assert len(sizes) == min(parts, len(times))
    assert sizes.max() - sizes.min() <= 1
    for code, start in enumerate(found.starts):
        assert times[found.codes == code].min() == start
        assert (times[found.codes < code] <= start).all()


@pytest.mark.parametrize("over", ["month", 0, -1, True, 1.5])
def test_other_stretches_are_refused(over):
    with pytest.raises(ValueError, match="over must be 'day', 'week' or a number"):
        over_time(np.array([MONDAY]), over)


def test_names_that_hold_numbers_are_in_the_order_of_these():
    assert by_value(np.array(["a10", "a10", "a2", "b1", "a10"], dtype=object)).names == ("a2", "a10", "b1")
    assert by_value(np.array(["10", "9", "10"], dtype=object)).names == ("9", "10")
    assert by_value(np.array(["tv", "phone", "tv", "a1"], dtype=object)).names == ("tv", "a1", "phone")
