"""Base of the neural teachers: options, memory and training."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers.contract import NeedsFiniteActions, Parts
from potstill.teachers.memory import Memory, Weighting, Weights, weights
from potstill.teachers.neural import network
from potstill.teachers.neural import noise_selection as noises
from potstill.teachers.neural.network import RAW, Data, Networks, Start, Units
from potstill.teachers.neural.noise_selection import Noise
from potstill.teachers.neural.parts import Overview, gather
from potstill.teachers.neural.recipe import Recipe

Float64 = NDArray[np.float64]


class Neural(msgspec.Struct, NeedsFiniteActions, Weights, frozen=True, kw_only=True):
    """Options of every neural teacher.

    Args:
        hidden: Number of units of each hidden layer.
        recipe: Training recipe; `PAPER` is the paper's.
        standardise: Standardise rewards to mean 0 and standard deviation 1, so that their unit does not matter.
        warm_start: Start from the network of the previous update instead of a random one.
        window: Learn only from the latest `window` observations, for drifting rewards.
        weighting: Weighting of observations.
    """

    hidden: tuple[int, ...] = (100, 100)
    recipe: Recipe = Recipe()
    standardise: bool = True
    warm_start: bool = True
    window: int | None = None
    weighting: Weighting = "equal"

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "hidden", tuple(self.hidden))
        if not self.hidden or min(self.hidden) < 1:
            self._refuse("hidden", "the numbers of units of at least one layer, each 1 or more")
        if self.window is not None and self.window < 1:
            self._refuse("window", "1 or more, or None")

    def _refuse(self, field: str, expected: str) -> None:
        raise InvalidOption(f"{type(self).__name__}: {field} must be {expected}, got {getattr(self, field)!r}")

    def _blank(self, problem: Problem, count: int = 1) -> Networks:
        """Networks before the first observation; they predict 0."""
        return network.zeros((problem.width, *self.hidden, self._outputs(problem)), count)

    def _outputs(self, problem: Problem) -> int:
        """Number of outputs of a network: one for each action."""
        return self.count(problem.actions)

    def _append(self, memory: Memory, observations: Observations) -> Memory:
        return memory.append(observations, self.window, weights(observations, self.weighting))

    def _units(self, memory: Memory) -> Units:
        return network.units_of(memory.rewards) if self.standardise else RAW

    def _prepare(
        self, networks: Networks, before: Noise, previous: int, new: int, data: Data, units: Units, key: Key
    ) -> tuple[Start, Noise]:
        """The start of training and the noise share, given the numbers of earlier and new observations."""
        n, variance = len(data.actions), 1.0 if self.standardise else float(data.targets.var())
        due, noise = self._is_due(before, n, new), before.after(new)
        if due:
            noise_rows = data.rows(noises.sample(n, key.child("noise")))
            noise = self._select_noise(noise_rows, variance, n, networks.sizes, key.child("noise"))
        start = self._start(networks, previous, new, due, units, key.child("start"))
        return start._replace(noise=float(noise.share) * variance), noise

    def _is_due(self, noise: Noise, observations: int, new: int) -> bool:
        return self.recipe.noise is None and noise.is_due(observations, new)

    def _select_noise(self, data: Data, variance: float, observations: int, sizes: tuple[int, ...], key: Key) -> Noise:
        return noises.selected(noises.select(data, variance, sizes, self.recipe, key), observations)

    def _start(self, networks: Networks, previous: int, new: int, restart: bool, units: Units, key: Key) -> Start:
        """Networks for standardised rewards. With `restart`, all observations count as new: no steps are skipped."""
        fresh = network.random(networks.sizes, networks.size, key)
        if not previous or not self.warm_start:
            return Start(fresh)
        kept = networks.in_units(units.inverse())
        # `new` is below 1 if more observations were deleted than added since.
        if kept.dead.any() or restart or new < 1:
            return Start(network.revive(kept, fresh))
        return Start(kept, min(new / min(previous + new, self.window or previous + new), 1.0))

    def _fit(
        self, networks: Networks, before: Noise, previous: int, new: int, memory: Memory, units: Units, key: Key
    ) -> tuple[Networks, Noise]:
        """One network trained on a memory, in units of rewards, and the noise share it assumed."""
        from potstill.teachers.neural import train

        data = self._data(memory, units)
        start, noise = self._prepare(networks, before, previous, new, data, units, key)
        return train.fit(start, data, self.recipe, key.child("train")).in_units(units), noise

    def _fit_parts(
        self, networks: Networks, before: Noise, previous: int, parts: Parts, overview: Overview, key: Key
    ) -> tuple[Networks, Noise]:
        """The same network from observations outside memory; only the rows of its minibatches are fetched."""
        from potstill.teachers.neural import train

        units, total = self._units_of(overview), int(overview.rows.sum())
        variance, new = 1.0 if self.standardise else overview.units.scale**2, total - previous
        due, noise = self._is_due(before, total, new), before.after(new)
        noise_rows = noises.sample(total, key.child("noise")) if due else np.zeros(0, np.int64)
        start = self._start(networks, previous, new, due, units, key.child("start"))
        drawn = train.minibatches(total, 1, self.recipe, key.child("train"), start.new)
        rows = np.union1d(noise_rows, drawn.rows)
        data = self._data(gather(parts, overview, rows, self.weighting), units)
        if due:
            subset = data.rows(np.searchsorted(rows, noise_rows))
            noise = self._select_noise(subset, variance, total, networks.sizes, key.child("noise"))
        subset = data.rows(np.searchsorted(rows, drawn.rows))
        trained = train.fit_to(start.networks, subset, drawn, self.recipe, float(noise.share) * variance)
        return trained.in_units(units), noise

    def _units_of(self, overview: Overview) -> Units:
        return overview.units if self.standardise else RAW

    def _check_memory(self, memory: Memory, previous: int) -> None:
        """Refuse to update a state that `reread` made: it holds no observations, and an update would forget them."""
        if len(memory.actions) != previous:
            raise InvalidOption(
                f"{type(self).__name__}: this state was learnt from {previous:,} observations that it does not hold; "
                "pass all of them again, with reread (in Still.update: earlier=)"
            )

    def _data(self, memory: Memory, units: Units) -> Data:
        targets = units.standardise(memory.rewards)
        return Data(memory.contexts, memory.actions, targets[None], memory.weights[None])
