"""A unit is forgotten: in the log, in every table and file; others lose nothing, and nothing is joined twice."""

from pathlib import Path

import pytest
import worlds
from msgspec.structs import force_setattr
from worlds import HOUR, NOON

from potstill.events import LoggedDecision, LoggedObservation, LoggedReward
from potstill.events.join import JoinReport, join
from potstill.events.lake import LakeUnavailable, compact
from potstill.policy import Policy
from potstill.workspace import CannotForget, Workspace, forget_unit, verify

CONTEXT = {"bandwidth_kbps": 5.0, "connection": "4g"}
ANN, BOB = "ann's unit", "bob"


def logged(workspace: Workspace, name: str, unit: str | None, time: int) -> None:
    decision = LoggedDecision(id=name, context=CONTEXT, action="360p", propensity=0.5, policy=0, unit=unit, time=time)
    with workspace.event_log() as log:
        log.append(decision, LoggedReward(id=name, reward=1.0, time=time + 1))
    workspace.flusher().flush()


def joined(workspace: Workspace, now: int) -> JoinReport:
    return join(workspace.lake, workspace.cuts, workspace.problem, aggregate="sum", settle=0, now=now)


def ids(workspace: Workspace, table: str) -> list[str]:
    return sorted(workspace.lake.scan(table).select("id").collect()["id"].to_list())  # type: ignore[arg-type]


def anywhere(folder: Path, word: bytes) -> list[Path]:
    """Files that hold a word; Parquet files have their texts uncompressed or not, so that they are read as tables."""
    import polars as pl

    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        if path.suffix == ".parquet" and "_delta_log" not in path.parts:
            text = pl.read_parquet(path, hive_partitioning=False).write_json().encode()
        else:
            text = path.read_bytes()
        if word in text:
            found.append(path)
    return found


def test_a_unit_is_erased_everywhere_and_others_stay(place: str) -> None:
    workspace = worlds.made(place)
    workspace.start()
    for i in range(4):
        logged(workspace, f"a{i}", ANN, NOON + i)
        logged(workspace, f"b{i}", BOB, NOON + i)
        logged(workspace, f"n{i}", None, NOON + i)
    assert joined(workspace, NOON + 2 * HOUR).decisions == 12
    logged(workspace, "a-later", ANN, NOON + 3 * HOUR)
    logged(workspace, "b-later", BOB, NOON + 3 * HOUR)
    compact(workspace.lake)
    before = workspace.lake.scan("observations").collect().sort("id")
    report = forget_unit(workspace, ANN)
    assert report.rows == {"decisions": 5, "rewards": 5, "observations": 4}
    left = sorted([f"{unit}{i}" for unit in "bn" for i in range(4)])
    assert ids(workspace, "observations") == left
    assert ids(workspace, "decisions") == ids(workspace, "rewards") == sorted([*left, "b-later"])
    after = workspace.lake.scan("observations").collect().sort("id")
    assert after.equals(before.filter(~before["id"].str.starts_with("a")))
    assert verify(workspace).damage == []
    again = joined(workspace, NOON + 5 * HOUR)
    assert (again.decisions, again.rewarded, again.duplicates, again.rewards.too_late) == (1, 1, 0, 0)
    assert ids(workspace, "observations") == sorted([*left, "b-later"])
    assert forget_unit(workspace, ANN).rows == {"decisions": 0, "rewards": 0, "observations": 0}


def test_no_file_holds_a_unit_that_was_forgotten(tmp_path: Path) -> None:
    workspace = worlds.made(str(tmp_path))
    logged(workspace, "id-of-ann", ANN, NOON)
    logged(workspace, "id-of-bob", BOB, NOON)
    joined(workspace, NOON + 2 * HOUR)
    assert anywhere(tmp_path, b"ann's unit")
    assert anywhere(tmp_path, b"id-of-ann")
    report = forget_unit(workspace, ANN)
    assert report.segments == 1
    assert anywhere(tmp_path, b"ann's unit") == anywhere(tmp_path, b"id-of-ann") == []
    assert anywhere(tmp_path, b"id-of-bob")
    assert report.elsewhere == []


def test_columns_of_an_earlier_problem_survive(tmp_path: Path) -> None:
    workspace = worlds.made(str(tmp_path))
    logged(workspace, "a", ANN, NOON)
    logged(workspace, "b", BOB, NOON)
    compact(workspace.lake)
    changed = worlds.PROBLEM.replace(b'name = "connection"', b'name = "network"')
    (tmp_path / "problem.toml").write_bytes(changed)
    forget_unit(Workspace(tmp_path), ANN)
    rows = workspace.lake.scan("decisions").collect()
    assert rows.select("id", "context_connection").rows() == [("b", "4g")]


def test_what_policies_learnt_from_it_is_said(tmp_path: Path) -> None:
    workspace = worlds.made(str(tmp_path))
    workspace.start()
    logged(workspace, "a", ANN, NOON)
    joined(workspace, NOON + 2 * HOUR)
    logged(workspace, "b", BOB, NOON + 3 * HOUR)
    joined(workspace, NOON + 5 * HOUR)
    for version, cut in ((1, 1), (2, 2)):
        head = workspace.registry.head()
        assert head is not None
        policy = Policy.uniform(workspace.problem, version=version)
        force_setattr(policy.metadata.lineage, "origin", {"base": 0, "after": 0, "cut": cut})
        workspace.registry.publish(policy, teacher=b"state", report=b"{}", expected=head.number)
    assert forget_unit(workspace, BOB).versions == [2]
    report = forget_unit(workspace, ANN)
    assert (report.versions, report.states) == ([1, 2], [1, 2])
    assert "versions 1 to 2 learnt from these observations" in report.words[0]
    assert "backups made before" in report.words[-1]


def test_observations_of_devices_and_open_logs(tmp_path: Path) -> None:
    workspace = worlds.made(str(tmp_path))
    decision = LoggedDecision(id="d", context=CONTEXT, action="360p", propensity=0.5, policy=0, unit=ANN, time=NOON)
    with workspace.event_log() as log:
        log.append(LoggedObservation(decision=decision, reward=1.0))
        log.rotate()
        report = forget_unit(workspace, ANN)
        assert report.rows == {"decisions": 1, "rewards": 1, "observations": 0}
        assert report.segments == 1
        assert len(report.elsewhere) == 1


def test_nothing_is_erased_while_the_log_cannot_be_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = worlds.made(str(tmp_path))
    logged(workspace, "a", ANN, NOON)

    def away(*_: object, **__: object) -> bool:
        raise LakeUnavailable("away")

    with workspace.event_log() as log:
        log.append(LoggedReward(id="a", reward=1.0, time=NOON))
    with monkeypatch.context() as patch:
        patch.setattr("potstill.events.lake.lake.Lake.append", away)
        with pytest.raises(CannotForget, match="nothing was erased: away"):
            forget_unit(workspace, ANN)
    with pytest.raises(CannotForget, match="state the unit"):
        forget_unit(workspace, "")
    assert ids(workspace, "decisions") == ["a"]
