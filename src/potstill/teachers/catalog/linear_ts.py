"""Thompson sampling on a catalogue: a linear model over context and item, with an effect of each item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption, UnsupportedSpace, shown
from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.spaces import ActionSpace, Catalog
from potstill.teachers.catalog.regression import (
    Float64,
    Gone,
    JointSampler,
    Posterior,
    Prior,
    Scales,
    Sums,
    fit,
    sums_of,
    with_one,
)
from potstill.teachers.contract import Bool, Exactness, Float32
from potstill.teachers.propensities import among, part_of

#: Contexts that share their draws: drawing the effects of all items for them costs about as much as rating them.
_SHARED_BY = 64
#: Numbers that are held at once: 16 MB.
_NUMBERS = 1 << 22
#: Most regressors: the time of an update grows with their third power, and states hold 14 squares of them.
_MOST = 1024


class CatalogState(NamedTuple):
    """Sufficient statistics, and the posterior given them.

    Attributes:
        sums: Sufficient statistics of all observations.
        gone: What removed items leave.
        items: Encoded features of the items, float64[K, e].
        posterior: The posterior.
    """

    sums: Sums
    gone: Gone
    items: Float64
    posterior: Posterior


class CatalogLinearTS(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="catalog-linear-ts"):
    """Reward = φᵀθ + u + noise for items of a `Catalog`: φ are context, item features and their products.

    θ is shared by all items, and u is an effect of each item, so that a new item is expected to do as its features
    say, and explored as much as they leave open. How much items differ beyond their features, the prior scale of θ and
    the noise are learnt (empirical Bayes). All items are drawn jointly, with the covariance that θ gives them.

    Args:
        precision: Precision of the prior on θ, relative to the noise, before any observation.
        effect: Variance of effects, relative to the noise, before any observation.
        alpha: Shape of the prior on the noise variance: half the number of observations that it counts for.
        beta: Scale of the prior on the noise variance, in units of the variance of rewards.
        discount: Factor on all earlier observations at each update. Below 1 it forgets, for drifting rewards.
        draws: Joint draws for the propensities of each context.
    """

    precision: float = 1.0
    effect: float = 1.0
    alpha: float = 1.0
    beta: float = 1.0
    discount: float = 1.0
    draws: int = 256

    def __post_init__(self) -> None:
        for field in ("precision", "effect", "alpha", "beta"):
            value = getattr(self, field)
            if not 0 < value < np.inf:
                raise InvalidOption(f"CatalogLinearTS: {field} must be a positive number, got {value!r}")
        if not 0 < self.discount <= 1:
            raise InvalidOption(f"CatalogLinearTS: discount must be above 0 and at most 1, got {self.discount!r}")
        if self.draws < 1:
            raise InvalidOption(f"CatalogLinearTS: draws must be at least 1, got {self.draws!r}")

    def supports(self, space: ActionSpace) -> str | None:
        """None for a catalogue; otherwise the reason."""
        return None if isinstance(space, Catalog) else "it needs items with features, a Catalog"

    @property
    def exactness(self) -> Exactness:
        """Sampled; groups of contexts share their draws."""
        return Exactness("sampled", self.draws, 0.5 / self.draws**0.5, shared_by=_SHARED_BY)

    def init(self, problem: Problem) -> CatalogState:
        """The prior."""
        sums = self.summarise(Observations.none(problem))
        return self._state(sums, Gone.nothing(len(sums.moment)), _features(problem))

    def update(self, state: CatalogState, observations: Observations, key: Key) -> CatalogState:  # noqa: ARG002
        """The posterior after more observations."""
        return self.absorb(state, self.summarise(observations))

    def summarise(self, observations: Observations) -> Sums:
        """Sufficient statistics of some observations."""
        items, width = _features(observations.problem), observations.problem.width
        regressors = (width + 1) * (items.shape[1] + 1)
        if regressors > _MOST:
            raise InvalidOption(
                f"CatalogLinearTS: {width} columns of contexts and {items.shape[1]} of items make {regressors:,} "
                f"regressors, and at most {_MOST:,} are practical; encode features in fewer columns"
            )
        return sums_of(observations.contexts, items, observations.actions, observations.rewards)

    def absorb(self, state: CatalogState, stats: Sums) -> CatalogState:
        """The posterior after the observations behind `stats`."""
        return self._state(state.sums.scaled(self.discount) + stats, state.gone.scaled(self.discount), state.items)

    def propensities(self, state: CatalogState, contexts: Float32, key: Key, eligible: Bool | None = None) -> Float32:
        """The share of joint draws in which each item is the best, float32[N, K]."""
        sampler, items = self._sampler(state), with_one(state.items).astype(np.float32).T
        wins = np.zeros((len(contexts), len(state.items)), np.float32)
        together = max(_NUMBERS // (_SHARED_BY * len(state.items)), 1)
        for group, first in enumerate(range(0, len(contexts), _SHARED_BY)):
            rows, rng = slice(first, first + _SHARED_BY), key.child(group).generator()
            x, allowed = with_one(contexts[rows]).astype(np.float32), part_of(eligible, rows)
            for drawn in (sampler.draw(n, rng) for n in _parts(self.draws, together)):
                # As two plain products: NumPy multiplies stacks of matrices sixteen times as slowly.
                weights = drawn.coefficients.swapaxes(0, 1).reshape(-1, len(items)) @ items
                weights = weights.reshape(x.shape[1], -1)
                weights[0] += drawn.effects.ravel()
                rated = (x @ weights).reshape(len(x), *drawn.effects.shape)
                best = among(rated, None if allowed is None else allowed[:, None]).argmax(axis=2)
                np.add.at(wins[rows], (np.arange(len(x))[:, None], best), 1)
        return wins / np.float32(self.draws)

    def sample_actions(self, state: CatalogState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """Thompson-sampled items, int64[N, n]: the best of a joint draw each."""
        sampler, rng = self._sampler(state), key.generator()
        items, every = with_one(state.items).astype(np.float32).T, np.repeat(contexts, n, axis=0)
        best = np.empty(len(every), np.int64)
        first = 0
        for count in _parts(len(every), max(_NUMBERS // len(state.items), 1)):
            rows = slice(first, first + count)
            drawn = sampler.draw(count, rng)
            x = with_one(every[rows]).astype(np.float32)
            best[rows] = (np.einsum("nd,nde->ne", x, drawn.coefficients) @ items + drawn.effects).argmax(axis=1)
            first += count
        return best.reshape(len(contexts), n)

    def mean_rewards(self, state: CatalogState, contexts: Float32) -> Float64:
        """The posterior mean reward of each item, float64[N, K]."""
        x, items = with_one(contexts), with_one(state.items)
        coefficients = state.posterior.mean.reshape(x.shape[1], -1)
        found: Float64 = x @ (coefficients @ items.T) + self._sampler(state).effects
        return found

    def item_effects(self, state: CatalogState) -> Float32:
        """Posterior mean and standard deviation of each item's effect, in units of a new item's, float32[K, 2]."""
        effect, counts = float(state.posterior.scales.effect), state.sums.counts
        unit = np.sqrt(effect * state.posterior.noise)
        return np.stack([self._sampler(state).effects / unit, 1 / np.sqrt(1 + counts * effect)], 1).astype(np.float32)

    def with_actions(
        self, state: CatalogState, before: Problem, after: Problem, like: Mapping[str, str]
    ) -> CatalogState:
        """The posterior for another catalogue.

        Items of both keep their observations, with the features that they then had. What removed items told about
        coefficients and scales stays.
        """
        if like:
            raise InvalidOption("an item begins as those with like features do; leave out what it is like")
        old, new = _catalog(before), _catalog(after)
        if old.features != new.features:
            raise InvalidOption("the features of items have changed, so that it learns from all observations again")
        places = {name: place for place, name in enumerate(old.names)}
        kept = [places.get(name, -1) for name in new.names]
        left = np.setdiff1d(np.arange(len(old)), kept)
        sums, gone = _picked(state.sums, np.array(kept)), state.gone
        if left.size:
            gone = gone + Gone.of(_picked(state.sums, left))
        return CatalogState(sums, gone, _features(after), fit(sums, gone, self._prior, state.posterior.scales))

    @property
    def _prior(self) -> Prior:
        return Prior(Scales(np.array(self.precision), np.array(self.effect)), self.alpha, self.beta)

    def _state(self, sums: Sums, gone: Gone, items: Float64) -> CatalogState:
        return CatalogState(sums, gone, items, fit(sums, gone, self._prior))

    def _sampler(self, state: CatalogState) -> JointSampler:
        return JointSampler(state.posterior, state.sums, state.items.shape[1])


def _catalog(problem: Problem) -> Catalog:
    space: Any = problem.actions
    if not isinstance(space, Catalog):
        raise UnsupportedSpace(
            f"CatalogLinearTS does not support {shown(space)}: it needs items with features, a Catalog"
        )
    return space


def _features(problem: Problem) -> Float64:
    return _catalog(problem).encoded.astype(np.float64)


def _parts(count: int, size: int) -> Iterator[int]:
    """Sizes of consecutive parts."""
    for first in range(0, count, size):
        yield min(size, count - first)


def _picked(sums: Sums, places: NDArray[np.int64]) -> Sums:
    """Statistics with those of other items: -1 is an item without observations."""
    known = places >= 0
    regressors = np.zeros((len(places), sums.item_regressors.shape[1]))
    rewards = np.zeros(len(places))
    regressors[known], rewards[known] = sums.item_regressors[places[known]], sums.item_rewards[places[known]]
    return sums._replace(item_regressors=regressors, item_rewards=rewards)
