"""Validation of a NumPyro program: the sites it registers and the values it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import checkify
from numpyro import handlers

from potstill.errors import InvalidOption, PotstillError
from potstill.teachers.program.model_file import ModelFile, describe
from potstill.teachers.program.program_ts import name_of

Registered = dict[str, Any]


class Sites(NamedTuple):
    """Sorted site names of a program: its latent parameters and its likelihoods."""

    latents: tuple[str, ...]
    likelihoods: tuple[str, ...]


@lru_cache(maxsize=128)
def inspect_sites(program: Callable[..., Any], width: int, *, numbers: bool = False) -> Sites:
    """The sites of a program; `InvalidOption` says what is wrong with a program.

    Args:
        program: The program.
        width: Number of columns of its contexts.
        numbers: Whether its actions are numbers, not positions in a list.
    """
    few, more = (_trace(program, width, n, numbers) for n in (2, 3))
    latents = sorted(name for name, site in few.items() if _is_latent(program, site))
    if not latents:
        raise _refusal(program, "it has no latent parameter: register some with numpyro.sample(name, prior)")
    for name in latents:
        if name not in more or more[name]["value"].shape != few[name]["value"].shape:
            raise _refusal(program, f"latent {name!r} must not change its shape with the number of observations")
    return Sites(tuple(latents), _likelihoods(program, few))


def _trace(program: Callable[..., Any], width: int, n: int, numbers: bool) -> Registered:
    """Trace shapes for n observations; checks that the program returns mean rewards, with and without rewards."""
    sites: Registered = {}

    def run(contexts: Any, actions: Any, rewards: Any) -> Any:
        with handlers.trace() as registered, handlers.seed(rng_seed=0):
            mean = program(contexts, actions, rewards)
        sites.update(registered)
        return mean

    contexts, column = np.zeros((n, width), np.float32), np.zeros(n, np.float32)
    actions = np.zeros(n, np.float32 if numbers else np.int32)
    for rewards in (None, column):
        with _refused(program):
            mean = jax.eval_shape(run, contexts, actions, rewards)
        if getattr(mean, "shape", None) != (n,):
            got = f"shape {mean.shape}" if hasattr(mean, "shape") else repr(mean)
            raise _refusal(program, f"it must return the mean rewards, of shape ({n},) for {n} rows, got {got}")
    return sites


@lru_cache(maxsize=128)
def check_actions(program: Callable[..., Any], width: int, count: int) -> None:
    """Raise `InvalidOption` if a program looks an action up in an array that has fewer entries than there are actions.

    JAX takes the last entry then, and the last actions would silently share their rewards.
    """

    def run(contexts: Any, actions: Any) -> Any:
        with handlers.seed(rng_seed=0):
            return program(contexts, actions, None)

    looked_up = checkify.checkify(run, errors=checkify.index_checks)
    with _refused(program):
        error, _ = looked_up(np.zeros((count, width), np.float32), np.arange(count, dtype=np.int32))
    if (message := error.get()) is not None:
        found = message.splitlines()[0].partition(". Failed at")[0]
        raise _refusal(program, f"it does not fit the {count} actions of the problem: {found}")


@contextmanager
def _refused(program: Callable[..., Any]) -> Iterator[None]:
    """Refuse a program that raises an error while it is traced."""
    try:
        yield
    except PotstillError:
        raise
    except Exception as error:
        raise _refusal(program, f"it raised {describe(error, _file_of(program))}") from error


def _file_of(program: Callable[..., Any]) -> str:
    """The file of a program, as frames of a traceback name it."""
    if isinstance(program, ModelFile):
        return program.path
    code = getattr(program, "__code__", None)
    return getattr(code, "co_filename", "")


def _likelihoods(program: Callable[..., Any], sites: Registered) -> tuple[str, ...]:
    observed = {name: site["fn"].batch_shape for name, site in sites.items() if _is_observed(site)}
    if not observed:
        raise _refusal(program, "it has no likelihood: end with numpyro.sample(name, distribution, obs=rewards)")
    for name, shape in observed.items():
        if shape != (2,):
            raise _refusal(program, f"the likelihood {name!r} must have shape (2,) for 2 rows, got {shape}")
    return tuple(sorted(observed))


def _is_observed(site: Any) -> bool:
    return bool(site["type"] == "sample" and site["is_observed"])


def _is_latent(program: Callable[..., Any], site: Any) -> bool:
    if site["type"] == "param":
        raise _refusal(program, f"{site['name']!r} has no prior: use numpyro.sample instead of numpyro.param")
    if site["type"] != "sample" or _is_observed(site):
        return False
    if site["fn"].support.is_discrete:
        raise _refusal(program, f"latent {site['name']!r} is discrete; inference needs gradients: marginalise it out")
    return True


def _refusal(program: Callable[..., Any], reason: str) -> InvalidOption:
    return InvalidOption(f"ProgramTS: program {name_of(program)}: {reason}")
