"""The training loop of a student: compiled, and the same in memory, streamed and averaged.

A run is a state. `begin` makes it, `train` and `train_block` advance it by minibatches and keep the best average of
parameters that was seen on held-out rows, and `merge` averages the runs of several students.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from numpy.typing import NDArray

from potstill.distill.network import Float32, forward, with_columns
from potstill.distill.student import Student
from potstill.policy import Layer
from potstill.spaces import Learning

#: Steps between two evaluations of the held-out rows; an evaluation costs about as much as three steps.
ROUND = 50


class Recipe(NamedTuple):
    """What a compiled program depends on.

    Attributes:
        student: The network and its optimiser.
        learning: The loss on the action space.
        tower: Number of layers of an item tower, which are the last ones; 0 without one.
    """

    student: Student
    learning: Learning
    tower: int = 0


class Examples(NamedTuple):
    """Contexts [P, d] and labels [P, L]; the first `count` rows count, the rest is padding.

    With an item tower, `items` are its inputs [K, i]. P changes only when the number of contexts passes a power of two,
    so that updates share one compiled program.
    """

    contexts: Any
    labels: Any
    count: Any  # NumPy's outside of the program, JAX's inside
    items: Any = None

    @classmethod
    def padded(
        cls, contexts: Float32, labels: Float32, rows: NDArray[np.int64], room: int, items: Float32 | None = None
    ) -> Examples:
        """Some rows, repeated until there are `room`."""
        filled = np.resize(rows, room)
        return cls(contexts[filled], labels[filled], len(rows), items)


class Run(NamedTuple):
    """The state of the loop, and the best average of parameters so far.

    Attributes:
        step: Number of the next step.
        layers: Parameters.
        average: Their running mean.
        optimiser: State of the optimiser.
        best: The average with the smallest held-out loss.
        loss: That loss.
        stale: Rounds since it was found.
    """

    step: Array
    layers: list[Layer]
    average: list[Layer]
    optimiser: optax.OptState
    best: list[Layer]
    loss: Array
    stale: Array


def learning_rate(student: Student, step: Array, steps: Array | int) -> Array:
    """The learning rate of a step, counted from 0, in a run of `steps`."""
    if student.decay == "linear":
        return student.learning_rate * (1 - step / steps)
    return student.learning_rate / (1 + 0.05 * (step // 100))  # the paper's: rate 0.05, every 100 minibatches


def compilations() -> int:
    """Number of in-memory programs compiled by this process: one per student, d, outputs, and power of two above N."""
    count: int = train._cache_size()  # type: ignore[attr-defined]
    return count


@partial(jax.jit, static_argnames="recipe")
def train(
    recipe: Recipe, layers: list[Layer], skipped: Array, trained_on: Examples, held_out: Examples, picked: Array
) -> Run:
    """A whole run in memory: rounds of steps, until the steps or the student's patience are used up.

    Args:
        recipe: Student and loss.
        layers: Parameters to start from.
        skipped: Steps to skip, for a start that is close to the labels.
        trained_on: Rows to train on.
        held_out: Rows to stop by.
        picked: Rows of each minibatch, int32[steps, batch].
    """
    student = recipe.student

    def batch(i: Array) -> Examples:
        return trained_on._replace(contexts=trained_on.contexts[picked[i]], labels=trained_on.labels[picked[i]])

    def round_of_steps(run: Run) -> Run:
        count = jnp.minimum(ROUND, student.steps - run.step)
        run = _steps(recipe, run, skipped, student.steps, count, lambda _, step: batch(step))
        return keep_best(recipe, run, run, held_out)

    def unfinished(run: Run) -> Array:
        # Without patience every round counts as better, and nothing is ever stale.
        return (run.step < student.steps) & (run.stale < (student.patience or 1))

    return lax.while_loop(unfinished, round_of_steps, _begin(recipe, layers, skipped, held_out))


@partial(jax.jit, static_argnames="recipe")
def begin(recipe: Recipe, layers: list[Layer], skipped: Array, held_out: Examples) -> Run:
    """A run before its first step."""
    return _begin(recipe, layers, skipped, held_out)


@partial(jax.jit, static_argnames="recipe")
def train_block(recipe: Recipe, run: Run, skipped: Array, steps: Array, block: Examples, held_out: Examples) -> Run:
    """One step for each minibatch of a block of rows, then a look at the held-out rows.

    Args:
        recipe: Student and loss. The student's own number of steps is not used, so that runs share a program.
        run: The state so far.
        skipped: Steps skipped at the start.
        steps: Steps of the whole run, over which the learning rate falls.
        block: Rows to train on, in order.
        held_out: Rows to keep the best by.
    """
    size = recipe.student.batch

    def batch(i: Array, _: Array) -> Examples:
        part = partial(lax.dynamic_slice_in_dim, start_index=i * size, slice_size=size)
        return block._replace(contexts=part(block.contexts), labels=part(block.labels))

    run = _steps(recipe, run, skipped, steps, len(block.labels) // size, batch)
    return keep_best(recipe, run, run, held_out)


@partial(jax.jit, static_argnames="recipe")
def merge(recipe: Recipe, before: Run, runs: list[Run], held_out: Examples) -> Run:
    """The mean of several runs that started from one."""
    return keep_best(recipe, jax.tree.map(_mean, *runs), before, held_out)


def keep_best(recipe: Recipe, run: Run, before: Run, held_out: Examples) -> Run:
    """A run whose best is its average now, if that does better on the held-out rows, or else that of `before`."""
    loss = _held_out_loss(recipe, run.average, held_out)
    better = (loss < before.loss) | (recipe.student.patience is None)
    best, loss, stale = jax.tree.map(
        partial(jnp.where, better), (run.average, loss, 0), (before.best, before.loss, before.stale + 1)
    )
    return run._replace(best=best, loss=loss, stale=stale)


def _begin(recipe: Recipe, layers: list[Layer], skipped: Array, held_out: Examples) -> Run:
    state = _optimiser(recipe.student, lambda taken: taken).init(layers)
    loss = _held_out_loss(recipe, layers, held_out)
    return Run(jnp.int32(skipped), layers, layers, state, layers, loss, jnp.int32(0))


def _steps(
    recipe: Recipe,
    run: Run,
    skipped: Array,
    steps: Array | int,
    count: Array | int,
    batch: Callable[[Array, Array], Examples],
) -> Run:
    """Advance a run; `batch` gives the minibatch by its number in this call and by the step of the run."""
    student = recipe.student
    optimiser = _optimiser(student, lambda taken: learning_rate(student, skipped + taken, steps))
    gradient = jax.grad(lambda layers, examples: _loss(recipe, layers, examples).mean())

    def step(i: Array, run: Run) -> Run:
        change, state = optimiser.update(gradient(run.layers, batch(i, run.step)), run.optimiser, run.layers)
        layers = optax.apply_updates(run.layers, change)
        average = optax.incremental_update(layers, run.average, 1 - student.average)
        return run._replace(step=run.step + 1, layers=layers, average=average, optimiser=state)

    advanced: Run = lax.fori_loop(0, count, step, run)
    return advanced


def _loss(recipe: Recipe, layers: list[Layer], examples: Examples) -> Array:
    """The loss of each row, [P]."""
    student, learning, tower = recipe
    loss = learning.wasserstein if student.distance == "wasserstein" else learning.loss
    if tower:
        layers = with_columns(layers[:-tower], layers[-tower:], student.activation, examples.items)
    found: Array = loss(forward(layers, student.activation, examples.contexts), examples.labels)
    return found


def _held_out_loss(recipe: Recipe, layers: list[Layer], held_out: Examples) -> Array:
    counted = jnp.arange(len(held_out.labels)) < held_out.count
    return jnp.mean(_loss(recipe, layers, held_out), where=counted)


def _mean(*values: Any) -> Array:
    """The mean of numbers; counts are the same in all of them."""
    first = jnp.asarray(values[0])
    return first if jnp.issubdtype(first.dtype, jnp.integer) else jnp.mean(jnp.stack(values), axis=0)


def _optimiser(student: Student, rate: optax.Schedule) -> optax.GradientTransformation:
    optimisers = {"muon": _muon, "adam": optax.adam, "rmsprop": optax.rmsprop}
    return optimisers[student.optimiser](rate)


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
