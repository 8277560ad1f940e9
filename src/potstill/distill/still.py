"""The still: Algorithm 1 of the paper. One batch = update the teacher, label, imitate, report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill._version import __version__
from potstill.distill.averaged import imitate_averaged
from potstill.distill.choice import ChoiceReport, StudentChoice
from potstill.distill.fidelity import MEASURES, Fidelity, fidelity
from potstill.distill.imitate import I, Imitation, by_distance, imitate
from potstill.distill.masked import (
    ByMask,
    MaskedLabels,
    check_masked,
    fidelity_by_mask,
    labelled,
    learning_of,
    start_layers,
)
from potstill.distill.prior import prior_policy
from potstill.distill.reservoir import Part, ReadParts, Seen, declared_range, observations_of, seen_in, summarised
from potstill.distill.search import Chosen, Clock, Search, SearchRows, choice_report, choose_student
from potstill.distill.shard_order import Labels
from potstill.distill.streamed import OnProgress, StreamedImitation, UnlabelledContexts, imitate_streamed
from potstill.distill.student import AutoStudent, Student, check_distance, default_student
from potstill.distill.synthetic import synthetic
from potstill.distill.towers import at_most, check_towers, has_towers, imitate_towers, rated
from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.parallel import Map, in_turn
from potstill.policy import Layer, Lineage, Policy, Tower
from potstill.problem import Contexts, InvalidObservation, Observations, Problem
from potstill.spaces import learning
from potstill.teachers import (
    AnyTeacher,
    Exactness,
    Informative,
    InvalidState,
    MeanRewards,
    PerAction,
    Rereading,
    Selecting,
    Summarising,
    check_support,
    default_teacher,
    has_informed_prior,
    label,
    pack,
    to_config,
    unpack,
)

Float32 = NDArray[np.float32]

#: Called with each stage as it begins: ``learn``, ``label``, ``imitate``.
OnStage = Callable[[str], None]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch did.

    Attributes:
        version: Version of the new policy.
        observations: Observations in this batch.
        contexts: Seen or given, that were labelled by the teacher; synthetic ones are not counted.
        exactness: Exactness of the labels.
        fidelity: How well the policy imitates its teacher, on contexts that it was not trained on.
        steps: Steps of imitation.
        warm: Whether imitation went on from the policy before.
        information_gain: What the observations of this batch told the teacher, in nats; None if it cannot tell.
        selection: Weights and scores of the teacher's candidates, if it weighs several.
        seconds: Seconds per stage: ``learn``, ``label``, ``imitate``.
        choice: Choice of the student, if it is searched for.
    """

    version: int
    observations: int
    contexts: int
    exactness: Exactness
    fidelity: Fidelity
    steps: int
    warm: bool
    information_gain: float | None = None
    selection: dict[str, dict[str, float]] | None = None
    seconds: dict[str, float]
    choice: ChoiceReport | None = None


