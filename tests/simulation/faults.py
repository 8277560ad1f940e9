"""What befalls a simulated world, at random times. None of it runs in a task."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec
from simulation.host import Host
from simulation.oracle import SETTLE, WINDOW
from simulation.scheduler import MILLISECOND, SECOND

if TYPE_CHECKING:
    from simulation.world import World

DAY = 86_400
#: Share of the times at which a rarer fault is among those to choose from.
RARE = 0.3


class Faults:
    """Chooses faults.

    Args:
        world: The world.
        hosts: Its hosts.
        edge: The device.

    Attributes:
        over: Whether the world may recover.
    """

    def __init__(self, world: World, hosts: list[Host], edge: Host) -> None:
        self._world, self._hosts, self._everywhere = world, hosts, [*hosts, edge]
        self._scheduler, self._random, self._store = world.scheduler, world.random, world.store
        self.over = False

    def begin(self) -> None:
        """Let faults begin, and end after a while."""
        options = self._world.options
        self._scheduler.calm = not options.delays
        self._store.losing = 0.02 if options.lost_answers else 0.0
        self._world.network.faulty = 0.06 if options.network else 0.0
        self._scheduler.at(self._random.randint(1, 60) * SECOND, self._befall)
        self._scheduler.at(options.seconds * SECOND, self._end)

    def _befall(self) -> None:
        if self.over:
            return
        if chosen := list(self._possible()):
            self._random.choice(chosen)()
        self._scheduler.at(self._random.randint(1, 60) * SECOND, self._befall)

    def _end(self) -> None:
        self.over = self._scheduler.calm = True
        self._store.away.clear()
        self._store.losing = self._world.network.faulty = 0.0

    def _possible(self) -> Iterator[Callable[[], None]]:
        options, choice = self._world.options, self._random.choice
        if options.kills:
            yield lambda: self._kill(choice(self._everywhere))
        if options.power_cuts:
            yield lambda: self._cut_power(choice(self._hosts))
        if options.outages:
            yield lambda: self._outage(choice(self._hosts))
        if options.pauses:
            yield lambda: self._pause(choice(self._hosts))
        if options.clock_jumps and self._random.random() < RARE:
            yield lambda: self._jump(choice(self._everywhere))
        if options.deletions and self._random.random() < RARE:
            yield self._delete_entry

    def _kill(self, host: Host) -> None:
        running = [process for process in host.processes if process.tasks]
        if running:
            process = self._random.choice(running)
            self._scheduler.trace(f"kill {process.name}")
            self._world.end(process)
            name = process.name.partition("/")[2]
            self._world.start(host, name, self._random.randint(1, 20_000) * MILLISECOND)

    def _cut_power(self, host: Host) -> None:
        self._scheduler.trace(f"power cut {host.name}")
        for process in list(host.processes):
            self._world.end(process)
        self._world.disks.cut_power(host.name)
        delay = self._random.randint(1, 60) * SECOND
        if not self._world.options.wrong_boots:
            host.jump = 0
        host.boots, host.booted = host.boots + 1, self._scheduler.now + delay
        for name in host.programs:
            self._world.start(host, name, delay)

    def _outage(self, host: Host) -> None:
        """For some seconds, or for longer than window and settling time."""
        longest = self._random.choice((20, 2 * (WINDOW + SETTLE)))
        self._scheduler.trace(f"outage {host.name}")
        self._store.away.add(host.name)
        self._scheduler.at(self._random.randint(1, longest) * SECOND, lambda: self._store.away.discard(host.name))

    def _pause(self, host: Host) -> None:
        process = self._random.choice(host.processes)
        self._scheduler.trace(f"pause {process.name}")
        process.paused_until = self._scheduler.now + self._random.randint(1, 2 * (WINDOW + SETTLE)) * SECOND

    def _jump(self, host: Host) -> None:
        if not (self._world.options.wrong_boots or host.has_noted_its_boot):
            return
        self._scheduler.trace(f"jump {host.name}")
        host.jump = self._random.choice((-2, 2)) * DAY * SECOND

        def put_right() -> None:
            host.jump = 0

        self._scheduler.at(self._random.randint(5, 60) * SECOND, put_right)

    def _delete_entry(self) -> None:
        entries = sorted(address for address in self._store.files if "/registry/entries/" in address)
        if len(entries) > 1 and (self._world.options.unrecorded or self._is_recorded(entries[-1])):
            self._scheduler.trace("delete entry")
            del self._store.files[entries[-1]]

    def _is_recorded(self, entry: str) -> bool:
        """Whether the registry has noted elsewhere that an entry was written."""
        head = self._store.files.get(f"{entry.partition('/entries/')[0]}/head.json", b'{"number": 0}')
        return bool(msgspec.json.decode(head)["number"] >= int(entry[-15:-5]))
