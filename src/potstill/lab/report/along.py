"""Distilled policies compared with their Thompson sampling along the whole curve, not only at its end."""

from __future__ import annotations

from itertools import product

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.lab.report.runs import Run
from potstill.lab.runs import LEAST_TRIALS

Float64 = NDArray[np.float64]

#: Up to this many trials all sign flips are enumerated; beyond, this many times two are drawn.
_ENUMERATED = 12
_SEED = 0


class Along(msgspec.Struct, frozen=True, kw_only=True):
    """Paired cost of a distilled policy so far, in shares of the final result of its Thompson sampling.

    Attributes:
        decisions: Decisions taken by the end of each batch.
        cost: Mean over trials at the end of each batch; positive if the policy is worse.
        two_se: Two standard errors at each batch.
        at: Number of decisions at which the cost is the largest in standard errors.
        worst: The cost there.
        p: Probability of a distance as large, at any batch and in either direction, if the sign of each trial's
            difference were chance. It holds for all batches together.
    """

    decisions: list[float]
    cost: list[float]
    two_se: list[float]
    at: float
    worst: float
    p: float


def along(run: Run, teacher: Run) -> Along | None:
    """Compare along the curve on the trials that both have; None if they are too few."""
    both = sorted(set(run.trial_keys) & set(teacher.trial_keys))
    if len(both) < LEAST_TRIALS or run.measure != teacher.measure:
        return None
    one, other = (whole.curves[[whole.trial_keys.index(key) for key in both]] for whole in (run, teacher))
    if not (final := float(other[:, -1].mean())):
        return None
    costs = (one - other if run.measure == "regret" else other - one) / final
    mean, error = _mean_and_error(costs)
    distance = _distance(mean, error)
    at = int(distance.argmax())
    return Along(
        decisions=run.decisions.tolist(),
        cost=mean.tolist(),
        two_se=(2 * error).tolist(),
        at=float(run.decisions[at]),
        worst=float(mean[at]),
        p=_sign_flip_p(costs, float(distance[at])),
    )


def _mean_and_error(costs: Float64) -> tuple[Float64, Float64]:
    """Mean and standard error over trials of each batch, float64[T], of costs float64[trials, T]."""
    return costs.mean(axis=0), costs.std(axis=0, ddof=1) / np.sqrt(len(costs))


def _distance(mean: Float64, error: Float64) -> Float64:
    """Distance from 0 in standard errors; 0 where all trials are equal, as in the first, uniform batch."""
    return np.abs(np.divide(mean, error, out=np.zeros_like(mean), where=error > 0))


def _sign_flip_p(costs: Float64, observed: float) -> float:
    """Share of sign flips, of whole trials, whose largest distance is at least the observed one."""
    n = len(costs)
    if n <= _ENUMERATED:
        flips = np.array(list(product((-1.0, 1.0), repeat=n)))
    else:
        flips = np.random.default_rng(_SEED).choice((-1.0, 1.0), (2**_ENUMERATED, n))
        flips[0] = 1.0  # the trials as they were are one of the flips, so that p is never 0
    means = flips @ costs / n
    squares = (costs**2).mean(axis=0)  # a flip leaves them as they are
    errors = np.sqrt(np.maximum(squares - means**2, 0.0) / (n - 1))
    # As large up to rounding: the trials as they were must count.
    return float((_distance(means, errors).max(axis=1) >= observed * (1 - 1e-9)).mean())
