"""Runs: equal bytes whatever the jobs and interruptions, and no mixing of experiments."""

import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from potstill.keys import Key
from potstill.lab import Wheel
from potstill.lab.problems.environment import Simulation
from potstill.lab.problems.scenarios import OwnTable, Scenario, scenario
from potstill.lab.problems.scenarios import table as table_of
from potstill.lab.runs import results
from potstill.lab.runs.algorithms import ALGORITHMS
from potstill.lab.runs.eta import Pace
from potstill.lab.runs.provenance import OtherSettings, Settings
from potstill.lab.runs.runner import Backlog, run, tasks
from potstill.lab.runs.workers import Task, Worker, turns_of
from potstill.parallel import ONE_THREAD

SMALL = msgspec.structs.replace(scenario("wheel"), decisions=300, batch=100)
LINEAR = {"wheel": [("potstill", ALGORITHMS["linear-ts"])]}
BOTH = {"wheel": [("potstill", ALGORITHMS[name]) for name in ("linear-ts", "linear-ts-il")]}

# What `finished` does, in a process that can be killed.
TO_BE_KILLED = """
import msgspec
from pathlib import Path
from potstill.lab.runs.algorithms import ALGORITHMS
from potstill.lab.runs.runner import run
from potstill.lab.problems.scenarios import scenario
if __name__ == "__main__":
    small = msgspec.structs.replace(scenario("wheel"), decisions=300, batch=100)
    pairs = {{"wheel": [("potstill", ALGORITHMS[name]) for name in ("linear-ts", "linear-ts-il")]}}
    run([small], pairs, trials=4, jobs=1, seed=3, out=Path({out!r}))
"""


def go(out, *, trials=4, jobs=1, seed=3, pairs=LINEAR, scenarios=(SMALL,), **options):
    return run(list(scenarios), pairs, trials=trials, jobs=jobs, seed=seed, out=out, **options)


def trial_files(out):
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.glob("*/*/*/*.json"))
        if not path.name.endswith(".seconds.json")
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run that nothing interrupted, in one process."""
    out = tmp_path_factory.mktemp("uninterrupted")
    ended = go(out, pairs=BOTH)
    assert (ended.total, ended.kept, ended.finished, ended.failures) == (8, 0, 8, [])
    return out


def test_every_trial_has_its_file_and_equal_seeds_across_algorithms(finished):
    assert len(trial_files(finished)) == 8
    for trial in results.load(finished):
        assert trial.seed == Key(3).child("wheel", trial.trial).integer()
        assert trial.decisions == [100, 100, 100]


def test_two_jobs_give_the_bytes_of_one(finished, tmp_path):
    ended = go(tmp_path, jobs=2, pairs=BOTH)
    assert ended.finished == 8
    assert trial_files(tmp_path) == trial_files(finished)


def test_a_run_that_is_killed_and_resumed_gives_the_bytes_of_one_that_was_not(finished, tmp_path):
    out, script = tmp_path / "out", tmp_path / "killed.py"
    script.write_text(TO_BE_KILLED.format(out=str(out)))
    process = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
    _wait(lambda: trial_files(out), "a first trial")
    process.kill()
    process.wait()
    _wait(lambda: not _alive(process.pid), "the end of the killed run's workers")
    ended = go(out, pairs=BOTH)
    assert 1 <= ended.kept < 8, "killed in the middle"
    assert ended.kept + ended.finished == 8
    assert trial_files(out) == trial_files(finished)


def _wait(for_what, called):
    deadline = time.monotonic() + 120
    while not for_what():
        assert time.monotonic() < deadline, f"waited two minutes for {called}"
        time.sleep(0.01)


def _alive(group):
    """Whether any process of a process group lives. One that is killed and not yet reaped does not."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, _, its_group = stat.read_text().rpartition(")")[2].split()[:3]
            if int(its_group) == group and state != "Z":
                return True
    return False


def test_a_truncated_file_is_run_again(finished, tmp_path):
    out = shutil.copytree(finished, tmp_path / "copy")
    results.path_of(out, "wheel", "potstill", "linear-ts", 2).write_bytes(b'{"problem":"whe')
    ended = go(out)
    assert (ended.kept, ended.finished) == (3, 1)
    assert trial_files(out) == trial_files(finished)


