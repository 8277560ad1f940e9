"""Someone else's log: what its columns become, in parts as at once, and which rows are refused."""

import datetime as dt

import msgspec
import numpy as np
import polars as pl
import pytest

import potstill as ps
from potstill.errors import InvalidLog
from potstill.evaluate import table_log
from potstill.evaluate.table_log import TableLog, TablePolicy, table_contexts
from potstill.tables import Columns, PolicyColumns, UnreadableTable

COLUMNS = Columns(action="quality", reward="watched", propensity="p")
#: 16 November 2026, noon.
NOON = dt.datetime(2026, 11, 16, 12, tzinfo=dt.UTC)
ROWS = {
    "quality": ["lo", "hi", "mïd", "hi"],
    "watched": [0.5, 1.0, 0.0, 0.25],
    "p": [0.25, 0.5, 0.25, 1.0],
    "speed": [10.0, 20.0, None, 15.0],
    "net": ["wifi", None, "4g", "wifi"],
    "hd": [True, False, True, True],
    "new": ["hi", "hi", "lo", "4k"],
    "t_lo": [1.0, 0.0, 0.25, 0.5],
    "t_hi": [0.0, 1.0, 0.75, 0.5],
    "when": [NOON + dt.timedelta(days=i) for i in range(4)],
}


@pytest.fixture(params=["csv", "parquet"])
def place(request, tmp_path):
    return written(tmp_path / f"log.{request.param}")


def written(path, **changed):
    frame = pl.DataFrame(ROWS | changed, strict=False)
    frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
    return str(path)


def only(log):
    (block,) = log.blocks()
    return block


def test_columns_become_a_problem_and_its_log(place):
    columns = Columns(action="quality", reward="watched", propensity="p", context=("speed", "net", "hd"))
    log = TableLog(place, columns)
    assert log.problem.actions == ps.Discrete(["hi", "lo", "mïd"])
    assert log.problem.context == (
        ps.Numeric("speed", low=10, high=20, missing="flag"),
        ps.Categorical("net", ["4g", "wifi"]),
        ps.Boolean("hd"),
    )
    block = only(log)
    assert len(log) == 4
    assert block.actions.tolist() == [1, 0, 2, 0]
    assert block.rewards.tolist() == ROWS["watched"]
    assert block.propensities.tolist() == ROWS["p"]
    expected = [{"speed": s, "net": n, "hd": h} for s, n, h in zip(ROWS["speed"], ROWS["net"], ROWS["hd"], strict=True)]
    assert np.array_equal(block.contexts, log.problem.encode_many(expected))
    assert block.times is None


def test_a_log_without_context_has_contexts_without_columns(place):
    assert only(TableLog(place, COLUMNS)).contexts.shape == (4, 0)


def test_one_propensity_may_stand_for_all(place):
    log = TableLog(place, Columns(action="quality", reward="watched", propensity=1 / 3))
    assert only(log).propensities.tolist() == [1 / 3] * 4


def test_columns_may_be_called_as_those_of_the_log(tmp_path):
    names = ["row", "why not", "time", "fits", "propensity", "context_row", "number"]
    frame = pl.DataFrame({"action": ["a", "b"], "reward": [1.0, 2.0], **{name: [0.5, 0.25] for name in names}})
    frame.write_parquet(tmp_path / "log.parquet")
    features = tuple(name for name in names if name != "propensity")
    log = TableLog(str(tmp_path / "log.parquet"), Columns(context=features), by=names)
    block = only(log)
    assert block.propensities.tolist() == [0.5, 0.25]
    assert block.contexts.tolist() == [[1.0] * 6, [0.0] * 6]
    assert {tuple(values) for values in block.groups.values()} == {(0.5, 0.25)}


