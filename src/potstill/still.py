"""The still: Algorithm 1 of the paper. One batch = update the teacher, label, imitate, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill._version import __version__
from potstill.distill import Fidelity, Imitation, Student, fidelity, imitate
from potstill.keys import Key
from potstill.policy import Lineage, Policy
from potstill.problem import Contexts, InvalidObservation, Observations, Problem
from potstill.seen import Seen
from potstill.teachers import AnyTeacher, Exactness, LinearTS, Summarising, to_config
from potstill.teachers.states import pack, unpack

Float32 = NDArray[np.float32]

#: Told of each stage as it begins: ``learn``, ``label``, ``imitate``.
OnStage = Callable[[str], None]


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
        self.seen = Seen.nothing(problem)

    def update(
        self,
        observations: Observations | Iterable[Observations],
        contexts: Contexts | None = None,
        *,
        version: int | None = None,
        origin: dict[str, Any] | None = None,
        on_stage: OnStage | None = None,
    ) -> Report:
        """One batch: learn from the observations, and distil a new policy.

        Args:
            observations: what came of the decisions since the last update; in parts if they are many, which a teacher
                that can summarise takes one after the other in little memory.
            contexts: further contexts to imitate on, for which no action or reward is needed; they are cheap, and the
                more there are the closer the imitation. Observed contexts are used in any case.
            version: of the new policy; one more than the last if left out.
            origin: where the observations come from, for the policy's lineage.
            on_stage: told of each stage as it begins.
        """
        key = Key(self.seed).child("batch", self.policy.version)
        seconds: dict[str, float] = {}
        with _timed(seconds, "learn", on_stage):
            state, seen = self._learnt(observations, key)
        pool = seen.contexts
        if contexts is not None:
            pool = np.concatenate([pool, self.problem.encode_many(contexts)])
        if not len(pool):
            raise InvalidObservation("nothing to distil on: give at least one observation or one context")
        with _timed(seconds, "label", on_stage):
            labels = self.teacher.propensities(state, pool, key.child("label"))
        with _timed(seconds, "imitate", on_stage):
            start = self.policy.layers if self.policy.version else None
            imitation = imitate(pool, labels, self.student, key.child("imitate"), start=start)
        version = self.policy.version + 1 if version is None else version
        policy, measured = self._distilled(imitation, pool, labels, seen, version, origin)
        report = Report(
            version=version,
            observations=int(seen.observations - self.seen.observations),
            contexts=len(pool),
            exactness=self.teacher.exactness,
            fidelity=measured,
            steps=imitation.steps,
            warm=imitation.warm,
            seconds=seconds,
        )
        self.policy, self.state, self.seen = policy, state, seen
        return report

    def memory(self) -> bytes:
        """What the next batch needs beside the policy: the teacher's state, and what was seen. Never pickle."""
        return pack((self.state, self.seen), self.teacher, self.problem)

    def recall(self, policy: Policy, memory: bytes) -> None:
        """Go on from a policy and the memory of the still that made it, to the bit as that one would."""
        state, seen = unpack(memory, (self.state, self.seen), self.teacher, self.problem)
        self.policy, self.state, self.seen = policy, state, seen

    def _learnt(self, observations: Observations | Iterable[Observations], key: Key) -> tuple[Any, Seen]:
        """The state and what was seen after the observations; a teacher that cannot summarise gets them all at once."""
        parts = [observations] if isinstance(observations, Observations) else observations
        seen, kept, stats = self.seen, [], None
        for i, part in enumerate(parts):
            self._refuse_foreign(part)
            seen = seen.after(part, key.child("keep", i))
            if isinstance(self.teacher, Summarising):
                added = self.teacher.summarise(part)
                stats = added if stats is None else stats + added
            else:
                kept.append(part)
        if isinstance(self.teacher, Summarising):
            stats = self.teacher.summarise(Observations.none(self.problem)) if stats is None else stats
            return self.teacher.absorb(self.state, stats), seen
        everything = Observations.joined(self.problem, kept)
        return self.teacher.update(self.state, everything, key.child("learn")), seen

    def _distilled(
        self,
        imitation: Imitation,
        pool: Float32,
        labels: Float32,
        seen: Seen,
        version: int,
        origin: dict[str, Any] | None,
    ) -> tuple[Policy, Fidelity]:
        """The new policy, and its fidelity as served: through its own probabilities, floor included."""
        policy = Policy.build(
            self.problem,
            imitation.layers,
            version=version,
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
                observations=int(seen.observations),
                origin=origin,
            ),
        )
        rows = imitation.held_out
        spread = seen.spread(self.problem.reward)
        measured = fidelity(labels[rows], policy.probabilities_many(pool[rows]), spread)
        return policy.with_fidelity(msgspec.to_builtins(measured)), measured

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
def _timed(seconds: dict[str, float], stage: str, on_stage: OnStage | None) -> Iterator[None]:
    if on_stage is not None:
        on_stage(stage)
    started = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - started
