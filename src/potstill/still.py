"""The still: Algorithm 1 of the paper. One batch = update the teacher, label, imitate, report."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill._version import __version__
from potstill.distill import Fidelity, Imitation, Student, fidelity, imitate
from potstill.keys import Key
from potstill.policy import Lineage, Policy
from potstill.problem import Contexts, InvalidObservation, Observations, Problem
from potstill.teachers import AnyTeacher, Exactness, LinearTS, to_config

Float32 = NDArray[np.float32]

#: Observed contexts that are kept to imitate on: enough for the student, little enough for any machine.
CONTEXTS_KEPT = 100_000


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch did.

    Attributes:
        version: of the new policy.
        observations: in this batch.
        contexts: that were labelled by the teacher.
        exactness: of the labels.
        fidelity: how well the policy imitates its teacher, on contexts that it was not trained on.
        steps: of imitation.
        warm: whether imitation went on from the policy before.
        seconds: per stage: ``learn``, ``label``, ``imitate``.
    """

    version: int
    observations: int
    contexts: int
    exactness: Exactness
    fidelity: Fidelity
    steps: int
    warm: bool
    seconds: dict[str, float]


class Still:
    """A teacher, a student, and the policy that is being served.

    >>> still = Still(problem, teacher=LinearTS(), seed=0)
    >>> still.policy.decide({"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True}, id="upload-123")
    Decision(id='upload-123', action='480p', propensity=0.25, policy=0)
    >>> report = still.update(observations)

    The policy is uniform before the first batch. Batches may have any size. Two stills with equal arguments that are
    given equal batches make equal policies, to the bit. An update that fails changes nothing.

    Args:
        problem: what is decided.
        teacher: the posterior to imitate.
        student: the shape of the policy and how it learns.
        seed: of everything random.
        floor: the smallest propensity of an action, for policies that must keep exploring.
    """

    def __init__(
        self,
        problem: Problem,
        teacher: AnyTeacher | None = None,
        *,
        student: Student | None = None,
        seed: int = 0,
        floor: float = 0.0,
    ) -> None:
        self.problem = problem
        self.teacher: AnyTeacher = teacher if teacher is not None else LinearTS()
        if isinstance(teacher, type) or not hasattr(self.teacher, "propensities"):
            raise TypeError(f"teacher must be a teacher such as LinearTS(), got {teacher!r}")
        self.student = student if student is not None else Student()
        self.seed = seed
        self.policy = Policy.uniform(problem, seed=seed, floor=floor)
        self.state = self.teacher.init(problem)
        self._observations = 0
        self._contexts = np.zeros((0, problem.width), np.float32)
        self._rewards = (np.inf, -np.inf)

    def update(self, observations: Observations, contexts: Contexts | None = None) -> Report:
        """One batch: learn from the observations, and distil a new policy.

        Args:
            observations: what came of the decisions since the last update.
            contexts: further contexts to imitate on, for which no action or reward is needed; they are cheap, and the
                more there are the closer the imitation. Observed contexts are used in any case.
        """
        self._refuse_foreign(observations)
        key = Key(self.seed).child("batch", self.policy.version)
        seconds: dict[str, float] = {}
        with _timed(seconds, "learn"):
            state = self.teacher.update(self.state, observations, key.child("learn"))
        seen = self._keep(observations.contexts, key.child("keep"))
        pool = seen if contexts is None else np.concatenate([seen, self.problem.encode_many(contexts)])
        if not len(pool):
            raise InvalidObservation("nothing to distil on: give at least one observation or one context")
        with _timed(seconds, "label"):
            labels = self.teacher.propensities(state, pool, key.child("label"))
        with _timed(seconds, "imitate"):
            start = self.policy.layers if self.policy.version else None
            imitation = imitate(pool, labels, self.student, key.child("imitate"), start=start)
        rewards = self._range(observations)
        seen_in_all = self._observations + len(observations)
        policy, measured = self._distilled(imitation, pool, labels, rewards, seen_in_all)
        self.policy, self.state, self._contexts, self._rewards = policy, state, seen, rewards
        self._observations = seen_in_all
        return Report(
            version=policy.version,
            observations=len(observations),
            contexts=len(pool),
            exactness=self.teacher.exactness,
            fidelity=measured,
            steps=imitation.steps,
            warm=imitation.warm,
            seconds=seconds,
        )

    def _distilled(
        self, imitation: Imitation, pool: Float32, labels: Float32, rewards: tuple[float, float], observations: int
    ) -> tuple[Policy, Fidelity]:
        """The new policy, and its fidelity as served: through its own probabilities, floor included."""
        policy = Policy.build(
            self.problem,
            imitation.layers,
            version=self.policy.version + 1,
            seed=self.seed,
            parent=self.policy.version,
            floor=self.policy.floor,
            activation=self.student.activation,
            mean=pool.mean(axis=0, dtype=np.float64).astype(np.float32),
            lineage=Lineage(
                library=__version__,
                seed=self.seed,
                teacher=to_config(self.teacher),
                exactness=msgspec.to_builtins(self.teacher.exactness),
                student=msgspec.to_builtins(self.student),
                observations=observations,
            ),
        )
        rows = imitation.held_out
        spread = max(rewards[1] - rewards[0], 0.0)
        measured = fidelity(labels[rows], policy.probabilities_many(pool[rows]), spread)
        return policy.with_fidelity(msgspec.to_builtins(measured)), measured

    def _keep(self, contexts: Float32, key: Key) -> Float32:
        """The observed contexts to imitate on: all of them, or a sample once there are many."""
        seen = np.concatenate([self._contexts, contexts])
        if len(seen) > CONTEXTS_KEPT:
            seen = seen[key.generator().choice(len(seen), CONTEXTS_KEPT, replace=False)]
        return seen

    def _range(self, observations: Observations) -> tuple[float, float]:
        """The smallest and the largest reward: as the problem says, or as seen so far."""
        stated = self.problem.reward
        low = min(self._rewards[0], observations.rewards.min(initial=np.inf))
        high = max(self._rewards[1], observations.rewards.max(initial=-np.inf))
        return (
            float(low) if stated.low is None else stated.low,
            float(high) if stated.high is None else stated.high,
        )

    def _refuse_foreign(self, observations: Observations) -> None:
        if not isinstance(observations, Observations):
            raise InvalidObservation(
                f"update takes Observations, got {type(observations).__name__}: see Observations.from_records"
            )
        if observations.problem.hash != self.problem.hash:
            raise InvalidObservation(
                f"observations of problem {observations.problem.name!r} ({observations.problem.hash}), "
                f"but this still is for {self.problem.name!r} ({self.problem.hash})"
            )


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - started
