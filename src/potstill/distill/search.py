"""Search for a student: successive halving over networks, with more steps each round, on an update's own labels.

A student is trained by the loop of streamed imitation, in rounds of 50 steps, after each of which the clock is looked
at. The number of steps is no part of that program, so that a network is compiled once for all its step counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice, pairwise
from typing import Generic, NamedTuple

import msgspec
import numpy as np

from potstill.distill.choice import ChoiceReport, StudentChoice, TriedStudent, smallest_within
from potstill.distill.imitate import (
    HELD_OUT_AT_MOST,
    I,
    divergence,
    divided,
    fresh_start,
    minibatches,
    rescaling_for,
)
from potstill.distill.network import Float32, Rescaling
from potstill.distill.shard_order import Labelled, Labels, ShardOrder
from potstill.distill.student import AutoStudent, Student
from potstill.distill.train import ROUND, Examples, Recipe, begin, train_block
from potstill.keys import Key
from potstill.policy import Layer, Policy
from potstill.problem import Problem
from potstill.spaces import Learning

#: Rows of streamed labels to search on, at most.
STREAMED_ROWS = 65_536
#: Decisions to time, after `WARM_UP` others.
TIMED = 300
WARM_UP = 50

Clock = Callable[[], float]


class SearchRows(NamedTuple):
    """Rows to train on, rows to stop by, and rows to compare students by."""

    trained_on: Labelled
    judged: Labelled
    held_out: Labelled

    @classmethod
    def in_memory(
        cls, contexts: Float32, synthetic: Float32, labels: Float32, student: Student, key: Key, repeats: int = 1
    ) -> SearchRows:
        """The same rows for each purpose as in `imitate`. Labels are of the contexts, then of synthetic ones."""
        together = np.concatenate([contexts, synthetic])
        parts = divided(len(contexts), len(together), student, key, repeats)
        return cls(*(Labelled(together[rows], labels[rows]) for rows in parts))

    @classmethod
    def streamed(cls, labels: Labels, student: Student, learning: Learning, key: Key) -> SearchRows:
        """The rows that streamed imitation holds out, and the first that it would train on."""
        order = ShardOrder.of(labels.rows, student, learning, key)
        _, held_out = order.first_look(labels)
        count = max(min(STREAMED_ROWS, sum(labels.rows)) // order.block_rows, 1)
        blocks = list(islice(order.blocks(labels), count))
        trained_on = Labelled(*(np.concatenate(arrays) for arrays in zip(*blocks, strict=True)))
        return cls(trained_on, held_out, held_out)


class Chosen(NamedTuple, Generic[I]):
    """A trained student, and how it was chosen.

    Attributes:
        imitated: The trained student.
        choice: The choice.
        why: Why it was made or kept.
        seconds: Duration of the search.
    """

    imitated: I
    choice: StudentChoice
    why: str
    seconds: float


def choose_student(
    auto: AutoStudent,
    earlier: StudentChoice | None,
    train: Callable[[Student], I],
    searching: Callable[[], Search],
    version: int,
) -> Chosen[I]:
    """Train the student of an earlier choice if it is still good, and otherwise one that is searched for.

    Args:
        auto: Settings.
        earlier: The choice of an earlier update, if any.
        train: Trains a student.
        searching: The search, in case it is needed.
        version: Version of the new policy.
    """
    why, kept = "there is no earlier choice with these settings", None
    if earlier is not None:
        kept = train(auto.student(earlier.hidden, earlier.steps))
        limit = (
            f"{auto.again:g} × {earlier.kl:.2g} + {auto.negligible:g}, from the search for version {earlier.version}"
        )
        if earlier.still_good(kept.kl):
            why = f"its held-out KL of {kept.kl:.2g} nats is not above {limit}"
            return Chosen(kept, earlier, why, 0.0)
        why = f"the held-out KL of the earlier choice, {kept.kl:.2g} nats, is above {limit}"
    began = time.perf_counter()
    tried = searching().run()
    took = time.perf_counter() - began
    best = smallest_within(tried, auto)
    if kept is None or earlier is None or (best.hidden, best.steps) != (earlier.hidden, earlier.steps):
        kept = train(auto.student(best.hidden, best.steps))
    choice = StudentChoice(auto=auto, version=version, kl=kept.kl, hidden=best.hidden, steps=best.steps, tried=tried)
    return Chosen(kept, choice, why, took)


class Search(NamedTuple):
    """A search on the labels of one update.

    Attributes:
        auto: Settings.
        problem: The problem.
        learning: Imitation on its action space.
        rows: Rows to train on and to compare by.
        key: Key of the imitation that follows: students start from the same layers and see the same minibatches.
        clock: Seconds from any moment.
    """

    auto: AutoStudent
    problem: Problem
    learning: Learning
    rows: SearchRows
    key: Key
    clock: Clock = time.monotonic

    def run(self) -> list[TriedStudent]:
        """Students that were tried within the budget, the lowest divergence first; the base is always among them."""
        auto = self.auto
        deadline = self.clock() + auto.budget_seconds
        base = self._try(auto.base.hidden, auto.base.steps, None)
        if base is None:
            raise FloatingPointError(f"imitation diverged; try a learning_rate below {auto.base.learning_rate}")
        tried = {(base.hidden, base.steps): base}
        networks = sorted(set(auto.networks), key=self._weights)
        for steps in auto.step_counts:
            for hidden in networks:
                if (hidden, steps) not in tried and (found := self._try(hidden, steps, deadline)) is not None:
                    tried[hidden, steps] = found
                if self.clock() >= deadline:
                    return _ranked(tried)
            left = _ranked(
                {place: one for place, one in tried.items() if one.steps == steps and one.hidden in networks}
            )
            networks = [one.hidden for one in left[: -(-len(networks) // 2)]]
        return _ranked(tried)

    def _try(self, hidden: tuple[int, ...], steps: int, deadline: float | None) -> TriedStudent | None:
        """Train a student; None if it diverged or the deadline has passed before its last step."""
        layers = self._trained(self.auto.student(hidden, steps), deadline)
        if layers is None:
            return None
        recipe = Recipe(self.auto.base, self.learning)
        try:
            kl = divergence(recipe, layers, *self.rows.held_out)
        except FloatingPointError:
            return None
        base, contexts = self.auto.base, self.rows.held_out.contexts[:, : self.problem.width]
        policy = Policy.build(self.problem, layers, version=0, activation=base.activation, masked=base.masked)
        took = decision_microseconds(policy, np.ascontiguousarray(contexts))
        return TriedStudent(hidden=hidden, steps=steps, kl=kl, bytes=4 * self._weights(hidden), microseconds=took)

    def _trained(self, student: Student, deadline: float | None) -> list[Layer] | None:
        rows, count = self.rows.trained_on, len(self.rows.trained_on.labels)
        rescaling = rescaling_for(student, rows.contexts[:HELD_OUT_AT_MOST])
        size = min(student.batch, count)
        recipe = Recipe(_for_any_steps(student, size), self.learning)
        judged = _examples(rescaling, self.rows.judged)
        start = fresh_start(recipe, rows.contexts.shape[1], rows.labels, self.key)
        run = begin(recipe, start, 0, judged)
        picked = minibatches(count, student.steps, size, self.key.child("minibatches"))
        for first in range(0, student.steps, ROUND):
            block = picked[first : first + ROUND].ravel()
            examples = _examples(rescaling, Labelled(*(array[block] for array in rows)))
            run = train_block(recipe, run, 0, student.steps, examples, judged)
            if student.patience is not None and int(run.stale) >= student.patience:
                break
            if deadline is not None and self.clock() >= deadline:
                return None
        return rescaling.leave(run.best)

    def _weights(self, hidden: tuple[int, ...]) -> int:
        """Number of weights and biases of a network."""
        widths = (self.rows.held_out.contexts.shape[1], *hidden, self.learning.outputs)
        return sum((n + 1) * m for n, m in pairwise(widths))


def choice_report(chosen: Chosen[I], policy: Policy, contexts: Float32) -> ChoiceReport:
    """The report of a choice, with the size and speed of the policy that was made by it."""
    choice = chosen.choice
    return ChoiceReport(
        searched=choice.version == policy.version,
        why=chosen.why,
        version=choice.version,
        hidden=choice.hidden,
        steps=choice.steps,
        file_bytes=len(policy.to_bytes()),
        microseconds=decision_microseconds(policy, contexts),
        tried=choice.tried,
        seconds=chosen.seconds,
    )


def decision_microseconds(policy: Policy, contexts: Float32) -> float:
    """Median microseconds of one decision from an encoded context float32[d], one at a time."""
    rows, taken = list(contexts[: TIMED + WARM_UP]), []
    for number in range(TIMED + WARM_UP):
        context, identity = rows[number % len(rows)], f"request-{number}"
        before = time.perf_counter_ns()
        policy.decide(context, id=identity)
        taken.append(time.perf_counter_ns() - before)
    return float(np.median(taken[WARM_UP:])) / 1000


def _for_any_steps(student: Student, batch: int) -> Student:
    """A student of one compiled program for all numbers of steps."""
    return msgspec.structs.replace(student, steps=1, batch=batch)


def _examples(rescaling: Rescaling, rows: Labelled) -> Examples:
    return Examples(rescaling(rows.contexts), rows.labels, len(rows.labels))


def _ranked(tried: dict[tuple[tuple[int, ...], int], TriedStudent]) -> list[TriedStudent]:
    return sorted(tried.values(), key=lambda one: (one.kl, one.bytes, one.steps))
