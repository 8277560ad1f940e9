"""LowRank-TS: a Gaussian over all weights of a network, fitted to the iterates of its training (SWAG)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.problem import Observations, Problem
from potstill.teachers import memory as memories
from potstill.teachers.contract import Bool, Exactness, Float32
from potstill.teachers.memory import Memory
from potstill.teachers.neural import network
from potstill.teachers.neural import noise_selection as noises
from potstill.teachers.neural.base import Neural
from potstill.teachers.neural.network import Array, Data, Networks, Start
from potstill.teachers.neural.noise_selection import Noise
from potstill.teachers.propensities import among, part_of

#: Networks drawn at once: enough for large matrix products, few enough for memory.
_AT_ONCE = 32
#: Contexts that share the drawn networks. Drawing them anew for so few takes two to three times as long as for all.
_SHARED_BY = 128


class LowRankState(NamedTuple):
    """A Gaussian over the weights of one network.

    Attributes:
        memory: The observations.
        networks: The mean.
        noise: Noise share that it was trained with.
        deviations: `rank` iterates minus their mean. The covariance is half their low-rank one, half its diagonal.
    """

    memory: Memory
    networks: Networks
    noise: Noise
    deviations: Networks


class LowRankTS(Neural, frozen=True, kw_only=True, tag_field="type", tag="low-rank-ts"):
    """A low-rank plus diagonal Gaussian over network weights, after SWAG (Maddox et al. 2019). Cheap and approximate.

    After training, the optimiser continues at a constant rate, and its iterates give mean and covariance. Their spread
    comes from minibatch noise. It is scaled by √(batch / observations), the rate at which a posterior narrows (Mandt,
    Hoffman, Blei 2017). Propensities are shares of drawn networks, which 128 contexts have in common.

    Args:
        rank: Number of iterates to keep.
        every: Number of steps between iterates.
        collect_rate: Constant learning rate while collecting iterates.
        spread: Factor on the standard deviations. Above 1 explores more.
        draws: Number of networks drawn for propensities.
    """

    rank: int = 20
    every: int = 10
    collect_rate: float = 0.003
    spread: float = 1.0
    draws: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, least in (("rank", 2), ("every", 1), ("draws", 1)):
            if getattr(self, field) < least:
                self._refuse(field, f"{least} or more")
        for field in ("collect_rate", "spread"):
            if not 0 < getattr(self, field) < np.inf:
                self._refuse(field, "a positive number")

    @property
    def exactness(self) -> Exactness:
        """Sampled: propensities are shares of `draws` networks."""
        return Exactness("sampled", self.draws, 0.5 / self.draws**0.5, shared_by=_SHARED_BY)

    def init(self, problem: Problem) -> LowRankState:
        """Weights of 0 with variance 0, so that all actions tie."""
        nothing, noise = memories.empty(problem.width), noises.initial(self.recipe.noise)
        return LowRankState(nothing, self._blank(problem), noise, self._blank(problem, self.rank))

    def update(self, state: LowRankState, observations: Observations, key: Key) -> LowRankState:
        """The network after training with more observations, and the Gaussian fitted to its last iterates."""
        if not len(observations):
            return state
        memory = self._append(state.memory, observations)
        units, previous = self._units(memory), len(state.memory.actions)
        data = self._data(memory.normalised(), units)
        start, noise = self._prepare(state.networks, state.noise, previous, len(observations), data, units, key)
        path = self._path(start, data, key).in_units(units)
        mean, deviations = self._gaussian(path, len(memory.actions))
        return LowRankState(memory, mean, noise, deviations)

    def propensities(self, state: LowRankState, contexts: Float32, key: Key, eligible: Bool | None = None) -> Float32:
        """The share of drawn networks that prefer each action, ties split evenly, float32[N, K]."""
        gaussian, rng = self._low_rank(state), key.generator()
        wins = np.zeros((len(contexts), state.networks.sizes[-1]))
        for first in range(0, len(contexts), _SHARED_BY):
            rows = slice(first, first + _SHARED_BY)
            for drawn in gaussian.draw(self.draws, rng):
                best = _best(drawn, contexts[rows], part_of(eligible, rows))
                wins[rows] += (best / best.sum(axis=2, keepdims=True)).sum(axis=0)
        return (wins / self.draws).astype(np.float32)

    def sample_actions(self, state: LowRankState, contexts: Float32, n: int, key: Key) -> NDArray[np.int64]:
        """The best action of n drawn networks for each context, int64[N, n]; ties are broken at random."""
        gaussian, rng, ties = self._low_rank(state), key.generator(), key.child("ties").generator()
        chosen = np.zeros((len(contexts), n), np.int64)
        for row, of_context in enumerate(chosen):
            best = np.concatenate([_best(drawn, contexts[row : row + 1])[:, 0] for drawn in gaussian.draw(n, rng)])
            of_context[:] = (best * ties.random(best.shape)).argmax(axis=1)
        return chosen

    def mean_rewards(self, state: LowRankState, contexts: Float32) -> NDArray[np.float64]:
        """The reward of each action as the mean network predicts it, float64[N, K]: the posterior mean, linearised."""
        return np.concatenate([state.networks.predict(contexts[rows])[0] for rows in network.chunks(len(contexts))])

    def _path(self, start: Start, data: Data, key: Key) -> Networks:
        """The iterates after training, as networks for standardised rewards."""
        from potstill.teachers.neural import train

        trained = train.fit(start, data, self.recipe, key.child("train"))
        constant = msgspec.structs.replace(self.recipe, rate=self.collect_rate)
        return train.iterates(trained, data, constant, start.noise, self.every, self.rank, key.child("collect"))

    def _gaussian(self, path: Networks, n: int) -> tuple[Networks, Networks]:
        """Mean and deviations of iterates."""
        mean = path.map(lambda a: a.mean(axis=0, keepdims=True))
        narrowed = self.spread * min(1.0, self.recipe.batch / n) ** 0.5
        return mean, path.map(lambda a: narrowed * (a - a.mean(axis=0)))

    def _low_rank(self, state: LowRankState) -> _Gaussian:
        half = 0.5**0.5
        return _Gaussian(
            _centred(state.networks).map(_float32),
            state.deviations.map(lambda a: _float32(half / (self.rank - 1) ** 0.5 * a)),
            state.deviations.map(lambda a: _float32(half * a.std(axis=0))),
        )


class _Gaussian(NamedTuple):
    """The Gaussian over weights in float32: mean, low-rank part and standard deviations of the diagonal part."""

    mean: Networks
    low_rank: Networks
    diagonal: Networks

    def draw(self, n: int, rng: np.random.Generator) -> Iterator[Networks]:
        """Stacks of in total n networks: mean + (deviations·z₁/√(rank - 1) + √diagonal·z₂) / √2."""
        for first in range(0, n, _AT_ONCE):
            z = rng.standard_normal((min(_AT_ONCE, n - first), self.low_rank.size), np.float32)
            yield _shifted(*self, z, rng)


def _best(drawn: Networks, contexts: Float32, eligible: Bool | None = None) -> NDArray[np.bool_]:
    """Which actions have the highest reward in each context under each network, bool[B, N, K]."""
    predicted = among(drawn.predict(contexts), eligible)
    best: NDArray[np.bool_] = predicted == predicted.max(axis=2, keepdims=True)
    return best


def _shifted(mean: Networks, low_rank: Networks, diagonal: Networks, z: Array, rng: np.random.Generator) -> Networks:
    """The mean, plus one combination of the deviations per row of z, plus diagonal noise on every weight."""

    def draw(mean: Array, low_rank: Array, diagonal: Array) -> Array:
        drawn: Array = rng.standard_normal((len(z), *diagonal.shape), np.float32)
        drawn *= diagonal
        drawn += np.tensordot(z, low_rank, axes=1)
        drawn += mean
        return drawn

    weights = map(draw, mean.weights, low_rank.weights, diagonal.weights)
    return Networks(tuple(weights), tuple(map(draw, mean.biases, low_rank.biases, diagonal.biases)))


def _centred(networks: Networks) -> Networks:
    """The networks minus a constant reward. That changes no comparison and preserves differences in float32."""
    bias = networks.biases[-1]
    return networks._replace(biases=(*networks.biases[:-1], bias - bias.mean()))


def _float32(array: Array) -> Array:
    return array.astype(np.float32)
