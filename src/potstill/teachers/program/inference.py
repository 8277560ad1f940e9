"""Inference for NumPyro programs: prior draws, posterior draws by NUTS or SVI, and the best actions under them.

Observations are padded to a power of two with rows of weight 0, so that a program is recompiled only when their number
exceeds it. Draws are mappings from the name of a latent parameter to an array [draws, ...].
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
from potstill.teachers.program.sites import inspect_sites

Program = Callable[..., Any]
Draws = dict[str, Any]

#: Smallest padded size: below it, padding costs less than compiling.
_MIN_ROWS = 256
#: Maximum tree depth: at most 2⁸ - 1 gradients per NUTS step, which bounds the time on ill-conditioned posteriors.
_DEPTH = 8
#: Maximum dimension of all latent parameters for which NUTS adapts a dense mass matrix.
_DENSE = 100


#: Mean rewards that differ by less than this share of the largest count as equal in float32.
_TIE = 1e-6
Energy = Callable[[Any], Any]
#: Observations per SVI step, and per Newton step towards the mode.
_BATCH, _MODE_BATCH = 1024, 8192
#: Number of Newton steps towards the mode, and the step fractions of the line search.
_NEWTON, _FRACTIONS = 30, 0.5 ** np.arange(12, dtype=np.float32)
_RATE = 0.02


class Data(NamedTuple):
    """Padded observations.

    Attributes:
        contexts: Encoded contexts, float32[N, d].
        actions: Positions of actions, int32[N]; or numbers, float32[N].
        rewards: Rewards, float32[N].
        weights: Observation weights, float32[N]; 0 for padding.
    """

    contexts: Any
    actions: Any
    rewards: Any
    weights: Any


class Weighted(Messenger):  # type: ignore[misc]
    """A program in which observation i counts `weights[i]` times.

    Only the likelihood is weighted. `handlers.scale` would also scale the prior, and the Jacobians of changes of
    variable, which NumPyro registers as observed sites.
    """

    def __init__(self, program: Program, data: Data) -> None:
        super().__init__(program)
        self.weights = data.weights
        numbers = jnp.issubdtype(data.actions.dtype, jnp.floating)
        self.likelihoods = inspect_sites(program, data.contexts.shape[1], numbers=bool(numbers)).likelihoods

    def process_message(self, site: dict[str, Any]) -> None:
        """Scale the likelihood sites; NumPyro calls this at each site."""
        if site["name"] in self.likelihoods:
            site["scale"] = self.weights if site["scale"] is None else self.weights * site["scale"]


@partial(jax.jit, static_argnames=("program", "names", "width", "count", "numbers"))
def prior(
    program: Program, names: tuple[str, ...], width: int, count: int, key: jax.Array, *, numbers: bool = False
) -> Draws:
    """Draws of the named latent parameters from the prior."""
    nowhere = jnp.zeros((1, width), jnp.float32), jnp.zeros(1, jnp.float32 if numbers else jnp.int32)

    def draw(key: jax.Array) -> Draws:
        registered = handlers.trace(handlers.seed(program, key)).get_trace(*nowhere)
        return {name: registered[name]["value"] for name in names}

    return jax.vmap(draw)(jax.random.split(key, count))


@partial(jax.jit, static_argnames=("program", "k"))
def wins(program: Program, draws: Draws, contexts: Any, k: int, eligible: Any = None) -> tuple[Any, Any]:
    """Number of draws under which each action is best, [N, K], ties split evenly; and of non-finite draws, [N].

    With `eligible`, bool[N, K], it is the best of the eligible actions.
    """
    # One action at a time, so that lookups by action are constants, and one draw at a time, so that data stay in the
    # cache: 60 times faster than all at once.
    actions = [jnp.full(len(contexts), a, jnp.int32) for a in range(k)]

    def count(totals: tuple[Any, Any], draw: Draws) -> tuple[tuple[Any, Any], None]:
        # The seed is for the reward site, whose draw is unused and removed by the compiler.
        known = handlers.seed(handlers.substitute(program, draw), 0)
        means = jnp.stack([known(contexts, a) for a in actions])
        # Not tested by equality: the compiler may compute a mean twice, with different rounding.
        allowed = means if eligible is None else jnp.where(eligible.T, means, -jnp.inf)
        best = allowed >= allowed.max(axis=0) - _TIE * jnp.abs(means).max(axis=0)
        won, bad = totals
        return (won + best / best.sum(axis=0), bad + ~jnp.isfinite(means).all(axis=0)), None

    nothing = jnp.zeros((k, len(contexts))), jnp.zeros(len(contexts), jnp.int32)
    (won, bad), _ = jax.lax.scan(count, nothing, draws)
    return won.T, bad


@partial(jax.jit, static_argnames=("program", "k"))
def means(program: Program, draws: Draws, contexts: Any, k: int) -> Any:
    """The mean reward of each action over the draws, [N, K]."""
    actions = [jnp.full(len(contexts), a, jnp.int32) for a in range(k)]

    def add(total: Any, draw: Draws) -> tuple[Any, None]:
        known = handlers.seed(handlers.substitute(program, draw), 0)
        return total + jnp.stack([known(contexts, a) for a in actions]), None

    count = len(jax.tree.leaves(draws)[0])
    return jax.lax.scan(add, jnp.zeros((k, len(contexts))), draws)[0].T / count


@partial(jax.jit, static_argnames=("program",))
def curves(program: Program, draws: Draws, contexts: Any, actions: Any) -> Any:
    """The mean reward of each number float32[G] under each draw, [draws, N, G]."""

    def curve(_: None, draw: Draws) -> tuple[None, Any]:
        return None, _at_each(program, draw, contexts, actions)

    return jax.lax.scan(curve, None, draws)[1]


@partial(jax.jit, static_argnames=("program",))
def mean_curve(program: Program, draws: Draws, contexts: Any, actions: Any) -> Any:
    """The mean reward of each number float32[G] over the draws, [N, G]."""

    def add(total: Any, draw: Draws) -> tuple[Any, None]:
        return total + _at_each(program, draw, contexts, actions), None

    count = len(jax.tree.leaves(draws)[0])
    return jax.lax.scan(add, jnp.zeros((len(contexts), len(actions))), draws)[0] / count


def _at_each(program: Program, draw: Draws, contexts: Any, actions: Any) -> Any:
    """The mean reward of each number in each context, [N, G]."""
    known = handlers.seed(handlers.substitute(program, draw), 0)
    rows = jnp.repeat(contexts, len(actions), axis=0, total_repeat_length=len(contexts) * len(actions))
    return known(rows, jnp.tile(actions, len(contexts))).reshape(len(contexts), len(actions))


def padded(memory: Memory) -> Data:
    """A memory padded to the next power of two with copies of its first row, which any likelihood accepts."""
    n = len(memory.actions)
    rows = max(_MIN_ROWS, 1 << (n - 1).bit_length())
    fill = np.concatenate([np.arange(n), np.zeros(rows - n, np.int64)])
    numbers = memory.actions.dtype.kind == "f"
    return Data(
        memory.contexts[fill],
        memory.actions[fill].astype(np.float32 if numbers else np.int32),
        memory.rewards[fill].astype(np.float32),
        np.where(np.arange(rows) < n, memory.weights[fill], 0.0).astype(np.float32),
    )


@partial(jax.jit, static_argnames=("program", "count", "warmup", "thin", "chains"))
def nuts(
    program: Program, data: Data, kept: Draws, key: jax.Array, *, count: int, warmup: int, thin: int, chains: int
) -> tuple[Draws, Any]:
    """`count` draws by NUTS, ordered by chain, and the share of divergent steps; NaN if inference failed."""
    model, args = Weighted(program, data), data[:3]
    first, unravel, energy = starts(model, args, kept, chains)

    def chain(start_and_key: tuple[Any, Any]) -> tuple[Any, Any]:
        start, key = start_and_key
        kernel = NUTS(potential_fn=energy, dense_mass=start.size <= _DENSE, max_tree_depth=_DEPTH)

        def stretch(state: Any, steps: Any) -> tuple[Any, tuple[Any, Any]]:
            state = jax.lax.fori_loop(0, steps, lambda _, s: kernel.sample(s, (), {}), state)
            return state, (state.z, state.diverging)

        # The first stretch is the warm-up. Sharing the loop halves the compilation time.
        lengths = jnp.array([warmup] + [thin] * (count // chains))
        _, (z, diverging) = jax.lax.scan(stretch, kernel.init(key, warmup, start, (), {}), lengths)
        return z[1:], diverging[1:]

    # Chains run in sequence: under vmap, every step would take as long as the deepest tree of any chain.
    z, diverging = jax.lax.map(chain, (first, jax.random.split(key, chains)))
    z = z.reshape(count, -1)
    share = jnp.where(jnp.isfinite(_each(energy, z)).all(), diverging.mean(), jnp.nan)
    return jax.vmap(lambda one: constrain_fn(model, args, {}, unravel(one)))(z), share


def nuts_compilations() -> int:
    """Number of programs that this process has compiled for NUTS."""
    return int(nuts._cache_size())  # type: ignore[attr-defined]


def jax_key(key: Key) -> jax.Array:
    """The JAX key of a key."""
    return jax.random.key(key.integer())


def starts(model: Program, args: Any, kept: Draws, chains: int) -> tuple[Any, Any, Any]:
    """Initial points of the chains, [chains, dimension], with the functions to unravel a row and for its energy.

    The kept draws (prior or previous posterior) are divided among the chains; each chain starts at its draw of lowest
    potential energy.
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
    """The energy of each row, in small batches: a program may allocate an array [rows, N, d]."""
    return jax.lax.map(energy, z, batch_size=16)


