"""Program-TS: a reward model that the user writes as a NumPyro program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import memory as memories
from potstill.teachers.contract import Exactness, Float32, NeedsFiniteActions
from potstill.teachers.memory import Memory, Weighting, weights
from potstill.teachers.propensities import sample_rows

if TYPE_CHECKING:
    from types import ModuleType

#: Contexts that are labelled at once: few enough for the cache, and a power of two, as are their smaller classes.
_CHUNK = 4096


class ProgramState(NamedTuple):
    """What was observed, and draws from the posterior.

    Attributes:
        memory: The observations.
        actions: How many there are, int64[].
        draws: Draws of each latent parameter in the order of their names, float32[draws, ...]; at first from the prior.
        diverged: The share of NUTS draws whose step diverged, float64[]; above some percent, rewrite the model.
    """

    memory: Memory
    actions: NDArray[np.int64]
    draws: tuple[NDArray[Any], ...]
    diverged: NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class ProgramTS(NeedsFiniteActions):
    """A reward model of your own: latent parameters with priors, and the mean reward of an action in a context.

    >>> def program(contexts, actions, rewards=None):           # float32[N, d], int32[N], float32[N] or None
    ...     slope = numpyro.sample("slope", dist.Normal(0, 1).expand([3]))
    ...     mean = slope[actions] * contexts[:, 0]
    ...     numpyro.sample("reward", dist.Normal(mean, 0.1), obs=rewards)
    ...     return mean
    >>> teacher = ProgramTS(program)

    The program registers continuous latent parameters, whose shapes do not depend on N, and the likelihood of each
    reward, and returns the mean rewards [N]. What is known of the world goes into the formula, so that a handful of
    parameters has to be learnt, from few observations. `potstill.lab.demo.upload_program` is a worked example.

    Propensities are the shares of kept posterior draws under which each action has the largest mean reward; a draw is
    of all parameters, so that actions are as correlated as the program makes them. The declared standard error holds
    for independent draws: those of SVI are, those of NUTS nearly so after thinning (``posterior`` gives them to check).

    Args:
        program: Program from (contexts, actions, rewards) to mean rewards.
        draws: Draws that are kept.
        inference: ``nuts`` draws from the posterior itself; ``svi`` from a normal distribution fitted to it, in
            unconstrained parameters, which is quicker and only as good as that distribution.
        warmup: NUTS steps that adapt and are dropped.
        thin: Keep every `thin`-th NUTS draw.
        chains: Chains of NUTS, one after another; more than one shows whether they agree.
        nuts_limit: Nuts limit with more observations than this, SVI takes over, whose time does not grow with them.
        steps: Steps of SVI, each on up to 1,024 observations.
        window: Remember only that many of the latest observations.
        weighting: How much each observation counts: its log-likelihood is multiplied by its weight.
    """

    program: Callable[..., Any]
    _: KW_ONLY
    draws: int = 1000
    inference: Literal["nuts", "svi"] = "nuts"
    warmup: int = 400
    thin: int = 2
    chains: int = 1
    nuts_limit: int = 5000
    steps: int = 2000
    window: int | None = None
    weighting: Weighting = "equal"

    def __post_init__(self) -> None:
        for field in ("draws", "warmup", "thin", "chains", "nuts_limit", "steps"):
            self._refuse_unless(getattr(self, field) >= 1, field, "at least 1")
        self._refuse_unless(self.draws % self.chains == 0, "draws", f"a multiple of chains, {self.chains}")
        self._refuse_unless(self.inference in ("nuts", "svi"), "inference", "'nuts' or 'svi'")
        self._refuse_unless(self.window is None or self.window >= 1, "window", "at least 1, or None")

    @property
    def exactness(self) -> Exactness:
        """Sampled: a share of `draws` has a standard error of at most ½/√draws."""
        return Exactness("sampled", draws=self.draws, standard_error=0.5 / self.draws**0.5)

    def init(self, problem: Problem) -> ProgramState:
        """The prior, after a look at what the program registers and returns."""
        inference, names = _inference(), self._latents(problem.width)
        drawn = inference.prior(self.program, names, problem.width, self.draws, inference.jax_key(Key(0)))
        draws = tuple(np.asarray(drawn[name]) for name in names)
        return ProgramState(memories.empty(problem.width), np.array(self.count(problem.actions)), draws, np.array(0.0))

    def update(self, state: ProgramState, observations: Observations, key: Key) -> ProgramState:
        """The posterior after more observations; chains start from the draws before."""
        if not len(observations):
            return state
        memory = state.memory.remember(observations, self.window, weights(observations, self.weighting))
        drawn, diverged = self._inferred(memory, self.posterior(state), _inference().jax_key(key))
        draws = tuple(np.asarray(drawn[name]) for name in sorted(drawn))
        if not np.isfinite(diverged) or not all(np.isfinite(values).all() for values in draws):
            raise ValueError(
                f"{self!r}: no parameters were found under which the rewards have a finite probability; look for "
                "rewards that the likelihood does not allow, and for logarithms and divisions in the program"
            )
        return ProgramState(memory, state.actions, draws, np.array(diverged, np.float64))

    def propensities(self, state: ProgramState, contexts: Float32, key: Key) -> Float32:  # noqa: ARG002
        """The share of the kept draws under which each action is best, ties split evenly, float32[N, K]."""
        k, draws, won = int(state.actions), self.posterior(state), [np.zeros((0, int(state.actions)))]
        step = min(_CHUNK, 1 << max(len(contexts) - 1, 0).bit_length())
        for first in range(0, len(contexts), step):
            rows = contexts[first : first + step]
            filled = np.pad(rows, ((0, step - len(rows)), (0, 0)), mode="edge")
            count, bad = _inference().wins(self.program, draws, filled, k)
            self._refuse_unless_finite(np.asarray(bad)[: len(rows)], first)
            won.append(np.asarray(count)[: len(rows)])
        return (np.concatenate(won) / self.draws).astype(np.float32)

    def sample_actions(self, state: ProgramState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """The best action under n kept draws, each chosen at random, int64[N, n]."""
        return sample_rows(self.propensities(state, contexts, key), n, key)

    def posterior(self, state: ProgramState) -> dict[str, NDArray[Any]]:
        """Draws by the name of the latent parameter, [draws, ...], for a look at what was learnt."""
        names = self._latents(state.memory.contexts.shape[1])
        return dict(zip(names, state.draws, strict=True))

    def _inferred(self, memory: Memory, kept: dict[str, NDArray[Any]], key: Any) -> tuple[dict[str, Any], float]:
        """Draws by name, and the share of steps that diverged; NaN where inference failed."""
        inference, n = _inference(), len(memory.actions)

        data = inference.padded(memory)
        if self.inference == "svi" or n > self.nuts_limit:
            drawn = inference.fit(self.program, data, n, kept, key, count=self.draws, steps=self.steps)
        else:
            plan = {"count": self.draws, "warmup": self.warmup, "thin": self.thin, "chains": self.chains}
            drawn = inference.nuts(self.program, data, kept, key, **plan)
        return drawn[0], float(drawn[1])

    def _latents(self, width: int) -> tuple[str, ...]:
        _inference()
        from potstill.teachers.program.sites import look

        return look(self.program, width).latents

    def _refuse_unless_finite(self, bad: NDArray[Any], first: int) -> None:
        rows = np.flatnonzero(bad)
        if rows.size:
            raise ValueError(
                f"{self!r}: the mean rewards of context {first + rows[0]} are not finite under {bad[rows[0]]} of "
                f"{self.draws} draws; look for logarithms and divisions in the program"
            )

    def _refuse_unless(self, fine: bool, field: str, expected: str) -> None:
        if not fine:
            raise ValueError(f"ProgramTS: {field} must be {expected}, got {getattr(self, field)!r}")

    def __repr__(self) -> str:
        # Without the address in memory: it goes into policy files, which are equal for equal runs.
        options = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)[1:]]
        return f"ProgramTS({', '.join([name_of(self.program), *options])})"


def name_of(program: Callable[..., Any]) -> str:
    """What a program is called in messages and files."""
    return getattr(program, "__qualname__", type(program).__qualname__)


def _inference() -> ModuleType:
    """The module that needs NumPyro, which takes seconds to import."""
    try:
        from potstill.teachers.program import inference
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"ProgramTS needs {error.name}: pip install 'potstill[programs]'", name=error.name
        ) from error
    return inference
