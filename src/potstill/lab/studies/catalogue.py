"""Regret on a catalogue whose items come and go: Thompson sampling, its student of two towers, and others.

Every batch begins with a changed catalogue: some items are gone, and new ones have come. Agents decide among them at
once, and learn at the end of the batch from their own decisions. `benchmarks/catalogue.py` runs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.distill import Still, Student
from potstill.keys import Key
from potstill.lab.problems import Choices, Float32, Float64
from potstill.problem import Catalog, Observations, Problem, Vector
from potstill.teachers import AnyTeacher, CatalogLinearTS, LinearTS
from potstill.workspace import adapt


class CatalogueSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated catalogue.

    Attributes:
        items: Number of items at any time.
        churn: Number of items that are replaced before each batch but the first.
        batches: Number of batches; in the first one everybody decides uniformly.
        batch: Decisions of a batch.
        width: Columns of a context, and of an item.
        effect: Standard deviation of what an item's reward has beyond its features; that of the features is 1.
        bend: Standard deviation of a part that is not linear.
        noise: Standard deviation of the noise.
    """

    items: int = 1000
    churn: int = 50
    batches: int = 20
    batch: int = 500
    width: int = 6
    effect: float = 0.5
    bend: float = 0.3
    noise: float = 1.0


class CatalogueWorld:
    """One trial: items with features, effects of their own, and customers.

    Args:
        spec: The simulation.
        seed: Decides everything; equal seeds give every agent the same catalogues, contexts and rewards of items.
    """

    def __init__(self, spec: CatalogueSpec, seed: int) -> None:
        self.spec, self._key = spec, Key(seed).child("catalogue")
        rng, width = self._key.child("world").generator(), spec.width
        total = spec.items + spec.churn * (spec.batches - 1)
        self._features = rng.random((total, width))
        self._coefficients = rng.standard_normal((width + 1, width)) * np.sqrt(12 / (width * (1 + width / 3)))
        self._bends = rng.standard_normal((2, width, width))
        self._effects = spec.effect * rng.standard_normal(total)

    def problem(self, number: int) -> Problem:
        """The problem of a batch."""
        items = [{"id": f"item {place}", "v": self._features[place].tolist()} for place in self._places(number)]
        space = Catalog(features=[Vector("v", size=self.spec.width)], items=items)
        return Problem(name="catalogue", context=[Vector("c", size=self.spec.width)], actions=space)

    def contexts(self, number: int) -> Float32:
        """Contexts of a batch, float32[n, d]."""
        rng = self._key.child("contexts", number).generator()
        return rng.random((self.spec.batch, self.spec.width)).astype(np.float32)

    def means(self, number: int, contexts: Float32) -> Float64:
        """Mean rewards of all items of a batch, float64[n, K]."""
        places = self._places(number)
        z, x = self._features[places], contexts.astype(np.float64)
        of_features = np.concatenate([np.ones((len(x), 1)), x], axis=1) @ self._coefficients @ (z - 0.5).T
        waves = np.sin(np.pi * (x @ self._bends[0])) @ np.cos(np.pi * (z @ self._bends[1])).T
        bent = self.spec.bend * waves * 2 / np.sqrt(self.spec.width)
        found: Float64 = of_features + bent + self._effects[places]
        return found

    def rewards(self, number: int, means: Float64) -> Float64:
        """Rewards of the decisions of a batch: their means with noise, the same for all agents."""
        noise = self._key.child("noise", number).generator().standard_normal(len(means))
        return means + self.spec.noise * noise

    def _places(self, number: int) -> NDArray[np.int64]:
        """Numbers of the items of a batch: the oldest go."""
        first = number * self.spec.churn
        return np.arange(first, first + self.spec.items)


class ItemsAgent(Protocol):
    """An algorithm on a catalogue that changes."""

    def follow(self, problem: Problem) -> None:
        """Decide among other items from now on."""

    def choose(self, contexts: Float32) -> Choices:
        """Decide on encoded contexts."""

    def learn(self, observations: Observations) -> None:
        """Learn from one batch of its own decisions."""


