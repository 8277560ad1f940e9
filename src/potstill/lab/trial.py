"""One trial: an algorithm meets a simulated problem, batch by batch; a teacher acts itself, or through its policy."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.distill import Student
from potstill.keys import Key
from potstill.lab.environment import Columns, Environment, regrets
from potstill.policy import Policy
from potstill.problem import Observations
from potstill.still import Still
from potstill.teachers import AnyTeacher

Float32 = NDArray[np.float32]
Actions = NDArray[np.int64]


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
    unlabelled: int = 0,
) -> Iterator[Turn]:
    """Play batches of those sizes. Equal seeds give equal contexts, luck and first batches, distilled or not.

    Args:
        environment: the problem.
        teacher: the posterior.
        sizes: decisions in each batch; the first one is decided by the uniform policy.
        seed: of everything random.
        distilled: whether the teacher's policy decides, or the teacher itself by its own samples.
        student: that imitates.
        unlabelled: further contexts to imitate on, for which nothing is observed.
    """
    still = Still(environment.problem, teacher, student=student, seed=seed)
    more = environment.contexts(unlabelled, Key(seed).child("unlabelled").generator()) if unlabelled else None
    actor = _Distilled(still, more) if distilled else _Undistilled(still)
    for number, size in enumerate(sizes):
        key = Key(seed).child("trial", number)
        contexts = environment.contexts(size, key.child("contexts").generator())
        encoded = environment.problem.encode_many(contexts)
        actions, propensities = actor.choose(encoded, number)
        rewards = environment.rewards(contexts, actions, key.child("rewards").generator())
        observations = Observations(environment.problem, encoded, actions.astype(np.int32), rewards, propensities)
        turn = actor.learn(observations, number)
        yield msgspec.structs.replace(turn, regret=float(regrets(environment.means(contexts), actions).sum()))


class _Distilled:
    """The teacher's distilled policy decides."""

    def __init__(self, still: Still, more: Columns | None) -> None:
        self.still, self.more = still, more

    def choose(self, encoded: Float32, number: int) -> tuple[Actions, Float32]:
        return _by_policy(self.still.policy, encoded, number)

    def learn(self, observations: Observations, number: int) -> Turn:  # noqa: ARG002
        report = self.still.update(observations, contexts=self.more)
        seconds = report.seconds
        return Turn(regret=0.0, learn=seconds["learn"], label=seconds["label"], kl=report.fidelity.kl_mean)


class _Undistilled:
    """Batch on-policy Thompson sampling: the teacher acts on its own samples, after the same uniform first batch."""

    def __init__(self, still: Still) -> None:
        self.teacher, self.state, self.first = still.teacher, still.state, still.policy
        self.key = Key(still.seed).child("undistilled")

    def choose(self, encoded: Float32, number: int) -> tuple[Actions, Float32]:
        if number == 0:
            return _by_policy(self.first, encoded, number)
        n, key = len(encoded), self.key.child("choose", number)
        actions = self.teacher.sample_actions(self.state, encoded, 1, key)[:, 0]
        p = self.teacher.propensities(self.state, encoded, key.child("propensities"))[np.arange(n), actions]
        # What was drawn was possible, even where an estimate says 0.
        return actions, np.maximum(p, np.finfo(np.float32).tiny)

    def learn(self, observations: Observations, number: int) -> Turn:
        started = time.perf_counter()
        self.state = self.teacher.update(self.state, observations, self.key.child("learn", number))
        return Turn(regret=0.0, learn=time.perf_counter() - started)


def _by_policy(policy: Policy, encoded: Float32, number: int) -> tuple[Actions, Float32]:
    return policy.decide_many(encoded, [f"{number}-{i}" for i in range(len(encoded))])
