"""Imitation of more labels than memory holds: they come in shards, and go through one compiled program in blocks.

The recipe is that of `imitate`, with more steps: every context is seen at least once, and the learning rate falls to
zero over all of them. Memory does not depend on the number of contexts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from potstill.distill.imitate import divergence, first_layers, fresh_start, rescaling_for
from potstill.distill.network import Float32, Rescaling
from potstill.distill.shard_order import Labelled, Labels, ShardOrder
from potstill.distill.student import Student
from potstill.distill.train import Examples, Recipe, Run, begin, train_block
from potstill.keys import Key
from potstill.policy import Layer
from potstill.spaces import Learning
from potstill.teachers import AnyTeacher

#: Called with the number of contexts done, and of all.
OnProgress = Callable[[int, int], None]


@runtime_checkable
class UnlabelledContexts(Protocol):
    """Contexts that are labelled where they are, since memory does not hold them."""

    @property
    def students(self) -> int:
        """Number of students trained at a time, on shards of their own, and averaged; usually one."""

    def label(
        self,
        teacher: AnyTeacher,
        state: Any,
        observed: Float32,
        key: Key,
        on_progress: OnProgress | None,
        *,
        masked: bool = False,
    ) -> Labels:
        """Label them, and the observed contexts float32[N, d] too; under random masks if `masked`."""


class StreamedImitation(NamedTuple):
    """A trained student.

    Attributes:
        layers: Layers of the network, for contexts as they were given.
        contexts: Contexts that were never trained on, float32[H, d]; a few rows of each shard, if there were too few
            to spare any.
        labels: Their labels, float32[H, L].
        steps: Number of steps that were taken.
        kl: KL(teacher ‖ student) in nats, the mean over the held-out contexts.
        warm: Whether training started from an earlier policy.
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
    *,
    learning: Learning,
) -> StreamedImitation:
    """Train a student on labels in shards. On one machine, equal arguments give equal bits.

    There are `student.steps` steps or as many as one pass over all contexts needs, whichever is more. All of them are
    taken: patience is for few contexts, and here the last steps, which are the smallest, bring the most.

    Args:
        labels: Contexts and the teacher's labels.
        student: The network and how to train it.
        key: Decides the rows held out, the order of everything and the layers of a fresh start.
        start: Layers of an earlier policy to start from, if the student wants to and they have its shape.
        on_progress: Called with the number of contexts done, and of all that the steps take.
        learning: Imitation on the action space.
    """
    order = ShardOrder.of(labels.rows, student, learning, key)
    prepared = PreparedRun.of(labels, order, Recipe(student, learning), start)
    run, blocks = prepared.begin(), (order.steps - prepared.skipped) // order.block_steps
    for done, block in zip(range(1, blocks + 1), order.blocks(labels), strict=False):
        last, run = run, prepared.train(run, block)
        last.step.block_until_ready()  # the next block is made ready while this one is trained on
        if on_progress is not None:
            on_progress(done * order.block_rows, blocks * order.block_rows)
    return prepared.end(run)


class PreparedRun(NamedTuple):
    """All that training needs beside the rows.

    Attributes:
        recipe: Student and loss. The student's number of steps is no part of a compiled program, so that similar runs
            share one.
        order: Which rows, and how many steps.
        layers: Layers to start from, for rescaled contexts.
        skipped: Steps that a start which is close to the labels is worth.
        warm: Whether there is an earlier policy.
        rescaling: Of contexts.
        held_out: Rows that are never trained on.
    """

    recipe: Recipe
    order: ShardOrder
    layers: list[Layer]
    skipped: int
    warm: bool
    rescaling: Rescaling
    held_out: Labelled

    @classmethod
    def of(cls, labels: Labels, order: ShardOrder, recipe: Recipe, start: Sequence[Layer] | None) -> PreparedRun:
        """From an earlier policy, if the student wants to and it has its shape; otherwise from a fresh start."""
        sample, held_out = order.first_look(labels)
        student = msgspec.structs.replace(recipe.student, steps=order.steps, batch=order.batch)
        recipe = recipe._replace(student=student)
        rescaling = rescaling_for(student, sample.contexts)
        fresh = fresh_start(recipe, sample.contexts.shape[1], sample.labels, order.key)
        layers, skipped, warm = first_layers(recipe, fresh, start, rescaling, *held_out)
        # Whole blocks, up to the last step.
        skipped -= skipped % order.block_steps
        recipe = recipe._replace(student=msgspec.structs.replace(student, steps=1))
        return cls(recipe, order, layers, skipped, warm, rescaling, held_out)

    def begin(self) -> Run:
        """A run before its first step."""
        run: Run = begin(self.recipe, self.layers, self.skipped, self.examples(self.held_out))
        return run

    def train(self, run: Run, block: Labelled) -> Run:
        """One step for each minibatch of a block, and a look at the held-out rows."""
        held_out, examples = self.examples(self.held_out), self.examples(block)
        trained: Run = train_block(self.recipe, run, self.skipped, self.order.steps, examples, held_out)
        return trained

    def end(self, run: Run) -> StreamedImitation:
        """The student with the smallest held-out loss."""
        layers, steps = self.rescaling.leave(run.best), int(run.step) - self.skipped
        kl = divergence(self.recipe, layers, *self.held_out)
        return StreamedImitation(layers, *self.held_out, steps, kl, self.warm)

    def examples(self, rows: Labelled) -> Examples:
        """Rows as the training loop takes them."""
        return Examples(self.rescaling(rows.contexts), rows.labels, len(rows.labels))
