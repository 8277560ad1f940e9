"""Propensities of a log that has none: estimated from contexts and actions, cross-fitted and calibrated.

Estimates are right only if the context has everything that the actions depended on. That cannot be checked from the
log, so that an evaluation by them is never better than "caution".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from threadpoolctl import threadpool_limits

from potstill.evaluate.diagnostics import Trust
from potstill.evaluate.evaluation import Evaluation, TargetEvaluation
from potstill.keys import Key

Float64 = NDArray[np.float64]
#: Parts of the log: the model of a part has seen only the others.
FOLDS = 5
#: Rows that a model is fitted to, at most.
MOST_ROWS = 50_000
#: Propensities are not estimated below this: no log of that size could tell.
SMALLEST = 1e-3
_BINS = 10
_NAMES = {"shares": "the share of each action", "logistic": "a logistic regression", "trees": "a random forest"}
_INVERSE_PENALTY = 0.1
_TREES, _LEAF, _TREE_ROWS = 60, 30, 20_000
#: Share of the columns that a split is chosen from, and fewest of them.
_TRIED, _FEWEST_TRIED = 0.3, 6
#: If so many rows show one action only, the model is that of the shares.
_LOOKED_AT = 1_000
_ESTIMATED = (
    "The propensities were estimated from the log: that is right only if the features hold all that the choices "
    "depended on, and intervals leave out how wrong the estimates are."
)
_LOG_THEM = "Log the probability of each choice, or let Potstill choose for a share of the requests."


class PropensityModel(msgspec.Struct, frozen=True, kw_only=True):
    """How propensities were estimated, and how good the model is.

    Attributes:
        model: Model with the smallest cross-fitted log loss: ``shares`` (the same in every context), ``logistic`` or
            ``trees``.
        log_loss: Its log loss on rows that it has not seen, after calibration.
        share_loss: The same of the actions' shares.
        calibration_error: Mean absolute difference between estimated and observed shares, over actions and tenths of
            the estimate.
        rare: Share of rows whose propensity is at the smallest estimate: there is no overlap.
    """

    model: str
    log_loss: float
    share_loss: float
    calibration_error: float
    rare: float

    @property
    def in_words(self) -> str:
        """A sentence without its full stop."""
        gain = self.share_loss - self.log_loss
        rare = f", and {100 * self.rare:.2g} % of the rows were all but impossible by it" if self.rare else ""
        return (
            f"propensities are estimated by {_NAMES[self.model]}, cross-fitted: log loss {self.log_loss:.3f}, "
            f"{gain:.3f} below that of the shares; off by {100 * self.calibration_error:.2g} percentage points on "
            f"average{rare}"
        )


class EstimatedPropensities(NamedTuple):
    """Estimated propensities.

    Attributes:
        propensities: Of the actions taken, float64[N].
        model: How they were estimated.
    """

    propensities: Float64
    model: PropensityModel


def estimate_propensities(
    contexts: NDArray[np.float32], actions: NDArray[Any], count: int, key: Key
) -> EstimatedPropensities:
    """The propensity of each action taken, by the best of three cross-fitted models.

    Args:
        contexts: Encoded contexts, float32[N, d].
        actions: Positions of the actions taken, int[N].
        count: Number of actions.
        key: Which rows are in which part.
    """
    rows = len(actions)
    parts = np.array_split(key.generator().permutation(rows), FOLDS)
    with threadpool_limits(1):  # threads that wait for each other take longer than one, where cores are busy
        fitted = {name: _cross_fitted(fit, contexts, actions, count, parts) for name, fit in _MODELS.items()}
    calibrated = {name: _calibrated(p, actions) for name, p in fitted.items()}
    losses = {name: _log_loss(p, actions) for name, p in calibrated.items()}
    best = min(losses, key=losses.__getitem__)
    taken = calibrated[best][np.arange(rows), actions]
    model = PropensityModel(
        model=best,
        log_loss=losses[best],
        share_loss=losses["shares"],
        calibration_error=_calibration_error(calibrated[best], actions),
        rare=float(np.mean(taken <= SMALLEST)),
    )
    return EstimatedPropensities(np.maximum(taken, SMALLEST), model)


def with_estimated_propensities(evaluation: Evaluation) -> Evaluation:
    """An evaluation on estimated propensities, whose verdict is at best "caution"."""
    against = None if evaluation.against is None else _doubted(evaluation.against)
    return msgspec.structs.replace(evaluation, target=_doubted(evaluation.target), against=against)


def _doubted(side: TargetEvaluation) -> TargetEvaluation:
    if side.trust.grade != "good" or side.name == "logged":  # what was done needs no propensities
        return side
    return msgspec.structs.replace(side, trust=Trust("caution", _ESTIMATED, _LOG_THEM))


class _Classifier(Protocol):
    """A fitted model: `classes_` int[C], and probabilities of these, float[N, C]."""

    classes_: NDArray[Any]

    def predict_proba(self, contexts: Float64) -> NDArray[Any]:
        """Probabilities of the classes."""


class _Shares:
    """The share of each action, in every context."""

    def __init__(self, actions: NDArray[Any]) -> None:
        self.classes_, counts = np.unique(actions, return_counts=True)
        self._shares = counts / len(actions)

    def predict_proba(self, contexts: Float64) -> Float64:
        return np.tile(self._shares, (len(contexts), 1))


def _shares(contexts: Float64, actions: NDArray[Any]) -> _Classifier:  # noqa: ARG001 - as the others
    return _Shares(actions)


def _logistic(contexts: Float64, actions: NDArray[Any]) -> _Classifier:
    from sklearn.linear_model import LogisticRegression

    # Encoded columns are from 0 to 1 already; to scale rare ones to equal variance would overfit them.
    fitted: _Classifier = LogisticRegression(C=_INVERSE_PENALTY, max_iter=200).fit(contexts, actions)
    return fitted


def _trees(contexts: Float64, actions: NDArray[Any]) -> _Classifier:
    from sklearn.ensemble import RandomForestClassifier

    # Shares of large leaves are calibrated; boosted trees were no better, and far slower with many columns.
    tried = min(max(round(_TRIED * contexts.shape[1]), _FEWEST_TRIED), contexts.shape[1])
    forest = RandomForestClassifier(_TREES, min_samples_leaf=_LEAF, max_features=tried, random_state=0)
    fitted: _Classifier = forest.fit(contexts[:_TREE_ROWS], actions[:_TREE_ROWS])
    return fitted


_Fit = Callable[[Float64, NDArray[Any]], _Classifier]
_MODELS: Mapping[str, _Fit] = {"shares": _shares, "logistic": _logistic, "trees": _trees}


def _cross_fitted(
    fit: _Fit, contexts: NDArray[np.float32], actions: NDArray[Any], count: int, parts: Sequence[NDArray[Any]]
) -> Float64:
    """Probabilities of all actions, float64[N, K], of the rows of each part by a model of the others."""
    predicted = np.zeros((len(actions), count))
    for i, rows in enumerate(parts):
        others = np.concatenate([*parts[:i], *parts[i + 1 :]])[:MOST_ROWS]
        several = len(np.unique(actions[others][:_LOOKED_AT])) > 1
        model = (fit if several else _shares)(contexts[others].astype(np.float64), actions[others])
        predicted[np.ix_(rows, model.classes_)] = model.predict_proba(contexts[rows].astype(np.float64))
    return predicted


def _calibrated(p: Float64, actions: NDArray[Any]) -> Float64:
    """Probabilities at the temperature with the smallest log loss; one number, which is hardly overfitted."""
    logs = np.log(np.maximum(p, SMALLEST / len(p[0])))
    found = minimize_scalar(
        lambda log_t: _log_loss(_softmax(logs * np.exp(log_t)), actions), bounds=(-2, 2), method="bounded"
    )
    return _softmax(logs * np.exp(found.x))


def _softmax(logs: Float64) -> Float64:
    powers = np.exp(logs - logs.max(axis=1, keepdims=True))
    normalised: Float64 = powers / powers.sum(axis=1, keepdims=True)
    return normalised


def _log_loss(p: Float64, actions: NDArray[Any]) -> float:
    return float(-np.log(np.maximum(p[np.arange(len(actions)), actions], 1e-300)).mean())


def _calibration_error(p: Float64, actions: NDArray[Any]) -> float:
    """Mean of |estimated share - observed share|, over tenths of the estimates of each action, by their rows."""
    gaps = []
    for action, estimated in enumerate(p.T):
        order = np.argsort(estimated, kind="stable")
        for rows in np.array_split(order, _BINS):
            if len(rows):
                gaps.append(abs(estimated[rows].mean() - (actions[rows] == action).mean()) * len(rows))
    return float(np.sum(gaps) / p.size)
