"""Timestamps: against `datetime`, Polars and a calendar by hand, on every runtime, and what is refused."""

import math
import re
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_examples import needs_native

import potstill as ps
from potstill.events import EventLog, LoggedDecision
from potstill.problem import RFC_3339
from potstill.tables import context_schema, encode_contexts, features_in, features_of

ALL = ("day", "week", "year", "hour", "weekday", "monthday", "month")
ACTIONS = ps.Discrete(["a", "b"])
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def problem_of(*features):
    return ps.Problem(name="p", context=features, actions=ACTIONS)


def one_hot(index, size):
    return [float(i == index) for i in range(size)]


def expected(moment):
    """Columns of all parts by `datetime`, whose calendar is the platform's, and by plain sine and cosine."""
    second = moment.hour * 3600 + moment.minute * 60 + moment.second
    days = 366 if moment.year % 400 == 0 or (moment.year % 4 == 0 and moment.year % 100) else 365
    turns = [second / 86400, (moment.weekday() * 86400 + second) / 604800, (int(moment.strftime("%j")) - 1) / days]
    waves = [wave(2 * math.pi * turn) for turn in turns for wave in (math.sin, math.cos)]
    one_hots = [(moment.hour, 24), (moment.weekday(), 7), (moment.day - 1, 31), (moment.month - 1, 12)]
    return np.array([*waves, *(column for index, size in one_hots for column in one_hot(index, size))])


def check(found, moment):
    wanted = expected(moment)
    np.testing.assert_allclose(found[:6], wanted[:6], atol=1e-7)
    np.testing.assert_array_equal(found[6 : len(wanted)], wanted[6:])


def by_kernel(problem, values):
    encoded = np.empty((len(values), problem.width), np.float32)
    assert ps.Policy.uniform(problem)._runtime._kernel.encode_many([{"x": value} for value in values], encoded)
    return encoded


moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31))
offsets = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))


