"""GP-TS: a Gaussian process over contexts and actions, so that similar actions share information."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import memory
from potstill.teachers.contract import Bool, Exactness, Float32, NeedsFiniteActions
from potstill.teachers.gp import regression
from potstill.teachers.gp.kernels import Constant, Independent, Kernel, Linear, Matern, Typical, depends_on_action
from potstill.teachers.gp.max_variance import inducing_points
from potstill.teachers.gp.pairs import Float64, Points, geometry
from potstill.teachers.joint_normal import Joint, draws, shares_in_turn
from potstill.teachers.memory import Weighting, Weights, weights

#: Numbers per chunk of contexts, for draws or covariances: 32 MB.
_CHUNK = 4_000_000
#: Prior of a linear mean function for each action: its coefficients have a standard deviation of 3, in units of that
#: of the rewards. The contexts' columns are in [0, 1].
_LINEAR_MEAN = Independent(variance=9.0) * (Constant() + Linear("context"))
#: Candidate observations per inducing point.
_CANDIDATES = 8
#: Rewards whose standard deviation is below this share of the largest are equal up to rounding.
_EQUAL = 1e-12


class GaussianProcessState(NamedTuple):
    """Observations, hyperparameters and posterior.

    Attributes:
        features: Features of the actions, float64[K, e].
        memory: The observations.
        logs: Logarithms of the kernel's hyperparameters and of the noise variance, float64[size + 1].
        relevance: Logarithms of factors on the context columns, float64[d].
        unit: Mean and standard deviation of the rewards, float64[2]. Everything else is in these units.
        posterior: Posterior given the observations.
    """

    features: Float64
    memory: memory.Memory
    logs: Float64
    relevance: Float64
    unit: Float64
    posterior: regression.Posterior


class GaussianProcessTS(
    msgspec.Struct, NeedsFiniteActions, Weights, frozen=True, kw_only=True, tag_field="type", tag="gaussian-process-ts"
):
    """Reward = f(context, action) + noise, with a Gaussian process prior on f and normal noise.

    Actions are correlated, so propensities are shares of joint draws; with two actions they are exact. The default
    kernel suits unordered actions: a part common to all actions plus an independent part per action. For doses, prices
    or bitrates let neighbours share information: ``Matern("context") + Matern("context") * RBF("action")``.

    Args:
        kernel: Prior covariance of the rewards of two (context, action) points. Its numbers are the initial
            hyperparameters.
        action_features: A tuple of numbers for each action, the input of kernels on the action. Default: the position
            in the action list, scaled to [0, 1].
        noise: Initial noise variance relative to that of the rewards, from 1e-6 to 10.
        draws: Number of posterior draws per context for propensities.
        exact_limit: Largest number of observations for exact inference. Beyond it, inducing points approximate them.
        inducing: Maximum number of inducing points.
        fit_limit: Maximum number of observations for learning hyperparameters; a random sample if there are more.
        fit_steps: Optimisation steps for the hyperparameters at each update, warm-started from the previous update.
            0 keeps them fixed.
        relevance: Whether to learn a relevance factor for each context column (ARD). Useful if contexts have many
            columns of which few matter.
        spread: Standard deviation of the prior on the logarithm of each hyperparameter. Large values give plain
            marginal likelihood.
        window: Learn only from the latest `window` observations.
        weighting: Weighting of observations. An observation of weight 2 has half the noise variance.
        mean: Mean function of the prior. ``constant`` is the mean of the rewards. ``linear`` adds a linear function of
            the context for each action, whose coefficients are integrated out: far from observations, rewards then
            follow a line instead of returning to the mean.
        standardise: Whether the prior is in units of the rewards' mean and standard deviation. False takes rewards as
            they are: the prior has mean 0, and its variances are those of the kernel.
    """

    later_options: ClassVar[tuple[str, ...]] = ("mean", "standardise")

    kernel: Kernel = Matern("context") + Matern("context") * Independent()
    action_features: tuple[tuple[float, ...], ...] | None = None
    noise: float = 0.1
    draws: int = 2048
    exact_limit: int = 1000
    inducing: int = 500
    fit_limit: int = 500
    fit_steps: int = 40
    relevance: bool = True
    spread: float = 1.5
    window: int | None = None
    weighting: Weighting = "equal"
    mean: Literal["constant", "linear"] = "constant"
    standardise: bool = True

    def __post_init__(self) -> None:
        least, most = regression.NOISE
        _check(least <= self.noise <= most, self, "noise", f"from {least} to {most}")
        _check(0 < self.spread < np.inf, self, "spread", "a positive number")
        for field in ("draws", "inducing", "fit_limit"):
            _check(getattr(self, field) >= 1, self, field, "at least 1")
        for field in ("exact_limit", "fit_steps"):
            _check(getattr(self, field) >= 0, self, field, "0 or more")
        _check(self.window is None or self.window >= 1, self, "window", "at least 1, or None")
        _check(self.mean in ("constant", "linear"), self, "mean", "'constant' or 'linear'")
        if not depends_on_action(self.kernel):
            raise InvalidOption(
                "GaussianProcessTS: a kernel on the context alone gives all actions the same reward; add or multiply "
                "one on the action, such as Independent() or RBF('action')"
            )

    @property
    def exactness(self) -> Exactness:
        """Sampled: a share of `draws` has a standard error of at most ½/√draws."""
        return Exactness("sampled", draws=self.draws, standard_error=0.5 / self.draws**0.5)

    def init(self, problem: Problem) -> GaussianProcessState:
        """The prior."""
        return self._prior(problem, problem.width)

    def update(self, state: GaussianProcessState, observations: Observations, key: Key) -> GaussianProcessState:
        """The posterior after more observations."""
        if not len(observations):
            return state
        kept = state.memory.append(observations, self.window, weights(observations, self.weighting))
        learnt: GaussianProcessState = self._learn(state, kept, key)
        return learnt

    def inputs(self, state: GaussianProcessState, contexts: Float32) -> NDArray[Any]:  # noqa: ARG002
        """Inputs of the kernel, [N, d'], for contexts float32[N, d]: the contexts themselves."""
        return contexts

    def propensities(
        self, state: GaussianProcessState, contexts: Float32, key: Key, eligible: Bool | None = None
    ) -> Float32:
        """The probability that each action is best, float32[N, K]: shares of joint draws; exact for two actions."""
        rng = key.generator()
        parts = shares_in_turn(self._joints(state, contexts, self.draws), self.draws, rng, eligible)
        return np.concatenate([np.zeros((0, len(state.features)), np.float32), *parts])

    def sample_actions(self, state: GaussianProcessState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson-sampled actions, int64[N, n]."""
        rng = key.generator()
        parts = [draws(joint, n, rng).argmax(axis=1) for joint in self._joints(state, contexts, n)]
        return np.concatenate([np.zeros((0, n), np.int64), *parts])

    def mean_rewards(self, state: GaussianProcessState, contexts: Float32) -> Float64:
        """The posterior mean reward of each action, float64[N, K]."""
        offset, scale = state.unit
        parts = [joint.mean for joint in self._joints(state, contexts, 1)]
        return np.asarray(offset + scale * np.concatenate([np.zeros((0, len(state.features))), *parts]))

    def joint(self, state: GaussianProcessState, contexts: Float32) -> Joint:
        """The posterior of the mean rewards of all actions in each context, in units of the reward."""
        k, (offset, scale) = len(state.features), state.unit
        parts = list(self._joints(state, contexts, 1))
        mean = np.concatenate([np.zeros((0, k)), *(part.mean for part in parts)])
        covariance = np.concatenate([np.zeros((0, k, k)), *(part.covariance for part in parts)])
        return Joint(offset + scale * mean, scale**2 * covariance)

    def model(self, state: GaussianProcessState) -> regression.Model:
        """The prior at the hyperparameters of a state."""
        return regression.Model(self._prior_kernel, state.logs, state.relevance, state.features)

    def information_gain(self, state: GaussianProcessState, new: int) -> float:
        """½ log det(I + σ⁻²K) of all observations less that of all but the latest `new`, in nats.

        This is the paper's information gain of a batch, by the chain rule, at the present hyperparameters. Beyond
        `exact_limit` it is that of the inducing points, a lower bound of each term.
        """
        model, kept = self.model(state), state.memory.normalised()
        points, total = self._points(state, kept), len(kept.actions)

        def gain(n: int) -> float:
            some, weights = points.at(slice(0, n)), kept.weights[:n]
            if not n:
                return 0.0
            if total <= self.exact_limit:
                return regression.information_gain(model, some, weights)
            return regression.sparse_information_gain(model, some, weights, state.posterior.points)

        return max(gain(total) - gain(max(total - new, 0)), 0.0)

    @property
    def _prior_kernel(self) -> Kernel:
        """The kernel with that of the mean function, whose coefficients have a vague prior."""
        return self.kernel if self.mean == "constant" else self.kernel + _LINEAR_MEAN

    def _prior(self, problem: Problem, width: int) -> GaussianProcessState:
        """The prior for kernels on inputs of `width` columns."""
        features = self._features(problem)
        logs, relevance = self._start(width, features)[1:3]
        empty, unit = memory.empty(problem.width), np.array([0.0, 1.0])
        return GaussianProcessState(features, empty, logs, relevance, unit, regression.prior(width))

    def _learn(self, state: Any, kept: memory.Memory, key: Key) -> Any:
        """The posterior given a memory."""
        points, (unit, targets) = self._points(state, kept), self._targets(kept.normalised())
        model = self._fit(state, points, targets, key.child("fit"))
        posterior = self._posterior(model, points, targets, key.child("inducing"))
        return state._replace(memory=kept, logs=model.logs, relevance=model.relevance, unit=unit, posterior=posterior)

    def _points(self, state: GaussianProcessState, kept: memory.Memory) -> Points:
        return Points(self.inputs(state, kept.contexts), kept.actions)

    def _joints(self, state: GaussianProcessState, contexts: Float32, draws: int) -> Iterator[Joint]:
        """The posterior in standardised units, in chunks of contexts that bound memory."""
        model, k = self.model(state), len(state.features)
        step = max(1, _CHUNK // (k * max(draws, k, len(state.posterior.weights))))
        for start in range(0, len(contexts), step):
            inputs = self.inputs(state, contexts[start : start + step])
            yield Joint(*regression.predict(model, state.posterior, inputs))

    def _features(self, problem: Problem) -> Float64:
        k, given = self.count(problem.actions), self.action_features
        if given is None:
            return np.linspace(0.0, 1.0, k)[:, None]
        consistent = len(given) == k and len({len(row) for row in given}) == 1
        if not consistent or not np.isfinite(given).all():
            raise InvalidOption(
                f"GaussianProcessTS: action_features must hold the same number of finite values for each of {k} actions"
            )
        return np.array(given, np.float64)

    def _start(self, width: int, features: Float64) -> regression.Model:
        """The initial hyperparameters. Encoded columns are in [0, 1], so their number sets the typical distance."""
        between_actions = float(np.sqrt(geometry(features, features).squared.mean()))
        typical = Typical(max(width, 1) ** 0.5 / 2, between_actions or 1.0)
        logs = np.append(self._prior_kernel.start(typical), np.log(self.noise))
        return regression.Model(self._prior_kernel, logs, np.zeros(width), features)

    def _targets(self, kept: memory.Memory) -> tuple[Float64, regression.Targets]:
        """The unit of the rewards, float64[2], and the rewards in it."""
        if self.standardise:
            return _standardise(kept)
        return np.array([0.0, 1.0]), regression.Targets(kept.rewards.astype(np.float64), kept.weights)

    def _fit(
        self, state: GaussianProcessState, points: Points, targets: regression.Targets, key: Key
    ) -> regression.Model:
        if not self.fit_steps:
            return self.model(state)
        some = self._to_fit(len(targets.values), key)
        start = self._start(points.contexts.shape[1], state.features)
        chosen = regression.Targets(targets.values[some], targets.weights[some])
        return regression.fit(
            start,
            self.model(state),
            points.at(some),
            chosen,
            steps=self.fit_steps,
            spread=self.spread,
            relevance=self.relevance,
            fixed=0 if self.mean == "constant" else _LINEAR_MEAN.size,
        )

    def _to_fit(self, n: int, key: Key) -> NDArray[np.int64]:
        """Positions of the observations to learn hyperparameters from, of n."""
        return _subsample(n, self.fit_limit, key)

    def _posterior(
        self, model: regression.Model, points: Points, targets: regression.Targets, key: Key
    ) -> regression.Posterior:
        if len(targets.values) <= self.exact_limit:
            return regression.exact(model, points, targets)
        candidates = points.at(_subsample(len(targets.values), _CANDIDATES * self.inducing, key))
        return regression.sparse(model, points, targets, inducing_points(model, candidates, self.inducing))


def _standardise(kept: memory.Memory) -> tuple[Float64, regression.Targets]:
    """Mean and standard deviation of the rewards, float64[2], and the rewards in these units."""
    # Divide by the largest first, so that no square overflows. Equal rewards have no spread: any unit works.
    largest = float(np.abs(kept.rewards).max()) or 1.0
    shares = kept.rewards / largest
    mean = float(np.average(shares, weights=kept.weights))
    spread = float(np.sqrt(np.average((shares - mean) ** 2, weights=kept.weights)))
    spread = spread if spread > _EQUAL else 1.0
    return largest * np.array([mean, spread]), regression.Targets((shares - mean) / spread, kept.weights)


def _subsample(n: int, limit: int, key: Key) -> NDArray[np.int64]:
    """Positions of a random sample of at most `limit` of n observations, sorted."""
    if n <= limit:
        return np.arange(n)
    return np.sort(key.generator().choice(n, limit, replace=False))


def _check(fine: bool, teacher: GaussianProcessTS, field: str, expected: str) -> None:
    if not fine:
        raise InvalidOption(f"GaussianProcessTS: {field} must be {expected}, got {getattr(teacher, field)!r}")
