"""Training of networks in JAX: a run of all networks of a stack is one compiled loop.

Observations are padded to a power of two, so that a program is recompiled only when their number exceeds it.
Minibatches are drawn in advance, so a run needs only the rows that they contain.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.teachers.neural.network import Data, Networks, Start
from potstill.teachers.neural.recipe import Recipe

#: Networks and their optimiser state.
Carry = tuple[Networks, Any]

#: Smallest padded size: below it, padding costs less than compiling.
_MIN_ROWS = 64
#: Maximum steps per row: more would overfit when observations are few.
_STEPS_PER_ROW = 4
#: At least 1/8 of the steps are taken: with fewer, a sequence of small updates would hardly change a network.
_HALVINGS = 3
#: Cap on the noise variance: larger values overflow in float32.
_LARGEST = 1e30


class Minibatches(NamedTuple):
    """The minibatches of a run.

    Attributes:
        observations: Number of observations to draw from.
        skipped: Number of steps skipped at the start of the schedule.
        rows: Positions of the observations that occur in minibatches, sorted, int64[M].
        drawn: Observations of each network, step and minibatch, as indices into `rows`, int32[B, steps, batch].
    """

    observations: int
    skipped: int
    rows: NDArray[np.int64]
    drawn: NDArray[np.int32]


def minibatches(observations: int, networks: int, recipe: Recipe, key: Key, new: float = 1.0) -> Minibatches:
    """Draw the minibatches of a run, with replacement; `new` is the share of new observations.

    They are drawn outside the compiled loop, where a random generator took a third of the compilation time.
    """
    steps, skipped = steps_for(recipe, _padded_size(observations), new)
    return _draw(observations, networks, steps, recipe.batch, key)._replace(skipped=skipped)


def fit(start: Start, data: Data, recipe: Recipe, key: Key) -> Networks:
    """Train networks on the data, from their starting point."""
    drawn = minibatches(len(data.actions), len(data.targets), recipe, key, start.new)
    return fit_to(start.networks, data.rows(drawn.rows), drawn, recipe, start.noise)


def fit_to(networks: Networks, data: Data, minibatches: Minibatches, recipe: Recipe, noise: Any) -> Networks:
    """Train on given minibatches; `data` holds only their rows, and `noise` is a scalar or per network, [B]."""
    n, skipped, _, drawn = minibatches
    shrinkage = np.broadcast_to(np.minimum(noise, _LARGEST) / n, len(drawn)).astype(np.float32)
    return _float64(_fit(_float32(networks), _padded(data), drawn, skipped, shrinkage, recipe))


def iterates(
    networks: Networks, data: Data, recipe: Recipe, noise: float, every: int, count: int, key: Key
) -> Networks:
    """Iterates of one network at the recipe's initial rate: one in `every` steps, `count` in total.

    They are returned as a stack of `count` networks.
    """
    n, _, rows, drawn = _draw(len(data.actions), len(data.targets), every * count, recipe.batch, key)
    stretches = np.stack(np.split(drawn, count, axis=1))
    shrinkage = np.array([min(noise, _LARGEST) / n], np.float32)
    path = _iterates(_float32(networks), _padded(data.rows(rows)), stretches, shrinkage, recipe)
    return _float64(path.map(lambda a: a[:, 0]))


def steps_for(recipe: Recipe, rows: int, new: float = 1.0) -> tuple[int, int]:
    """Number of steps to take for n rows, of which the share `new` is new, and number of steps to skip before."""
    every = min(recipe.steps, _STEPS_PER_ROW * rows)
    wanted = 1.0 if recipe.catch_up is None else min(recipe.catch_up * new, 1.0)
    # Powers of 1/2, so that few programs are compiled.
    steps = max(every >> min(int(-np.log2(wanted)), _HALVINGS), 1)
    return steps, every - steps


def compilations() -> int:
    """Number of programs that this process has compiled for training."""
    return int(_fit._cache_size() + _iterates._cache_size())  # type: ignore[attr-defined]


def rate_at(recipe: Recipe, steps: Any) -> optax.Schedule:
    """The learning rate as a function of the step, from 0, in a run of `steps` steps."""
    if recipe.schedule == "cosine":
        return lambda step: recipe.rate * 0.5 * (1 + jnp.cos(jnp.pi * step / steps))
    return lambda step: recipe.rate / (1 + recipe.decay * step)


@partial(jax.jit, static_argnames="recipe")
def _fit(
    params: Networks, data: Data, drawn: jax.Array, skipped: int, shrinkage: jax.Array, recipe: Recipe
) -> Networks:
    rate = rate_at(recipe, skipped + drawn.shape[1])
    optimiser = _optimiser(recipe, lambda taken: rate(skipped + taken))
    start = params, jax.vmap(optimiser.init)(params)
    return _descend(start, data, drawn, optimiser, shrinkage, recipe)[0]


@partial(jax.jit, static_argnames="recipe")
def _iterates(params: Networks, data: Data, drawn: jax.Array, shrinkage: jax.Array, recipe: Recipe) -> Networks:
    optimiser = _optimiser(recipe, recipe.rate)

    def stretch(carry: Carry, drawn: jax.Array) -> tuple[Carry, Networks]:
        carry = _descend(carry, data, drawn, optimiser, shrinkage, recipe)
        return carry, carry[0]

    return jax.lax.scan(stretch, (params, jax.vmap(optimiser.init)(params)), drawn)[1]


def _descend(
    start: Carry,
    data: Data,
    drawn: jax.Array,
    optimiser: optax.GradientTransformation,
    shrinkage: jax.Array,
    recipe: Recipe,
) -> Carry:
    """One optimiser step per minibatch of each network; `drawn` is [B, steps, batch]."""

    def run(start: Carry, targets: Any, weights: Any, drawn: jax.Array, shrinkage: jax.Array) -> Carry:
        def loss(params: Networks, i: jax.Array) -> jax.Array:
            error = _loss(params, data.contexts[i], data.actions[i], targets[i], weights[i])
            return error if recipe.noise == 0 else error + shrinkage * _penalty(params)

        def step(carry: Carry, i: jax.Array) -> tuple[Carry, None]:
            params, state = carry
            gradient = jax.grad(loss)(params, i)
            updates, state = optimiser.update(gradient, state, params)
            return (optax.apply_updates(params, updates), state), None

        return jax.lax.scan(step, start, drawn)[0]

    return jax.vmap(run)(start, data.targets, data.weights, drawn, shrinkage)


def _loss(params: Networks, contexts: Any, actions: Any, targets: Any, weights: Any) -> jax.Array:
    """Weighted mean squared error of the predicted rewards of the taken actions."""
    x = contexts
    for weight, bias in zip(params.weights[:-1], params.biases[:-1], strict=True):
        x = jax.nn.relu(x @ weight + bias)
    rewards = x @ params.weights[-1] + params.biases[-1]
    if actions.ndim == 2:
        taken = jnp.sum(rewards * actions, axis=1)
    else:
        taken = jnp.take_along_axis(rewards, actions[:, None], axis=1)[:, 0]
    return jnp.mean(weights * (taken - targets) ** 2)


def _penalty(params: Networks) -> jax.Array:
    """Minus twice the log prior of the weights, N(0, 2 / inputs), up to a constant."""
    return sum((weight.shape[0] / 2 * jnp.sum(weight**2) for weight in params.weights), jnp.zeros(()))


def _optimiser(recipe: Recipe, rate: Any) -> optax.GradientTransformation:
    # Flattened to one vector: compiles in a quarter less time than array by array, with the same results.
    return optax.flatten(optax.adam(rate) if recipe.optimiser == "adam" else optax.rmsprop(rate))


def _padded_size(rows: int) -> int:
    """Padded number of rows: the next power of two, at least `_MIN_ROWS`."""
    return max(_MIN_ROWS, 1 << (rows - 1).bit_length())


def _padded(data: Data) -> Data:
    """The data padded with rows that are never drawn."""
    more = _padded_size(len(data.actions)) - len(data.actions)
    return Data(
        np.pad(np.asarray(data.contexts, np.float32), ((0, more), (0, 0))),
        _padded_actions(data.actions, more),
        np.pad(np.asarray(data.targets, np.float32), ((0, 0), (0, more))),
        np.pad(np.asarray(data.weights, np.float32), ((0, 0), (0, more))),
    )


def _padded_actions(actions: NDArray[Any], more: int) -> NDArray[Any]:
    if actions.ndim == 2:
        return np.pad(np.asarray(actions, np.float32), ((0, more), (0, 0)))
    return np.pad(np.asarray(actions, np.int32), (0, more))


def _draw(observations: int, networks: int, steps: int, batch: int, key: Key) -> Minibatches:
    shape = (networks, steps, min(batch, _padded_size(observations)))
    drawn = key.generator().integers(observations, size=shape, dtype=np.int32)
    if observations <= drawn.size:  # most rows are drawn; taking all keeps positions simple
        return Minibatches(observations, 0, np.arange(observations), drawn)
    rows, places = np.unique(drawn, return_inverse=True)
    return Minibatches(observations, 0, rows.astype(np.int64), places.reshape(shape).astype(np.int32))


def _float32(networks: Networks) -> Networks:
    return networks.map(lambda a: a.astype(np.float32))


def _float64(params: Networks) -> Networks:
    return params.map(lambda a: np.asarray(a, np.float64))
