"""A student of two towers, for catalogues: one network for contexts, and one that makes each item's output column.

The item tower takes an item's encoded features, and mean and standard deviation of its effect. Both are trained
together on the teacher's labels, as one softmax over items. Then the item tower is evaluated once for every item, and
the result is an ordinary output layer. New items get theirs from the tower, without a distillation.

A tower that had seen only items with observations would know nothing of new ones. So some labels also rate *newcomers*:
items without observations, whose features are mixed from those of two items. A label row states which it rates.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from itertools import islice, pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.distill.imitate import (
    CLOSE,
    HELD_OUT_AT_MOST,
    checked,
    divided,
    minibatches,
    power_of_two,
    rescaling_for,
)
from potstill.distill.network import Float32, Rescaling, as_layer, random_layers
from potstill.distill.student import AutoStudent, Student
from potstill.distill.train import Examples, Recipe, train
from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.policy import NEW_ITEM, Layer, Policy, Tower, inputs_of, outputs
from potstill.problem import Problem
from potstill.spaces import ActionSpace, Catalog, MaskedLearning
from potstill.teachers import AnyTeacher, ItemEffects, PerAction, labels_masks

#: Units of the hidden layers of the item tower.
HIDDEN = (64,)
#: Newcomers: a share of the items, within these limits; and the share of rows that rate none of them.
_SHARE, _FEWEST, _MOST = 1 / 4, 8, 128
_WITHOUT = 0.5
#: Most numbers in all labels: bounds memory where there are many items.
_NUMBERS = 1 << 25


def has_towers(teacher: AnyTeacher, space: ActionSpace) -> bool:
    """Whether a student of two towers imitates this teacher: it knows items by their features and effects."""
    knows = isinstance(teacher, ItemEffects) and isinstance(teacher, PerAction) and labels_masks(teacher)
    return knows and isinstance(space, Catalog)


def check_towers(student: Student | AutoStudent | None, teacher: AnyTeacher, space: ActionSpace) -> None:
    """Reject options that a student of two towers does not have."""
    if student is None or not has_towers(teacher, space):
        return
    why = None
    if isinstance(student, AutoStudent):
        why = "is not searched for: leave out `auto`, and state `hidden` and `steps`"
    elif student.masked:
        why = "takes no masks: use masked=False"
    elif not student.hidden:
        why = "needs a hidden layer: state `hidden`, such as (100, 100)"
    if why is not None:
        raise InvalidOption(f"the student of {type(teacher).__name__} on a catalogue has two towers, and {why}")


class Rated(NamedTuple):
    """The items that labels rate: those of the catalogue, and newcomers behind them.

    Attributes:
        problem: The problem with newcomers in its catalogue.
        state: The teacher's state for it.
        learning: Imitation of its labels.
        inputs: Inputs of the item tower, float32[K + G, e + 2].
        known: Number of items of the catalogue, K.
    """

    problem: Problem
    state: Any
    learning: NewcomersLearning
    inputs: Float32
    known: int


class NewcomersLearning(MaskedLearning, frozen=True):
    """Labels among the items of the catalogue, and among these and some newcomers; each row states which.

    Attributes:
        newcomers: Number of newcomers, which are the last items.
    """

    newcomers: int = 0

    def label(self, teacher: Any, state: Any, contexts: Float32, key: Key) -> Float32:
        """The teacher's propensities; -1 for what a row does not rate."""
        rng, rows = key.child("newcomers").generator(), len(contexts)
        come = rng.random((rows, self.newcomers), dtype=np.float32) < rng.random((rows, 1), dtype=np.float32)
        come[rng.random(rows) < _WITHOUT] = False
        known = np.ones(self.outputs - self.newcomers, bool) if self.chosen is None else np.array(self.chosen)
        rated = np.concatenate([np.broadcast_to(known, (rows, len(known))), come], axis=1)
        return np.where(rated, teacher.propensities(state, contexts, key, rated), np.float32(-1))


def rated(problem: Problem, teacher: Any, state: Any, key: Key) -> Rated:
    """The items to rate, and what is known of them."""
    space: Any = problem.actions
    wider = _with_newcomers(space, key)
    extended = msgspec.structs.replace(problem, actions=wider)
    known = teacher.with_actions(state, problem, extended, {})
    chosen = tuple(space.chosen.tolist()) if space.retired else None
    learning = NewcomersLearning(len(wider), chosen=chosen, newcomers=len(wider) - len(space))
    inputs = inputs_of(wider.encoded, teacher.item_effects(known))
    return Rated(extended, known, learning, inputs, len(space))


def _with_newcomers(space: Catalog, key: Key) -> Catalog:
    """A catalogue with new items, each feature of which is that of either of two items."""
    rng, count = key.generator(), int(np.clip(_SHARE * len(space), _FEWEST, _MOST))
    names, taken = [feature.name for feature in space.features], set(space.names)
    one, other = rng.integers(len(space), size=(2, count, 1))
    parents = np.where(rng.random((count, len(names))) < 0.5, one, other).tolist()
    ids = islice((name for name in map("newcomer {}".format, itertools.count()) if name not in taken), count)
    items = [
        {"id": new} | {name: space.items[parent].get(name) for name, parent in zip(names, row, strict=True)}
        for new, row in zip(ids, parents, strict=True)
    ]
    return Catalog(features=space.features, items=[*space.items, *items], retired=space.retired)


