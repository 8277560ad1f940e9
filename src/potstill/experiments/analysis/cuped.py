"""CUPED: outcomes minus their prediction from pre-experiment data.

Deng, Xu, Kohavi, Walker 2013, "Improving the sensitivity of online controlled experiments by utilizing pre-experiment
data". The prediction has the same expectation in both arms, because it was fixed before assignment. The effect is
therefore unbiased, and its variance falls by the share that the covariates explain.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from potstill.experiments.analysis.units import Before

Values = NDArray[np.float64]

#: Minimum number of units with pre-experiment data for an adjustment.
LEAST_WITH_PAST = 30


def covariates(before: Before | None, outcome: str, *, per_decision: bool) -> Values | None:
    """Pre-experiment covariates of each unit, float64[n, 1 or 2]; None if too few units have any.

    The first column is the pre-experiment outcome, per decision or in total. Units without data get the mean of the
    others, and a second column flags them, because new units may behave differently.
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
    """Coefficients of the covariates in a regression with a term for the arm.

    Weighting each arm by the variance of its mean would reduce the variance further, but a small arm would then
    dominate the fit: with a tenth of 1,000 skewed units in treatment, intervals missed 7.4 % instead of 6.5 % of the
    time.

    Args:
        treated: Values [n] and covariates [n, k] of treatment.
        control: Values and covariates of control.
    """
    k = treated[1].shape[1]
    products = _products(*treated) + _products(*control)
    # The minimum-norm solution gives a constant covariate the coefficient 0.
    return np.asarray(np.linalg.lstsq(products[:k, :k], products[:k, k], rcond=1e-12)[0])


def _products(values: Values, past: Values) -> Values:
    """Centred cross products of an arm's covariates and, last, its values."""
    columns = np.column_stack([past, values])
    columns = columns - columns.mean(axis=0)
    products: Values = columns.T @ columns
    return products