def test_finished_trials_are_not_touched(finished):
    before = {path: path.stat().st_mtime_ns for path in finished.glob("*/*/*/*.json")}
    ended = go(finished, pairs=BOTH)
    assert (ended.kept, ended.finished) == (8, 0)
    assert {path: path.stat().st_mtime_ns for path in finished.glob("*/*/*/*.json")} == before


def test_all_algorithms_share_the_first_batch_and_no_other():
    seen = {}
    for name in ("uniform", "neural-greedy", "linear-ts", "linear-ts-il"):
        turns = list(turns_of(Task("wheel", "potstill", name, 0, 11), SMALL.with_decisions(200)))
        seen[name] = [(turn.regret, turn.reward) for turn in turns]
    first, second = zip(*seen.values(), strict=True)
    assert len(set(first)) == 1
    assert len(set(second)) == 4


def test_trials_differ_in_their_luck():
    one, other = (list(turns_of(task, SMALL)) for task in tasks([SMALL], LINEAR, 2, seed=0))
    assert one[0].reward != other[0].reward


def test_the_uniform_agent_does_not_repeat_the_draws_of_the_first_batch():
    world = Simulation(Wheel(), 200, Key(0))
    chosen = []
    task = Task("wheel", "paper", "uniform", 0, 11)

    class Noting:
        problem = world.problem

        def batch(self, size, choose):
            return world.batch(size, lambda x: chosen.append(choose(x)) or chosen[-1])

    scenario = SimpleNamespace(problem=world.problem, world=lambda _: Noting(), sizes=[100, 100])
    list(turns_of(task, scenario))
    (first, _), (second, _) = chosen
    # Independent draws among five actions agree in 20 of 100, give or take 4; in more than 40 with probability 2e-6.
    assert (first == second).sum() <= 40


def test_a_failing_task_is_named_and_the_others_go_on(tmp_path):
    table = tmp_path / "few.csv"
    table.write_text("x,y\n" + "\n".join(f"{i},{'ab'[i % 2]}" for i in range(60)))
    few = Scenario(
        name="few",
        title="Few rows",
        decisions=100,
        batch=50,
        environment=partial(table_of, table, OwnTable(label="y"), resample=False),
    )
    ended = go(tmp_path / "out", trials=2, pairs={**LINEAR, "few": LINEAR["wheel"]}, scenarios=[few, SMALL])
    assert ended.finished == 2
    assert [str(failure.task) for failure in ended.failures] == [
        "few, linear-ts (potstill), trial 0",
        "few, linear-ts (potstill), trial 1",
    ]
    assert all("100 decisions need 100 rows and the table has 60" in failure.error for failure in ended.failures)


def test_a_worker_that_dies_is_replaced_and_its_task_reported(tmp_path):
    def kill_the_first(progress):
        if progress.running and not progress.finished and not progress.failures:
            for child in multiprocessing.active_children():
                child.kill()

    ended = go(tmp_path, trials=2, on_progress=kill_the_first)
    assert ended.finished == 1
    (failure,) = ended.failures
    assert failure.task.trial == 0
    assert "exit code -9" in failure.error
    assert not multiprocessing.active_children()


def test_an_interrupted_run_leaves_no_process_behind(tmp_path):
    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, trials=1, on_progress=interrupt)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 4}, r"holds results with seed = 3, and this run has 4: choose another folder with --out"),
        (
            {"scenarios": [SMALL.with_decisions(200)]},
            r"problems\.wheel\.decisions = 300, and this run has 200",
        ),
        (
            {"scenarios": [msgspec.structs.replace(SMALL, batch=50)]},
            r"problems\.wheel\.batch = 100, and this run has 50",
        ),
    ],
)
def test_other_settings_are_refused(finished, change, message):
    with pytest.raises(OtherSettings, match=message):
        go(finished, **change)