class Sampling:
    """Thompson sampling itself: each decision draws from the posterior."""

    def __init__(self, problem: Problem, teacher: AnyTeacher, seed: int) -> None:
        self._problem, self._teacher, self._key, self._number = problem, teacher, Key(seed), 0
        self._state: Any = teacher.init(problem)

    def follow(self, problem: Problem) -> None:
        """Take the state over to the other items."""
        keeping: Any = self._teacher
        self._state = keeping.with_actions(self._state, self._problem, problem, {})
        self._problem = problem

    def choose(self, contexts: Float32) -> Choices:
        """The best item of one joint draw for each context; its propensity is not known, and not needed."""
        self._number += 1
        sampled = self._teacher.sample_actions(self._state, contexts, 1, self._key.child("draws", self._number))
        return sampled[:, 0], np.ones(len(contexts))

    def learn(self, observations: Observations) -> None:
        """Update the posterior."""
        self._state = self._teacher.update(self._state, observations, self._key.child("learn", self._number))


class TwoTowers:
    """The distilled policy: adapted by its item tower when items change, distilled again after each batch."""

    def __init__(self, problem: Problem, teacher: AnyTeacher, student: Student, seed: int) -> None:
        self._still = Still(problem, teacher, student=student, seed=seed)
        self._policy, self._decided = self._still.policy, 0

    def follow(self, problem: Problem) -> None:
        """New items get their columns at once; the teacher follows."""
        before = self._still
        self._still = Still(problem, before.teacher, student=before.student, seed=before.seed)
        number = self._policy.version + 1
        self._policy = adapt(self._policy, problem, version=number, seed=before.seed, floor=0.0, share=0.0)
        self._still.recall(self._policy, before.memory(), before.problem)

    def choose(self, contexts: Float32) -> Choices:
        """Decide by the policy, with sequential ids."""
        first, self._decided = self._decided, self._decided + len(contexts)
        return self._policy.decide_many(contexts, [str(i) for i in range(first, self._decided)])

    def learn(self, observations: Observations) -> None:
        """Learn, and distil."""
        self._still.update(observations)
        self._policy = self._still.policy


class UniformItems:
    """Every item as often as any other."""

    def __init__(self, problem: Problem, seed: int) -> None:
        self._count, self._rng = len(_catalog(problem)), Key(seed).child("uniform").generator()

    def follow(self, problem: Problem) -> None:
        """Decide among other items."""
        self._count = len(_catalog(problem))

    def choose(self, contexts: Float32) -> Choices:
        """Decide."""
        return self._rng.integers(self._count, size=len(contexts)), np.full(len(contexts), 1 / self._count)

    def learn(self, observations: Observations) -> None:
        """Learn nothing."""


#: Agents of Potstill by name; each is made from the problem of the first batch and a seed.
AGENTS: Mapping[str, Callable[[Problem, int], ItemsAgent]] = {
    "catalog-linear-ts": lambda problem, seed: Sampling(problem, CatalogLinearTS(), seed),
    "catalog-linear-ts-il": lambda problem, seed: TwoTowers(problem, CatalogLinearTS(), Student(), seed),
    "linear-ts": lambda problem, seed: Sampling(problem, LinearTS(), seed),
    "uniform": UniformItems,
}


def regret(world: CatalogueWorld, make: Callable[[Problem, int], ItemsAgent], seed: int) -> Float64:
    """Mean regret of each batch, float64[batches]; the first one is uniform."""
    problem, found = world.problem(0), np.zeros(world.spec.batches)
    agent, first = make(problem, seed), UniformItems(problem, seed)
    for number in range(world.spec.batches):
        if number:
            problem = world.problem(number)
            agent.follow(problem)
        contexts = world.contexts(number)
        chosen, propensities = (agent if number else first).choose(contexts)
        means = world.means(number, contexts)
        taken = means[np.arange(len(means)), chosen]
        found[number] = float((means.max(axis=1) - taken).mean())
        columns: Any = {"actions": chosen, "rewards": world.rewards(number, taken), "propensities": propensities}
        agent.learn(Observations.from_columns(problem, contexts=contexts, **columns))
    return found


def _catalog(problem: Problem) -> Catalog:
    space: Any = problem.actions
    assert isinstance(space, Catalog)
    return space
