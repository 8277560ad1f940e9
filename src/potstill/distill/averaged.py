"""Imitation by several students at a time: each learns from shards of its own, and they are averaged each round.

A round is one shard for each student, starting from the mean of all. It is a map over shards, placed by the caller's
map; the number of students, not where they run, decides the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count, islice
from typing import Any, NamedTuple

import jax
import numpy as np

from potstill.distill.imitate import checked
from potstill.distill.shard_order import Labelled, Labels, ShardOrder
from potstill.distill.streamed import OnProgress, PreparedRun, StreamedImitation
from potstill.distill.student import Student
from potstill.distill.train import Recipe, Run, merge
from potstill.keys import Key
from potstill.policy import Layer
from potstill.spaces import Learning


def imitate_averaged(
    labels: Labels,
    student: Student,
    key: Key,
    students: int,
    each: Callable[..., Iterator[Any]],
    start: Sequence[Layer] | None = None,
    on_progress: OnProgress | None = None,
    *,
    learning: Learning,
) -> StreamedImitation:
    """Train students on labels in shards, and average them after each round. Equal arguments give equal bits.

    Every context is seen at least once by one of the students, so that each takes a share of the steps that one alone
    would take.

    Args:
        labels: Contexts and the teacher's labels; they have to be readable wherever `each` places work.
        student: The network and how to train it.
        key: Decides the rows held out, the order of everything and the layers of a fresh start.
        students: Number of students.
        each: Maps a function over items, in order: ``each(function, items, *common)``.
        start: Layers of an earlier policy to start from, if the student wants to and they have its shape.
        on_progress: Called with the number of contexts done, and of all that the steps take.
        learning: Imitation on the action space.
    """
    order = _in_rounds(ShardOrder.of(labels.rows, student, learning, key), students)
    prepared = PreparedRun.of(labels, order, Recipe(student, learning), start)
    run, held_out = prepared.begin(), prepared.examples(prepared.held_out)
    rounds, turns = (order.steps - prepared.skipped) // order.block_steps, _turns(order)
    for done in range(1, rounds + 1):
        runs = list(each(train_on_shard, list(islice(turns, students)), labels, prepared, jax.device_get(run)))
        run = merge(prepared.recipe, run, runs, held_out)
        if on_progress is not None:
            on_progress(done * order.block_rows * students, rounds * order.block_rows * students)
    return prepared.end(run)


class ShardPass(NamedTuple):
    """A shard, and the number of passes over all shards before."""

    shard: int
    number: int


def train_on_shard(turn: ShardPass, labels: Labels, prepared: PreparedRun, run: Run) -> Run:
    """One student's share of a round: as many steps as the largest shard has minibatches."""
    order = prepared.order
    contexts, targets = checked(*labels.read(turn.shard), prepared.recipe.learning)
    rows = order.key.child("turn", turn.number, turn.shard).generator().permutation(order.to_train_on(turn.shard))
    rows = np.resize(rows, order.block_rows)
    trained: Run = jax.device_get(prepared.train(run, Labelled(contexts[rows], targets[rows])))
    return trained


def _in_rounds(order: ShardOrder, students: int) -> ShardOrder:
    """The order with a block for each shard, and only each student's share of the steps."""
    turn = -(-int(np.max(np.asarray(order.rows) - order.spared)) // order.batch)
    rounds = -(-order.steps // (turn * students))
    return order._replace(block_steps=turn, steps=rounds * turn)


def _turns(order: ShardOrder) -> Iterator[ShardPass]:
    """Shards without end: pass after pass, each in an order of its own."""
    for number in count():
        for shard in order.key.child("turns", number).generator().permutation(len(order.rows)).tolist():
            yield ShardPass(shard, number)
