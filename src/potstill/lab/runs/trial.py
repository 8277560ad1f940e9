"""One trial: an algorithm decides in a world, batch by batch, after a uniform first batch."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.distill import Still, Student
from potstill.keys import Key
from potstill.lab.problems import Choices, Float32, World
from potstill.policy import Policy
from potstill.problem import Observations, Problem
from potstill.teachers import AnyFiniteTeacher, AnyTeacher


class UpdateResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Result of one update.

    Attributes:
        kl: Held-out KL divergence of the policy from its teacher, in nats; None if nothing was distilled.
        price: Upper bound on the reward that the divergence can cost per decision (the paper's bound); None without a
            declared range of rewards.
        cost: Reward per decision that imitation gives up by the teacher's mean rewards.
        w1: Held-out Wasserstein distance of the policy from its teacher, in units of the action; None if actions have
            no distances.
        seconds: Seconds of each stage.
    """

    kl: float | None = None
    price: float | None = None
    cost: float | None = None
    w1: float | None = None
    seconds: dict[str, float] = {}


class Agent(Protocol):
    """One algorithm in one trial. The first batch is uniform for every algorithm."""

    def choose(self, contexts: Float32) -> Choices:
        """Decide on encoded contexts, float32[N, d]."""

    def learn(self, observations: Observations) -> UpdateResult:
        """Learn from one batch of its own decisions."""


class Fixed:
    """One fixed policy decides; nothing is learnt."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._decided = 0

    def choose(self, contexts: Float32) -> Choices:
        """Decide by the policy's deterministic draw, with sequential ids."""
        first, self._decided = self._decided, self._decided + len(contexts)
        return self.policy.decide_many(contexts, [str(i) for i in range(first, self._decided)])

    def learn(self, observations: Observations) -> UpdateResult:  # noqa: ARG002
        """Learn nothing."""
        return UpdateResult()


class Distilled(Fixed):
    """A teacher's distilled policy decides (the paper's TS-IL).

    Args:
        problem: The problem.
        teacher: Teacher that learns the posterior.
        student: Student that imitates it.
        seed: Seed of all randomness.
        contexts: Additional contexts to imitate on, float32[M, d].
    """

    def __init__(
        self, problem: Problem, teacher: AnyTeacher, student: Student, seed: int, contexts: Float32 | None = None
    ) -> None:
        self.still = Still(problem, teacher, student=student, seed=seed)
        super().__init__(self.still.policy)
        self._contexts = contexts

    def learn(self, observations: Observations) -> UpdateResult:
        """Algorithm 1: update the teacher, label, imitate."""
        report = self.still.update(observations, contexts=self._contexts)
        self.policy = self.still.policy
        found = report.fidelity
        return UpdateResult(
            kl=found.kl_mean, price=found.regret_price, cost=found.cost, w1=found.w1_mean, seconds=report.seconds
        )


class Undistilled:
    """Batch on-policy Thompson sampling: the teacher acts on its own samples.

    Args:
        problem: The problem.
        teacher: Teacher that learns the posterior.
        seed: Seed of all randomness.
    """

    def __init__(self, problem: Problem, teacher: AnyTeacher, seed: int) -> None:
        self.teacher, self.state = teacher, teacher.init(problem)
        self._key = Key(seed).child("undistilled")
        self._calls = 0

    def choose(self, contexts: Float32) -> Choices:
        """One posterior sample for each decision."""
        key = self._next("choose")
        actions = self.teacher.sample_actions(self.state, contexts, 1, key)[:, 0]
        return actions, self._propensities(contexts, actions, key)

    def _propensities(self, contexts: Float32, actions: NDArray[Any], key: Key) -> Float32:
        if getattr(self.teacher, "weighting", "equal") == "equal":
            # Propensities are not used here, and some teachers take seconds to compute them.
            return np.ones(len(actions), np.float32)
        all_of_them = cast(AnyFiniteTeacher, self.teacher).propensities(self.state, contexts, key.child("propensities"))
        p: Float32 = np.take_along_axis(all_of_them, actions[:, None], axis=1)[:, 0]
        # A drawn action was possible, even if its estimated probability is 0.
        return np.maximum(p, np.finfo(np.float32).tiny)

    def learn(self, observations: Observations) -> UpdateResult:
        """Update the posterior."""
        started = time.perf_counter()
        self.state = self.teacher.update(self.state, observations, self._next("learn"))
        return UpdateResult(seconds={"learn": time.perf_counter() - started})

    def _next(self, purpose: str) -> Key:
        self._calls += 1
        return self._key.child(purpose, self._calls)


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of a trial.

    Attributes:
        decisions: Number of decisions in the batch.
        reward: Sum of rewards.
        regret: Expected reward lost in the batch; None where expected rewards are unknown.
        learned: Result of the update after the batch.
    """

    decisions: int
    reward: float
    regret: float | None
    learned: UpdateResult


def play(world: World, agent: Agent, sizes: Sequence[int], seed: int) -> Iterator[Turn]:
    """Run batches of these sizes.

    Args:
        world: World to decide in; equal worlds and seeds give every agent the same first batch.
        agent: Agent that decides from the second batch on.
        sizes: Decisions in each batch.
        seed: Seed of the first, uniform batch.
    """
    uniform = Fixed(Policy.uniform(world.problem, seed=seed))
    for number, size in enumerate(sizes):
        batch = world.batch(size, agent.choose if number else uniform.choose)
        yield Turn(
            decisions=size,
            reward=float(batch.observations.rewards.sum()),
            regret=batch.regret,
            # No decision follows the last batch, so it is not learnt from.
            learned=agent.learn(batch.observations) if number + 1 < len(sizes) else UpdateResult(),
        )
