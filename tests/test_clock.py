"""The clock of events: elapsed time, small corrections, no steps."""

from collections.abc import Iterator

import pytest

from potstill import clock
from potstill.clock import SECOND, TOLERANCE, Clock, Reading

DAY = 86_400 * SECOND


class Machine:
    """A machine whose clocks the test sets; times in microseconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.monotonic, self.uptime = 1_000 * DAY, 5 * DAY, 7 * DAY
        self.boot = "boot-1"
        monkeypatch.setattr(clock, "wall", lambda: self.wall)
        monkeypatch.setattr(clock, "since_boot", lambda: self.uptime)
        monkeypatch.setattr(clock, "boot_id", lambda: self.boot)
        monkeypatch.setattr(clock.time, "monotonic_ns", lambda: self.monotonic * 1000)

    def sleep(self, elapsed: int) -> None:
        self.wall += elapsed
        self.monotonic += elapsed
        self.uptime += elapsed

    def suspend(self, elapsed: int) -> None:
        self.wall += elapsed
        self.uptime += elapsed


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    return Machine(monkeypatch)


def test_time_goes_on_when_the_machines_clock_is_set(machine: Machine) -> None:
    mine, start = Clock(), machine.wall
    machine.sleep(SECOND)
    machine.wall -= 2 * DAY
    machine.sleep(SECOND)
    assert mine.now() == start + 2 * SECOND
    assert mine.follow() == -2 * DAY
    assert mine.now() == start + 2 * SECOND
    machine.wall += 2 * DAY
    assert mine.follow() == 0


def test_small_corrections_are_followed(machine: Machine) -> None:
    mine = Clock()
    machine.wall += TOLERANCE
    assert mine.follow() == 0
    assert mine.now() == machine.wall


def test_a_long_pause_between_two_looks_allows_for_slewing(machine: Machine) -> None:
    mine = Clock()
    machine.sleep(30 * DAY)
    machine.wall += 30 * DAY // 2000
    assert mine.follow() == 0
    assert mine.now() == machine.wall


def test_a_suspended_machine_has_not_had_its_clock_set(machine: Machine) -> None:
    mine = Clock()
    machine.suspend(DAY)
    assert mine.follow() == 0
    assert mine.now() == machine.wall


def test_another_process_continues_the_clock_of_the_same_boot(machine: Machine) -> None:
    reading = Clock().read()
    machine.sleep(10 * SECOND)
    right = machine.wall
    machine.wall += 2 * DAY
    mine = Clock()
    assert mine.keep(reading) == 2 * DAY
    assert mine.now() == right


@pytest.mark.parametrize("changed", ["boot", "unknown", "uptime"])
def test_nothing_is_known_across_boots(machine: Machine, changed: str) -> None:
    reading = Clock().read()
    machine.wall += 2 * DAY
    if changed == "boot":
        machine.boot = "boot-2"
    elif changed == "unknown":
        reading = Reading(reading.time, "", 0)
    else:
        machine.uptime = None  # type: ignore[assignment]  # no such file
    mine = Clock()
    assert mine.keep(reading) == 0
    assert mine.now() == machine.wall


def test_the_real_files_can_be_read() -> None:
    first, second = Clock(), Clock()
    assert abs(first.now() - second.now()) < TOLERANCE
    assert first.keep(second.read()) == 0
    assert abs(clock.now() - clock.wall()) < TOLERANCE