def test_times_are_read_however_they_are_written(tmp_path):
    micros = [round((NOON.timestamp() + day * 86_400) * 1e6) for day in range(4)]
    for path, changed in {
        "zone.parquet": {},
        "zone.csv": {},
        "plain.parquet": {"when": [when.replace(tzinfo=None) for when in ROWS["when"]]},
        "seconds.csv": {"when": [micro // 1_000_000 for micro in micros]},
    }.items():
        place = written(tmp_path / path, **changed)
        columns = Columns(action="quality", reward="watched", propensity="p", time="when")
        assert only(TableLog(place, columns)).times.tolist() == micros
        late = TableLog(place, columns, since=micros[1], until=micros[3])
        assert only(late).times.tolist() == micros[1:3]
        assert (len(late), late.left_out) == (2, {"outside": 2})
    with pytest.raises(InvalidLog, match="with --time"):
        TableLog(place, COLUMNS, since=micros[1])


def test_many_parts_hold_the_rows_of_one(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    frame = pl.DataFrame({"quality": rng.choice(["a", "b"], 1_000), "watched": rng.random(1_000), "p": 0.5})
    monkeypatch.setattr(table_log, "ROWS", 64)
    for place in (tmp_path / "log.csv", tmp_path / "log.parquet"):
        frame.write_csv(place) if place.suffix == ".csv" else frame.write_parquet(place, row_group_size=100)
        seen = []
        log = TableLog(str(place), COLUMNS, on_progress=lambda done, of: seen.append((done, of)))  # noqa: B023
        blocks = list(log.blocks())
        assert len(blocks) == 16
        assert np.concatenate([block.rewards for block in blocks]).tolist() == frame["watched"].to_list()
        assert seen[-1] == (1_000, 1_000)


def test_a_policy_says_what_the_columns_are(place):
    problem = ps.Problem(
        name="video",
        context=[ps.Numeric("speed", low=0, high=100, missing=0.0), ps.Categorical("net", ["wifi"])],
        actions=ps.Discrete(["lo", "mïd", "hi"]),
    )
    block = only(TableLog(place, COLUMNS, problem=problem))
    assert block.actions.tolist() == [0, 2, 1, 2]
    assert block.contexts[:, 0].tolist() == pytest.approx([0.1, 0.2, 0.0, 0.15])


def test_targets_that_the_table_states(place):
    there = list(ROWS)
    stated = [PolicyColumns.action("new", there), PolicyColumns.probabilities("t_", there)]
    log = TableLog(place, COLUMNS, targets=stated, by=["net", "new"])
    assert log.problem.actions.names == ("4k", "hi", "lo", "mïd")
    block = only(log)
    named, given = (TablePolicy(one, log.problem).probabilities(block, 0) for one in stated)
    assert named.argmax(axis=1).tolist() == [1, 1, 2, 0]
    assert named.sum() == 4
    assert given.tolist() == [[0, 0, 1, 0], [0, 1, 0, 0], [0, 0.75, 0.25, 0], [0, 0.5, 0.5, 0]]
    assert block.groups["net"].tolist() == ROWS["net"]


def test_columns_of_targets_that_are_not_there_are_named():
    with pytest.raises(InvalidLog, match=r"no column 'x'; the columns are a, b"):
        PolicyColumns.action("x", ["a", "b"])
    with pytest.raises(InvalidLog, match=r"a column t_ACTION for each action"):
        PolicyColumns.probabilities("t_", ["t_", "t_a", "b"])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"p": [0.25, 0.0, 0.25, 1.0]}, "row 1: p must be a probability above 0 and at most 1, got 0.0"),
        ({"p": [0.25, 0.5, 25.0, 1.0]}, "row 2: p must be a probability above 0 and at most 1, got 25.0"),
        ({"p": [0.25, 0.5, None, 1.0]}, "row 2: p must be a probability above 0 and at most 1, got null"),
        ({"p": [0.25, 0.5, float("nan"), 1.0]}, "row 2: p must be a probability above 0 and at most 1, got NaN"),
        ({"watched": [0.5, None, 0.0, 0.25]}, "row 1: watched must be a number from -1e+100 to 1e+100, got null"),
        (
            {"watched": [0.5, float("nan"), 0.0, 0.25]},
            "row 1: watched must be a number from -1e+100 to 1e+100, got",
        ),
        ({"watched": ["0.5", "many", "0", "1"]}, "row 1: watched must be a number from -1e+100 to 1e+100, got many"),
        ({"quality": ["lo", None, "hi", "hi"]}, "row 1: quality must be one of 4k, hi, lo, got null"),
        ({"new": ["hi", None, "lo", "hi"]}, "row 1: new must be one of hi, lo, mïd, got null"),
        (
            {"t_hi": [0.5, 1.0, 0.75, 0.5]},
            "row 0: t_lo, t_hi must add up to 1 (there is no column for 4k, mïd), got 1.5",
        ),
        ({"t_hi": [0.0, -1.0, 0.75, 0.5]}, "row 1: t_hi must be a probability, got -1.0"),
        (
            {"when": [NOON, NOON, None, NOON]},
            "row 2: when must be a time from 1970 to 2199, as ISO 8601 or",
        ),
    ],
)
def test_rows_that_will_not_do_are_named_or_left_out(tmp_path, changed, said):
    place = written(tmp_path / "log.parquet", **changed)
    columns = Columns(action="quality", reward="watched", propensity="p", time="when")
    targets = [PolicyColumns.action("new", list(ROWS)), PolicyColumns.probabilities("t_", list(ROWS))]
    with pytest.raises(InvalidLog) as error:
        TableLog(place, columns, targets=targets)
    assert f"log.parquet: {said}" in str(error.value)
    assert str(error.value).endswith("leave them out with --skip-unfit")
    log = TableLog(place, columns, targets=targets, skip=True)
    assert (len(log), log.left_out, len(only(log))) == (3, {"unfit": 1}, 3)