def stated(zone):
    minutes = int(zone.utcoffset(None).total_seconds() // 60)
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


@needs_native
@settings(max_examples=200, deadline=None)
@given(moment=moments, written=offsets, read=offsets, spelling=st.tuples(st.sampled_from("Tt "), st.booleans()))
def test_a_text_is_encoded_as_datetime_has_it(moment, written, read, spelling):
    at = moment.replace(tzinfo=written)
    text = at.isoformat(sep=spelling[0]) if spelling[1] else at.isoformat(sep=spelling[0], timespec="seconds")
    for offset, seen in ((stated(read), at.astimezone(read)), ("Z", at.astimezone(UTC)), ("own", at)):
        p = problem_of(ps.Timestamp("x", ALL, offset=offset))
        found = p.encode({"x": text})
        check(found, seen)
        np.testing.assert_array_equal(p.encode_many({"x": np.array([text], object)})[0], found)
        np.testing.assert_array_equal(by_kernel(p, [text])[0], found)


@needs_native
@settings(max_examples=200, deadline=None)
@given(moment=moments, read=offsets, unit=st.sampled_from(["s", "ms", "us"]))
def test_a_number_is_encoded_as_datetime_has_it(moment, read, unit):
    microseconds = (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
    number = microseconds / {"s": 1e6, "ms": 1e3, "us": 1}[unit]
    shown = EPOCH + timedelta(seconds=math.floor(number / {"s": 1, "ms": 1e3, "us": 1e6}[unit]))
    p = problem_of(ps.Timestamp("x", ALL, unit=unit, offset=stated(read)))
    found = p.encode({"x": number})
    check(found, shown.astimezone(read))
    np.testing.assert_array_equal(p.encode_many({"x": np.array([number])})[0], found)
    np.testing.assert_array_equal(p.encode_many({"x": np.array([number], object)})[0], found)
    np.testing.assert_array_equal(by_kernel(p, [number])[0], found)


@needs_native
def test_every_day_of_four_centuries_and_of_the_ends():
    """Year days, month days and leap years by Polars' calendar: years 1 to 9999 at noon, one day in 7 of most."""
    days = [*range(-719162, -719162 + 800), *range(-30000, 116097, 7), *range(2932896 - 800, 2932897)]
    frame = pl.DataFrame({"day": days}).select(pl.from_epoch("day", "d").alias("d"))
    places = frame.select(
        pl.col("d").dt.weekday() - 1,
        pl.col("d").dt.day().alias("monthday") - 1,
        pl.col("d").dt.month().alias("month") - 1,
        pl.col("d").dt.ordinal_day().alias("yearday") - 1,
        pl.col("d").dt.is_leap_year().alias("leap"),
    ).to_numpy()
    p = problem_of(ps.Timestamp("x", ["weekday", "monthday", "month", "year"], unit="s"))
    values = [day * 86400.0 + 43200 for day in days]
    found = p.encode_many({"x": np.array(values)})
    np.testing.assert_array_equal(by_kernel(p, values), found)
    for at, size, column in ((0, 7, 0), (7, 31, 1), (38, 12, 2)):
        np.testing.assert_array_equal(found[:, at : at + size].argmax(1), places[:, column])
        np.testing.assert_array_equal(found[:, at : at + size].sum(1), 1)
    turn = 2 * np.pi * places[:, 3] / (365 + places[:, 4])
    np.testing.assert_allclose(found[:, 50:], np.stack([np.sin(turn), np.cos(turn)], 1), atol=1e-7)


@pytest.mark.parametrize("steps", [86_400, 604_800, 365, 366])
def test_no_sine_is_so_near_between_two_float32_that_libraries_could_differ(steps):
    """Every step of a day, a week and a year: a library may err by 100 units in the last place of a float64."""
    angles = (math.pi / 2) * (4 * np.arange(steps) % steps) / steps
    for exact in (np.sin(angles), np.cos(angles)):
        near = exact.astype(np.float32)
        for side in (np.inf, -np.inf):
            border = (near.astype(float) + np.nextafter(near, np.float32(side)).astype(float)) / 2
            assert (np.abs(border - exact) > 100 * np.spacing(exact)).all()


def test_by_hand():
    p = problem_of(ps.Timestamp("x", ["day", "weekday"], offset="-05:00", missing="flag"))
    assert p.labels[:3] == ("x day sine", "x day cosine", "x weekday=Monday")
    assert p.labels[-1] == "x=<missing>"
    sunday = [0, 0, 0, 0, 0, 0, 1, 0]
    for text in ("2026-02-01T17:00:00Z", "2026-02-01t12:00:00.999-05:00", "2026-02-02 02:00:00+09:00"):
        np.testing.assert_array_equal(p.encode({"x": text}), [0, -1, *sunday])
    np.testing.assert_array_equal(p.encode({"x": "2026-02-01"}), [0, 1, *sunday])  # midnight on the feature's clock
    np.testing.assert_array_equal(p.encode({"x": "2026-02-01T10:59:60Z"}), p.encode({"x": "2026-02-01T11:00:00z"}))
    np.testing.assert_array_equal(p.encode({"x": None}), [0] * 9 + [1])
    np.testing.assert_array_equal(
        p.encode_many({"x": np.array([None, "2026-02-01"], object)}), [[0] * 9 + [1], [0, 1, *sunday]]
    )


BAD = [
    "", "now", "2026-02-30", "2025-02-29", "1900-02-29", "0000-01-01", "2026-13-01", "2026-00-01", "2026-01-00",
    "2026-04-31", "2026-1-01", "20260101", "2026-01-01T12:00:00", "2026-01-01T12:00Z", "2026-01-01T24:00:00Z",
    "2026-01-01T12:60:00Z", "2026-01-01T12:00:61Z", "2026-01-01T12:00:00.Z", "2026-01-01T12:00:00,5Z",
    "2026-01-01T12:00:00+24:00", "2026-01-01T12:00:00+02:60", "2026-01-01T12:00:00+0200", "2026-01-01T12:00:00Z ",
    "2026-01-01T12:00:00Z\n", "2026-01-01\n", "2026-01-01T12:00:00Z\0", "2026-01-01T", "2026/01/01", "+2026-01-01",
    "２０２６-01-01", "2026-01-01T12:00:00 Z", "2026-01-01T12:00:00zz", "-026-01-01", "2026-01-01T12:00:00\u22125:00",
    "9" * 10_000, "2026-01-01T12:00:00." + "1" * 10_000, "\ud800", "2026-01-01T-1:00:00Z", "2026-01-01T12:00:00--1:00",
]  # fmt: skip


@needs_native
@pytest.mark.parametrize("text", BAD, ids=lambda text: ascii(text)[:30])
def test_what_is_no_time_is_refused_by_every_runtime_table_and_log(text, tmp_path):
    p = problem_of(ps.Timestamp("x"))
    for runtime in ("numpy", "native"):
        with pytest.raises(ps.InvalidContext, match="feature 'x': expected a time as RFC 3339, such as 2026-01-31T12"):
            ps.Policy.uniform(p).with_runtime(runtime).decide({"x": text})
    with pytest.raises(ps.InvalidContext, match="row 1: feature 'x': expected a time"):
        p.encode_many({"x": np.array(["2026-01-01", text], object)})
    with EventLog(tmp_path / "log", p) as log, pytest.raises(ps.InvalidContext, match="expected a time as RFC 3339"):
        log.append(LoggedDecision(id="i", context={"x": text}, action="a", propensity=0.5, policy=0))
    if text.isascii() or "\ud800" not in text:
        assert not pl.select(pl.lit(text).str.contains(f"^(?:{RFC_3339})$")).item()


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.from_regex(RFC_3339, fullmatch=True), st.text("0123456789-:TZ+. ", max_size=26)))
def test_regular_expressions_and_the_kernel_accept_the_same(text):
    p = problem_of(ps.Timestamp("x", ALL))
    fits = re.fullmatch(RFC_3339, text) is not None
    assert pl.select(pl.lit(text).str.contains(f"^(?:{RFC_3339})$")).item() == fits
    runtime = ps.Policy.uniform(p)._runtime
    encoded = np.empty((1, p.width), np.float32)
    if runtime.name == "native":
        assert runtime._kernel.encode_many([{"x": text}], encoded) == fits
    if fits:
        np.testing.assert_array_equal(encoded[0], p.encode({"x": text}))


