"""One rule for rows: every value of a feature, reward, propensity and time has the same verdict through every door.

A door is a way into Potstill. It gives the encoded context of a row that fits, and raises `PotstillError` or returns
None for a row that does not.
"""

import math
from datetime import UTC, datetime, timedelta
from itertools import product

import msgspec
import numpy as np
import polars as pl
import pytest
import tomli_w

import potstill as ps
from potstill.errors import PotstillError
from potstill.evaluate.log import ArrayLog
from potstill.evaluate.table_log import TableLog, table_contexts
from potstill.events import EventLog, LoggedDecision, LoggedObservation
from potstill.lab import ClassificationProblem
from potstill.pipeline import audit as audits
from potstill.pipeline.shards import encode as encode_shard
from potstill.pipeline.warm_start import import_history
from potstill.tables import (
    TIME,
    Columns,
    context_column,
    context_schema,
    decision_fits,
    encode_contexts,
    reward_fits,
    time_fits,
)
from potstill.workspace import Workspace

NOON = 1_700_000_000_000_000
ABSENT = "<absent>"
OTHERS = {"action": "a", "reward": 0.5, "propensity": 0.25}

# ---------------------------------------------------------------------------------------------------------------------
# The rule. "missing" fits unless the feature is required.

FEATURES = {
    "numeric": {"error": ps.Numeric("x", low=0, high=10)}
    | {how: ps.Numeric("x", low=0, high=10, missing=how) for how in ("flag", 5.0)},
    "categorical": {how: ps.Categorical("x", ["4g", "wifi"], missing=how) for how in ("error", "unseen")},
    "boolean": {how: ps.Boolean("x", missing=how) for how in ("error", "flag", True)},
    "hashed": {how: ps.Hashed("x", size=5, missing=how) for how in ("error", "flag")},
    "text": {how: ps.Text("x", size=5, missing=how) for how in ("error", "flag")},
    "timestamp": {how: ps.Timestamp("x", missing=how) for how in ("error", "flag")},
    "seconds": {how: ps.Timestamp("x", unit="s", offset="-03:30", missing=how) for how in ("error", "flag")},
    "vector": {
        "error": ps.Vector("x", size=2),
        "flag": ps.Vector("x", size=2, low=1, high=2, missing="flag"),
        "unit": ps.Vector("x", size=2, norm="unit"),
    },
    "quantile": {
        how: ps.Numeric("x", low=0, high=10, scale="quantile", knots=[1, 3.5], missing=how)
        for how in ("error", "flag", 5.0)
    },
}
VERDICTS = {
    "numeric": [
        (3.5, "fits"),
        (7, "fits"),
        (-4.0, "fits"),
        (1e300, "fits"),
        (ABSENT, "missing"),
        (None, "missing"),
        (math.nan, "refused"),
        (math.inf, "refused"),
        (-math.inf, "refused"),
        ("", "refused"),
        ("fast", "refused"),
        (True, "refused"),
    ],
    "categorical": [
        ("4g", "fits"),
        ("satellite", "fits"),
        ("", "fits"),
        (ABSENT, "missing"),
        (None, "missing"),
        (math.nan, "refused"),
        (4, "refused"),
        (True, "refused"),
    ],
    "boolean": [
        (True, "fits"),
        (False, "fits"),
        (ABSENT, "missing"),
        (None, "missing"),
        (math.nan, "refused"),
        ("", "refused"),
        ("maybe", "refused"),
        (1, "refused"),
    ],
    "vector": [
        ([0.5, -2.0], "fits"),
        ([3, 4], "fits"),
        ([0.0, 0.0], "fits"),
        ([1e30, 1.0], "fits"),
        (ABSENT, "missing"),
        (None, "missing"),
        ([0.5], "refused"),
        ([0.5, 1.0, 2.0], "refused"),
        ([], "refused"),
        ([0.5, math.nan], "refused"),
        ([math.inf, 1.0], "refused"),
        ([1e39, 1.0], "refused"),
        ([0.5, None], "refused"),
        (["0.5", "1"], "refused"),
        ([True, False], "refused"),
        (0.5, "refused"),
        ("", "refused"),
        ("fast", "refused"),
    ],
}
VERDICTS["quantile"] = VERDICTS["numeric"]
VERDICTS["text"] = [
    *VERDICTS["categorical"],
    ("Red shoes!", "fits"),
    ("東京\0a\0", "fits"),
    ("🎲" * 4096, "fits"),
    ("x" * 4097, "refused"),
]
VERDICTS["timestamp"] = [
    ("2026-01-31T12:00:00Z", "fits"),
    ("1812-02-29 23:59:60.25-05:00", "fits"),
    ("2026-01-31", "fits"),
    (ABSENT, "missing"),
    (None, "missing"),
    (math.nan, "refused"),
    ("", "refused"),
    ("2026-02-29", "refused"),
    ("2026-01-31T12:00:00", "refused"),
    ("2026-01-31\n", "refused"),
    (1.7e9, "refused"),
    (True, "refused"),
]
VERDICTS["seconds"] = [
    (1.7e9, "fits"),
    (1_700_000_000, "fits"),
    (-62_135_596_800.0, "fits"),
    (ABSENT, "missing"),
    (None, "missing"),
    (math.nan, "refused"),
    (math.inf, "refused"),
    (1.7e12, "refused"),
    (253_402_300_800.0, "refused"),
    ("soon", "refused"),
    (True, "refused"),
]
VERDICTS["hashed"] = [*VERDICTS["categorical"], ("東京", "fits"), ("a\0", "fits"), ("x" * 300, "fits")]
CASES = [
    pytest.param(
        feature,
        value,
        verdict != "refused" and (verdict == "fits" or feature.missing != "error"),
        id=f"{kind}-{how}-{str(value)[:20]}",
    )
    for kind, rule in VERDICTS.items()
    for (how, feature), (value, verdict) in product(FEATURES[kind].items(), rule)
]


