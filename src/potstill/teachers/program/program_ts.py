"""Program-TS: a user-defined reward model, written as a NumPyro program."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidModel, InvalidOption
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import memory as memories
from potstill.teachers.contract import Bool, Exactness, Float32, NeedsFiniteActions
from potstill.teachers.memory import Memory, Weighting, Weights, weights
from potstill.teachers.program.model_file import ModelFile
from potstill.teachers.propensities import sample_rows

if TYPE_CHECKING:
    from types import ModuleType

#: Contexts per batch of mean rewards: few enough for the cache. A power of two, as are the sizes of smaller batches.
_CHUNK = 4096
#: Contexts that share one set of draws for their labels.
SHARED_BY = 256


class ProgramState(NamedTuple):
    """Observations and posterior draws.

    Attributes:
        memory: The observations.
        actions: Number of actions, int64[].
        draws: Draws of each latent parameter, sorted by name, float32[draws, ...]; initially from the prior.
        diverged: Share of divergent NUTS draws, float64[]. Above a few percent, reparametrise the model.
    """

    memory: Memory
    actions: NDArray[np.int64]
    draws: tuple[NDArray[Any], ...]
    diverged: NDArray[np.float64]


@dataclass(frozen=True, repr=False)
class ProgramTS(NeedsFiniteActions, Weights):
    """A user-defined reward model: latent parameters with priors, and the mean reward of an action in a context.

    >>> def program(contexts, actions, rewards=None):           # float32[N, d], int32[N], float32[N] or None
    ...     slope = numpyro.sample("slope", dist.Normal(0, 1).expand([3]))
    ...     mean = slope[actions] * contexts[:, 0]
    ...     numpyro.sample("reward", dist.Normal(mean, 0.1), obs=rewards)
    ...     return mean
    >>> teacher = ProgramTS(program)

    The program registers continuous latent parameters, whose shapes do not depend on N, and the likelihood of each
    reward. It returns the mean rewards [N]. Domain knowledge goes into the formula, so that only a handful of
    parameters must be learnt, from few observations. `potstill.lab.demo.upload_program` is a worked example.

    Propensities are the shares of posterior draws under which each action has the largest mean reward. A draw covers
    all parameters, so actions are correlated as the program implies. Every 256 contexts use another of the `sets`, so
    that errors average out over contexts as those of ``draws * sets`` draws. The declared standard errors hold for
    independent draws: SVI draws are independent, NUTS draws of one set nearly so, as they are `sets` steps apart (check
    with ``posterior``).

    Args:
        program: Program from (contexts, actions, rewards) to mean rewards.
        draws: Number of posterior draws for a label.
        sets: Number of sets of so many draws to keep.
        inference: ``nuts`` samples the posterior itself; ``svi`` samples a normal distribution fitted to it in
            unconstrained parameters, which is faster and only as good as that approximation.
        warmup: Number of NUTS warm-up steps.
        thin: Keep every `thin`-th NUTS draw.
        chains: Number of NUTS chains, run in sequence; more than one allows convergence checks.
        nuts_limit: Largest number of observations for NUTS. Beyond it SVI is used, whose time does not grow with them.
        steps: Number of SVI steps, each on up to 1,024 observations.
        window: Learn only from the latest `window` observations.
        weighting: Weighting of observations; the log-likelihood of each is multiplied by its weight.
    """

    program: Callable[..., Any]
    _: KW_ONLY
    draws: int = 1000
    sets: int = 4
    inference: Literal["nuts", "svi"] = "nuts"
    warmup: int = 400
    thin: int = 1
    chains: int = 1
    nuts_limit: int = 5000
    steps: int = 2000
    window: int | None = None
    weighting: Weighting = "equal"

    #: Whether actions are numbers, not positions in a list.
    numbers: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for field in ("draws", "sets", "warmup", "thin", "chains", "nuts_limit", "steps"):
            self._check(getattr(self, field) >= 1, field, "at least 1")
        self._check(self.draws % self.chains == 0, "draws", f"a multiple of chains, {self.chains}")
        self._check(self.inference in ("nuts", "svi"), "inference", "'nuts' or 'svi'")
        self._check(self.window is None or self.window >= 1, "window", "at least 1, or None")

    @property
    def exactness(self) -> Exactness:
        """Sampled: a share of `draws` has a standard error of at most ½/√draws."""
        return Exactness(
            "sampled",
            draws=self.draws,
            standard_error=0.5 / self.draws**0.5,
            shared_by=SHARED_BY,
            distinct=self.draws * self.sets,
        )

    @property
    def informed(self) -> bool:
        """True: a program's prior rarely treats all actions alike."""
        return True

    def init(self, problem: Problem) -> Any:
        """Prior draws; checks what the program registers and returns."""
        count, draws = self.count(problem.actions), self.prior_draws(problem.width)
        self._check_actions(problem)
        return ProgramState(memories.empty(problem.width), np.array(count), draws, np.array(0.0))

    def update(self, state: Any, observations: Observations, key: Key) -> Any:
        """The posterior after more observations; chains start from the previous draws."""
        if not len(observations):
            return state
        memory = state.memory.append(observations, self.window, weights(observations, self.weighting))
        drawn, diverged = self._infer(memory, self.posterior(state), inference_module().jax_key(key))
        draws = tuple(np.asarray(drawn[name]) for name in sorted(drawn))
        if not np.isfinite(diverged) or not all(np.isfinite(values).all() for values in draws):
            raise InvalidModel(
                f"{self!r}: found no parameters under which the rewards have a finite likelihood; check for rewards "
                "outside the likelihood's support, and for logarithms and divisions in the program"
            )
        return state._replace(memory=memory, draws=draws, diverged=np.array(diverged, np.float64))

    def propensities(self, state: ProgramState, contexts: Float32, key: Key, eligible: Bool | None = None) -> Float32:
        """The share of a set of draws under which each action is best, ties split evenly, float32[N, K]."""
        k, draws, won = int(state.actions), self.posterior(state), [np.zeros((0, int(state.actions)))]
        start = int(key.generator().integers(self.sets))
        for number, (first, rows) in enumerate(filled(contexts, SHARED_BY)):
            one = self.one_set(draws, start + number)
            allowed = None if eligible is None else _edged(eligible[first : first + len(rows)], len(rows))
            count, bad = inference_module().wins(self.program, one, rows, k, allowed)
            self.check_finite(np.asarray(bad)[: len(contexts) - first], first)
            won.append(np.asarray(count))
        return (np.concatenate(won)[: len(contexts)] / self.draws).astype(np.float32)

    def sample_actions(self, state: ProgramState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """The best action under each of n random posterior draws, int64[N, n]."""
        return sample_rows(self.propensities(state, contexts, key), n, key)

    def mean_rewards(self, state: ProgramState, contexts: Float32) -> NDArray[np.float64]:
        """The mean reward of each action over the posterior draws, float64[N, K]."""
        k, draws = int(state.actions), self.posterior(state)
        parts = [inference_module().means(self.program, draws, rows, k) for _, rows in filled(contexts, _CHUNK)]
        return np.concatenate([np.zeros((0, k)), *parts])[: len(contexts)].astype(np.float64)

    def posterior(self, state: Any) -> dict[str, NDArray[Any]]:
        """Posterior draws by the name of the latent parameter, [draws, ...], for diagnostics."""
        names = self._latents(state.memory.contexts.shape[1])
        return dict(zip(names, state.draws, strict=True))

    def _infer(self, memory: Memory, kept: dict[str, NDArray[Any]], key: Any) -> tuple[dict[str, Any], float]:
        """Draws by name, and the share of divergent steps; NaN if inference failed."""
        inference, n = inference_module(), len(memory.actions)

        data = inference.padded(memory.normalised())
        if self.inference == "svi" or n > self.nuts_limit:
            drawn = inference.fit(self.program, data, n, kept, key, count=self.draws * self.sets, steps=self.steps)
        else:
            plan = {"count": self.draws * self.sets, "warmup": self.warmup, "thin": self.thin, "chains": self.chains}
            drawn = inference.nuts(self.program, data, kept, key, **plan)
        return drawn[0], float(drawn[1])

    def prior_draws(self, width: int) -> tuple[NDArray[Any], ...]:
        """Prior draws of each latent parameter, sorted by name."""
        inference, names = inference_module(), self._latents(width)
        count, key = self.draws * self.sets, inference.jax_key(Key(0))
        drawn = inference.prior(self.program, names, width, count, key, numbers=self.numbers)
        return tuple(np.asarray(drawn[name]) for name in names)

    def one_set(self, draws: dict[str, NDArray[Any]], number: int) -> dict[str, NDArray[Any]]:
        """One of the sets of draws, in turn."""
        return {name: values[number % self.sets :: self.sets] for name, values in draws.items()}

    def _latents(self, width: int) -> tuple[str, ...]:
        inference_module()
        from potstill.teachers.program.sites import inspect_sites

        return inspect_sites(self.program, width, numbers=self.numbers).latents

    def _check_actions(self, problem: Problem) -> None:
        from potstill.teachers.program.sites import check_actions

        check_actions(self.program, problem.width, self.count(problem.actions))

    def check_finite(self, bad: NDArray[Any], first: int) -> None:
        """Refuse contexts from `first` on in which mean rewards are not finite under some draws, int[N]."""
        rows = np.flatnonzero(bad)
        if rows.size:
            raise InvalidModel(
                f"{self!r}: the mean rewards of context {first + rows[0]} are not finite under {bad[rows[0]]} of "
                f"{self.draws} draws; check logarithms and divisions in the program"
            )

    def _check(self, fine: bool, field: str, expected: str) -> None:
        if not fine:
            raise InvalidOption(f"{type(self).__name__}: {field} must be {expected}, got {getattr(self, field)!r}")

    def __repr__(self) -> str:
        # Without the memory address: this goes into policy files, which are equal for equal runs.
        options = [f"{field.name}={getattr(self, field.name)!r}" for field in fields(self)[1:]]
        return f"{type(self).__name__}({', '.join([name_of(self.program), *options])})"


def filled(contexts: Float32, at_once: int) -> Iterator[tuple[int, Float32]]:
    """Contexts in chunks of one size, the last filled up with copies of its last row; and the first row of each."""
    step = min(at_once, 1 << max(len(contexts) - 1, 0).bit_length())
    for first in range(0, len(contexts), step):
        rows = contexts[first : first + step]
        yield first, _edged(rows, step)


def _edged(rows: NDArray[Any], count: int) -> NDArray[Any]:
    """Rows, filled up to a count with copies of the last one."""
    return np.pad(rows, ((0, count - len(rows)), (0, 0)), mode="edge")


def name_of(program: Callable[..., Any]) -> str:
    """Name of a program in messages and files."""
    if isinstance(program, ModelFile):
        return str(program)
    return getattr(program, "__qualname__", type(program).__qualname__)


def inference_module() -> ModuleType:
    """The inference module, imported lazily: NumPyro is optional and takes seconds to import."""
    try:
        from potstill.teachers.program import inference
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"ProgramTS needs {error.name}: pip install 'potstill[programs]'", name=error.name
        ) from error
    return inference
