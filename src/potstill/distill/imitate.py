"""Imitation: a network learns to choose as its teacher does, in one compiled loop.

The loss is KL(teacher ‖ student). `benchmarks/imitation.py` compares recipes; these were found to matter. Muon, which
lets no direction of a weight matrix lag, leaves about half the divergence of Adam after half the steps, as long as it
is steps that are short and not contexts. A learning rate that falls to zero in a straight line needs no warm-up. Passes
that are shuffled anew generalise better to sharp posteriors than passes in one order. The running mean of the
parameters improves so smoothly that one can stop by it. And an earlier policy is worth going on from even where it is
far off, as long as all the steps are taken: on the wheel, where labels jump from update to update, fewer steps left
three to seven times the divergence, and a fresh start about twice as much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from numpy.typing import NDArray
from scipy.special import entr, log_softmax

from potstill.distill.student import Student
from potstill.keys import Key
from potstill.policy import Layer
from potstill.policy.network import outputs

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]
Rows = NDArray[np.int64]

#: Steps between two looks at the held-out rows; a look costs about as much as three steps.
ROUND = 50
#: Held-out rows beyond these would cost time and tell little.
HELD_OUT_AT_MOST = 4096
#: A feature whose usual range is narrower than this is taken for a constant.
NARROWEST = 1e-3
#: How far a row of labels may be from summing to 1: more than float32 rounding, less than any honest mistake.
SUM_TOLERANCE = 1e-3
#: A start is close to its teacher if it is off by no more than this share of what the mean label is off by.
CLOSE = 0.5
#: The least that a fresh student gives to an action that no label favours.
RAREST = 1e-4

_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu}


class Imitation(NamedTuple):
    """A trained student.

    Attributes:
        layers: of the network, for contexts as they were given.
        held_out: int64[H], rows that were never trained on; every row, if there were too few to spare any.
        steps: that were taken.
        kl: KL(teacher ‖ student) in nats, the mean over the held-out rows.
        warm: whether it went on from an earlier policy.
    """

    layers: list[Layer]
    held_out: Rows
    steps: int
    kl: float
    warm: bool


def imitate(
    contexts: Float32,
    labels: Float32,
    student: Student,
    key: Key,
    start: Sequence[Layer] | None = None,
    *,
    synthetic: Float32 | None = None,
) -> Imitation:
    """Train a student on the propensities of its teacher. On one machine, equal arguments give equal bits.

    Args:
        contexts: float32[N, d], encoded in [0, 1].
        labels: float32[N, K], the teacher's probability of each action in each context; then those of synthetic ones.
        student: the network and how to train it.
        key: decides the rows held out, the minibatches and the layers of a fresh start.
        start: layers of an earlier policy to go on from, if the student wants to and they are of its shape.
        synthetic: contexts that were never seen, float32[M, d], with the last labels. They are trained on, and help to
            decide when to stop; the student is not measured on them.
    """
    seen = len(contexts)
    if synthetic is not None:
        contexts = np.concatenate([contexts, synthetic])
    contexts, labels = _checked(contexts, labels)
    trained_on, held_out = split(seen, student.held_out, key.child("rows"))
    more, judged = split(len(contexts) - seen, student.held_out, key.child("synthetic rows"))
    trained_on, judged = np.append(trained_on, seen + more), np.append(held_out, seen + judged)
    stretch = _Stretch.onto_unit(contexts[trained_on[:HELD_OUT_AT_MOST]])
    shapes = list(pairwise((contexts.shape[1], *student.hidden, labels.shape[1])))
    layers, skipped, warm = _fresh(shapes, labels[trained_on].mean(axis=0), key.child("layers")), 0, False
    if start is not None and student.warm is not None and [np.shape(weight) for weight, _ in start] == shapes:
        kept, skipped = _kept(start, layers, student, contexts[judged], labels[judged])
        layers, warm = stretch.enter(kept), True
    stretched, room = stretch(contexts), _power_of_two(len(contexts))
    run = _train(
        student,
        layers,
        skipped,
        _Examples.padded(stretched, labels, trained_on, room),
        _Examples.padded(stretched, labels, judged, min(room, HELD_OUT_AT_MOST)),
        _minibatches(len(trained_on), student.steps, min(student.batch, room), key.child("minibatches")),
    )
    layers = stretch.leave(run.best)
    kl = _divergence(outputs(layers, student.activation, contexts[held_out]), labels[held_out])
    if not np.isfinite(kl):
        raise FloatingPointError(f"imitation diverged; try a learning_rate below {student.learning_rate}")
    return Imitation(layers, held_out, int(run.step) - skipped, max(kl, 0.0), warm)


def compilations() -> int:
    """How many training programs this process has compiled: one per student, d, K, and power of two above N."""
    count: int = _train._cache_size()  # type: ignore[attr-defined]
    return count


def learning_rate(student: Student, step: Array) -> Array:
    """The learning rate of a step, counted from 0."""
    if student.decay == "linear":
        return student.learning_rate * (1 - step / student.steps)
    return student.learning_rate / (1 + 0.05 * (step // 100))  # the paper's: rate 0.05, every 100 minibatches


# ---- before training, in NumPy


def _checked(contexts: Float32, labels: Float32) -> tuple[Float32, Float32]:
    contexts, labels = np.asarray(contexts, np.float32), np.asarray(labels, np.float32)
    if contexts.ndim != 2 or labels.ndim != 2 or len(contexts) != len(labels) or not labels.size:
        raise ValueError(
            "contexts must be [N, d] and labels [N, K], with one N and neither N nor K zero, "
            f"got {list(contexts.shape)} and {list(labels.shape)}"
        )
    _refuse("contexts", contexts, np.any(~np.isfinite(contexts), axis=1), "be finite: encode them with the problem")
    _refuse("labels", labels, np.any(~(labels >= 0), axis=1), "be probabilities, none missing or below 0")
    off = np.abs(labels.sum(axis=1, dtype=np.float64) - 1) > SUM_TOLERANCE
    _refuse("labels", labels, off, "sum to 1: divide each row by its sum")
    return contexts, labels


def _refuse(name: str, values: Float32, wrong: NDArray[np.bool_], must: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(f"{name}[{row}] must {must}; got {np.array2string(values[row], threshold=8)}")


def split(n: int, share: float, key: Key) -> tuple[Rows, Rows]:
    """Of n rows those to train on and those to hold out, shuffled. Too few to spare two: all rows serve as both."""
    rows = key.generator().permutation(n)
    spared = min(int(share * n), HELD_OUT_AT_MOST)
    return (rows[spared:], rows[:spared]) if spared >= 2 else (rows, rows)


def _minibatches(n: int, steps: int, size: int, key: Key) -> NDArray[np.int32]:
    """The examples of each step, int32[steps, size]: pass after pass over all n, each in an order of its own."""
    passes = np.tile(np.arange(n, dtype=np.int32), (-(-steps * size // n), 1))
    key.generator().permuted(passes, axis=1, out=passes)
    return passes.ravel()[: steps * size].reshape(steps, size)


def _fresh(shapes: list[tuple[int, int]], mean: Float32, key: Key) -> list[Layer]:
    """Layers of a student that gives every context the mean label, float32[K]."""
    rng = key.generator()
    *hidden, (inputs, actions) = shapes
    layers = [_layer(rng.standard_normal((n, m)) / np.sqrt(max(n, 1)), np.zeros(m)) for n, m in hidden]
    return [*layers, _layer(np.zeros((inputs, actions)), np.log(np.maximum(mean, RAREST)))]


def _kept(
    start: Sequence[Layer], fresh: Sequence[Layer], student: Student, contexts: Float32, labels: Float32
) -> tuple[Sequence[Layer], int]:
    """What to go on from, and how many steps to skip, by how far an earlier policy is from the labels of today.

    Large steps would only disturb one that is close. One that does worse than the mean label has more to unlearn than
    to keep: its hidden layers, which took longest to learn, stay, and what it made of them is forgotten.
    """
    off = _divergence(outputs(start, student.activation, contexts), labels)
    mean_off = _divergence(outputs(fresh, student.activation, contexts), labels)
    if off > mean_off:
        return [*start[:-1], fresh[-1]], 0
    return start, int((student.warm or 0) * student.steps) if off <= CLOSE * mean_off else 0


def _divergence(scores: Float32, labels: Float32) -> float:
    """KL(labels ‖ softmax of scores) in nats, the mean over rows."""
    cross_entropy = -(labels * log_softmax(scores.astype(np.float64), axis=1)).sum(axis=1)
    return float((cross_entropy - entr(labels.astype(np.float64)).sum(axis=1)).mean())


def _layer(weight: Any, bias: Any) -> Layer:
    return Layer(np.asarray(weight, np.float32), np.asarray(bias, np.float32))


class _Stretch(NamedTuple):
    """Maps the usual range of each feature onto [0, 1]: x ↦ (x - low) / width, with float64[d] of each.

    A feature that keeps to a corner of its range, such as a bandwidth that seldom comes near its limit, would otherwise
    be learnt late or never. Constants and rare indicators, whose usual range is a point, stay as they are.
    """

    low: Float64
    width: Float64

    @classmethod
    def onto_unit(cls, contexts: Float32) -> _Stretch:
        low, high = np.quantile(contexts, [0.05, 0.95], axis=0, method="nearest").astype(np.float64)
        wide = high - low > NARROWEST
        return cls(np.where(wide, low, 0), np.where(wide, high - low, 1))

    def __call__(self, contexts: Float32) -> Float32:
        low, width = self.low.astype(np.float32), self.width.astype(np.float32)
        stretched: Float32 = (contexts - low) / width
        return stretched

    def enter(self, layers: Sequence[Layer]) -> list[Layer]:
        """Layers for stretched contexts that do what `layers` do for plain ones."""
        (weight, bias), *rest = layers
        return [_layer(weight * self.width[:, None], bias + self.low @ weight), *rest]

    def leave(self, layers: Sequence[Layer]) -> list[Layer]:
        """Layers for plain contexts that do what `layers` do for stretched ones."""
        (weight, bias), *rest = [_layer(*layer) for layer in layers]
        plain = weight / self.width[:, None]
        return [_layer(plain, bias - self.low @ plain), *rest]


class _Examples(NamedTuple):
    """Contexts [P, d] and labels [P, K], of which the first `count` count and the rest is padding.

    P changes only when the number of contexts passes a power of two, so that batch after batch fits one program.
    """

    contexts: Any
    labels: Any
    count: Any  # NumPy's outside of the program, JAX's inside

    @classmethod
    def padded(cls, contexts: Float32, labels: Float32, rows: Rows, room: int) -> _Examples:
        filled = np.resize(rows, room)
        return cls(contexts[filled], labels[filled], len(rows))


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


# ---- training, compiled


class _Run(NamedTuple):
    """The state of the loop: where it is, and the best that was seen on the way."""

    step: Array
    layers: list[Layer]
    average: list[Layer]
    optimiser: optax.OptState
    best: list[Layer]
    loss: Array  # of the best, on the held-out examples
    stale: Array  # rounds since it was found


@partial(jax.jit, static_argnames="student")
def _train(
    student: Student, layers: list[Layer], skipped: Array, trained_on: _Examples, held_out: _Examples, picked: Array
) -> _Run:
    """Train in rounds, and look at the held-out examples after each."""
    optimisers = {"muon": _muon, "adam": optax.adam, "rmsprop": optax.rmsprop}
    optimiser = optimisers[student.optimiser](lambda taken: learning_rate(student, skipped + taken))
    gradient = jax.grad(lambda layers, batch: _cross_entropy(student, layers, batch).mean())
    counted = jnp.arange(len(held_out.labels)) < held_out.count

    def judge(layers: list[Layer]) -> Array:
        return jnp.mean(_cross_entropy(student, layers, held_out), where=counted)

    def step(_: Array, run: _Run) -> _Run:
        rows = picked[run.step]
        batch = trained_on._replace(contexts=trained_on.contexts[rows], labels=trained_on.labels[rows])
        change, state = optimiser.update(gradient(run.layers, batch), run.optimiser, run.layers)
        layers = optax.apply_updates(run.layers, change)
        average = optax.incremental_update(layers, run.average, 1 - student.average)
        return run._replace(step=run.step + 1, layers=layers, average=average, optimiser=state)

    def round_of_steps(run: _Run) -> _Run:
        run = lax.fori_loop(0, jnp.minimum(ROUND, student.steps - run.step), step, run)
        loss = judge(run.average)
        better = (loss < run.loss) | (student.patience is None)
        best, loss, stale = jax.tree.map(
            partial(jnp.where, better), (run.average, loss, 0), (run.best, run.loss, run.stale + 1)
        )
        return run._replace(best=best, loss=loss, stale=stale)

    def unfinished(run: _Run) -> Array:
        # Without patience every round counts as better, and nothing is ever stale.
        return (run.step < student.steps) & (run.stale < (student.patience or 1))

    start = _Run(jnp.int32(skipped), layers, layers, optimiser.init(layers), layers, judge(layers), jnp.int32(0))
    return lax.while_loop(unfinished, round_of_steps, start)


def _cross_entropy(student: Student, layers: list[Layer], examples: _Examples) -> Array:
    """Of each example, [P]: the divergence plus the entropy of the label, which no student can change."""
    *hidden, (weight, bias) = layers
    units = examples.contexts
    for w, b in hidden:
        units = _ACTIVATIONS[student.activation](units @ w + b)
    return -jnp.sum(examples.labels * jax.nn.log_softmax(units @ weight + bias), axis=1)


def _muon(rate: optax.Schedule) -> optax.GradientTransformation:
    """Muon (Jordan et al., 2024): orthogonalised momentum for weights, Adam for biases."""
    momentum = optax.trace(0.95, nesterov=True)
    orthogonalised = optax.stateless(lambda updates, _: jax.tree.map(_orthogonalised, updates))
    weights = optax.chain(momentum, orthogonalised, optax.scale_by_learning_rate(rate))
    kinds = partial(jax.tree.map, lambda array: "weight" if array.ndim == 2 else "bias")
    return optax.multi_transform({"weight": weights, "bias": optax.adam(rate)}, kinds)


def _orthogonalised(matrix: Array) -> Array:
    """About U Vᵀ of the singular value decomposition U S Vᵀ: five Newton-Schulz steps, with Jordan's coefficients."""
    inputs, outputs = matrix.shape
    if inputs > outputs:  # the Gram matrix of the shorter side is the smaller
        return _orthogonalised(matrix.T).T
    x: Array = matrix / (jnp.linalg.norm(matrix) + 1e-8)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (2.0315 * gram @ gram - 4.7750 * gram) @ x
    return x
