"""How long trials take: as measured, and before that as guessed from those that were measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from potstill.lab.problems import Scenario
from potstill.lab.runs.algorithms import Algorithm

#: Problem, preset, algorithm: what trials share that differ in their luck alone.
Group = tuple[str, str, str]


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
        """A trial took so long."""
        self._measured.setdefault(group, []).append(seconds)

    def under_way(self, group: Group, seconds: float, share: float) -> None:
        """A trial took so long for a share of its decisions."""
        if share > 0:
            self._projected[group] = seconds / share

    def expected(self, group: Group) -> float:
        """Seconds of one trial: the mean of those finished, else one that is under way, else the guess."""
        if seconds := self._measured.get(group):
            return sum(seconds) / len(seconds)
        return self._projected.get(group) or self._guesses[group] * self._correction()

    def left(self, waiting: Mapping[Group, int], running: Iterable[tuple[Group, float]], workers: int) -> float:
        """Seconds until all are finished: so many waiting in each group, and those running for so long already."""
        rests = [max(self.expected(group) - seconds, 0.0) for group, seconds in running]
        whole = sum(count * self.expected(group) for group, count in waiting.items()) + sum(rests)
        return max([whole / workers, *rests])

    def _correction(self) -> float:
        """How far off the guesses were, in all that was measured."""
        guessed = sum(self._guesses[group] for group in self._measured)
        return sum(map(self.expected, self._measured)) / guessed if guessed else 1.0


def _size(scenario: Scenario) -> float:
    """Updates take longer on more decisions, if not in proportion."""
    return 1 + scenario.decisions / 20_000
