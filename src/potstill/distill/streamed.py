"""Imitation of more labels than memory holds: they come in shards, and go through one compiled program in blocks.

The recipe is that of `imitate`, with more steps: every context is seen at least once, and the learning rate falls to
zero over all of them. Memory does not depend on the number of contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import optax
from jax import Array, lax
from scipy.special import entr

from potstill.distill.imitate import (
    Float32,
    _cross_entropy,
    _Examples,
    _fresh,
    _kept,
    _muon,
    _Run,
    _Stretch,
    learning_rate,
)
from potstill.distill.shard_order import Labelled, Labels, Plan
from potstill.distill.student import Student
from potstill.keys import Key
from potstill.policy import Layer
from potstill.teachers import AnyTeacher

#: Told how many contexts are done, and of how many.
OnProgress = Callable[[int, int], None]


@runtime_checkable
class Unlabelled(Protocol):
    """Contexts that are to be labelled where they are, being too many for memory."""

    @property
    def students(self) -> int:
        """How many students are trained at a time, on shards of their own, to be averaged; usually one."""

    def label(
        self, teacher: AnyTeacher, state: Any, observed: Float32, key: Key, on_progress: OnProgress | None
    ) -> Labels:
        """Label them, and the observed contexts float32[N, d] too."""


class StreamedImitation(NamedTuple):
    """A trained student.

    Attributes:
        layers: of the network, for contexts as they were given.
        contexts: float32[H, d], which were never trained on; each of a few rows, if there were too few to spare any.
        labels: float32[H, K], of these contexts.
        steps: that were taken.
        kl: KL(teacher ‖ student) in nats, the mean over the held-out contexts.
        warm: whether it went on from an earlier policy.
    """

    layers: list[Layer]
    contexts: Float32
    labels: Float32
    steps: int
    kl: float
    warm: bool


def imitate_streamed(
    labels: Labels,
    student: Student,
    key: Key,
    start: Sequence[Layer] | None = None,
    on_progress: OnProgress | None = None,
) -> StreamedImitation:
    """Train a student on labels in shards. On one machine, equal arguments give equal bits.

    There are `student.steps` steps or as many as one pass over all contexts needs, whichever is more. All of them are
    taken: patience is for few contexts, and here the last steps, which are the smallest, bring the most.

    Args:
        labels: contexts and the teacher's labels.
        student: the network and how to train it.
        key: decides the rows held out, the order of everything and the layers of a fresh start.
        start: layers of an earlier policy to go on from, if the student wants to and they are of its shape.
        on_progress: told how many contexts are done, of all that the steps take.
    """
    prepared = Prepared.to_train(labels, Plan.of(labels.rows, student, key), student, start)
    plan, run = prepared.plan, prepared.begin()
    blocks = (plan.steps - prepared.skipped) // plan.block_steps
    for done, block in zip(range(1, blocks + 1), plan.blocks(labels), strict=False):
        last, run = run, prepared.train(run, block)
        last.step.block_until_ready()  # the next block is made ready while this one is trained on
        if on_progress is not None:
            on_progress(done * plan.block_rows, blocks * plan.block_rows)
    return prepared.end(run)


class Prepared(NamedTuple):
    """All that training needs beside the rows.

    Attributes:
        student: how to train; its number of steps is no part of a compiled program, so that similar runs share one.
        plan: which rows, and how many steps.
        layers: to begin with, for stretched contexts.
        skipped: steps that an earlier policy which is close is worth.
        warm: whether there is an earlier policy.
        stretch: of contexts.
        held_out: rows that are never trained on.
    """

    student: Student
    plan: Plan
    layers: list[Layer]
    skipped: int
    warm: bool
    stretch: _Stretch
    held_out: Labelled

    @classmethod
    def to_train(cls, labels: Labels, plan: Plan, student: Student, start: Sequence[Layer] | None) -> Prepared:
        """From an earlier policy, if the student wants to and it is of its shape; or afresh."""
        sample, held_out = plan.first_look(labels)
        student = msgspec.structs.replace(student, steps=plan.steps, batch=plan.batch)
        stretch = _Stretch.onto_unit(sample.contexts)
        shapes = list(pairwise((sample.contexts.shape[1], *student.hidden, sample.labels.shape[1])))
        layers, skipped, warm = _fresh(shapes, sample.labels.mean(axis=0), plan.key.child("layers")), 0, False
        if start is not None and student.warm is not None and [np.shape(weight) for weight, _ in start] == shapes:
            kept, skipped = _kept(start, layers, student, *held_out)
            layers, warm = stretch.enter(kept), True
        # Whole blocks, up to the last step.
        skipped -= skipped % plan.block_steps
        return cls(msgspec.structs.replace(student, steps=1), plan, layers, skipped, warm, stretch, held_out)

    def begin(self) -> _Run:
        """Before the first step."""
        run: _Run = _begin(self.student, self.layers, self.skipped, self._examples(self.held_out))
        return run

    def train(self, run: _Run, block: Labelled) -> _Run:
        """One step for each minibatch of a block, and a look at the held-out rows."""
        judged_on, examples = self._examples(self.held_out), self._examples(block)
        trained: _Run = _train_block(self.student, run, self.skipped, self.plan.steps, examples, judged_on)
        return trained

    def end(self, run: _Run) -> StreamedImitation:
        """What came out."""
        kl = float(run.loss) - float(entr(self.held_out.labels.astype(np.float64)).sum(axis=1).mean())
        if not np.isfinite(kl):
            raise FloatingPointError(f"imitation diverged; try a learning_rate below {self.student.learning_rate}")
        steps = int(run.step) - self.skipped
        return StreamedImitation(self.stretch.leave(run.best), *self.held_out, steps, max(kl, 0.0), self.warm)

    def _examples(self, rows: Labelled) -> _Examples:
        return _Examples(self.stretch(rows.contexts), rows.labels, len(rows.labels))


# ---- training, compiled


@partial(jax.jit, static_argnames="student")
def _begin(student: Student, layers: list[Layer], skipped: Array, held_out: _Examples) -> _Run:
    state = _optimiser(student, lambda taken: taken).init(layers)
    loss = _cross_entropy(student, layers, held_out).mean()
    return _Run(jnp.int32(skipped), layers, layers, state, layers, loss, jnp.int32(0))


@partial(jax.jit, static_argnames="student")
def _train_block(
    student: Student, run: _Run, skipped: Array, steps: Array, block: _Examples, held_out: _Examples
) -> _Run:
    """One step for each minibatch of a block, and a look at the held-out rows."""
    optimiser = _optimiser(student, lambda taken: _rate(student, skipped + taken, steps))
    gradient = jax.grad(lambda layers, batch: _cross_entropy(student, layers, batch).mean())

    def step(i: Array, run: _Run) -> _Run:
        part = partial(lax.dynamic_slice_in_dim, start_index=i * student.batch, slice_size=student.batch)
        batch = block._replace(contexts=part(block.contexts), labels=part(block.labels))
        change, state = optimiser.update(gradient(run.layers, batch), run.optimiser, run.layers)
        layers = optax.apply_updates(run.layers, change)
        average = optax.incremental_update(layers, run.average, 1 - student.average)
        return run._replace(step=run.step + 1, layers=layers, average=average, optimiser=state)

    run = lax.fori_loop(0, len(block.labels) // student.batch, step, run)
    loss = _cross_entropy(student, run.average, held_out).mean()
    better = (loss < run.loss) | (student.patience is None)
    best, loss = jax.tree.map(partial(jnp.where, better), (run.average, loss), (run.best, run.loss))
    return run._replace(best=best, loss=loss)


def _rate(student: Student, step: Array, steps: Array) -> Array:
    """The learning rate of a step, counted from 0, in a run of so many."""
    return student.learning_rate * (1 - step / steps) if student.decay == "linear" else learning_rate(student, step)


def _optimiser(student: Student, rate: optax.Schedule) -> optax.GradientTransformation:
    optimisers = {"muon": _muon, "adam": optax.adam, "rmsprop": optax.rmsprop}
    return optimisers[student.optimiser](rate)
