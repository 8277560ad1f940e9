"""Informative priors: a mean and a precision of named coefficients, for what is known before the first observation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from potstill.decode import convert, unknown_name
from potstill.errors import InvalidOption
from potstill.problem import Problem
from potstill.spaces import finite
from potstill.teachers.linear import nig

#: Name of the constant beside the columns of a context.
INTERCEPT = "intercept"


class Coefficient(msgspec.Struct, frozen=True, omit_defaults=True):
    """The prior of one coefficient: what a column of the context adds to the reward of an action.

    Columns are encoded from 0 to 1, so it is the difference in reward between the two ends of a numeric feature's
    range, or between a category and none. The intercept is the reward where all columns are 0.

    Args:
        mean: Prior mean, in units of the reward.
        precision: Prior precision relative to the noise: about the number of observations that the prior is worth.
            Default: the teacher's `precision`.
    """

    mean: float = 0.0
    precision: float | None = None

    def __post_init__(self) -> None:
        if not math.isfinite(self.mean):
            raise InvalidOption(f"prior: mean must be a finite number, got {self.mean!r}")
        if self.precision is not None and not 0 < self.precision < math.inf:
            raise InvalidOption(f"prior: precision must be a positive number, got {self.precision!r}")


#: Coefficients by action, then by column or `INTERCEPT`.
Coefficients = dict[str, dict[str, Coefficient]]


def decoded(given: Mapping[str, Mapping[str, Any]]) -> Coefficients:
    """Coefficients from mappings, as TOML gives them, or from `Coefficient` values; others are refused."""
    try:
        return convert(given, Coefficients)
    except msgspec.ValidationError as error:
        raise InvalidOption(f"prior: {error}") from error


def resolve(given: Coefficients, problem: Problem, precision: float) -> nig.Prior:
    """The prior of all coefficients: those given, and mean 0 with the default precision for all others."""
    actions, columns = finite(problem.actions, "prior").labels, [*problem.labels, INTERCEPT]
    if INTERCEPT in problem.labels and any(INTERCEPT in of_action for of_action in given.values()):
        raise InvalidOption(
            f"prior: {INTERCEPT!r} names the constant and a feature of this problem; rename the feature"
        )
    mean = np.zeros((len(actions), len(columns)))
    precisions = np.full(mean.shape, precision)
    for action, of_action in given.items():
        if action not in actions:
            raise InvalidOption(f"prior: {unknown_name('action', action, actions)}")
        for column, coefficient in of_action.items():
            if column not in columns:
                raise InvalidOption(f"prior of action {action!r}: {unknown_name('feature', column, columns)}")
            at = actions.index(action), columns.index(column)
            mean[at] = coefficient.mean
            precisions[at] = precision if coefficient.precision is None else coefficient.precision
    return nig.Prior(mean, precisions)
