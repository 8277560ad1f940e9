"""A workspace, in a folder and on an object store."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import potstill as ps
from potstill.events import LoggedDecision
from potstill.events.lake import Flusher
from potstill.events.wal import Spool
from potstill.storage import open_storage
from potstill.workspace import InvalidConfig, NoWorkspace, Workspace, WorkspaceExists, template
from potstill.workspace.overview import overview
from potstill.workspace.template import log_example

PROBLEM, CONFIG = template.PROBLEM.encode(), template.CONFIG.encode()


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def with_spool(path: str) -> bytes:
    return f'[log]\nspool = "{path}"\n'.encode()


def test_what_is_created_is_there(place: str) -> None:
    made = Workspace.create(place, PROBLEM, CONFIG)
    found = Workspace(place)
    assert (found.problem, found.config, found.url) == (made.problem, made.config, place)
    assert found.registry.head() is None


def test_a_workspace_is_created_once(place: str) -> None:
    def create(i: int) -> bool:
        try:
            Workspace.create(place, PROBLEM, CONFIG + b"# by %d" % i)
        except WorkspaceExists:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(create, range(4))) == [False, False, False, True]
    with pytest.raises(WorkspaceExists, match=r"is a workspace already: it has a problem\.toml"):
        Workspace.create(place, PROBLEM, CONFIG)


def test_nothing_is_created_from_what_does_not_make_sense(tmp_path: Path) -> None:
    with pytest.raises(ps.InvalidProblem, match=r"problem\.toml"):
        Workspace.create(tmp_path / "w", b"name = 3", CONFIG)
    with pytest.raises(InvalidConfig):
        Workspace.create(tmp_path / "w", PROBLEM, b"[nonsense]")
    assert not (tmp_path / "w").exists()


def test_ones_own_configuration_is_kept(tmp_path: Path) -> None:
    (tmp_path / "potstill.toml").write_text("[policy]\nseed = 7\n")
    assert Workspace.create(tmp_path, PROBLEM, CONFIG).config.policy.seed == 7


def test_no_workspace_is_said_to_be_none_and_no_configuration_is_the_default(place: str) -> None:
    with pytest.raises(NoWorkspace, match=r"it has no problem\.toml; create one with potstill init"):
        Workspace(place)
    open_storage(place).create("problem.toml", PROBLEM)
    assert Workspace(place).config.update.min_observations == 100


def test_damaged_files_are_named(tmp_path: Path) -> None:
    Workspace.create(tmp_path, PROBLEM, CONFIG)
    (tmp_path / "potstill.toml").write_bytes(b"[")
    with pytest.raises(InvalidConfig, match=str(tmp_path / "potstill.toml")):
        Workspace(tmp_path)
    (tmp_path / "problem.toml").write_bytes(b"\xff")
    with pytest.raises(ps.InvalidProblem, match=str(tmp_path / "problem.toml")):
        Workspace(tmp_path)


def test_the_spool_is_a_local_folder_that_does_not_depend_on_where_a_process_starts(tmp_path: Path, s3: str) -> None:
    folder = tmp_path / "w"
    assert Workspace.create(folder, PROBLEM, CONFIG).spool == folder / "events" / "log"
    (folder / "potstill.toml").write_bytes(with_spool("log"))
    assert Workspace(folder).spool == folder / "log"
    (folder / "potstill.toml").write_bytes(with_spool("/var/spool/video"))
    assert Workspace(folder).spool == Path("/var/spool/video")
    remote = Workspace.create(f"{s3}/a", PROBLEM, CONFIG)
    assert remote.spool.parent == tmp_path / "state" / "potstill"
    assert remote.spool == Workspace(f"{s3}/a/").spool != Workspace.create(f"{s3}/b", PROBLEM, CONFIG).spool
    with pytest.raises(InvalidConfig, match=r"log\.spool must be absolute.*got 'log'"):
        _ = Workspace.create(f"{s3}/c", PROBLEM, with_spool("log")).spool
    assert Workspace.create(f"{s3}/d", PROBLEM, with_spool("/var/spool/video")).spool == Path("/var/spool/video")


def test_before_anything_is_learnt_a_uniform_policy_serves(place: str, context: dict[str, object]) -> None:
    workspace = Workspace.create(place, PROBLEM, b"[policy]\nseed = 3\nfloor = 0.1\n")
    foreseen, started = workspace.serving(), workspace.start()
    assert foreseen.to_bytes() == started.to_bytes() == workspace.registry.policy().to_bytes()
    assert (started.version, started.floor) == (0, 0.1)
    assert started.probabilities(context).tolist() == [0.25] * 4
    assert workspace.start().version == 0
    assert len(workspace.registry.entries()) == 1


def test_of_processes_that_start_at_once_all_get_the_same_policy(place: str) -> None:
    workspace = Workspace.create(place, PROBLEM, CONFIG)
    with ThreadPoolExecutor(8) as pool:
        started = [policy.to_bytes() for policy in pool.map(lambda _: Workspace(place).start(), range(8))]
    assert set(started) == {workspace.registry.policy().to_bytes()}
    assert len(workspace.registry.entries()) == 1


def test_a_changed_problem_starts_again_at_the_next_version(tmp_path: Path) -> None:
    Workspace.create(tmp_path, PROBLEM, CONFIG).start()
    (tmp_path / "problem.toml").write_bytes(PROBLEM.replace(b'"1080p"]', b'"1080p", "4k"]'))
    changed = Workspace(tmp_path)
    assert changed.start().version == 1
    assert len(changed.registry.policy().problem.actions) == 5


def test_the_overview_counts_what_is_where(place: str, tmp_path: Path) -> None:
    workspace = Workspace.create(place, PROBLEM, CONFIG)
    empty = overview(workspace)
    assert (empty.rows, empty.segments, empty.lag_seconds) == (
        {"decisions": 0, "rewards": 0, "observations": 0},
        0,
        None,
    )
    assert empty.flush is None
    events = log_example(workspace, uploads=50)
    logged = overview(workspace)
    assert (logged.segments, logged.rows["decisions"]) == (1, 0)
    assert logged.bytes > 50 * events
    assert logged.lag_seconds is not None
    Flusher(Spool(workspace.spool), workspace.lake).flush()
    moved = overview(workspace)
    assert (moved.segments, moved.bytes, moved.lag_seconds) == (0, 0, None)
    assert (moved.rows["decisions"], sum(filter(None, moved.rows.values()))) == (50, events)
    assert moved.flush is not None
    assert moved.flush.error is None


def test_the_overview_names_damage_and_a_lake_that_is_away(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path, PROBLEM, CONFIG)
    log_example(workspace, uploads=5)
    (segment,) = workspace.spool.glob("*/*.log")
    segment.write_bytes(segment.read_bytes()[:-3])
    Flusher(Spool(workspace.spool), workspace.lake).flush()
    found = overview(workspace)
    assert len(found.quarantine) == 1
    assert found.quarantine_bytes == Path(found.quarantine[0]).stat().st_size > 0
    for commit in (tmp_path / "events" / "decisions" / "_delta_log").iterdir():
        commit.write_bytes(b"nonsense")
    away = overview(Workspace(tmp_path))
    assert away.rows["decisions"] is None
    assert "decisions" in (away.lake_error or "")


def test_the_example_is_final_and_has_something_to_learn(tmp_path: Path) -> None:
    workspace = Workspace.create(tmp_path, PROBLEM, CONFIG)
    events = log_example(workspace, uploads=400)
    assert 400 * 1.9 < events < 400 * 2  # a few uploads are never heard of again
    Flusher(Spool(workspace.spool), workspace.lake).flush()
    decisions, rewards = (workspace.lake.scan(table).collect() for table in ("decisions", "rewards"))
    assert decisions["time"].max() < datetime.now(UTC) - timedelta(hours=1, minutes=1)
    assert decisions["propensity"].unique().to_list() == [0.25]
    means = {
        (connection, action): rows["reward"].mean()
        for (connection, action), rows in decisions.join(rewards, on="id").group_by("context_connection", "action")
    }
    assert means["2g", "360p"] > means["2g", "1080p"]
    assert means["wifi", "1080p"] > means["wifi", "360p"]


def test_events_are_logged_where_the_configuration_says(tmp_path: Path, context: dict[str, object]) -> None:
    workspace = Workspace.create(tmp_path / "w", PROBLEM, with_spool(str(tmp_path / "spool")))
    policy = workspace.start()
    with workspace.event_log() as log:
        log.append(LoggedDecision.of(policy.decide(context, id="a"), context))
    assert len(list((tmp_path / "spool").glob("*/*.log"))) == 1