def test_only_the_first_bad_rows_are_named(tmp_path):
    frame = pl.DataFrame({"quality": ["a", "b"] * 50, "watched": [1.0] * 100, "p": [2.0] * 100})
    frame.write_csv(tmp_path / "log.csv")
    with pytest.raises(
        InvalidLog,
        match=r"row 4: p must .* and 95 more rows\. Row 0 is the first after the header\. Correct",
    ):
        TableLog(str(tmp_path / "log.csv"), COLUMNS)
    with pytest.raises(InvalidLog, match="none of its 100 rows fits: row 0"):
        TableLog(str(tmp_path / "log.csv"), COLUMNS, skip=True)


def test_rows_of_later_parts_are_named_by_their_number_in_the_table(tmp_path, monkeypatch):
    monkeypatch.setattr(table_log, "ROWS", 8)
    frame = pl.DataFrame({"quality": ["a", "b"] * 10, "watched": [1.0] * 20, "p": [0.5] * 17 + [0.0, 0.5, 3.0]})
    frame.write_csv(tmp_path / "log.csv")
    with pytest.raises(InvalidLog, match=r"row 17: p must .*; row 19: p must .* got 3\.0\. Row 0 is the first after"):
        TableLog(str(tmp_path / "log.csv"), COLUMNS)


def test_reasons_are_counted_in_all_parts_and_each_row_once(tmp_path, monkeypatch):
    monkeypatch.setattr(table_log, "ROWS", 2)
    place = written(tmp_path / "log.parquet", p=[0.0, 0.5, 2.0, 1.0], watched=["x", "1", "1", "y"])
    log = TableLog(place, COLUMNS, skip=True)
    assert log.unfit == {
        "watched must be a number from -1e+100 to 1e+100": 2,
        "p must be a probability above 0 and at most 1": 1,
    }
    assert (len(log), log.left_out) == (1, {"unfit": 3})


