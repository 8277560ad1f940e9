"""CUPED: outcomes less what was to be expected of the unit from before the experiment.

Deng, Xu, Kohavi, Walker 2013, "Improving the sensitivity of online controlled experiments by utilizing pre-experiment
data". What is taken away has the same expectation in both arms, since it was fixed before they parted: the effect is
not biased, and its variance shrinks by what the past explains.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from potstill.experiments.analysis.units import Before

Values = NDArray[np.float64]

#: Of fewer units with a past, too little can be learnt to be worth it.
LEAST_WITH_PAST = 30


def covariates(before: Before | None, outcome: str, *, per_decision: bool) -> Values | None:
    """What is known of each unit from before: float64[n, 1 or 2]; None if that is too little.

    The first column is the outcome, per decision or in all. Units without a past get the mean of the others, and then
    the second column says that they are new, as new units may behave otherwise.
    """
    if before is None or outcome not in before.outcomes:
        return None
    known = before.decisions > 0
    if np.count_nonzero(known) < LEAST_WITH_PAST:
        return None
    past = before.outcomes[outcome][known] / (before.decisions[known] if per_decision else 1.0)
    column = np.full(len(known), past.mean())
    column[known] = past
    return column[:, None] if known.all() else np.stack([column, ~known], axis=1)


def slopes(treated: tuple[Values, Values], control: tuple[Values, Values]) -> Values:
    """How much of each covariate to take away: the slopes of a regression that has a term for the arm.

    Slopes that weigh each arm by how uncertain its mean is would leave less variance, but a small arm would all but
    choose them for itself: with a tenth of 1,000 skewed units in treatment, intervals then missed 7.4 % instead of
    6.5 % of the time.

    Args:
        treated: The values [n] and covariates [n, k] of one arm.
        control: Those of the other.
    """
    k = treated[1].shape[1]
    products = _products(*treated) + _products(*control)
    # A covariate that never varies has no slope: the least solution gives it 0.
    return np.asarray(np.linalg.lstsq(products[:k, :k], products[:k, k], rcond=1e-12)[0])


def _products(values: Values, past: Values) -> Values:
    """Sums of products of an arm's covariates, and last of its values, about their means."""
    columns = np.column_stack([past, values])
    columns = columns - columns.mean(axis=0)
    products: Values = columns.T @ columns
    return products