@needs_native
@pytest.mark.parametrize(
    ("unit", "value", "message"),
    [
        ("s", 1.7e12, "expected a number of s since 1970, of the years 1 to 9999, got 1700000000000.0 (float); state"),
        ("s", -62_135_596_801, "expected a number of s since 1970"),
        ("s", 253_402_300_800, "expected a number of s since 1970"),
        ("ms", 253_402_300_800_000, "expected a number of ms since 1970"),
        ("us", 1e300, "expected a number of us since 1970"),
        ("s", math.nan, "feature 'x': expected a finite number, got nan (float)"),
        ("s", math.inf, "feature 'x': expected a finite number, got inf (float)"),
        ("s", 10**400, "feature 'x': expected a finite number"),
        ("s", True, "feature 'x': expected a number, got True (bool)"),
        ("s", "2026-01-01", "feature 'x': expected a number, got '2026-01-01' (str)"),
        (None, 1.7e9, "feature 'x': expected a string, got 1700000000.0 (float)"),
        (None, None, "feature 'x' is missing; send a value, or define the feature with missing='flag'"),
    ],
)
def test_a_bad_value_is_refused_by_every_runtime(unit, value, message):
    p = problem_of(ps.Timestamp("x", unit=unit))
    for runtime in ("numpy", "native"):
        with pytest.raises(ps.InvalidContext, match=re.escape(message)):
            ps.Policy.uniform(p).with_runtime(runtime).decide({"x": value})
    if isinstance(value, float):
        with pytest.raises(ps.InvalidContext, match=f"row 1: .*{re.escape(message[:20])}"):
            p.encode_many({"x": np.array([0.0, value])}) if unit else p.encode_many({"x": ["2026-01-01", value]})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ps.Timestamp("x", []), "parts must be a list of day, week, year, hour, weekday, monthday, month"),
        (lambda: ps.Timestamp("x", "day"), "parts must be a list of day"),
        (lambda: ps.Timestamp("x", ["minute"]), "a part must be one of day, week"),
        (lambda: ps.Timestamp("x", [["day"]]), "a part must be one of day, week"),
        (lambda: ps.Timestamp("x", ["day", "day"]), "'day' is named twice"),
        (lambda: ps.Timestamp("x", unit="ns"), "unit must be 's', 'ms' or 'us', or left out for strings, got 'ns'"),
        (lambda: ps.Timestamp("x", offset="Europe/Berlin"), "names of time zones need a database"),
        (lambda: ps.Timestamp("x", offset=2), "offset must be 'Z', a number of hours and minutes such as '+02:00'"),
        (lambda: ps.Timestamp("x", offset="+2:00"), "offset must be 'Z'"),
        (lambda: ps.Timestamp("x", unit="s", offset="own"), "numbers have no offset of their own"),
        (lambda: ps.Timestamp("x", missing="unseen"), "missing must be 'error' or 'flag'"),
    ],
)
def test_a_bad_definition_is_refused(make, message):
    with pytest.raises(ps.InvalidProblem, match=re.escape(message)):
        make()


