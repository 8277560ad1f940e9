"""Imitation by several students at a time: each learns from shards of its own, and round by round they are averaged.

A round is one shard for each student, from where the mean of them all was. Since a round is a map over shards, it is
placed by whatever maps; and how many students there are, not where they are, decides what comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from potstill.distill.imitate import _checked, _cross_entropy, _Examples, _Run
from potstill.distill.shard_order import Labelled, Labels, Plan
from potstill.distill.streamed import OnProgress, Prepared, StreamedImitation
from potstill.distill.student import Student
from potstill.keys import Key
from potstill.policy import Layer


def imitate_together(
    labels: Labels,
    student: Student,
    key: Key,
    students: int,
    each: Callable[..., Iterator[Any]],
    start: Sequence[Layer] | None = None,
    on_progress: OnProgress | None = None,
) -> StreamedImitation:
    """Train students on labels in shards, and average them after each round. Equal arguments give equal bits.

    Every context is seen at least once by one of the students, so that each takes a share of the steps that one alone
    would take.

    Args:
        labels: contexts and the teacher's labels; they have to be readable wherever `each` places work.
        student: the network and how to train it.
        key: decides the rows held out, the order of everything and the layers of a fresh start.
        students: how many there are.
        each: maps a function over items, in order: ``each(function, items, *common)``.
        start: layers of an earlier policy to go on from, if the student wants to and they are of its shape.
        on_progress: told how many contexts are done, of all that the steps take.
    """
    plan = _in_rounds(Plan.of(labels.rows, student, key), students)
    prepared = Prepared.to_train(labels, plan, student, start)
    run = prepared.begin()
    judged_on = _Examples(prepared.stretch(prepared.held_out.contexts), prepared.held_out.labels, 0)
    rounds, turns = (plan.steps - prepared.skipped) // plan.block_steps, _turns(plan)
    for done in range(1, rounds + 1):
        runs = list(each(train_on_shard, list(islice(turns, students)), labels, prepared, jax.device_get(run)))
        run = _averaged(prepared.student, run, runs, judged_on)
        if on_progress is not None:
            on_progress(done * plan.block_rows * students, rounds * plan.block_rows * students)
    return prepared.end(run)


class Turn(NamedTuple):
    """A shard, and how often all shards were taken before."""

    shard: int
    number: int


def train_on_shard(turn: Turn, labels: Labels, prepared: Prepared, run: _Run) -> _Run:
    """One student's share of a round: as many steps as the largest shard has minibatches."""
    plan = prepared.plan
    contexts, targets = _checked(*labels.read(turn.shard))
    rows = plan.key.child("turn", turn.number, turn.shard).generator().permutation(plan.to_train_on(turn.shard))
    rows = np.resize(rows, plan.block_rows)
    trained: _Run = jax.device_get(prepared.train(run, Labelled(contexts[rows], targets[rows])))
    return trained


def _in_rounds(plan: Plan, students: int) -> Plan:
    """The plan with a block for each turn, and only each student's share of the steps."""
    turn = -(-int(np.max(np.asarray(plan.rows) - plan.spared)) // plan.batch)
    rounds = -(-plan.steps // (turn * students))
    return plan._replace(block_steps=turn, steps=rounds * turn)


def _turns(plan: Plan) -> Iterator[Turn]:
    """Shards without end: pass after pass, each in an order of its own."""
    for number in count():
        for shard in plan.key.child("turns", number).generator().permutation(len(plan.rows)).tolist():
            yield Turn(shard, number)


@partial(jax.jit, static_argnames="student")
def _averaged(student: Student, before: _Run, runs: list[_Run], judged_on: _Examples) -> _Run:
    """The mean of several runs, judged anew."""
    mean: _Run = jax.tree.map(_mean, *runs)
    loss = _cross_entropy(student, mean.average, judged_on).mean()
    better = (loss < before.loss) | (student.patience is None)
    best, loss = jax.tree.map(partial(jnp.where, better), (mean.average, loss), (before.best, before.loss))
    return mean._replace(best=best, loss=loss)


def _mean(*values: Any) -> Array:
    """Of numbers the mean; counts are the same in all of them."""
    first = jnp.asarray(values[0])
    return first if jnp.issubdtype(first.dtype, jnp.integer) else jnp.mean(jnp.stack(values), axis=0)
