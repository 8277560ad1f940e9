"""What teachers that learn a network have in common: their options, their memory, and how they train."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers.contract import NeedsFiniteActions, Parts
from potstill.teachers.memory import Memory, Weighting, weights
from potstill.teachers.neural import network
from potstill.teachers.neural import noise_selection as noises
from potstill.teachers.neural import parts as reading
from potstill.teachers.neural.network import RAW, Data, Networks, Start, Units
from potstill.teachers.neural.noise_selection import Noise
from potstill.teachers.neural.parts import Overview
from potstill.teachers.neural.recipe import Recipe

Float64 = NDArray[np.float64]


class Neural(msgspec.Struct, NeedsFiniteActions, frozen=True, kw_only=True):
    """Options of every teacher that learns a network.

    Args:
        hidden: Units of each hidden layer.
        recipe: How the network is trained; `PAPER` is the paper's.
        standardise: Learn rewards with mean 0 and standard deviation 1, so that their unit does not matter.
        warm_start: Start from the network of the previous update instead of a random one.
        window: Learn only from that many of the latest observations, for worlds that drift.
        weighting: How much each observation counts.
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
            self._refuse("hidden", "the units of at least one layer, each 1 or more")
        if self.window is not None and self.window < 1:
            self._refuse("window", "1 or more, or left out")

    def _refuse(self, field: str, expected: str) -> None:
        raise ValueError(f"{type(self).__name__}: {field} must be {expected}, got {getattr(self, field)!r}")

    def _blank(self, problem: Problem, count: int = 1) -> Networks:
        """Networks before the first observation."""
        return network.zeros((problem.width, *self.hidden, self.count(problem.actions)), count)

    def _remember(self, memory: Memory, observations: Observations) -> Memory:
        return memory.remember(observations, self.window, weights(observations, self.weighting))

    def _units(self, memory: Memory) -> Units:
        return network.units_of(memory.rewards) if self.standardise else RAW

    def _begun(
        self, networks: Networks, before: Noise, learnt: int, new: int, data: Data, units: Units, key: Key
    ) -> tuple[Start, Noise]:
        """Where training starts, and the noise to assume, given the numbers of earlier and new observations."""
        n, variance = len(data.actions), 1.0 if self.standardise else float(data.targets.var())
        due, noise = self._is_due(before, n, new), before.waiting(new)
        if due:
            looked_at = data.rows(noises.sample(n, key.child("noise")))
            noise = self._judged(looked_at, variance, n, networks.sizes, key.child("noise"))
        start = self._start(networks, learnt, new, due, units, key.child("start"))
        return start._replace(noise=float(noise.share) * variance), noise

    def _is_due(self, noise: Noise, observations: int, new: int) -> bool:
        return self.recipe.noise is None and noise.is_due(observations, new)

    def _judged(self, data: Data, variance: float, observations: int, sizes: tuple[int, ...], key: Key) -> Noise:
        return noises.learnt(noises.judged(data, variance, sizes, self.recipe, key), observations)

    def _start(self, networks: Networks, learnt: int, new: int, anew: bool, units: Units, key: Key) -> Start:
        """Networks that predict standardised rewards; all observations are new to them if they start `anew`."""
        fresh = network.random(networks.sizes, networks.size, key)
        if not learnt or not self.warm_start:
            return Start(fresh)
        kept = networks.in_units(units.inverse())
        # None are new where more have been thrown away since than have come.
        if kept.dead.any() or anew or new < 1:
            return Start(network.revived(kept, fresh))
        return Start(kept, min(new / min(learnt + new, self.window or learnt + new), 1.0))

    def _fitted(
        self, networks: Networks, before: Noise, learnt: int, new: int, memory: Memory, units: Units, key: Key
    ) -> tuple[Networks, Noise]:
        """One network trained on a memory, in units of rewards, and what it took for noise."""
        from potstill.teachers.neural import train

        data = self._data(memory, units)
        start, noise = self._begun(networks, before, learnt, new, data, units, key)
        return train.fit(start, data, self.recipe, key.child("train")).in_units(units), noise

    def _fitted_in_parts(
        self, networks: Networks, before: Noise, learnt: int, parts: Parts, seen: Overview, key: Key
    ) -> tuple[Networks, Noise]:
        """The same network, of observations that are not in memory: those that it looks at are fetched."""
        from potstill.teachers.neural import train

        units, total = self._units_of(seen), int(seen.rows.sum())
        variance, new = 1.0 if self.standardise else seen.units.scale**2, total - learnt
        due, noise = self._is_due(before, total, new), before.waiting(new)
        looked_at = noises.sample(total, key.child("noise")) if due else np.zeros(0, np.int64)
        start = self._start(networks, learnt, new, due, units, key.child("start"))
        drawn = train.minibatches(total, 1, self.recipe, key.child("train"), start.new)
        rows = np.union1d(looked_at, drawn.rows)
        data = self._data(reading.gather(parts, seen, rows, self.weighting), units)
        if due:
            shown = data.rows(np.searchsorted(rows, looked_at))
            noise = self._judged(shown, variance, total, networks.sizes, key.child("noise"))
        shown = data.rows(np.searchsorted(rows, drawn.rows))
        trained = train.fit_to(start.networks, shown, drawn, self.recipe, float(noise.share) * variance)
        return trained.in_units(units), noise

    def _units_of(self, seen: Overview) -> Units:
        return seen.units if self.standardise else RAW

    def _check_kept(self, memory: Memory, learnt: int) -> None:
        """A state made in parts has kept no observations; updating it would forget them."""
        if len(memory.actions) != learnt:
            raise ValueError(
                f"{type(self).__name__}: this state was learnt from {learnt:,} observations that it does not keep; "
                "give all of them again, with reread (Still.update: earlier)"
            )

    def _data(self, memory: Memory, units: Units) -> Data:
        targets = units.standardise(memory.rewards)
        return Data(memory.contexts, memory.actions, targets[None], memory.weights[None])
