"""A machine of a simulated world, and the workspace as it opens it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simulation.oracle import DEFAULT, SETTLE, WINDOW
from simulation.scheduler import SECOND, Process
from simulation.store import ROOT

import potstill as ps
from potstill.events.log_watermark import MIRROR
from potstill.workspace import Workspace
from potstill.workspace.config import Config, JoinConfig, LogConfig, UpdateConfig

if TYPE_CHECKING:
    from simulation.world import World

PLACE = f"{ROOT}/workspace"
PROBLEM = ps.Problem(
    name="simulated",
    context=[ps.Boolean("returning")],
    actions=ps.Discrete(["a", "b", "c"]),
    reward=ps.Reward(default=DEFAULT, window=f"{WINDOW}s"),
)
PROBLEM_TOML = f"""
name = "simulated"

[[context]]
name = "returning"
type = "boolean"

[actions]
type = "discrete"
names = ["a", "b", "c"]

[reward]
default = {DEFAULT}
window = "{WINDOW}s"
"""


class Host:
    """A machine, with its disk and its clock."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self.name = world, name
        self.folder = world.disks.make_host(name)
        self.jump = 0  # by which its clock is wrong for a while
        self.skew, self.boots, self.booted = 0, 0, world.scheduler.now - world.random.randint(1, 1000) * SECOND
        self.programs: dict[str, Callable[[Process], None]] = {}
        self.processes: list[Process] = []

    def clock(self) -> int:
        """Microseconds since 1970 by the clock of this host."""
        return self._world.scheduler.now + self.skew + self.jump

    @property
    def boot_id(self) -> str:
        """Id of its present boot."""
        return f"{self.name}-{self.boots}"

    @property
    def has_noted_its_boot(self) -> bool:
        """Whether its log can tell from now on that the clock was set; a device has none."""
        try:
            return self.boot_id in (self.folder / "spool" / MIRROR).read_text()
        except FileNotFoundError:
            return self.name == "device"

    def workspace(self) -> Workspace:
        """The workspace as a process of this host opens it."""
        config = Config(
            join=JoinConfig(aggregate="sum", settle=f"{SETTLE}s"),
            update=UpdateConfig(min_observations=1),
            log=LogConfig(spool=str(self.folder / "spool"), rotate_seconds=5.0),
        )
        return Workspace(PLACE, PROBLEM, config)