@partial(jax.jit, static_argnames=("program", "count", "steps"))
def fit(
    program: Program, data: Data, n: Any, kept: Draws, key: jax.Array, *, count: int, steps: int
) -> tuple[Draws, Any]:
    """`count` draws by SVI from a normal in unconstrained space, for n observations; and 0, or NaN on failure."""
    mode_key, fit_key, draw_key = jax.random.split(key, 3)
    some = _minibatch(data, n, _MODE_BATCH, mode_key)
    first, unravel, energy = starts(Weighted(program, some), some[:3], kept, 1)
    mode = jax.lax.fori_loop(0, _NEWTON, lambda _, z: _newton(energy, z), first[0])
    root = _whitening(jax.hessian(energy)(mode))

    def whitened(batch: Data) -> None:
        z = numpyro.sample("z", dist.ImproperUniform(dist.constraints.real_vector, (), mode.shape))
        with handlers.block():  # hide the inner sites from SVI
            energy = potential_energy(Weighted(program, batch), batch[:3], {}, unravel(mode + root @ z))
        numpyro.factor("energy", -energy)

    z, failed = _fit_normal(
        whitened, mode.size, lambda key: _minibatch(data, n, _BATCH, key), (fit_key, draw_key), count, steps
    )
    model, args = Weighted(program, data), data[:3]
    return jax.vmap(lambda one: constrain_fn(model, args, {}, unravel(mode + root @ one)))(z), failed


