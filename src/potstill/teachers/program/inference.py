"""Draws from a NumPyro program: from its prior, from its posterior by NUTS as one compiled loop, and what they prefer.

Observations are padded to a power of two with rows of weight 0, so that a program is compiled again only when their
number outgrows its class. Draws are mappings from the name of a latent parameter to an array [draws, ...].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer import NUTS
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn
from numpyro.primitives import Messenger

from potstill.keys import Key
from potstill.teachers.memory import Memory
from potstill.teachers.program.sites import look

Program = Callable[..., Any]
Draws = dict[str, Any]

#: The smallest class: below this many rows, padding costs less than compiling.
_FEWEST_ROWS = 256
#: At most 2⁸ - 1 gradients per NUTS step, which bounds the time of an update where the posterior is badly shaped.
_DEPTH = 8
#: Up to so many numbers in all latent parameters, NUTS learns all their correlations.
_DENSE = 100


class Data(NamedTuple):
    """Observations on the device, padded.

    Attributes:
        contexts: float32[N, d].
        actions: int32[N].
        rewards: float32[N].
        weights: float32[N], 0 where padded.
    """

    contexts: Any
    actions: Any
    rewards: Any
    weights: Any


class Weighted(Messenger):  # type: ignore[misc]
    """A program in which observation i counts `weights[i]` times.

    Only its likelihood is weighted: `handlers.scale` would scale the prior as well, and NumPyro itself registers the
    Jacobians of its changes of variable as if they were observed.
    """

    def __init__(self, program: Program, data: Data) -> None:
        super().__init__(program)
        self.weights = data.weights
        self.likelihoods = look(program, data.contexts.shape[1]).likelihoods

    def process_message(self, site: dict[str, Any]) -> None:
        """Called by NumPyro at each site."""
        if site["name"] in self.likelihoods:
            site["scale"] = self.weights if site["scale"] is None else self.weights * site["scale"]


@partial(jax.jit, static_argnames=("program", "names", "width", "count"))
def prior(program: Program, names: tuple[str, ...], width: int, count: int, key: jax.Array) -> Draws:
    """Draws from the prior of the named latents."""
    nowhere = jnp.zeros((1, width), jnp.float32), jnp.zeros(1, jnp.int32)

    def draw(key: jax.Array) -> Draws:
        registered = handlers.trace(handlers.seed(program, key)).get_trace(*nowhere)
        return {name: registered[name]["value"] for name in names}

    return jax.vmap(draw)(jax.random.split(key, count))


#: Mean rewards that differ by less than this share of the largest are equal, in float32.
_TIE = 1e-6


@partial(jax.jit, static_argnames=("program", "k"))
def wins(program: Program, draws: Draws, contexts: Any, k: int) -> tuple[Any, Any]:
    """How many draws prefer each action, [N, K], ties split evenly; and how many give no finite reward, [N]."""
    # Action by action, so that what a program looks up by action is a constant, and draw by draw, so that all stays in
    # the cache: 60 times faster than all at once.
    actions = [jnp.full(len(contexts), a, jnp.int32) for a in range(k)]

    def count(totals: tuple[Any, Any], draw: Draws) -> tuple[tuple[Any, Any], None]:
        # The reward itself is drawn as well, from the seed, and dropped by the compiler because nothing uses it.
        known = handlers.seed(handlers.substitute(program, draw), 0)
        means = jnp.stack([known(contexts, a) for a in actions])
        # Not by equality: the compiler may compute a mean twice, with different rounding.
        best = means >= means.max(axis=0) - _TIE * jnp.abs(means).max(axis=0)
        won, bad = totals
        return (won + best / best.sum(axis=0), bad + ~jnp.isfinite(means).all(axis=0)), None

    nothing = jnp.zeros((k, len(contexts))), jnp.zeros(len(contexts), jnp.int32)
    (won, bad), _ = jax.lax.scan(count, nothing, draws)
    return won.T, bad


def padded(memory: Memory) -> Data:
    """A memory with rows up to the next power of two: copies of its first row, which any likelihood can take."""
    n = len(memory.actions)
    rows = max(_FEWEST_ROWS, 1 << (n - 1).bit_length())
    fill = np.concatenate([np.arange(n), np.zeros(rows - n, np.int64)])
    return Data(
        memory.contexts[fill],
        memory.actions[fill],
        memory.rewards[fill].astype(np.float32),
        np.where(np.arange(rows) < n, memory.weights[fill], 0.0).astype(np.float32),
    )


@partial(jax.jit, static_argnames=("program", "count", "warmup", "thin", "chains"))
def nuts(
    program: Program, data: Data, kept: Draws, key: jax.Array, *, count: int, warmup: int, thin: int, chains: int
) -> tuple[Draws, Any]:
    """`count` draws by NUTS, chain after chain, and the share of diverging steps; NaN where no start is possible."""
    model, args = Weighted(program, data), data[:3]
    first, unravel, energy = starts(model, args, kept, chains)

    def chain(start_and_key: tuple[Any, Any]) -> tuple[Any, Any]:
        start, key = start_and_key
        kernel = NUTS(potential_fn=energy, dense_mass=start.size <= _DENSE, max_tree_depth=_DEPTH)

        def stretch(state: Any, steps: Any) -> tuple[Any, tuple[Any, Any]]:
            state = jax.lax.fori_loop(0, steps, lambda _, s: kernel.sample(s, (), {}), state)
            return state, (state.z, state.diverging)

        # The first stretch is the warm-up. One loop for all halves the time to compile.
        lengths = jnp.array([warmup] + [thin] * (count // chains))
        _, (z, diverging) = jax.lax.scan(stretch, kernel.init(key, warmup, start, (), {}), lengths)
        return z[1:], diverging[1:]

    # One chain after another: under vmap, every step would take as long as the longest tree of any chain.
    z, diverging = jax.lax.map(chain, (first, jax.random.split(key, chains)))
    z = z.reshape(count, -1)
    share = jnp.where(jnp.isfinite(_each(energy, z)).all(), diverging.mean(), jnp.nan)
    return jax.vmap(lambda one: constrain_fn(model, args, {}, unravel(one)))(z), share


def compilations() -> int:
    """How many programs this process has compiled for NUTS."""
    return int(nuts._cache_size())  # type: ignore[attr-defined]


def jax_key(key: Key) -> jax.Array:
    """A key of JAX."""
    return jax.random.key(key.integer())


def starts(model: Program, args: Any, kept: Draws, chains: int) -> tuple[Any, Any, Any]:
    """Where chains start, [chains, dimension], how to unravel such a row, and its potential energy.

    Each starts at the draw of its share of those kept, prior or posterior, which explains the observations best.
    """

    def free(draw: Draws) -> Draws:
        unconstrained: Draws = unconstrain_fn(model, args, {}, draw)
        return unconstrained

    _, unravel = ravel_pytree(free(jax.tree.map(lambda a: a[0], kept)))

    def energy(z: Any) -> Any:
        return potential_energy(model, args, {}, unravel(z))

    z = jax.vmap(lambda draw: ravel_pytree(free(draw))[0])(kept)
    energies = _each(energy, z)
    energies = jnp.where(jnp.isfinite(energies), energies, jnp.inf).reshape(chains, -1)
    best = energies.argmin(axis=1) + jnp.arange(chains) * energies.shape[1]
    return z[best], unravel, energy


def _each(energy: Any, z: Any) -> Any:
    """The energy of each row, a few at a time: a program may need an array [rows, N, d]."""
    return jax.lax.map(energy, z, batch_size=16)
