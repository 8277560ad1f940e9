"""Selection of the noise share of rewards on a hold-out. It sets the weight of the prior on network weights.

One network is trained per candidate, all from the same initialisation and on the same minibatches. A noisier candidate
is selected only if it predicts held-out rewards clearly better, because too much assumed noise smooths away rare
effects before they have enough data.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.keys import Key
from potstill.teachers.neural import network
from potstill.teachers.neural.network import Array, Data
from potstill.teachers.neural.recipe import Recipe

#: Candidate noise shares of the variance of rewards.
CANDIDATES = (0.1, 0.3, 1.0)
#: Growth factor of the number of observations that triggers a new selection.
_RESELECT_GROWTH = 1.5
#: Maximum number of observations for the selection; a random sample if there are more.
_ROWS = 8192
#: One observation in this many is held out. Below the minimum number of rows the hold-out would be too small.
_HELD_OUT, _MIN_ROWS = 5, 100
#: Standard errors by which a noisier candidate must predict better.
_MIN_STANDARD_ERRORS = 2.0


class Noise(NamedTuple):
    """The noise share, and when it was selected.

    Attributes:
        share: Noise share of the variance of rewards, float64[].
        judged: Number of observations at the last selection, int64[].
        since: Number of observations since then, int64[].
    """

    share: NDArray[np.float64]
    judged: NDArray[np.int64]
    since: NDArray[np.int64]

    def is_due(self, observations: int, new: int) -> bool:
        """Whether to repeat the selection, given the numbers of all and of new observations."""
        return observations >= _MIN_ROWS and int(self.since) + new >= (_RESELECT_GROWTH - 1) * int(self.judged)

    def after(self, new: int) -> Noise:
        """The same share after `new` more observations."""
        return self._replace(since=self.since + new)


def initial(share: float | None) -> Noise:
    """The noise share before any selection: the recipe's, or the first candidate."""
    nothing = np.array(0)
    return Noise(np.array(CANDIDATES[0] if share is None else share, np.float64), nothing, nothing)


def selected(share: float, observations: int) -> Noise:
    """The noise share selected on a number of observations."""
    return Noise(np.array(share), np.array(observations), np.array(0))


def sample(observations: int, key: Key) -> NDArray[np.int64]:
    """Positions of the observations to select on, sorted."""
    if observations <= _ROWS:
        return np.arange(observations)
    chosen = key.child("sample").generator().choice(observations, _ROWS, replace=False)
    return np.sort(chosen).astype(np.int64)


def select(data: Data, variance: float, sizes: tuple[int, ...], recipe: Recipe, key: Key) -> float:
    """Select the candidate for targets [1, N]; `variance` is that of all targets, of which these may be a sample."""
    from potstill.teachers.neural import train

    n, count = len(data.actions), len(CANDIDATES)
    order = key.child("held out").generator().permutation(n)
    held_out, training = np.sort(order[: n // _HELD_OUT]), np.sort(order[n // _HELD_OUT :])
    drawn = train.minibatches(len(training), 1, recipe, key.child("train"))
    start = network.random(sizes, 1, key.child("start")).map(lambda a: np.repeat(a, count, axis=0))
    trained = train.fit_to(
        start,
        _repeat(data.rows(training).rows(drawn.rows), count),
        drawn._replace(drawn=np.repeat(drawn.drawn, count, axis=0)),
        recipe,
        np.array(CANDIDATES) * variance,
    )
    return CANDIDATES[_choose(_errors(trained, data.rows(held_out)))]


def _repeat(data: Data, count: int) -> Data:
    return data._replace(targets=np.repeat(data.targets, count, axis=0), weights=np.repeat(data.weights, count, axis=0))


def _errors(networks: network.Networks, data: Data) -> Array:
    """Weighted squared errors of each network, float64[B, N]."""
    errors: Array = data.weights * (networks.predict_taken(data.contexts, data.actions) - data.targets) ** 2
    return errors


def _choose(errors: Array) -> int:
    """Position of the first candidate, or of a noisier one that is clearly better."""
    best = 0
    for noisier in range(1, len(CANDIDATES)):
        gain = errors[best] - errors[noisier]
        if gain.mean() > _MIN_STANDARD_ERRORS * gain.std() / len(gain) ** 0.5:
            best = noisier
    return best
