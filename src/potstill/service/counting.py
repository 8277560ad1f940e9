"""What is counted of a problem, whoever counts it."""

from __future__ import annotations

from typing import Protocol


class Counting(Protocol):
    """Is told of what happens; see `metrics.ProblemMetrics`."""

    def decided(self, mode: str, policy: int, count: int = 1) -> None:
        """Decisions were taken."""

    def assigned(self, arm: str, count: int = 1) -> None:
        """Decisions were taken in an experiment: ``control``, ``treatment``, or ``none`` for want of a unit."""

    def rewarded(self, count: float) -> None:
        """Rewards were taken up."""

    def observed(self, count: float) -> None:
        """Decisions of devices were taken up."""

    def took(self, seconds: float) -> None:
        """A request to decide was answered."""

    def refused(self, reason: str) -> None:
        """A request was refused."""

    def reloaded(self, outcome: str) -> None:
        """Another policy, mode or experiment was found."""


class Uncounted:
    """Counts nothing."""

    def _pass(self, *_: object) -> None:
        return

    decided = assigned = rewarded = observed = took = refused = reloaded = _pass
