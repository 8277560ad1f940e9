"""Tables and segments from before there were arms and metrics: they are read, widened and joined."""

from pathlib import Path

import msgspec
import polars as pl
import pytest
from deltalake import write_deltalake
from events.worlds import BASE, Workspace, after, world

import potstill as ps
from potstill.events import EventLog, LoggedDecision, LoggedReward
from potstill.events.join import join
from potstill.events.lake import Flusher, Lake, delta
from potstill.events.lake.schema import METRICS, TABLES, table_schema, with_day
from potstill.events.wal import Spool
from potstill.events.wal.segment import frame, start
from potstill.storage import child, open_storage
from potstill.tables import TIME

#: The columns that came later.
LATER = {"decisions": {"arm"}, "rewards": {"metrics"}, "observations": {"arm", "unit", "eligible", "metrics"}}
WATCHED = [{"name": "clicks", "value": 1.0}, {"name": "watched", "value": 3.5}]


def older(place: str, problem: ps.Problem) -> Lake:
    """A lake whose three tables lack them, with a decision, its reward and an observation."""
    lake = Lake(place, problem)
    for table in TABLES:
        wanted = table_schema(table, problem)
        schema = pl.Schema({name: dtype for name, dtype in wanted.items() if name not in LATER[table]})
        delta.create(lake.url(table), schema, lake.options)
        row = _row(table, schema, problem)
        write_deltalake(lake.tables[table].current(), row, mode="append", storage_options=lake.options)
    return lake


def _row(table: str, schema: pl.Schema, problem: ps.Problem) -> pl.DataFrame:
    values = {"id": f"old-{table}", "action": "l", "propensity": 0.5, "policy": 1, "reward": 1.0, "rewarded": True}
    values |= {"weight": 1.0, "cut": 0, "context_x": 0.5, "context_c": "a", "problem": problem.hash}
    row = {name: [values.get(name)] for name in schema if name not in ("time", "day")}
    frame = pl.DataFrame(row, {name: dtype for name, dtype in schema.items() if name in row})
    return with_day(frame.with_columns(time=pl.lit(BASE).cast(TIME))).select(schema.names())


def events(name: str, **stated: object) -> tuple[LoggedDecision, LoggedReward]:
    decision = LoggedDecision(
        id=name, context={"x": 0.5, "c": "a"}, action="l", propensity=0.5, policy=1, time=BASE, **stated
    )
    return decision, LoggedReward(id=name, reward=1.0, metrics={"watched": 3.5, "clicks": 1}, time=BASE + 1)


def test_older_tables_are_read_and_widened_when_rows_come(tmp_path: Path, place: str) -> None:
    problem = Workspace(tmp_path, world()).problem
    lake = older(child(place, "lake"), problem)
    for table in TABLES:
        found = lake.scan(table).collect()
        assert found.schema == lake.schema(table)
        assert {name for name in found.columns if found[name].null_count()} >= LATER[table]
    with EventLog(tmp_path / "spool", problem) as log:
        log.append(*events("new", unit="u", arm="e:control", eligible=("l",)))
    assert Flusher(Spool(tmp_path / "spool"), lake).flush().error is None
    cuts = open_storage(child(place, "cuts"))
    report = join(lake, cuts, problem, aggregate="last", settle=20, now=after(BASE + 1))
    assert (report.decisions, report.rewarded) == (2, 1)
    for table in TABLES:
        assert set(delta.schema_of(lake.tables[table].current())) == set(lake.schema(table))
    observed = {row["id"]: row for row in lake.scan("observations").collect().iter_rows(named=True)}
    new = observed["new"]
    assert (new["arm"], new["unit"], new["eligible"], new["metrics"]) == ("e:control", "u", ["l"], WATCHED)
    for name in ("old-decisions", "old-observations"):
        assert {observed[name][column] for column in LATER["observations"]} == {None}


def test_other_readers_read_lists_of_metrics(tmp_path: Path) -> None:
    lake = older(str(tmp_path / "lake"), Workspace(tmp_path, world()).problem)
    frame = pl.DataFrame(
        {"id": ["a"], "time": pl.Series([BASE]).cast(TIME), "metrics": pl.Series([WATCHED], dtype=METRICS)}
    )
    lake.append("rewards", frame, writer="w", number=1)
    lake.tables["rewards"].current().optimize.compact()
    found = pl.scan_delta(lake.url("rewards")).sort("id").collect()
    assert found["metrics"].to_list() == [WATCHED, None]
    assert found["metrics"].dtype == METRICS


@pytest.mark.parametrize("again", [False, True])
def test_older_segments_are_taken_into_the_lake(tmp_path: Path, again: bool) -> None:
    problem = Workspace(tmp_path, world()).problem
    writer = "0" * 32
    decision = ["d", "a", BASE, "l", 0.5, 1, None, None, None, None, [0.5, "a", None]]
    rows = [decision, ["r", "a", BASE + 1, 1.0, None], ["o", [*decision[:1], "b", *decision[2:]], 1.0, BASE + 1]]
    data = start(writer, 1, BASE, problem) + b"".join(frame(msgspec.msgpack.encode(row)) for row in rows)
    folder = tmp_path / "spool" / writer
    folder.mkdir(parents=True)
    (folder / f"{1:010}.log").write_bytes(data)
    lake = older(str(tmp_path / "lake"), problem) if again else Lake(tmp_path / "lake", problem)
    report = Flusher(Spool(tmp_path / "spool"), lake).flush()
    assert (report.decisions, report.rewards, report.error, report.cut) == (2, 2, None, [])
    assert lake.scan("decisions").collect()["arm"].null_count() == 2 + again
    assert lake.scan("rewards").collect()["metrics"].null_count() == 2 + again
