"""Imitation: a network learns to choose as its teacher does.

`benchmarks/imitation.py` compares recipes; these were found to matter. Muon, which lets no direction of a weight
matrix lag, leaves about half the divergence of Adam after half the steps, as long as steps and not contexts are
short. A learning rate that falls to zero linearly needs no warm-up. Passes in a new order each generalise better to
sharp posteriors than passes in one order. The running mean of the parameters improves so smoothly that training can
stop by it. An earlier policy is a better start than a fresh one even where it is far off, as long as all steps are
taken: on the wheel, where labels jump from update to update, fewer steps left three to seven times the divergence,
and a fresh start about twice as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.distill.network import Float32, Rescaling, constant_layer, random_layers
from potstill.distill.student import Student
from potstill.distill.train import Examples, Recipe, train
from potstill.keys import Key
from potstill.policy import Layer, outputs
from potstill.spaces import Learning

Rows = NDArray[np.int64]

#: Held-out rows beyond these would cost time and tell little.
HELD_OUT_AT_MOST = 4096
#: A start is close to its teacher if its divergence is at most this share of that of the mean label.
CLOSE = 0.5


class Imitation(NamedTuple):
    """A trained student.

    Attributes:
        layers: Layers of the network, for contexts as they were given.
        held_out: Rows that were never trained on, int64[H]; every row, if there were too few to spare any.
        steps: Number of steps that were taken.
        kl: KL(teacher ‖ student) in nats, the mean over the held-out rows.
        warm: Whether training started from an earlier policy.
    """

    layers: list[Layer]
    held_out: Rows
    steps: int
    kl: float
    warm: bool


class Imitated(Protocol):
    """A trained student, in memory or streamed: a named tuple."""

    @property
    def layers(self) -> list[Layer]:
        """Layers of the network."""

    @property
    def steps(self) -> int:
        """Number of steps that were taken."""

    @property
    def kl(self) -> float:
        """Its held-out divergence in nats."""

    @property
    def warm(self) -> bool:
        """Whether training started from an earlier policy."""


I = TypeVar("I", bound=Imitated)  # noqa: E741


def by_distance(
    train: Callable[[Student, Sequence[Layer] | None], I], student: Student, start: Sequence[Layer] | None
) -> I:
    """Train by KL and, if the student says so, from there on by Wasserstein distance."""
    if student.distance == "kl":
        return train(student, start)
    near = train(msgspec.structs.replace(student, distance="kl"), start)
    found = train(msgspec.structs.replace(student, warm=0.0), near.layers)
    both: I = cast(Any, found)._replace(steps=near.steps + found.steps, warm=near.warm)
    return both


def imitate(
    contexts: Float32,
    labels: Float32,
    student: Student,
    key: Key,
    start: Sequence[Layer] | None = None,
    *,
    learning: Learning,
    synthetic: Float32 | None = None,
    repeats: int = 1,
) -> Imitation:
    """Train a student on the labels of its teacher. On one machine, equal arguments give equal bits.

    Args:
        contexts: Encoded contexts in [0, 1], float32[N, d].
        labels: The teacher's label of each context, float32[N, L], followed by those of synthetic contexts.
        student: The network and how to train it.
        key: Decides the rows held out, the minibatches and the layers of a fresh start.
        start: Layers of an earlier policy to start from, if the student wants to and they have its shape.
        learning: Imitation on the action space.
        synthetic: Contexts that were never observed, float32[M, d], which belong to the last labels. They are trained
            on, and help to decide when to stop; the student is not measured on them.
        repeats: How often each context occurs: row i + j·n is the j-th time of context i of n. All rows of a context
            are held out, or none.
    """
    observed = len(contexts)
    if synthetic is not None:
        contexts = np.concatenate([contexts, synthetic])
    contexts, labels = checked(contexts, labels, learning)
    trained_on, judged, held_out = divided(observed, len(contexts), student, key, repeats)
    rescaling = rescaling_for(student, contexts[trained_on[:HELD_OUT_AT_MOST]])
    recipe = Recipe(student, learning)
    fresh = fresh_start(recipe, contexts.shape[1], labels[trained_on], key)
    layers, skipped, warm = first_layers(recipe, fresh, start, rescaling, contexts[judged], labels[judged])
    rescaled, room = rescaling(contexts), power_of_two(len(contexts))
    run = train(
        recipe,
        layers,
        skipped,
        Examples.padded(rescaled, labels, trained_on, room),
        Examples.padded(rescaled, labels, judged, min(room, HELD_OUT_AT_MOST)),
        minibatches(len(trained_on), student.steps, min(student.batch, room), key.child("minibatches")),
    )
    layers = rescaling.leave(run.best)
    kl = divergence(recipe, layers, contexts[held_out], labels[held_out])
    return Imitation(layers, held_out, int(run.step) - skipped, kl, warm)


def checked(contexts: Float32, labels: Float32, learning: Learning) -> tuple[Float32, Float32]:
    """Contexts and labels in float32; `ValueError` names a row that cannot be trained on."""
    contexts, labels = np.asarray(contexts, np.float32), np.asarray(labels, np.float32)
    if contexts.ndim != 2 or labels.ndim != 2 or len(contexts) != len(labels) or not labels.size:
        raise ValueError(
            "contexts must be [N, d] and labels [N, K], with one N and neither N nor K zero, "
            f"got {list(contexts.shape)} and {list(labels.shape)}"
        )
    _refuse("contexts", contexts, np.any(~np.isfinite(contexts), axis=1), "be finite: encode them with the problem")
    _refuse("labels", labels, *learning.check(labels))
    return contexts, labels


def split(n: int, share: float, key: Key) -> tuple[Rows, Rows]:
    """Of n rows those to train on and those to hold out, shuffled. Too few to spare two: all rows serve as both."""
    rows = key.generator().permutation(n)
    spared = min(int(share * n), HELD_OUT_AT_MOST)
    return (rows[spared:], rows[:spared]) if spared >= 2 else (rows, rows)


def _split_repeated(n: int, share: float, key: Key, repeats: int) -> tuple[Rows, Rows]:
    """`split` of contexts, as rows: of each part the first time of all contexts, then the second, and so on."""
    times = (n // repeats) * np.arange(repeats)[:, None]
    trained_on, held_out = split(n // repeats, share, key)
    return (trained_on + times).ravel(), (held_out + times).ravel()


def divided(observed: int, count: int, student: Student, key: Key, repeats: int = 1) -> tuple[Rows, Rows, Rows]:
    """Rows to train on, rows to stop by, and those of the latter to measure by, which are observed contexts.

    Args:
        observed: Number of observed contexts, which come first.
        count: Number of all contexts; the others are synthetic.
        student: Its `held_out` is the share of rows to stop by.
        key: The key of `imitate`.
        repeats: How often each context occurs.
    """
    trained_on, held_out = _split_repeated(observed, student.held_out, key.child("rows"), repeats)
    more, judged = _split_repeated(count - observed, student.held_out, key.child("synthetic rows"), repeats)
    return np.append(trained_on, observed + more), np.append(held_out, observed + judged), held_out


def fresh_start(recipe: Recipe, width: int, labels: Float32, key: Key) -> list[Layer]:
    """Random layers; the last of them gives every context the mean label, if the student wants that."""
    *hidden, last = pairwise((width, *recipe.student.hidden, recipe.learning.outputs))
    if recipe.student.first == "random":
        return random_layers([*hidden, last], key.child("layers"))
    constant = constant_layer(last[0], recipe.learning.start(labels))
    return [*random_layers(hidden, key.child("layers")), constant]


def rescaling_for(student: Student, contexts: Float32) -> Rescaling:
    """The rescaling of inputs, from a sample of the contexts to train on."""
    return Rescaling.onto_unit(contexts) if student.rescale else Rescaling.identity(contexts.shape[1])


def first_layers(
    recipe: Recipe,
    fresh: list[Layer],
    start: Sequence[Layer] | None,
    rescaling: Rescaling,
    contexts: Float32,
    labels: Float32,
) -> tuple[list[Layer], int, bool]:
    """Layers to train from, for rescaled contexts; the steps to skip; and whether they come from an earlier policy.

    Large steps would only disturb a start that is close to the labels. A start that does worse than the mean label
    has more to unlearn than to keep: its hidden layers, which took longest to learn, stay, and its last layer goes.
    """
    student = recipe.student
    if start is None or student.warm is None or _shapes(start) != _shapes(fresh):
        return fresh, 0, False
    off = _mean_divergence(recipe, start, contexts, labels)
    mean_off = _mean_divergence(recipe, fresh, contexts, labels)
    if off > mean_off and student.first == "mean":
        return rescaling.enter([*start[:-1], fresh[-1]]), 0, True
    return rescaling.enter(start), int(student.warm * student.steps) if off <= CLOSE * mean_off else 0, True


def divergence(recipe: Recipe, layers: Sequence[Layer], contexts: Float32, labels: Float32) -> float:
    """KL(teacher ‖ student) in nats, the mean over rows; `FloatingPointError` if training diverged."""
    kl = _mean_divergence(recipe, layers, contexts, labels)
    if not np.isfinite(kl):
        raise FloatingPointError(f"imitation diverged; try a learning_rate below {recipe.student.learning_rate}")
    return max(kl, 0.0)


def _mean_divergence(recipe: Recipe, layers: Sequence[Layer], contexts: Float32, labels: Float32) -> float:
    return float(recipe.learning.divergence(outputs(layers, recipe.student.activation, contexts), labels).mean())


def _shapes(layers: Sequence[Layer]) -> list[tuple[int, ...]]:
    return [np.shape(weight) for weight, _ in layers]


def _refuse(name: str, values: Float32, wrong: NDArray[np.bool_], must: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{name}[{row}] must {must}; got {np.array2string(values[row], threshold=8)}")


def minibatches(n: int, steps: int, size: int, key: Key) -> NDArray[np.int32]:
    """The rows of each step, int32[steps, size]: pass after pass over all n, each in an order of its own."""
    passes = np.tile(np.arange(n, dtype=np.int32), (-(-steps * size // n), 1))
    key.generator().permuted(passes, axis=1, out=passes)
    return passes.ravel()[: steps * size].reshape(steps, size)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
