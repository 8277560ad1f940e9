"""The paper's problems, by name."""

import pickle
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from real_data import needs

from potstill.lab.problems import data, mushroom
from potstill.lab.problems.scenarios import SCENARIOS, scenario
from potstill.lab.runs.trial import Fixed, play
from potstill.policy import Policy

NAMES = ["wheel", "mushroom", "warfarin-20", "warfarin-50", "warfarin-20-resampled", "warfarin-50-resampled", "video"]


def small(name):
    """A scenario that a test can afford; the log of the video has 21,000 rows in place of 2 million."""
    chosen = scenario(name).with_decisions(1_250)
    return chosen if chosen.log_rows is None else msgspec.structs.replace(chosen, log_rows=21_000)


def require_data(name):
    try:
        scenario(name).environment()
    except data.MissingData as error:
        pytest.skip(str(error))


def test_all_seven_are_there():
    assert list(SCENARIOS) == NAMES
    assert all(one.name == name for name, one in SCENARIOS.items())


@pytest.mark.parametrize(
    ("name", "decisions", "batch", "batches", "last"),
    [
        ("wheel", 10_000, 1_000, 10, 1_000),
        ("mushroom", 50_000, 1_000, 50, 1_000),
        ("warfarin-20", 5_528, 100, 56, 28),
        ("warfarin-50-resampled", 50_000, 100, 500, 100),
        ("video", 50_000, 1_000, 50, 1_000),
    ],
)
def test_sizes_are_the_papers(name, decisions, batch, batches, last):
    one = scenario(name)
    assert (one.decisions, one.batch, len(one.sizes), one.sizes[-1]) == (decisions, batch, batches, last)
    assert sum(one.sizes) == decisions


@pytest.mark.parametrize("name", NAMES)
def test_every_scenario_can_be_played_and_equal_seeds_are_equal(name, tmp_path, monkeypatch):
    require_data(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one = small(name)

    def played(world_seed):
        uniform = Fixed(Policy.uniform(one.problem, seed=1))
        return list(play(one.world(world_seed), uniform, one.sizes, seed=0))

    first, again, other = played(0), played(0), played(1)
    assert first == again
    assert first != other
    assert sum(turn.decisions for turn in first) == 1_250
    assert all((turn.regret is None) == (one.measure == "reward") for turn in first)


def test_a_scenario_travels_to_another_process():
    for one in SCENARIOS.values():
        copy = pickle.loads(pickle.dumps(one))
        assert (copy.name, copy.sizes, copy.measure) == (one.name, one.sizes, one.measure)


def test_the_wheel_takes_any_delta():
    one = scenario("wheel-0.5")
    contexts = one.environment().contexts(1_000, np.random.default_rng(0))
    jackpots = one.environment().means(contexts).max(axis=1) == 50
    np.testing.assert_array_equal(jackpots, np.hypot(contexts["x"], contexts["y"]) > 0.5)
    assert one.title == "Wheel, δ = 0.5"


def test_the_log_takes_any_number_of_millions():
    assert scenario("video").log_rows == 2_000_000
    assert scenario("video-8m").log_rows == 8_000_000


@pytest.mark.parametrize("name", ["weel", "wheel-1", "wheel-x", "wheel-", "video-0m", "warfarin"])
def test_unknown_names_are_answered_with_the_known_ones(name):
    with pytest.raises(ValueError, match=f"unknown problem '{name}'; the problems are wheel, mushroom, .*wheel-0.5"):
        scenario(name)


def test_a_trial_has_at_least_one_decision():
    with pytest.raises(ValueError, match="wheel: decisions must be 1 or more, got 0"):
        scenario("wheel").with_decisions(0)


def test_missing_data_is_noticed_before_any_trial(monkeypatch):
    def nothing_there(name):
        raise data.MissingData(f"{name} is not there")

    monkeypatch.setattr(data, "find", nothing_there)
    mushroom.mushroom.cache_clear()
    with pytest.raises(data.MissingData, match="agaricus-lepiota"):
        scenario("mushroom").prepare()


def test_a_log_is_written_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one, reached = small("video"), []
    one.prepare(lambda done, rows: reached.append((done, rows)))
    assert reached[-1] == (21_000, 21_000)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")}
    assert written
    one.world(0)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.parquet")} == written


def test_more_decisions_than_a_log_can_give_are_refused():
    with pytest.raises(ValueError, match=r"video: 300,000 decisions take about 2,100,000 logged rows, .* video-3m"):
        scenario("video").with_decisions(300_000)
    assert scenario("video-3m").with_decisions(300_000).decisions == 300_000


@needs(data.WARFARIN)
def test_more_decisions_than_patients_are_refused_unless_resampled():
    with pytest.raises(ValueError, match="6000 decisions need 6000 rows and the table has 5528"):
        scenario("warfarin-20").with_decisions(6_000).prepare()
    scenario("warfarin-20-resampled").with_decisions(6_000).prepare()


def test_importing_reads_no_data_and_learns_nothing():
    code = "import sys; import potstill.lab.problems.scenarios; print('potstill.lab.problems.mushroom' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"
