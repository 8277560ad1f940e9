"""How noisy rewards are, which the prior of networks has to know: observations that are held out tell.

A network is trained for each of a few candidates, all from one start and on the same minibatches. Rewards are taken to
be noisier than the first of them only where that predicts held-out rewards clearly better: too much noise smooths away
what is rare, before there is enough of it to be seen.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.teachers.neural import network
from potstill.teachers.neural.network import Array, Data
from potstill.teachers.neural.recipe import Recipe

#: Shares of the variance of rewards that may be noise.
CANDIDATES = (0.1, 0.3, 1.0)
#: They are tried again when observations have grown by this factor.
_AGAIN = 1.5
#: Of more observations a sample is enough.
_ROWS = 8192
#: One observation in this many is held out; below this number, too few would be to select by.
_HELD_OUT, _FEWEST = 5, 100
#: Standard errors by which a noisier candidate has to predict better.
_CLEARLY = 2.0


class Noise(NamedTuple):
    """What is taken for noise.

    Attributes:
        share: Share of the variance of rewards, float64[].
        judged: How many observations it was learnt from, int64[].
        since: How many have come since then, int64[].
    """

    share: NDArray[np.float64]
    judged: NDArray[np.int64]
    since: NDArray[np.int64]

    def is_due(self, observations: int, new: int) -> bool:
        """Whether to select it again, given the numbers of all and of new observations."""
        return observations >= _FEWEST and int(self.since) + new >= (_AGAIN - 1) * int(self.judged)

    def waiting(self, new: int) -> Noise:
        """The same after more observations."""
        return self._replace(since=self.since + new)


def given(share: float | None) -> Noise:
    """Before anything is known: the recipe's, or the first candidate."""
    nothing = np.array(0)
    return Noise(np.array(CANDIDATES[0] if share is None else share, np.float64), nothing, nothing)


def learnt(share: float, observations: int) -> Noise:
    """The noise selected on a number of observations."""
    return Noise(np.array(share), np.array(observations), np.array(0))


def sample(observations: int, key: Key) -> NDArray[np.int64]:
    """The positions of the observations to learn it from, in order."""
    if observations <= _ROWS:
        return np.arange(observations)
    chosen = key.child("sample").generator().choice(observations, _ROWS, replace=False)
    return np.sort(chosen).astype(np.int64)


def judged(data: Data, variance: float, sizes: tuple[int, ...], recipe: Recipe, key: Key) -> float:
    """The candidate that fits the targets, [1, N], of which all there are have that variance."""
    from potstill.teachers.neural import train

    n, count = len(data.actions), len(CANDIDATES)
    order = key.child("held out").generator().permutation(n)
    held_out, shown = np.sort(order[: n // _HELD_OUT]), np.sort(order[n // _HELD_OUT :])
    drawn = train.minibatches(len(shown), 1, recipe, key.child("train"))
    start = network.random(sizes, 1, key.child("start")).map(lambda a: np.repeat(a, count, axis=0))
    trained = train.fit_to(
        start,
        _repeated(data.rows(shown).rows(drawn.rows), count),
        drawn._replace(drawn=np.repeat(drawn.drawn, count, axis=0)),
        recipe,
        np.array(CANDIDATES) * variance,
    )
    return CANDIDATES[_chosen(_errors(trained, data.rows(held_out)))]


def _repeated(data: Data, count: int) -> Data:
    return data._replace(targets=np.repeat(data.targets, count, axis=0), weights=np.repeat(data.weights, count, axis=0))


def _errors(networks: network.Networks, data: Data) -> Array:
    """Weighted squared errors of each network, float64[B, N]."""
    errors: Array = data.weights * (networks.taken(data.contexts, data.actions) - data.targets) ** 2
    return errors


def _chosen(errors: Array) -> int:
    """The first candidate, or the one that is clearly better."""
    best = 0
    for noisier in range(1, len(CANDIDATES)):
        gain = errors[best] - errors[noisier]
        if gain.mean() > _CLEARLY * gain.std() / len(gain) ** 0.5:
            best = noisier
    return best
