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
import numpyro
import numpyro.distributions as dist
import optax
from jax.flatten_util import ravel_pytree
from numpyro import handlers
from numpyro.infer import NUTS, SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal
from numpyro.infer.initialization import init_to_value
from numpyro.infer.util import constrain_fn, potential_energy, unconstrain_fn
from numpyro.optim import optax_to_numpyro
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
#: Up to this many numbers in all latent parameters, NUTS adapts a dense mass matrix.
_DENSE = 100


#: Mean rewards that differ by less than this share of the largest are equal, in float32.
_TIE = 1e-6
Energy = Callable[[Any], Any]
#: Observations per step of SVI, and per step towards the mode.
_BATCH, _MODE_BATCH = 1024, 8192
#: Newton's steps towards the mode, and the fractions of each that are tried.
_NEWTON, _FRACTIONS = 30, 0.5 ** np.arange(12, dtype=np.float32)
_RATE = 0.02


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


def nuts_compilations() -> int:
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


@partial(jax.jit, static_argnames=("program", "count", "steps"))
def fit(
    program: Program, data: Data, n: Any, kept: Draws, key: jax.Array, *, count: int, steps: int
) -> tuple[Draws, Any]:
    """`count` draws for n observations and their padding; and 0, or NaN where fitting failed."""
    mode_key, fit_key, draw_key = jax.random.split(key, 3)
    some = _minibatch(data, n, _MODE_BATCH, mode_key)
    first, unravel, energy = starts(Weighted(program, some), some[:3], kept, 1)
    mode = jax.lax.fori_loop(0, _NEWTON, lambda _, z: _newton(energy, z), first[0])
    root = _whitening(jax.hessian(energy)(mode))

    def whitened(batch: Data) -> None:
        z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real_vector, (), mode.shape))
        with handlers.block():  # SVI is not to see the sites within
            energy = potential_energy(Weighted(program, batch), batch[:3], {}, unravel(mode + root @ z))
        numpyro.factor("energy", -energy)

    z, failed = _fitted(
        whitened, mode.size, lambda key: _minibatch(data, n, _BATCH, key), (fit_key, draw_key), count, steps
    )
    model, args = Weighted(program, data), data[:3]
    return jax.vmap(lambda one: constrain_fn(model, args, {}, unravel(mode + root @ one)))(z), failed


def svi_compilations() -> int:
    """How many programs this process has compiled for variational inference."""
    return int(fit._cache_size())  # type: ignore[attr-defined]


def _fitted(
    model: Program, size: int, batch: Callable[[Any], Data], keys: tuple[Any, Any], count: int, steps: int
) -> tuple[Any, Any]:
    """Draws [count, size] from the fitted normal distribution, and whether that failed (NaN)."""
    guide = AutoMultivariateNormal(model, init_loc_fn=init_to_value(values={"z": jnp.zeros(size)}), init_scale=0.7)
    # Not clipped: that would bias the scales, whose gradients have long tails.
    adam = optax_to_numpyro(optax.adam(optax.cosine_decay_schedule(_RATE, steps)))
    svi = SVI(model, guide, adam, Trace_ELBO())

    def step(state: Any, key: jax.Array) -> tuple[Any, Any]:
        stepped: tuple[Any, Any] = svi.update(state, batch(key))
        return stepped

    state, losses = jax.lax.scan(step, svi.init(keys[0], batch(keys[0])), jax.random.split(keys[0], steps))
    draws = guide.sample_posterior(keys[1], svi.get_params(state), sample_shape=(count,))
    return draws["z"], jnp.where(jnp.isfinite(losses[-1]), 0.0, jnp.nan)


def _minibatch(data: Data, n: Any, size: int, key: jax.Array) -> Data:
    """Some of the n observations, weighted up to stand for all; all of them where they are few."""
    if len(data.actions) <= size:
        return data
    i = jax.random.randint(key, (size,), 0, n)
    drawn = Data(*(column[i] for column in data))
    return drawn._replace(weights=drawn.weights * n / size)


def _newton(energy: Energy, z: Any) -> Any:
    """One step downhill: the best of some fractions of Newton's, or none."""
    root = _whitening(jax.hessian(energy)(z))
    step = root @ (root.T @ jax.grad(energy)(z))
    tried = jnp.concatenate([z[None], z - _FRACTIONS[:, None] * step])
    energies = jax.vmap(energy)(tried)
    return tried[jnp.where(jnp.isfinite(energies), energies, jnp.inf).argmin()]


def _whitening(hessian: Any) -> Any:
    """R with R Rᵀ the inverse of a Hessian, whose curvatures are taken as positive and not too small."""
    usable = jnp.isfinite(hessian).all()
    values, vectors = jnp.linalg.eigh(jnp.where(usable, hessian, jnp.eye(len(hessian))))
    return vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), 1e-3))
