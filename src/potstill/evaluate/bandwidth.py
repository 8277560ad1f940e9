"""The bandwidth of targets that give one number per row, which has no density."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from potstill.errors import InvalidOption
from potstill.evaluate.blocks import LogWithSupport, numbered
from potstill.evaluate.estimators import Estimator
from potstill.evaluate.models import FittedModel
from potstill.evaluate.targets import Target
from potstill.evaluate.terms import compute_terms
from potstill.spaces.continuous import kernel_estimators

#: Candidates as shares of the scale, ascending.
CANDIDATES = np.geomspace(0.01, 0.5, 9)


def with_bandwidths(
    made: Sequence[Target], log: LogWithSupport, model: FittedModel, estimator: Estimator, stated: float | None
) -> list[Target]:
    """The targets, those without a density smoothed by the stated bandwidth or by a chosen one.

    The widest bandwidth is chosen whose estimate agrees with those of all narrower ones, within two standard errors
    (SLOPE: Su, Srinath & Krishnamurthy 2020, "Adaptive estimator selection for off-policy evaluation").
    """
    if stated is not None and not 0 < stated <= 1:
        raise InvalidOption(f"bandwidth must be a share of the scale, above 0 and at most 1, got {stated!r}")
    if log.problem.actions.measure == "counting":
        if stated is not None:
            raise InvalidOption("a bandwidth is for actions that are numbers, and these are a list; leave it out")
        return list(made)
    first = next((block for _, block in numbered(log)), None)
    return [
        each
        if first is None or not _is_point(each, first)
        else _smoothed(each, stated or _chosen(each, log, model, estimator))
        for each in made
    ]


def bandwidth_of(target: Target) -> float | None:
    """The bandwidth of a target that was smoothed; None for others."""
    found: float | None = getattr(target, "bandwidth", None)
    return found


def _is_point(target: Any, block: Any) -> bool:
    return hasattr(target, "smoothed") and target.is_point(block)


def _smoothed(target: Any, bandwidth: float) -> Target:
    made: Target = target.smoothed(bandwidth)
    return made


def _chosen(target: Any, log: LogWithSupport, model: FittedModel, estimator: Estimator) -> float:
    tried = [_smoothed(target, float(width)) for width in CANDIDATES]
    terms = dict(zip(CANDIDATES.tolist(), compute_terms(log, tried, model).terms, strict=True))
    return kernel_estimators.select_bandwidth(lambda width: estimator(terms[width]), CANDIDATES)
