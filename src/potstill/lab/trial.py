"""One trial: an algorithm meets a simulated problem, batch by batch; a teacher acts itself, or through its policy."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.distill import Student
from potstill.keys import Key
from potstill.lab.environment import Environment, regrets
from potstill.problem import Observations
from potstill.still import Still
from potstill.teachers import AnyTeacher


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of a trial.

    Attributes:
        regret: expected reward given up in the batch.
        learn: seconds to update the teacher after it.
        label: seconds to label contexts.
        kl: held-out divergence of the policy that was distilled after it; None if none was.
    """

    regret: float
    learn: float
    label: float = 0.0
    kl: float | None = None


def play(
    environment: Environment,
    teacher: AnyTeacher,
    *,
    sizes: list[int],
    seed: int,
    distilled: bool,
    student: Student | None = None,
) -> Iterator[Turn]:
    """Play batches of those sizes. Equal seeds give equal contexts and equal luck, distilled or not."""
    actor = _Distilled(environment, teacher, seed, student) if distilled else _Undistilled(environment, teacher, seed)
    for number, size in enumerate(sizes):
        key = Key(seed).child("trial", number)
        contexts = environment.contexts(size, key.child("contexts").generator())
        encoded = environment.problem.encode_many(contexts)
        actions, propensities = actor.choose(encoded, number)
        rewards = environment.rewards(contexts, actions, key.child("rewards").generator())
        observations = Observations(
            environment.problem, encoded, actions.astype(np.int32), rewards, propensities.astype(np.float32)
        )
        turn = actor.learn(observations, number)
        yield msgspec.structs.replace(turn, regret=float(regrets(environment.means(contexts), actions).sum()))


class _Distilled:
    """The teacher's distilled policy decides."""

    def __init__(self, environment: Environment, teacher: AnyTeacher, seed: int, student: Student | None) -> None:
        self.still = Still(environment.problem, teacher, student=student, seed=seed)

    def choose(self, encoded: NDArray[np.float32], number: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        return self.still.policy.decide_many(encoded, [f"{number}-{i}" for i in range(len(encoded))])

    def learn(self, observations: Observations, number: int) -> Turn:  # noqa: ARG002
        report = self.still.update(observations)
        seconds = report.seconds
        return Turn(regret=0.0, learn=seconds["learn"], label=seconds["label"], kl=report.fidelity.kl_mean)


class _Undistilled:
    """Batch on-policy Thompson sampling: the teacher acts on its own samples; uniform before the first batch."""

    def __init__(self, environment: Environment, teacher: AnyTeacher, seed: int) -> None:
        self.teacher, self.state, self.key = teacher, teacher.init(environment.problem), Key(seed).child("undistilled")
        self.actions = len(environment.problem.actions)

    def choose(self, encoded: NDArray[np.float32], number: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        n, key = len(encoded), self.key.child("choose", number)
        if number == 0:
            uniform = np.full(n, 1 / self.actions, np.float32)
            return key.generator().integers(self.actions, size=n), uniform
        actions = self.teacher.sample_actions(self.state, encoded, 1, key)[:, 0]
        p = self.teacher.propensities(self.state, encoded, key.child("propensities"))[np.arange(n), actions]
        # What was drawn was possible, even where an estimate says 0.
        return actions, np.maximum(p, np.finfo(np.float32).tiny)

    def learn(self, observations: Observations, number: int) -> Turn:
        started = time.perf_counter()
        self.state = self.teacher.update(self.state, observations, self.key.child("learn", number))
        return Turn(regret=0.0, learn=time.perf_counter() - started)