def test_rewards_outside_their_range_are_named(place):
    with pytest.raises(InvalidLog, match=r"row 1: watched must be a number from 0 to 0\.9, got 1\.0"):
        TableLog(place, COLUMNS, reward=ps.Reward(low=0.0, high=0.9))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"reward": "clicks"}, "no column 'clicks'; name the right one with --reward"),
        (
            {"action": "net2"},
            "no column 'net2' (did you mean 'net'?); name the right one with --action. The",
        ),
        ({"propensity": "odds"}, "no column 'odds'; name the right one with --propensity"),
        ({"context": ("x",)}, "'x'; name the right one with --context"),
        ({"action": "one"}, "column 'one' always says 'same'; with one action"),
        ({"context": ("none",)}, "column 'none' has no values; leave it out of --context"),
        ({"context": ("took",)}, "column 'took' holds Duration"),
    ],
)
def test_columns_that_will_not_do_are_named(tmp_path, columns, said):
    place = written(tmp_path / "log.parquet", one=["same"] * 4, none=[None] * 4, took=[dt.timedelta(1)] * 4)
    with pytest.raises(InvalidLog) as error:
        TableLog(place, msgspec.structs.replace(COLUMNS, **columns))
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("context", "role"),
    [
        ("watched", "--reward"),
        ("quality", "--action"),
        ("p", "--propensity"),
        ("when", "--time"),
        ("new", "a policy's column"),
        ("t_hi", "a policy's column"),
    ],
)
def test_what_was_not_known_before_the_decision_is_no_context(place, context, role):
    columns = msgspec.structs.replace(COLUMNS, time="when", context=("speed", context))
    targets = [PolicyColumns.action("new", list(ROWS)), PolicyColumns.probabilities("t_", list(ROWS))]
    with pytest.raises(InvalidLog, match=f"column '{context}' is {role} already; a context is what was known before"):
        TableLog(place, columns, targets=targets)


@pytest.mark.parametrize("propensity", [0.0, 1.5, -0.1, float("nan")])
def test_a_propensity_of_all_rows_must_be_a_probability(place, propensity):
    with pytest.raises(InvalidLog, match=f"--propensity must be a column, or a probability .*, got {propensity:g}$"):
        TableLog(place, msgspec.structs.replace(COLUMNS, propensity=propensity))


def test_columns_of_names_are_no_features_and_no_actions(tmp_path):
    names = [f"user-{i}" for i in range(1_500)]
    frame = pl.DataFrame({"user": names, "quality": ["a", "b"] * 750, "watched": 1.0, "p": 0.5})
    frame.write_parquet(tmp_path / "log.parquet")
    place = str(tmp_path / "log.parquet")
    with pytest.raises(InvalidLog, match="'user' has 1,500 different values, more than 64; leave it out of --context"):
        TableLog(place, Columns(action="quality", reward="watched", propensity="p", context=("user",)))
    with pytest.raises(InvalidLog, match="'user' has 1,500 different values; does it name actions"):
        TableLog(place, Columns(action="user", reward="watched", propensity="p"))


def test_tables_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(UnreadableTable, match="there is no such file"):
        TableLog(str(tmp_path / "nowhere.csv"), COLUMNS)
    (tmp_path / "bad.parquet").write_bytes(b"not parquet at all")
    with pytest.raises(UnreadableTable, match=r"bad\.parquet: "):
        TableLog(str(tmp_path / "bad.parquet"), COLUMNS)
    (tmp_path / "empty.csv").write_bytes(b"")
    with pytest.raises(UnreadableTable, match=r"empty\.csv: "):
        TableLog(str(tmp_path / "empty.csv"), COLUMNS)


def test_a_table_with_nothing_but_a_header(tmp_path):
    (tmp_path / "log.csv").write_text("quality,watched,p\n")
    with pytest.raises(InvalidLog, match=r"log\.csv: it has no rows$"):
        TableLog(str(tmp_path / "log.csv"), COLUMNS)


def test_contexts_of_a_table(place):
    problem = ps.Problem(
        name="video", context=[ps.Numeric("speed", low=0, high=100, missing="flag")], actions=ps.Discrete(["a", "b"])
    )
    assert table_contexts(place, problem, 3).tolist() == pytest.approx(np.float32([[0.2, 0], [0, 1], [0.15, 0]]))
    strict = ps.Problem(name="video", context=[ps.Numeric("speed", low=0, high=100)], actions=ps.Discrete(["a", "b"]))
    with pytest.raises(InvalidLog, match=r"row 2: speed must be a finite number, got null.*remove them"):
        table_contexts(place, strict, 3)
    other = ps.Problem(name="video", context=[ps.Boolean("loud")], actions=ps.Discrete(["a", "b"]))
    with pytest.raises(InvalidLog, match="no column 'loud', which is a feature"):
        table_contexts(place, other, 3)
