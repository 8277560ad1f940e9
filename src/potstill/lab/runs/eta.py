"""Estimated time left: from measured trials, or scaled from the measured ones of other algorithms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from potstill.lab.problems import Scenario
from potstill.lab.runs.algorithms import Algorithm

#: Problem, preset and algorithm; trials of a group differ only in their seed.
Group = tuple[str, str, str]


#: Seconds that count as guessed right. Without them, a trial of milliseconds would correct guesses of minutes.
_PRIOR = 10.0


class Pace:
    """Seconds per trial of each group.

    Args:
        scenarios: Scenarios by name.
        pairs: Pairs of a preset and an algorithm, by problem.
    """

    def __init__(self, scenarios: Mapping[str, Scenario], pairs: Mapping[str, Sequence[tuple[str, Algorithm]]]) -> None:
        self._guesses: dict[Group, float] = {
            (scenario.name, preset, algorithm.name): algorithm.cost * len(scenario.sizes) * _size(scenario)
            for scenario in scenarios.values()
            for preset, algorithm in pairs[scenario.name]
        }
        self._measured: dict[Group, list[float]] = {}
        self._projected: dict[Group, float] = {}

    def finished(self, group: Group, seconds: float) -> None:
        """Record the seconds of a trial."""
        self._measured.setdefault(group, []).append(seconds)

    def under_way(self, group: Group, seconds: float, share: float) -> None:
        """Record the seconds that a trial took for a share of its decisions."""
        if share > 0:
            self._projected[group] = seconds / share

    def expected(self, group: Group) -> float:
        """Seconds of one trial: the mean of finished ones, else from a running one, else a guess."""
        if seconds := self._measured.get(group):
            return sum(seconds) / len(seconds)
        return self._projected.get(group) or self._guesses[group] * self._correction()

    def left(self, waiting: Mapping[Group, int], running: Iterable[tuple[Group, float]], workers: int) -> float:
        """Seconds until all trials are finished, from those waiting in each group and those running."""
        rests = [max(self.expected(group) - seconds, 0.0) for group, seconds in running]
        whole = sum(count * self.expected(group) for group, count in waiting.items()) + sum(rests)
        return max([whole / workers, *rests])

    def _correction(self) -> float:
        """Ratio of measured to guessed seconds."""
        guessed = sum(self._guesses[group] for group in self._measured)
        return (sum(map(self.expected, self._measured)) + _PRIOR) / (guessed + _PRIOR)


def _size(scenario: Scenario) -> float:
    """Guessed seconds; the time of an update grows less than linearly with the decisions."""
    return 1 + scenario.decisions / 50_000