def at_most(contexts: Float32, items: int, key: Key) -> Float32:
    """A random part of contexts of which labels fit into memory, in their order."""
    most = max(_NUMBERS // items, HELD_OUT_AT_MOST // 4)
    if len(contexts) <= most:
        return contexts
    return contexts[np.sort(key.generator().choice(len(contexts), most, replace=False))]


class TowersImitation(NamedTuple):
    """A trained student of two towers.

    Attributes:
        layers: Layers of the network, for contexts as they were given, with a column for each item.
        tower: The item tower.
        held_out: Rows that were never trained on, int64[H].
        steps: Number of steps that were taken.
        kl: KL(teacher ‖ student) in nats, the mean over the held-out rows.
        warm: Whether training started from an earlier policy.
    """

    layers: list[Layer]
    tower: Tower
    held_out: NDArray[np.int64]
    steps: int
    kl: float
    warm: bool


def imitate_towers(
    contexts: Float32, labels: Float32, student: Student, key: Key, items: Rated, start: Policy | None, observed: int
) -> TowersImitation:
    """Train both towers on the labels of a teacher. On one machine, equal arguments give equal bits.

    Args:
        contexts: Encoded contexts, float32[N, d].
        labels: The teacher's label of each context, float32[N, K + G].
        student: The context tower, and how to train both.
        key: Decides the rows held out, the minibatches and the layers of a fresh start.
        items: The items that labels rate.
        start: An earlier policy to start from, if it has towers of these shapes.
        observed: Number of observed contexts, which come first; the others are synthetic.
    """
    contexts, labels = checked(contexts, labels, items.learning)
    trained_on, judged, held_out = divided(observed, len(contexts), student, key)
    towers = _Towers(student, rescaling_for(student, contexts[trained_on]), Rescaling.onto_unit(items.inputs))
    recipe = Recipe(student, items.learning, tower=len(HIDDEN) + 1)
    fresh = towers.fresh(contexts.shape[1], items.inputs.shape[1], key.child("layers"))

    def divergence(layers: Sequence[Layer], rows: NDArray[np.int64]) -> float:
        found = outputs(towers.merged(layers, items.inputs), student.activation, contexts[rows])
        return float(items.learning.divergence(found, labels[rows]).mean())

    layers, skipped, warm = fresh, 0, False
    if student.warm is not None and (earlier := towers.of(start, fresh)) is not None:
        off, mean_off = divergence(earlier, judged), divergence(fresh, judged)
        if off < mean_off:
            layers, warm = earlier, True
            skipped = int(student.warm * student.steps) if off <= CLOSE * mean_off else 0
    rescaled, room = towers.contexts(contexts), power_of_two(len(contexts))
    inputs = towers.items(items.inputs)
    run = train(
        recipe,
        layers,
        skipped,
        Examples.padded(rescaled, labels, trained_on, room, inputs),
        Examples.padded(rescaled, labels, judged, min(room, HELD_OUT_AT_MOST), inputs),
        minibatches(len(trained_on), student.steps, min(student.batch, room), key.child("minibatches")),
    )
    best = [as_layer(*layer) for layer in run.best]
    kl = divergence(best, held_out)
    if not np.isfinite(kl):
        raise FloatingPointError(f"imitation diverged; try a learning_rate below {student.learning_rate}")
    tower = Tower(towers.items.leave(best[-recipe.tower :]), items.inputs[: items.known, -len(NEW_ITEM) :])
    encoded = items.inputs[: items.known, : -len(NEW_ITEM)]
    hidden = towers.contexts.leave(best[: -recipe.tower])
    found = [*hidden, tower.columns(encoded, student.activation)]
    return TowersImitation(found, tower, held_out, int(run.step) - skipped, max(kl, 0.0), warm)


class _Towers(NamedTuple):
    """Layers of both towers in one list, the item tower's last, for rescaled inputs."""

    student: Student
    contexts: Rescaling
    items: Rescaling

    def fresh(self, width: int, inputs: int, key: Key) -> list[Layer]:
        """Random layers; the last one gives every item the same score, if the student wants that."""
        hidden = list(pairwise((width, *self.student.hidden)))
        *tower, last = pairwise((inputs, *HIDDEN, self.student.hidden[-1] + 1))
        if self.student.first == "random":
            return random_layers([*hidden, *tower, last], key)
        return [*random_layers([*hidden, *tower], key), as_layer(np.zeros(last), np.zeros(last[1]))]

    def of(self, policy: Policy | None, fresh: Sequence[Layer]) -> list[Layer] | None:
        """Layers of a policy's towers; None if it has none of these shapes."""
        if policy is None or policy.tower is None:
            return None
        layers = [*self.contexts.enter(policy.layers[:-1]), *self.items.enter(policy.tower.layers)]
        layers = [as_layer(*layer) for layer in layers]
        shapes = ([np.shape(weight) for weight, _ in some] for some in (layers, fresh))
        return layers if len({*map(tuple, shapes)}) == 1 else None

    def merged(self, layers: Sequence[Layer], inputs: Float32) -> list[Layer]:
        """An ordinary network for plain contexts, with a column for each row of the item tower's plain inputs."""
        depth = len(HIDDEN) + 1
        found = outputs(layers[-depth:], self.student.activation, self.items(inputs)).astype(np.float32)
        return [*self.contexts.leave(layers[:-depth]), as_layer(found[:, :-1].T, found[:, -1])]
