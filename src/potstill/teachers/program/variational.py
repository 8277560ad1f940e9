"""Draws from a normal distribution that is fitted to the posterior of a NumPyro program, in time that does not grow.

NumPyro's SVI fits the normal distribution in whitened parameters: an approximate mode is 0, and the curvature there is
1 in every direction. So one learning rate suits a posterior of ten observations and one of a million.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro import handlers
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoMultivariateNormal
from numpyro.infer.initialization import init_to_value
from numpyro.infer.util import constrain_fn, potential_energy
from numpyro.optim import optax_to_numpyro

from potstill.teachers.program.inference import Data, Draws, Program, Weighted, starts

Energy = Callable[[Any], Any]

#: Observations per step of SVI, and per step towards the mode.
_BATCH, _MODE_BATCH = 1024, 8192
#: Newton's steps towards the mode, and the fractions of each that are tried.
_NEWTON, _FRACTIONS = 30, 0.5 ** np.arange(12, dtype=np.float32)
_RATE = 0.02


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


def compilations() -> int:
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