def test_other_hyperparameters_are_refused(finished, tmp_path):
    (tmp_path / "settings.json").write_bytes((finished / "settings.json").read_bytes())
    settings = json.loads((tmp_path / "settings.json").read_text())
    settings["algorithms"]["potstill/linear-ts"]["teacher"]["alpha"] = 7.0
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    with pytest.raises(OtherSettings, match=r"potstill/linear-ts\.teacher\.alpha = 7\.0, and this run has 6\.0"):
        go(tmp_path)
    del settings["algorithms"]["potstill/linear-ts"]["teacher"]["alpha"]
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    with pytest.raises(OtherSettings, match=r"teacher\.alpha = null, and this run has 6\.0"):
        go(tmp_path)


def test_another_problem_and_algorithm_may_join(tmp_path):
    def settings_of(name, preset):
        return Settings.of(0, [scenario(name)], {name: [(preset, ALGORITHMS["linear-ts"])]})

    settings_of("wheel", "paper").recorded(tmp_path)
    settings_of("wheel-0.5", "potstill").recorded(tmp_path)
    settings = json.loads((tmp_path / "settings.json").read_text())
    assert set(settings["problems"]) == {"wheel", "wheel-0.5"}
    assert set(settings["algorithms"]) == {"paper/linear-ts", "potstill/linear-ts"}


def test_workers_have_one_thread_each_and_leave_our_environment_alone(tmp_path):
    before = dict(os.environ)
    worker = Worker({"wheel": SMALL}, tmp_path)
    try:
        environ = Path(f"/proc/{worker.pid}/environ")
        wanted = {f"{name}={value}".encode() for name, value in ONE_THREAD.items()}
        # For an instant after its birth a process still shows its parent's.
        _wait(lambda: wanted <= set(environ.read_bytes().split(b"\0")), "a worker with one thread")
    finally:
        worker.kill()
    assert dict(os.environ) == before


def test_progress_is_told_inside_a_trial_and_ends_with_nothing_left(tmp_path):
    shares, left = [], []

    def look(progress):
        shares.extend(progress.running.values())
        left.append(progress.seconds_left)

    go(tmp_path, trials=1, on_progress=look)
    assert {1 / 3, 2 / 3} <= set(shares)
    assert shares == sorted(shares)
    assert left[-1] == 0.0


def test_backlog_keeps_workers_to_their_programs_and_begins_with_the_longest():
    groups = [("wheel", "paper", name) for name in ("short", "long")]
    backlog = Backlog(
        [Task(*group, trial, 0) for group in groups for trial in range(2)],
        seconds=lambda group: {"short": 1.0, "long": 9.0}[group[2]],
    )
    first = backlog.take(None, set())
    assert (first.algorithm, first.trial) == ("long", 0)
    assert backlog.take(None, {first.group}).algorithm == "short"
    assert (backlog.take(first.group, set()).algorithm, len(backlog)) == ("long", 1)
    assert backlog.take(first.group, set()).algorithm == "short"
    assert backlog.take(first.group, set()) is None


def test_a_trial_of_milliseconds_does_not_correct_guesses_of_minutes():
    pace = Pace({"wheel": SMALL}, BOTH)
    il, ts = ("wheel", "potstill", "linear-ts-il"), ("wheel", "potstill", "linear-ts")
    guessed = pace.expected(il)
    pace.finished(ts, 20 * pace.expected(ts))  # starting up took most of it
    assert pace.expected(il) < 1.5 * guessed


def test_pace_believes_what_was_measured():
    pace = Pace({"wheel": SMALL}, BOTH)
    il, ts = ("wheel", "potstill", "linear-ts-il"), ("wheel", "potstill", "linear-ts")
    guessed = {group: pace.expected(group) for group in (il, ts)}
    pace.finished(ts, 2.0)
    pace.finished(ts, 4.0)
    assert pace.expected(ts) == 3.0
    # What was not measured is guessed in proportion, with ten seconds that count as guessed right.
    assert pace.expected(il) == pytest.approx(guessed[il] * (3.0 + 10) / (guessed[ts] + 10))
    pace.under_way(il, 5.0, 0.5)
    assert pace.expected(il) == 10.0
    assert pace.left({il: 1, ts: 2}, [(il, 4.0)], workers=2) == pytest.approx((10 + 2 * 3 + 6) / 2)
    assert pace.left({}, [(il, 4.0)], workers=2) == 6.0
