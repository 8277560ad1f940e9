"""Worlds in which everything fails: what was acknowledged is observed, once, as it was acknowledged."""

import contextlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from simulation.options import QUIET, Options
from simulation.oracle import Oracle
from simulation.world import World

from potstill.clock import Clock, wall
from potstill.events.log_watermark import LogWatermark
from potstill.events.watermarks import Horizon, Watermarks

#: Faults that the code does not withstand yet.
UNFIXED = {"unrecorded": False}
ALL = replace(Options(), **UNFIXED)
SEEDS, BLOCK = 200, 20


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_what_is_acknowledged_is_observed(first: int) -> None:
    found = {seed: World(seed, ALL).run().violations for seed in range(first, first + BLOCK)}
    assert not {seed: violations for seed, violations in found.items() if violations}


def test_a_seed_reproduces_its_world() -> None:
    first, second = (World(7, Options(), keep=True).run() for _ in range(2))
    assert first.lines == second.lines
    assert first.digest == second.digest


def test_a_seed_reproduces_its_world_in_another_process() -> None:
    program = (
        "from simulation.options import Options; from simulation.world import World; "
        "print(World(7, Options()).run().digest)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**environment, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            timeout=120,
        ).stdout
        for seed in ("1", "2")
    }
    assert digests == {f"{World(7, Options()).run().digest}\n".encode()}


def test_another_seed_gives_another_world() -> None:
    assert World(1, QUIET).run().digest != World(2, QUIET).run().digest


def test_nothing_goes_wrong_in_a_quiet_world() -> None:
    outcome = World(3, QUIET, keep=True).run()
    assert not outcome.violations
    # The updaters of two hosts may publish at the same time; then one is refused, here as in one quiet world of four.
    lines = [line for line in outcome.lines if "/updater update failed: Conflict: the registry was changed" not in line]
    assert not [line for line in lines if "fail" in line or "lost" in line]


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # an earlier test of the process may have loaded JAX
@pytest.mark.parametrize(("kind", "name"), [(World, "_recover"), (Oracle, "violations")])
def test_a_world_that_fails_leaves_nothing_to_the_children_of_this_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type, name: str
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(kind, name, fail)
    world = World(0, replace(QUIET, kills=True))
    with pytest.raises(ZeroDivisionError):
        world.run()
    descriptors = Path("/proc/self/fd")  # only on Linux
    assert not [one for one in descriptors.glob("*") if one.resolve().is_relative_to(world.folder)]
    with contextlib.ExitStack() as stack:  # open files with the numbers that the world had
        files = [stack.enter_context((tmp_path / str(number)).open("w")) for number in range(64)]
        child = os.fork()
        if not child:
            os._exit(not all(is_open(file.fileno()) for file in files))
        assert os.waitpid(child, 0)[1] == 0


def is_open(descriptor: int) -> bool:
    """Whether a descriptor is open."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def first_failure(options: Options, seeds: int) -> int | None:
    """The first seed that contradicts the invariant."""
    return next((seed for seed in range(seeds) if World(seed, options).run().violations), None)


def test_cuts_that_do_not_wait_for_logs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Watermarks, "horizon", lambda _, now, lease: Horizon(now))
    assert first_failure(replace(QUIET, outages=True, pauses=True, delays=True), 20) is not None


def test_clocks_that_are_not_compared_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Clock, "now", lambda _: wall())
    monkeypatch.setattr(LogWatermark, "check_clock", lambda _: None)
    monkeypatch.setattr(LogWatermark, "keep_clock", LogWatermark.mirror)
    monkeypatch.setattr(Watermarks, "check_clocks", lambda _: None)
    assert first_failure(replace(QUIET, clock_jumps=True), 20) is not None
