"""The join on Ray: what it makes and counts in this process, whatever becomes of a worker."""

from pathlib import Path
from unittest import mock

import engine_work
import pytest
from events.join_oracle import DAY, SECOND, D, R
from events.worlds import BASE, Workspace, after, counts, mixed_events, world
from worlds import LATER, log, made

from potstill.events.join import execute
from potstill.events.join.execute import join_slice, summarize_partition
from potstill.pipeline.engines import LocalEngine
from potstill.pipeline.update import run_update


@pytest.fixture(autouse=True)
def _small():
    """Several partitions, and many slices, of few rows. Both are cut by the driver, so that workers need not know."""
    with mock.patch.object(execute, "PARTITION", 50), mock.patch.object(execute, "SLICE", 15):
        yield


def joined(place, each):
    """Three cuts, beside the oracle: the last has decisions and rewards that come after the cut they belonged to."""
    workspace = Workspace(place, world("mean"))
    for seed, until in [(1, BASE + DAY), (2, BASE + DAY), (3, BASE + 3 * DAY)]:
        came_late = [R(row["id"], row["time"] + SECOND) for row in workspace.observed()[::3]] if seed > 1 else []
        workspace.add(*mixed_events(seed, 60), *came_late, files=2)
        assert counts(workspace.join(after(until), each)) == workspace.world.join(after(until))
    assert workspace.observed() == workspace.world.observed
    return workspace


def test_a_join_on_ray_is_the_join_of_this_process(place, tmp_path, ray_engine):
    one, other = joined(tmp_path / "local", LocalEngine().map), joined(place, ray_engine.map)
    local, ray = (workspace.lake.scan("observations").sort("cut", "time", "id").collect() for workspace in (one, other))
    assert ray.equals(local)
    assert len(ray) > 20
    assert other.lake.version("observations") == 3  # it is made, and then each cut is one commit


class Killed:
    """An engine that loses a worker over a partition, and one over a slice whose observations are written."""

    def __init__(self, engine, folder):
        self.engine, self.folder = engine, str(folder)

    def map(self, function, items, *common):
        instead = {
            summarize_partition: engine_work.killed_after_looking,
            join_slice: engine_work.killed_after_observing,
        }[function]
        return self.engine.map(instead, items, *common, self.folder)


def test_a_join_survives_the_loss_of_workers(tmp_path, ray_engine):
    workspace = joined(tmp_path / "lake", Killed(ray_engine, tmp_path).map)
    assert {path.name for path in tmp_path.glob("killed-*")} == {"killed-looking", "killed-observing"}
    on_disk = set(Path(workspace.lake.url("observations")).glob("day=*/*.parquet"))
    assert (
        len(on_disk - {Path(file.uri) for file in workspace.lake.files("observations")}) > 0
    )  # what the lost one wrote


@pytest.mark.parametrize("name", ["local", "ray"])
def test_what_goes_wrong_in_a_worker_is_raised_here_and_nothing_is_added(tmp_path, request, name):
    engine = LocalEngine() if name == "local" else request.getfixturevalue("ray_engine")
    workspace = Workspace(tmp_path, world())
    workspace.add(D("a", BASE), R("a", BASE))
    (lost,) = workspace.lake.files("rewards")
    kept = Path(lost.uri).rename(tmp_path / "kept")
    with pytest.raises(FileNotFoundError):
        workspace.join(after(BASE), engine.map)
    assert workspace.lake.scan("observations").collect().is_empty()
    kept.rename(lost.uri)
    assert counts(workspace.join(after(BASE), engine.map)) == workspace.world.join(after(BASE))


class Spy(LocalEngine):
    """Remembers what was mapped."""

    def __init__(self):
        self.mapped = []

    def map(self, function, items, *common):
        self.mapped.append(function)
        return super().map(function, items, *common)


def test_an_update_gives_its_engine_to_the_join(tmp_path):
    workspace, spy = made(str(tmp_path)), Spy()
    log(workspace, workspace.start(), 20)
    assert run_update(workspace, now=LATER, engine=spy).joined.decisions == 20
    assert spy.mapped == [summarize_partition, join_slice]