class Still:
    """A teacher, a student, and the policy that is being served.

    >>> still = Still(problem, teacher=LinearTS(), seed=0)
    >>> still.policy.decide({"bandwidth_kbps": 900, "connection": "4g", "hd_screen": True}, id="upload-123")
    Decision(id='upload-123', action='480p', propensity=0.25, policy=0)
    >>> report = still.update(observations)

    Before the first batch the policy imitates the prior: it is uniform, unless the teacher's prior is informed. Batches
    may have any size. Two stills with equal arguments that are given equal batches make equal policies, to the bit. An
    update that fails changes nothing. With `Student.auto` the policies are equal where the choices are, which depend on
    the time that the search had.

    Args:
        problem: What is decided.
        teacher: The posterior to imitate. Default: `AutoTS` for a list of actions, `ContinuousLinearTS` for a number.
        student: The shape of the policy and how it learns; `Student.auto` chooses them. Default: `Student.sharp` for
            teachers whose labels have steps (`AutoTS`, `ForestTS`), otherwise `Student`.
        seed: Seed of everything random.
        floor: The smallest propensity of an action, for policies that must keep exploring.
    """

    #: Which measures of fidelity are taken, by number: 1 counts the floor as an error of imitation, 2 states it apart,
    #: 3 also takes the teacher's mean rewards and bounds the cost by the declared range of rewards alone, 4 adds
    #: measures where only some actions are eligible. A published version is reproduced with its own.
    measures = MEASURES
    #: Clock of searches for a student, in seconds.
    clock: Clock = staticmethod(time.monotonic)
    #: Record of the choice of the student for lineages, if it was chosen by an earlier still and is only trained here.
    choice: dict[str, Any] | None = None

    def __init__(
        self,
        problem: Problem,
        teacher: AnyTeacher | None = None,
        *,
        student: Student | AutoStudent | None = None,
        seed: int = 0,
        floor: float = 0.0,
    ) -> None:
        self.problem = problem
        self.teacher: AnyTeacher = default_teacher(problem.actions) if teacher is None else teacher
        if isinstance(teacher, type) or not hasattr(self.teacher, "sample_actions"):
            raise TypeError(f"teacher must be a teacher such as LinearTS(), got {teacher!r}")
        check_support(self.teacher, problem)
        self.learning = learning(problem.actions)
        self.auto = student if isinstance(student, AutoStudent) else None
        self.student = student.base if isinstance(student, AutoStudent) else student or default_student(self.teacher)
        check_distance(self.student, problem.actions)
        check_masked(self.student, self.teacher, problem.actions)
        check_towers(student, self.teacher, problem.actions)
        self._towers = has_towers(self.teacher, problem.actions)
        #: What the student is trained on; the fidelity of all students is measured by `learning`.
        self.training = learning_of(self.student, problem.actions)
        self.seed = seed
        self._policy = Policy.uniform(problem, seed=seed, floor=floor)
        #: Whether version 0 is yet to be distilled from the prior, which takes seconds: it waits until it is asked for.
        self._from_prior = has_informed_prior(self.teacher)
        self.state = self.teacher.init(problem)
        self.seen = Seen.nothing(problem)
        #: Whether imitation may continue from the policy's weights.
        self.warm = True

    @property
    def policy(self) -> Policy:
        """The policy that is being served."""
        if self._from_prior:
            made_by = self.problem, self.teacher, self.state, self.student
            self.policy = prior_policy(*made_by, seed=self.seed, floor=self._policy.floor)
        return self._policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._policy, self._from_prior = policy, False

    def update(
        self,
        observations: Observations | Iterable[Observations | Part],
        contexts: Contexts | UnlabelledContexts | None = None,
        *,
        earlier: Iterable[Observations | Part] | None = None,
        version: int | None = None,
        origin: dict[str, Any] | Callable[[], dict[str, Any]] | None = None,
        on_stage: OnStage | None = None,
        on_progress: OnProgress | None = None,
        each: Map | None = None,
    ) -> Report:
        """One batch: learn from the observations, and distil a new policy.

        Args:
            observations: Observations since the last update; in parts if they are many, which a teacher that can
                summarise reads one after the other in little memory.
            contexts: Further contexts to imitate on, for which no action or reward is needed; they are cheap, and the
                more there are the closer the imitation. Observed contexts are used in any case.
            earlier: Observations before this batch, in parts. A teacher that reads all observations at every
                update, such as `NeuralLinearTS`, reads them there, in little memory; without, it has to keep them.
            version: Version of the new policy; one more than the last if left out.
            origin: Where the observations come from, for the policy's lineage; asked for when all is labelled.
            on_stage: Called with each stage as it begins.
            on_progress: Called with the number of observations or contexts done in a stage, and of all (0: not known).
            each: Maps functions over parts of the observations, and over shards; one after the other, if left out.
        """
        key, told = Key(self.seed).child("batch", self._policy.version), _Told({}, on_stage, on_progress)
        with told.of("learn"):
            state, seen, new = self._learnt(observations, earlier, key, each or in_turn, on_progress)
        version = self._policy.version + 1 if version is None else version
        if self._towers:
            imitated = self._with_towers(contexts, state, seen, key, told)
        elif isinstance(contexts, UnlabelledContexts):
            imitated = self._streamed(contexts, state, seen, key, told, each or in_turn, version)
        else:
            imitated = self._in_memory(contexts, state, seen, key, told, version)
        rewards = self._mean_rewards(state, imitated.held_out)
        selection = self.teacher.selection(state) if isinstance(self.teacher, Selecting) else None
        made_from = origin() if callable(origin) else origin
        by_mask = self._by_mask(state, imitated.held_out, key.child("fidelity"))
        policy, measured = self._distilled(imitated, seen, rewards, version, made_from, selection, by_mask)
        report = Report(
            version=version,
            observations=new,
            contexts=imitated.contexts,
            exactness=self.teacher.exactness,
            fidelity=measured,
            steps=imitated.steps,
            warm=imitated.warm,
            information_gain=self._information_gain(state, new),
            selection=selection,
            seconds=told.seconds,
            choice=choice_report(imitated.chosen, policy, imitated.held_out) if imitated.chosen else None,
        )
        self.policy, self.state, self.seen, self.warm = policy, state, seen, True
        return report

    def _information_gain(self, state: Any, new: int) -> float | None:
        return self.teacher.information_gain(state, new) if isinstance(self.teacher, Informative) else None

    def memory(self) -> bytes:
        """What the next batch needs beside the policy: the teacher's state, and what was seen. Never pickle."""
        return pack((self.state, self.seen), self.teacher, self.problem)

    def recall(
        self, policy: Policy, memory: bytes, before: Problem | None = None, like: Mapping[str, str] | None = None
    ) -> None:
        """Continue from a policy and the memory of the still that made it, to the bit as that still would.

        Args:
            policy: The policy.
            memory: The memory.
            before: Problem of that still, if its list of actions was another one; the teacher must keep them apart.
            like: Actions that were added since and begin as another one, and that one.

        Raises:
            InvalidState: The memory is not of such a still.
        """
        if before is None or before.hash == self.problem.hash:
            state, seen = unpack(memory, (self.state, self.seen), self.teacher, self.problem)
        else:
            state, seen = unpack(memory, (self.teacher.init(before), self.seen), self.teacher, before)
            state = self._with_actions(state, before, like or {})
        self.policy, self.state, self.seen = policy, state, seen

    def _with_actions(self, state: Any, before: Problem, like: Mapping[str, str]) -> Any:
        """The state for this problem's list of actions; unchanged if only others are retired now."""
        looks_at = ("labels", "features", "items") if isinstance(self.teacher, PerAction) else ("labels",)
        if _same(before.actions, self.problem.actions, *looks_at):
            return state
        if not isinstance(self.teacher, PerAction):
            raise InvalidState(f"{type(self.teacher).__name__} does not keep what it learns of each action apart")
        try:
            return self.teacher.with_actions(state, before, self.problem, like)
        except InvalidOption as error:
            raise InvalidState(str(error)) from error

    def _learnt(
        self,
        observations: Observations | Iterable[Observations | Part],
        earlier: Iterable[Observations | Part] | None,
        key: Key,
        each: Map,
        told: OnProgress | None,
    ) -> tuple[Any, Seen, int]:
        """The state, what was seen, and how many observations are new; all are in memory only where they must be."""
        parts = [observations] if isinstance(observations, Observations) else observations
        if earlier is not None and isinstance(self.teacher, Rereading) and self.teacher.passes:
            return self._learnt_by_reading(self.teacher, list(earlier), list(parts), key, each, told)
        if isinstance(self.teacher, Summarising):
            state, seen = self._learnt_from_sums(self.teacher, parts, key, each, told)
        else:
            state, seen = self._learnt_at_once(parts, key)
        return state, seen, int(seen.observations - self.seen.observations)

    def _learnt_from_sums(
        self,
        teacher: Summarising[Any, Any],
        parts: Iterable[Observations | Part],
        key: Key,
        each: Map,
        told: OnProgress | None,
    ) -> tuple[Any, Seen]:
        seen, stats = self.seen, teacher.summarise(Observations.none(self.problem))
        for looked_at, added in each(summarised, enumerate(parts), teacher, self.problem, key):
            seen, stats = seen.then(looked_at), stats + added
            if told is not None:
                told(int(seen.observations - self.seen.observations), 0)
        return teacher.absorb(self.state, stats), seen

    def _learnt_by_reading(
        self,
        teacher: Rereading[Any],
        earlier: list[Observations | Part],
        new: list[Observations | Part],
        key: Key,
        each: Map,
        told: OnProgress | None,
    ) -> tuple[Any, Seen, int]:
        seen = self.seen
        for looked_at in each(seen_in, enumerate(new), self.problem, key):
            seen = seen.then(looked_at)
        count = int(seen.observations - self.seen.observations)
        if not count:
            return self.state, seen, count
        of = int(seen.observations) * teacher.passes
        parts = ReadParts([*earlier, *new], self.problem, each, told and (lambda done: told(min(done, of), of)))
        state = teacher.reread(self.state, parts, key.child("learn"))
        # What was read is what was learnt from, should it not be what was given before.
        return state, seen._replace(observations=np.array(parts.rows)), count

    def _learnt_at_once(self, parts: Iterable[Observations | Part], key: Key) -> tuple[Any, Seen]:
        seen, kept = self.seen, []
        for i, part in enumerate(parts):
            kept.append(observations_of(part, self.problem))
            seen = seen.then(Seen.of(kept[-1], key.child("keep", i)))
        everything = Observations.joined(self.problem, kept)
        return self.teacher.update(self.state, everything, key.child("learn")), seen

    def _in_memory(
        self, contexts: Contexts | None, state: Any, seen: Seen, key: Key, told: _Told, version: int
    ) -> _Imitated:
        """Label all contexts, and imitate."""
        pool = self._pool(contexts, seen)
        more = synthetic(self.problem, pool, self.student, key.child("imitate"))
        label_key, key = key.child("label"), key.child("imitate")
        with told.of("label"):
            inputs, more, labels, repeats = labelled(self.training, self.teacher, state, pool, more, label_key)

        def train(student: Student, start: Sequence[Layer] | None) -> Imitation:
            given = inputs, labels, student, key, start
            return imitate(*given, learning=self.training, synthetic=more, repeats=repeats)

        with told.of("imitate"):
            rows = partial(SearchRows.in_memory, inputs, more, labels, self.student, key, repeats)
            found, student, chosen = self._trained(train, rows, key, version)
        mean = pool.mean(axis=0, dtype=np.float64)
        held_out = found.held_out[: len(found.held_out) // repeats]
        measured = pool[held_out], self._plain_labels(state, pool[held_out], labels[held_out], label_key)
        return _Imitated(found.layers, found.steps, found.warm, len(pool), mean, *measured, student, chosen)

    def _pool(self, contexts: Contexts | None, seen: Seen) -> Float32:
        """All contexts to imitate on that are in memory."""
        pool = seen.contexts
        if contexts is not None:
            pool = np.concatenate([pool, self.problem.encode_many(contexts)])
        if not len(pool):
            raise _nothing()
        return pool

    def _with_towers(
        self, contexts: Contexts | UnlabelledContexts | None, state: Any, seen: Seen, key: Key, told: _Told
    ) -> _Imitated:
        """Label contexts among the items of a catalogue, and imitate by two towers."""
        if isinstance(contexts, UnlabelledContexts):
            raise InvalidOption(
                "extra contexts of a catalogue are held in memory: raise update.contexts_in_memory in potstill.toml, "
                "or leave update.contexts out"
            )
        pool = self._pool(contexts, seen)
        items = rated(self.problem, self.teacher, state, key.child("newcomers"))
        pool = at_most(pool, items.learning.outputs, key.child("contexts"))
        label_key, key = key.child("label"), key.child("imitate")
        more = synthetic(self.problem, pool, self.student, key)
        with told.of("label"):
            rows = np.concatenate([pool, more])
            labels = label(items.learning, self.teacher, items.state, rows, label_key)
        with told.of("imitate"):
            start = self._policy if self._policy.version else None
            found = imitate_towers(rows, labels, self.student, key, items, start, len(pool))
        held_out = pool[found.held_out]
        plain = label(self.learning, self.teacher, state, held_out, label_key.child("held out"))
        mean = pool.mean(axis=0, dtype=np.float64)
        given = len(pool), mean, held_out, plain, self.student, None
        return _Imitated(found.layers, found.steps, found.warm, *given, found.tower)

    def _streamed(
        self,
        contexts: UnlabelledContexts,
        state: Any,
        seen: Seen,
        key: Key,
        told: _Told,
        each: Map,
        version: int,
    ) -> _Imitated:
        """Label contexts where they are, and imitate a shard at a time."""
        with told.of("label"):
            labels = self._labelled_in_shards(contexts, state, seen, key.child("label"), told.progress)
        if not sum(labels.rows):
            raise _nothing()
        label_key, key = key.child("label"), key.child("imitate")

        def train(student: Student, start: Sequence[Layer] | None) -> StreamedImitation:
            given = labels, student, key
            if contexts.students > 1:
                return imitate_averaged(*given, contexts.students, each, start, told.progress, learning=self.training)
            return imitate_streamed(*given, start, told.progress, learning=self.training)

        with told.of("imitate"):
            rows = partial(SearchRows.streamed, labels, self.student, self.training, key)
            found, student, chosen = self._trained(train, rows, key, version)
        held_out = np.ascontiguousarray(found.contexts[:, : self.problem.width])
        return _Imitated(
            found.layers,
            found.steps,
            found.warm,
            sum(labels.rows),
            labels.mean,
            held_out,
            self._plain_labels(state, held_out, found.labels, label_key),
            student,
            chosen,
        )

    def _labelled_in_shards(
        self, contexts: UnlabelledContexts, state: Any, seen: Seen, key: Key, told: OnProgress | None
    ) -> Labels:
        given = self.teacher, state, seen.contexts, key, told
        return MaskedLabels(contexts.label(*given, masked=True)) if self.student.masked else contexts.label(*given)

    def _plain_labels(self, state: Any, contexts: Float32, labels: Float32, key: Key) -> Float32:
        """Labels of held-out contexts without masks; those at hand, if the student was trained on such."""
        if not self.student.masked:
            return labels
        return label(self.learning, self.teacher, state, contexts, key.child("held out"))

    def _by_mask(self, state: Any, contexts: Float32, key: Key) -> ByMask | None:
        """What fidelity by mask is measured by; None for earlier measures."""
        return None if self.measures < MEASURES else fidelity_by_mask(self.problem, self.teacher, state, contexts, key)

    def _trained(
        self,
        train: Callable[[Student, Sequence[Layer] | None], I],
        rows: Callable[[], SearchRows],
        key: Key,
        version: int,
    ) -> tuple[I, Student, Chosen[I] | None]:
        """The trained student, and how it was chosen if it was."""
        auto, start = self.auto, self._start()
        if auto is None:
            return by_distance(train, self.student, start), self.student, None
        chosen = choose_student(
            auto,
            StudentChoice.of(self._policy.metadata.lineage, auto),
            lambda student: by_distance(train, student, start),
            lambda: Search(auto.by_kl(), self.problem, self.training, rows(), key, self.clock),
            version,
        )
        return chosen.imitated, auto.student(chosen.choice.hidden, chosen.choice.steps), chosen

    def _mean_rewards(self, state: Any, contexts: Float32) -> NDArray[np.float64] | None:
        """The teacher's mean rewards of the contexts that the student is measured on; None if it gives none."""
        if self.measures < 3 or not isinstance(self.teacher, MeanRewards):
            return None
        return self.teacher.mean_rewards(state, contexts)

    def _reward_range(self, seen: Seen) -> float | None:
        """The range of rewards: declared, as in a bound; earlier measures took that of the rewards seen."""
        return seen.spread(self.problem.reward) if self.measures < 3 else declared_range(self.problem.maximised)

    def _start(self) -> Sequence[Layer] | None:
        return start_layers(self._policy, self.student) if self._policy.version and self.warm else None

    def _distilled(
        self,
        imitated: _Imitated,
        seen: Seen,
        rewards: NDArray[np.float64] | None,
        version: int,
        origin: dict[str, Any] | None,
        selection: dict[str, dict[str, float]] | None,
        by_mask: ByMask | None,
    ) -> tuple[Policy, Fidelity]:
        """The new policy, and its fidelity: through its own probabilities, before the floor."""
        policy = Policy.build(
            self.problem,
            imitated.layers,
            version=version,
            seed=self.seed,
            parent=self._policy.version,
            floor=self._policy.floor,
            activation=imitated.student.activation,
            masked=imitated.student.masked,
            tower=imitated.tower,
            mean=imitated.mean.astype(np.float32),
            lineage=Lineage(
                library=__version__,
                seed=self.seed,
                teacher=to_config(self.teacher),
                exactness=msgspec.to_builtins(self.teacher.exactness),
                student=imitated.student.config(),
                choice=imitated.chosen.choice.record() if imitated.chosen else self.choice,
                selection=selection,
                observations=int(seen.observations),
                origin=origin,
            ),
        )
        apart = self.measures > 1 and policy.floor > 0
        student = policy.distribution(imitated.held_out, floor=0.0 if apart else None)
        served = policy.distribution(imitated.held_out) if apart else None
        measured = fidelity(
            self.learning, imitated.labels, student, self._reward_range(seen), rewards=rewards, served=served
        )
        if by_mask is not None:
            measured = msgspec.structs.replace(measured, eligible=by_mask.of(policy))
        return policy.with_fidelity(msgspec.to_builtins(measured)), measured


class _Imitated(NamedTuple):
    """Layers that imitate the teacher, and the contexts and labels to measure them on."""

    layers: list[Layer]
    steps: int
    warm: bool
    contexts: int
    mean: NDArray[np.float64]
    held_out: Float32
    labels: Float32
    student: Student
    chosen: Chosen[Any] | None
    tower: Tower | None = None


class _Told(NamedTuple):
    """Callbacks of stages and progress, and the seconds of each stage."""

    seconds: dict[str, float]
    on_stage: OnStage | None
    progress: OnProgress | None

    def of(self, stage: str) -> AbstractContextManager[None]:
        return _timed(self.seconds, stage, self.on_stage)


def _same(before: Any, after: Any, *fields: str) -> bool:
    """Whether two action spaces agree in these fields, or both lack them."""
    return all(getattr(before, field, None) == getattr(after, field, None) for field in fields)


def _nothing() -> InvalidObservation:
    return InvalidObservation("nothing to distil on: give at least one observation or one context")


@contextmanager
def _timed(seconds: dict[str, float], stage: str, on_stage: OnStage | None) -> Iterator[None]:
    if on_stage is not None:
        on_stage(stage)
    started = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - started
