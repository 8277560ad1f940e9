"""Propensities of a log that has none: estimated from contexts and actions, cross-fitted and calibrated.

Estimates are right only if the context has everything that the actions depended on. That cannot be checked from the
log, so that an evaluation by them is never better than "caution".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

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
_ESTIMATED = "The propensities were estimated from the log. That is right only if the features hold all that the "
_CHOICES = "choices depended on"
_LOG_THEM = "Log the probability of each choice, or let Potstill choose for a share of the requests."


class EstimatedPropensities(msgspec.Struct, frozen=True, kw_only=True):
    """Estimated propensities, and how good the model is.

    Attributes:
        propensities: Of the actions taken, float64[N].
        model: Model with the smallest cross-fitted log loss: ``shares`` (the same in every context), ``logistic`` or
            ``trees``.
        log_loss: Its log loss on rows that it has not seen, after calibration.
        share_loss: The same of the actions' shares.
        calibration_error: Mean absolute difference between estimated and observed shares, over actions and tenths of
            the estimate.
        rare: Share of rows whose propensity is at the smallest estimate: there is no overlap.
    """

    propensities: Float64
    model: str
    log_loss: float
    share_loss: float
    calibration_error: float
    rare: float


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
    fold = key.generator().permutation(rows) % FOLDS
    fitted = {name: _cross_fitted(fit, contexts, actions, count, fold) for name, fit in _MODELS.items()}
    calibrated = {name: _calibrated(p, actions) for name, p in fitted.items()}
    losses = {name: _log_loss(p, actions) for name, p in calibrated.items()}
    best = min(losses, key=losses.__getitem__)
    taken = calibrated[best][np.arange(rows), actions]
    return EstimatedPropensities(
        propensities=np.maximum(taken, SMALLEST),
        model=best,
        log_loss=losses[best],
        share_loss=losses["shares"],
        calibration_error=_calibration_error(calibrated[best], actions),
        rare=float(np.mean(taken <= SMALLEST)),
    )


def with_estimated_propensities(evaluation: Evaluation) -> Evaluation:
    """An evaluation on estimated propensities, whose verdict is at best "caution"."""
    against = None if evaluation.against is None else _doubted(evaluation.against)
    return msgspec.structs.replace(evaluation, target=_doubted(evaluation.target), against=against)


def _doubted(side: TargetEvaluation) -> TargetEvaluation:
    if side.trust.grade != "good" or side.name == "logged":
        return side
    return msgspec.structs.replace(side, trust=Trust("caution", f"{_ESTIMATED}{_CHOICES}.", _LOG_THEM))


def _shares(contexts: Float64, actions: NDArray[Any]) -> Callable[[Float64], Float64]:  # noqa: ARG001 - as the others
    found = np.unique(actions, return_counts=True)[1] / len(actions)
    return lambda others: np.tile(found, (len(others), 1))


def _logistic(contexts: Float64, actions: NDArray[Any]) -> Callable[[Float64], Float64]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return _predictions(make_pipeline(StandardScaler(), LogisticRegression(max_iter=200)).fit(contexts, actions))


def _trees(contexts: Float64, actions: NDArray[Any]) -> Callable[[Float64], Float64]:
    from sklearn.ensemble import HistGradientBoostingClassifier

    model = HistGradientBoostingClassifier(max_iter=50, max_leaf_nodes=15, early_stopping=False, random_state=0)
    return _predictions(model.fit(contexts, actions))


def _predictions(model: Any) -> Callable[[Float64], Float64]:
    return lambda contexts: np.asarray(model.predict_proba(contexts), np.float64)


_MODELS: Mapping[str, Callable[[Float64, NDArray[Any]], Callable[[Float64], Float64]]] = {
    "shares": _shares,
    "logistic": _logistic,
    "trees": _trees,
}


def _cross_fitted(
    fit: Callable[[Float64, NDArray[Any]], Callable[[Float64], Float64]],
    contexts: NDArray[np.float32],
    actions: NDArray[Any],
    count: int,
    fold: NDArray[Any],
) -> Float64:
    """Probabilities of all actions, float64[N, K], of each part by a model of the others."""
    predicted = np.zeros((len(actions), count))
    for part in range(FOLDS):
        others = np.flatnonzero(fold != part)[:MOST_ROWS]
        present = np.unique(actions[others])
        if len(present) > 1:
            rows = np.flatnonzero(fold == part)
            model = fit(contexts[others].astype(np.float64), actions[others])
            predicted[np.ix_(rows, present)] = model(contexts[rows].astype(np.float64))
        else:
            predicted[np.ix_(fold == part, present)] = 1.0
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
