"""The paper's problems as they are run: how many decisions, how often an update, and what is measured."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec

from potstill.keys import Key
from potstill.lab.problems.environment import Environment
from potstill.lab.problems.replay import Replay, parts_of
from potstill.lab.problems.upload_log import Progress, upload_log
from potstill.lab.problems.video import VideoUpload
from potstill.lab.problems.wheel import Wheel
from potstill.lab.problems.world import Simulation, World
from potstill.problem import Problem


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of the evaluation. Data is read when the problem or a world is asked for, and raises MissingData.

    Attributes:
        name: that commands and files use.
        title: for people.
        decisions: in a trial.
        batch: decisions between updates.
        environment: makes the simulated problem; a function that can be pickled, for processes to share.
        log_rows: replay a log with so many rows instead, as the paper does where no simulator is at hand.
        options: that a command needs beside the name, of a table of somebody's own.
    """

    name: str
    title: str
    decisions: int
    batch: int
    environment: Callable[[], Environment]
    log_rows: int | None = None
    options: tuple[str, ...] = ()

    @property
    def measure(self) -> Literal["regret", "reward"]:
        """What is reported; a log does not say what other actions would have earned."""
        return "regret" if self.log_rows is None else "reward"

    @property
    def sizes(self) -> list[int]:
        """Decisions in each batch; the last takes what is left."""
        whole, rest = divmod(self.decisions, self.batch)
        return [self.batch] * whole + [rest] * (rest > 0)

    @property
    def problem(self) -> Problem:
        """What is decided."""
        return self.environment().problem

    def world(self, seed: int) -> World:
        """A trial's requests; equal seeds bring equal requests and equal luck."""
        environment, key = self.environment(), Key(seed).child("world")
        if self.log_rows is None:
            return Simulation(environment, self.decisions, key)
        return Replay(environment.problem, parts_of(upload_log(environment, self.log_rows), environment.problem, key))

    def prepare(self, progress: Progress | None = None) -> None:
        """Read or write what trials need, before any of them: so that all errors come now, and a log is written once.

        Args:
            progress: told of the rows that a log has, and will have.
        """
        if self.log_rows is not None:
            upload_log(self.environment(), self.log_rows, progress)
        self.world(seed=0)

    def with_decisions(self, n: int) -> Scenario:
        """The same with another number of decisions."""
        if n < 1:
            raise ValueError(f"{self.name}: decisions must be 1 or more, got {n}")
        if self.log_rows is not None and (rows := n * len(self.problem.actions)) > self.log_rows:
            raise ValueError(
                f"{self.name}: {n:,} decisions take about {rows:,} logged rows, and the log has {self.log_rows:,};"
                f" ask for fewer, or for the problem video-{-(-rows // 1_000_000)}m"
            )
        return msgspec.structs.replace(self, decisions=n)


def _mushroom() -> Environment:
    from potstill.lab.problems.mushroom import mushroom

    return mushroom()


def _warfarin(levels: int, resample: bool) -> Environment:
    from potstill.lab.problems.warfarin import warfarin

    return warfarin(levels, resample)


def _dosing(levels: int, *, resample: bool) -> Scenario:
    return Scenario(
        name=f"warfarin-{levels}" + "-resampled" * resample,
        title=f"Warfarin, {levels} doses" + ", resampled" * resample,
        decisions=50_000 if resample else 5_528,
        batch=100,
        environment=partial(_warfarin, levels, resample),
    )


def _wheel(delta: float, name: str) -> Scenario:
    return Scenario(
        name=name, title=f"Wheel, δ = {delta:g}", decisions=10_000, batch=1_000, environment=partial(Wheel, delta)
    )


def _video(millions: float, name: str) -> Scenario:
    return Scenario(
        name=name,
        title="Video upload, replayed",
        decisions=50_000,
        batch=1_000,
        environment=VideoUpload,
        log_rows=round(millions * 1e6),
    )


SCENARIOS: dict[str, Scenario] = {
    one.name: one
    for one in (
        _wheel(0.95, "wheel"),
        Scenario(name="mushroom", title="Mushroom", decisions=50_000, batch=1_000, environment=_mushroom),
        _dosing(20, resample=False),
        _dosing(50, resample=False),
        _dosing(20, resample=True),
        _dosing(50, resample=True),
        # A trial meets about 350,000 rows; the paper's log has 8 million.
        _video(2, "video"),
    )
}


def is_known(name: str) -> bool:
    """Whether a scenario has that name."""
    try:
        scenario(name)
    except ValueError:
        return False
    return True


def scenario(name: str) -> Scenario:
    """A scenario by name; ``wheel-0.5`` is the wheel with another delta, ``video-8m`` a log of 8 million rows."""
    if name in SCENARIOS:
        return SCENARIOS[name]
    if match := re.fullmatch(r"wheel-(0(\.\d+)?)", name):
        return _wheel(float(match[1]), name)
    if match := re.fullmatch(r"video-([1-9]\d*)m", name):
        return _video(int(match[1]), name)
    raise ValueError(
        f"unknown problem {name!r}; the problems are {', '.join(SCENARIOS)};"
        " also wheel-0.5, for any delta from 0 to below 1, and video-8m, for a log of 8 million rows"
    )