# ---------------------------------------------------------------------------------------------------------------------
# The doors.


def problem_of(feature):
    context = [feature, ps.Boolean("other")]
    return ps.Problem(name="door", context=context, actions=ps.Discrete(["a", "b"]), reward=ps.Reward(low=-1, high=1))


def context_of(value):
    return {"other": True} if value is ABSENT else {"x": value, "other": True}


def table_of(value, **changed):
    """One row as a typed table."""
    columns = context_of(value) | OTHERS | {"when": NOON // 1_000_000} | changed
    return pl.DataFrame({name: [cell] for name, cell in columns.items()})


def lake_row(problem, value):
    """One row as the lake has it; None if the lake's columns cannot hold the value."""
    types = context_schema(problem)
    name = context_column("x")
    holds = {"number": float, "string": str, "boolean": bool, "numbers": list}[problem.context[0].holds]
    if value is not ABSENT and value is not None and type(value) is not holds:
        return None
    if type(value) is list and any(isinstance(number, (str, bool)) for number in value):
        return None
    context = {} if value is ABSENT else {name: pl.Series(name, [value], types[name])}
    others = {"id": "i", "policy": 0, "mode": None, "floor": None, context_column("other"): True} | OTHERS
    frame = pl.DataFrame({column: [cell] for column, cell in others.items()})
    return frame.with_columns(time=pl.lit(NOON).cast(TIME), eligible=pl.lit(None, pl.List(pl.String)), **context)


def workspace_of(problem, tmp_path):
    return Workspace.create(tmp_path / "w", tomli_w.dumps(msgspec.to_builtins(problem)).encode(), b"")


def unless_refused(door, otherwise):
    try:
        return door()
    except PotstillError:
        return otherwise


def decide(problem, value, tmp_path):
    context = context_of(value)
    for runtime in ("numpy", None):
        policy = ps.Policy.uniform(problem)
        (policy if runtime is None else policy.with_runtime(runtime)).decide(context)
    return problem.encode(context)


def from_records(problem, value, tmp_path):
    return ps.Observations.from_records(problem, [OTHERS | {"context": context_of(value)}]).contexts[0]


def from_columns(problem, value, tmp_path):
    contexts = {name: [cell] for name, cell in context_of(value).items()}
    return ps.Observations.from_columns(
        problem, contexts=contexts, actions=["a"], rewards=[0.5], propensities=[0.25]
    ).contexts[0]


def array_log(problem, value, tmp_path):
    log = ArrayLog(problem, contexts=[context_of(value)], actions=["a"], rewards=[0.5], propensities=[0.25])
    return next(log.blocks()).contexts[0]


def event_log(problem, value, tmp_path):
    context = context_of(value)
    with EventLog(tmp_path / "log", problem) as log:
        log.append(LoggedDecision(id="i", context=context, action="a", propensity=0.25, policy=0))
    return problem.encode(context)


def table_log(problem, value, tmp_path):
    table_of(value).write_parquet(tmp_path / "t.parquet")
    return next(TableLog(str(tmp_path / "t.parquet"), Columns(), problem=problem).blocks()).contexts[0]


def exploration_plan(problem, value, tmp_path):
    table_of(value).write_parquet(tmp_path / "t.parquet")
    return table_contexts(str(tmp_path / "t.parquet"), problem, 10)[0]


def warm_started(problem, value, tmp_path):
    table_of(value).write_parquet(tmp_path / "t.parquet")
    workspace = workspace_of(problem, tmp_path)
    import_history(workspace, str(tmp_path / "t.parquet"), Columns())
    return encode_contexts(workspace.lake.scan("observations").collect(), problem)[0]


def lake(problem, value, tmp_path):
    row = lake_row(problem, value)
    if row is None:
        pytest.skip("the lake's columns are typed")
    empty = pl.DataFrame(schema=context_schema(problem))
    row = pl.concat([row, empty], how="diagonal")
    return encode_contexts(row, problem)[0] if len(row.filter(decision_fits(problem))) else None


def audit(problem, value, tmp_path):
    row = lake_row(problem, value)
    if row is None:
        pytest.skip("the lake's columns are typed")
    row = row.with_columns(propensity=pl.lit(0.5), would=pl.lit(None, pl.String))
    found = audits._check({0: ps.Policy.uniform(problem)}, 0, None, row)
    assert (found.checked, found.unfit) in {(1, 0), (0, 1)}
    return problem.encode(context_of(value)) if found.checked else None


def shard(problem, value, tmp_path):
    found = encode_shard(table_of(value).lazy(), problem, "t")
    assert found.unfit + len(found.contexts) == 1
    return None if found.unfit else found.contexts[0]


def lab_table(problem, value, tmp_path):
    rows = pl.concat([table_of(value, label=label) for label in "ab"])
    if value is ABSENT:
        pytest.skip("features of the lab are columns of its table")
    found = ClassificationProblem(rows, label="label", features=list(problem.context), resample=False)
    return found.encode({"row": np.array([0])})[0]


DOORS = [
    decide, from_records, from_columns, array_log, event_log, table_log, exploration_plan, warm_started, lake, audit,
    shard, lab_table,
]  # fmt: skip


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
@pytest.mark.parametrize(("feature", "value", "fits"), CASES)
def test_a_value_of_a_feature_has_one_verdict_through_every_door(door, feature, value, fits, tmp_path):
    problem = problem_of(feature)
    found = unless_refused(lambda: door(problem, value, tmp_path), None)
    assert (found is not None) == fits
    if fits:
        np.testing.assert_array_equal(found, problem.encode(context_of(value)))


@pytest.mark.parametrize(
    ("feature", "cell", "fits"),
    [
        (ps.Numeric("x", low=0, high=10), "3.5", True),
        (ps.Numeric("x", low=0, high=10), "", False),
        (ps.Numeric("x", low=0, high=10, missing="flag"), "", True),
        (ps.Numeric("x", low=0, high=10, missing="flag"), '""', True),
        (ps.Numeric("x", low=0, high=10, missing="flag"), "NaN", False),
        (ps.Numeric("x", low=0, high=10, missing="flag"), "inf", False),
        (ps.Numeric("x", low=0, high=10, missing="flag"), "fast", False),
        (ps.Categorical("x", ["4"], missing="error"), "4", True),
        (ps.Categorical("x", ["4"], missing="error"), "", False),
        (ps.Categorical("x", ["4"], missing="error"), '""', False),
        (ps.Categorical("x", ["4"]), "", True),
        (ps.Boolean("x"), "true", True),
        (ps.Boolean("x"), "1", True),
        (ps.Boolean("x"), "yes", True),
        (ps.Boolean("x"), "No", True),
        (ps.Boolean("x"), "t", True),
        (ps.Boolean("x"), "F", True),
        (ps.Boolean("x"), "Y", True),
        (ps.Boolean("x"), "n", True),
        (ps.Boolean("x"), "maybe", False),
        (ps.Boolean("x"), "2", False),
        (ps.Boolean("x"), "", False),
        (ps.Boolean("x", missing=True), "", True),
        (ps.Hashed("x", size=4), "12", True),
        (ps.Hashed("x", size=4), "", False),
        (ps.Hashed("x", size=4, missing="flag"), "", True),
        (ps.Timestamp("x"), "2026-01-31T12:00:00Z", True),
        (ps.Timestamp("x"), "2026-01-31 12:00:00", False),
        (ps.Timestamp("x"), "", False),
        (ps.Timestamp("x", missing="flag"), "", True),
        (ps.Timestamp("x", unit="s"), "1700000000", True),
        (ps.Timestamp("x", unit="s"), "1e300", False),
        (ps.Text("x", size=4), "red shoes", True),
        (ps.Text("x", size=4), "12", True),
        (ps.Text("x", size=4), "", False),
        (ps.Text("x", size=4, missing="flag"), "", True),
        (ps.Text("x", size=4, missing="flag"), "x" * 4097, False),
        (ps.Vector("x", size=2), '"[0.5, 1]"', True),
        (ps.Vector("x", size=2), '"[0.5]"', False),
        (ps.Vector("x", size=2), '"[0.5, null]"', False),
        (ps.Vector("x", size=2), "0.5", False),
        (ps.Vector("x", size=2), "", False),
        (ps.Vector("x", size=2, missing="flag"), "", True),
    ],
)
@pytest.mark.parametrize("door", ["evaluate", "warm-start", "shards", "plan"])
def test_csv_is_text_in_which_an_empty_cell_is_null(door, feature, cell, fits, tmp_path):
    problem, place = problem_of(feature), str(tmp_path / "t.csv")
    (tmp_path / "t.csv").write_text(f"x,other,action,reward,propensity\n{cell},true,a,0.5,0.25\n")
    doors = {
        "evaluate": lambda: len(TableLog(place, Columns(), problem=problem)),
        "warm-start": lambda: import_history(workspace_of(problem, tmp_path), place, Columns()).observations,
        "shards": lambda: len(encode_shard(pl.scan_csv(place), problem, place).contexts),
        "plan": lambda: len(table_contexts(place, problem, 10)),
    }
    assert unless_refused(doors[door], 0) == int(fits)


@pytest.mark.parametrize("zone", [None, "Asia/Kolkata"])
@pytest.mark.parametrize("unit", [None, "ms"])
def test_columns_of_times_are_times_and_utc_without_a_zone(unit, zone, tmp_path):
    problem = problem_of(ps.Timestamp("x", ["day", "weekday"], unit=unit, missing="flag"))
    column = pl.Series("x", ["2026-01-31T12:00:00.5", None]).str.to_datetime().dt.replace_time_zone(zone)
    table = pl.concat([table_of(None), table_of(None)]).with_columns(column)
    table.write_parquet(tmp_path / "t.parquet")
    found = next(TableLog(str(tmp_path / "t.parquet"), Columns(), problem=problem).blocks()).contexts
    at = datetime(2026, 1, 31, 12, tzinfo=UTC) - timedelta(hours=5.5 if zone else 0)
    value = at.isoformat() if unit is None else at.timestamp() * 1000 + 500
    np.testing.assert_array_equal(found, [problem.encode(context_of(one)) for one in (value, None)])


def test_columns_of_dates_are_midnight_on_the_clock_of_the_feature(tmp_path):
    problem = problem_of(ps.Timestamp("x", ["hour", "weekday"], offset="-08:00"))
    table_of(None).with_columns(x=pl.lit("2026-01-31").str.to_date()).write_parquet(tmp_path / "t.parquet")
    found = next(TableLog(str(tmp_path / "t.parquet"), Columns(), problem=problem).blocks()).contexts
    np.testing.assert_array_equal(found[0], problem.encode(context_of("2026-01-31")))
    assert found[0, 0] == found[0, 24 + 5] == 1


OUTCOMES = [
    ({"reward": 1.0}, True),
    ({"reward": -1}, True),
    ({"reward": 1.001}, False),
    ({"reward": -1.001}, False),
    ({"reward": math.nan}, False),
    ({"reward": math.inf}, False),
    ({"reward": None}, False),
    ({"reward": "many"}, False),
    ({"propensity": 1.0}, True),
    ({"propensity": 1e-45}, True),
    ({"propensity": 1e-46}, False),  # zero in float32
    ({"propensity": 0.0}, False),
    ({"propensity": -0.1}, False),
    ({"propensity": 1.0000001}, False),
    ({"propensity": 50.0}, False),
    ({"propensity": math.nan}, False),
    ({"propensity": None}, False),
    ({"propensity": "half"}, False),
    ({"action": "b"}, True),
    ({"action": "z"}, False),
    ({"action": ""}, False),
    ({"action": None}, False),
]
PROBLEM = problem_of(ps.Numeric("x", low=0, high=10))


def outcome_in_records(row, tmp_path):
    ps.Observations.from_records(PROBLEM, [row | {"context": context_of(1.0)}])


def outcome_in_columns(row, tmp_path):
    ps.Observations.from_columns(PROBLEM, contexts=[context_of(1.0)], **columns_of(row))


def outcome_in_arrays(row, tmp_path):
    ArrayLog(PROBLEM, contexts=[context_of(1.0)], **columns_of(row))


def columns_of(row):
    return {"actions": [row["action"]], "rewards": [row["reward"]], "propensities": [row["propensity"]]}


def outcome_in_event_log(row, tmp_path):
    if row["reward"] is None:
        pytest.skip("a reward may be logged later")
    stated = {name: row[name] for name in ("action", "propensity")}
    decision = LoggedDecision(id="i", context=context_of(1.0), policy=0, time=NOON, **stated)
    with EventLog(tmp_path / "log", PROBLEM) as log:
        log.append(LoggedObservation(decision=decision, reward=row["reward"]))


def outcome_in_table(row, tmp_path):
    table_of(1.0, **row).write_parquet(tmp_path / "t.parquet")
    TableLog(str(tmp_path / "t.parquet"), Columns(), problem=PROBLEM)


def outcome_in_warm_start(row, tmp_path):
    table_of(1.0, **row).write_parquet(tmp_path / "t.parquet")
    import_history(workspace_of(PROBLEM, tmp_path), str(tmp_path / "t.parquet"), Columns())


def outcome_in_lake(row, tmp_path):
    types = {"reward": pl.Float64, "propensity": pl.Float64, "action": pl.String}
    if any(isinstance(row[name], str) for name in ("reward", "propensity")):
        pytest.skip("the lake's columns are typed")
    frame = lake_row(PROBLEM, 1.0).with_columns(pl.lit(row[name], dtype).alias(name) for name, dtype in types.items())
    if not len(frame.filter(decision_fits(PROBLEM), reward_fits(PROBLEM))):
        raise PotstillError("left out")


@pytest.mark.parametrize(
    "door",
    [
        outcome_in_records, outcome_in_columns, outcome_in_arrays, outcome_in_event_log, outcome_in_table,
        outcome_in_warm_start, outcome_in_lake,
    ],
    ids=lambda door: door.__name__.removeprefix("outcome_in_"),
)  # fmt: skip
@pytest.mark.parametrize(("changed", "fits"), OUTCOMES, ids=str)
def test_actions_rewards_and_propensities_have_one_verdict_through_every_door(door, changed, fits, tmp_path):
    if fits:
        door(OTHERS | changed, tmp_path)
        return
    with pytest.raises(PotstillError):
        door(OTHERS | changed, tmp_path)


@pytest.mark.parametrize(
    ("seconds", "fits"), [(0, True), (7_258_118_399, True), (-1, False), (7_258_118_400, False), (None, False)]
)
def test_times_are_from_1970_up_to_2200(seconds, fits, tmp_path):
    table_of(1.0, when=seconds).with_columns(pl.col("when").cast(pl.Int64)).write_parquet(tmp_path / "t.parquet")
    doors = [
        lambda: TableLog(str(tmp_path / "t.parquet"), Columns(time="when"), problem=PROBLEM),
        lambda: import_history(workspace_of(PROBLEM, tmp_path), str(tmp_path / "t.parquet"), Columns(time="when")),
    ]
    if seconds is not None:
        frame = pl.DataFrame({"time": [seconds]}).select(pl.from_epoch("time", "s").cast(TIME))
        assert frame.select(time_fits()).item() == fits
        doors.append(lambda: outcome_at(seconds * 1_000_000, tmp_path))
    for door in doors:
        if fits:
            door()
        else:
            with pytest.raises(PotstillError):
                door()


def outcome_at(time, tmp_path):
    with EventLog(tmp_path / "log", PROBLEM) as log:
        log.append(LoggedDecision(id="i", context=context_of(1.0), action="a", propensity=0.5, policy=0, time=time))
