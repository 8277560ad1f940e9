"""The background scrub: every file is read in time, damage is recorded and told once, and repair clears it."""

from pathlib import Path

import pytest
import worlds

from potstill.events import read_scrub
from potstill.events.lake import Flusher, Scrubber, scrub
from potstill.events.wal import Spool
from potstill.workspace import Workspace, notices, repair


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(scrub, "time", clock)
    return clock


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = worlds.made(str(tmp_path / "video"))
    for seed in range(3):
        worlds.log(workspace, workspace.start(), 10, seed=seed, at=worlds.NOON + 24 * seed * worlds.HOUR)
    assert Flusher(Spool(workspace.spool), workspace.lake).flush().error is None
    return workspace


def run(scrubber: Scrubber, clock: Clock, seconds: int) -> list[str]:
    said = []
    for _ in range(seconds):
        clock.now += 1
        said += scrubber.step()
    return said


def test_a_pass_reads_every_file_at_its_pace(workspace: Workspace, clock: Clock) -> None:
    files = sum(len(workspace.lake.files(table)) for table in ("decisions", "rewards"))
    scrubber = Scrubber(workspace.lake, workspace.spool)
    assert run(scrubber, clock, 5) == []
    assert 0 < read_scrub(workspace.spool).files <= 3
    assert run(scrubber, clock, 2 * files) == []
    state = read_scrub(workspace.spool)
    assert (state.files, state.left, state.damaged) == (files, 0, {})
    assert state.completed is not None
    run(scrubber, clock, 100)
    assert read_scrub(workspace.spool) == state  # the next pass is a day later
    clock.now += 24 * 3600
    run(scrubber, clock, 5)
    assert read_scrub(workspace.spool).files < files


def test_damage_is_told_once_and_shown_until_it_is_repaired(workspace: Workspace, clock: Clock) -> None:
    file = workspace.lake.files("rewards")[0]
    path = Path(file.uri)
    path.write_bytes(path.read_bytes().replace(b"PAR1", b"PAR2"))
    scrubber = Scrubber(workspace.lake, workspace.spool)
    (said,) = run(scrubber, clock, 30)
    assert f"{file.uri} is damaged: its CRC-32" in said
    assert "potstill verify" in said
    assert notices(workspace, workspace.serving())[-1] == said
    clock.now += 24 * 3600
    assert run(scrubber, clock, 30) == []  # known already
    assert list(read_scrub(workspace.spool).damaged) == [file.uri]
    repair(workspace)
    clock.now += 24 * 3600
    run(scrubber, clock, 5)
    assert read_scrub(workspace.spool).damaged == {}


def test_a_state_that_is_unreadable_is_no_state(tmp_path: Path) -> None:
    (tmp_path / "scrub.json").write_bytes(b"{")
    assert read_scrub(tmp_path).damaged == {}