def svi_compilations() -> int:
    """Number of programs that this process has compiled for SVI."""
    return int(fit._cache_size())  # type: ignore[attr-defined]


def _fit_normal(
    model: Program, size: int, batch: Callable[[Any], Data], keys: tuple[Any, Any], count: int, steps: int
) -> tuple[Any, Any]:
    """Draws [count, size] from the fitted normal distribution, and 0, or NaN on failure."""
    guide = AutoMultivariateNormal(model, init_loc_fn=init_to_value(values={"z": jnp.zeros(size)}), init_scale=0.7)
    # No gradient clipping: it would bias the scales, whose gradients have long tails.
    adam = optax_to_numpyro(optax.adam(optax.cosine_decay_schedule(_RATE, steps)))
    svi = SVI(model, guide, adam, Trace_ELBO())

    def step(state: Any, key: jax.Array) -> tuple[Any, Any]:
        stepped: tuple[Any, Any] = svi.update(state, batch(key))
        return stepped

    state, losses = jax.lax.scan(step, svi.init(keys[0], batch(keys[0])), jax.random.split(keys[0], steps))
    draws = guide.sample_posterior(keys[1], svi.get_params(state), sample_shape=(count,))
    return draws["z"], jnp.where(jnp.isfinite(losses[-1]), 0.0, jnp.nan)


def _minibatch(data: Data, n: Any, size: int, key: jax.Array) -> Data:
    """A minibatch of the n observations, reweighted to the full likelihood; all observations if they are few."""
    if len(data.actions) <= size:
        return data
    i = jax.random.randint(key, (size,), 0, n)
    drawn = Data(*(column[i] for column in data))
    return drawn._replace(weights=drawn.weights * n / size)


def _newton(energy: Energy, z: Any) -> Any:
    """One Newton step with line search over fractions, including 0."""
    root = _whitening(jax.hessian(energy)(z))
    step = root @ (root.T @ jax.grad(energy)(z))
    tried = jnp.concatenate([z[None], z - _FRACTIONS[:, None] * step])
    energies = jax.vmap(energy)(tried)
    return tried[jnp.where(jnp.isfinite(energies), energies, jnp.inf).argmin()]


def _whitening(hessian: Any) -> Any:
    """R with R Rᵀ the inverse of a Hessian, with the absolute values of its eigenvalues, bounded from below."""
    usable = jnp.isfinite(hessian).all()
    values, vectors = jnp.linalg.eigh(jnp.where(usable, hessian, jnp.eye(len(hessian))))
    return vectors / jnp.sqrt(jnp.maximum(jnp.abs(values), 1e-3))