@pytest.mark.parametrize("missing", ["error", "flag"])
@pytest.mark.parametrize("unit", [None, "ms"])
def test_tables_are_encoded_as_rows_are(unit, missing):
    p = problem_of(ps.Timestamp("x", ALL, unit=unit, offset="+05:30", missing=missing))
    values = ["2026-01-31T12:00:00Z", "1999-12-31"] if unit is None else [1.7e12, -5.5]
    values += [None] if missing == "flag" else []
    wanted = np.stack([p.encode({"x": value}) for value in values])
    np.testing.assert_array_equal(encode_contexts(pl.DataFrame({"context_x": values}, context_schema(p)), p), wanted)
    np.testing.assert_array_equal(p.encode_many({"x": values}), wanted)


def test_columns_of_dates_and_times_are_features():
    table = pl.DataFrame({"t": [datetime(2026, 1, 31, 12), None], "d": [datetime(2026, 1, 31).date()] * 2, "y": [0, 1]})
    wanted = [ps.Timestamp("t", ["day", "weekday", "year"], missing="flag"), ps.Timestamp("d", ["weekday", "year"])]
    assert features_of(table, None, target="y") == wanted
    assert features_in(table.lazy(), ["t", "d"], "here") == wanted


def test_contexts_drawn_before_any_was_observed_are_moments():
    drawn = ps.Timestamp("x", ALL, missing="flag").draw(np.random.default_rng(0), 100)
    assert drawn.shape == (100, 81)
    np.testing.assert_array_equal(drawn[:, 6:].sum(1), 4)


def test_it_is_read_back_with_its_defaults_left_out(tmp_path):
    p = problem_of(ps.Timestamp("x", ["day", "weekday"]), ps.Timestamp("y", ["month"], unit="ms", offset="+02:00"))
    p.save(tmp_path / "problem.toml")
    assert ps.Problem.load(tmp_path / "problem.toml") == p
    policy = ps.Policy.uniform(p)
    assert policy.metadata.format == 2
    assert ps.Policy.from_bytes(policy.to_bytes()).problem == p
    assert b'{"type":"timestamp","name":"x"}' in policy.to_bytes().replace(b'\\"', b'"')
