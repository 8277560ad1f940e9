"""Gates: reasons against letting a new policy serve. No reasons, no objection."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from potstill.distill import Report
from potstill.evaluate import LakeLog, Trust, evaluate
from potstill.policy import Policy
from potstill.workspace import UpdateConfig, Workspace

#: Doubly robust: unbiased, as propensities are exact, and precise if the reward model is good.
ESTIMATOR = "dr"
LEVEL = 0.95


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A new policy against the serving one, on the same logged decisions.

    The new one was trained on these decisions, which favours it slightly: the comparison detects regressions, and does
    not prove improvements. Experiments do.

    Attributes:
        against: Serving version.
        rows: Number of logged decisions with exact propensities.
        value: Estimated reward of the new policy per decision.
        value_low: Lower end of its interval; None if it has none.
        value_high: Upper end.
        effective: Effective sample size: number of decisions of its own that would say as much.
        difference: Value of the new policy minus that of the serving one.
        low: Lower end of the difference's interval.
        high: Upper end of the difference's interval.
        level: Confidence level of the interval.
        trust: Verdict on the estimate.
    """

    against: int
    rows: int
    value: float
    value_low: float | None = None
    value_high: float | None = None
    effective: float | None = None
    difference: float
    low: float
    high: float
    level: float
    trust: Trust

    @property
    def in_words(self) -> str:
        """The difference with its interval, as text."""
        said = (
            f"{self.difference:+.3g} per decision ({100 * self.level:.4g} % interval {self.low:+.3g} to "
            f"{self.high:+.3g}, from {self.rows:,} decisions that it learnt from)"
        )
        return said.replace("-", "−")


def compare(workspace: Workspace, policy: Policy, serving: Policy, after: int, to: int) -> Comparison | None:
    """Compare on the observations of cuts above `after` and up to `to`; None if there is no finite interval."""
    log = LakeLog(workspace, after, to)
    if not len(log) or serving.problem.hash != policy.problem.hash:
        return None
    # The words of the comparison say that these are training rows, so the verdict is about the log alone.
    by_the_log = dict.fromkeys((f"policy {policy.version}", f"policy {serving.version}"), 0)
    found = evaluate(log, policy, against=serving, estimators=(ESTIMATOR,), level=LEVEL, learnt=by_the_log)
    value, difference = found.estimate.value, (found.difference or {})[ESTIMATOR]
    around = found.estimate.intervals["likelihood"].ends
    low, high = difference.intervals["likelihood"].ends
    if value is None or difference.value is None or not math.isfinite(high - low):
        return None
    return Comparison(
        against=serving.version,
        rows=found.rows,
        value=value,
        value_low=around[0] if math.isfinite(around[0]) else None,
        value_high=around[1] if math.isfinite(around[1]) else None,
        effective=found.target.diagnostics.effective,
        difference=difference.value,
        low=low,
        high=high,
        level=LEVEL,
        trust=found.target.trust,
    )


def objections(policy: Policy, report: Report, config: UpdateConfig, compared: Comparison | None = None) -> list[str]:
    """Why a policy should not serve, each in words; its version is kept in any case.

    Args:
        policy: The new policy.
        report: Report of the update that made it.
        config: Thresholds of the gates.
        compared: Off-policy comparison with the serving policy; None if the log does not support one.
    """
    gates = (
        _not_finite(policy),
        _unfaithful(report, config.max_kl),
        _below_floor(policy, report),
        _clearly_worse(compared) if config.max_loss is None else _not_surely_as_good(compared, config.max_loss),
    )
    return [reason for reason in gates if reason is not None]


def _not_finite(policy: Policy) -> str | None:
    finite = all(np.isfinite(array).all() for layer in policy.layers for array in layer)
    return None if finite else "its weights are not finite"


def _unfaithful(report: Report, bound: float) -> str | None:
    kl = report.fidelity.kl_mean
    if kl <= bound:
        return None
    return f"held-out divergence from its teacher is {kl:.3g} nats, above update.max_kl = {bound:g}"


def _below_floor(policy: Policy, report: Report) -> str | None:
    smallest = report.fidelity.smallest_propensity
    if smallest >= np.float32(policy.floor):
        return None
    return f"its smallest propensity is {smallest:.3g}, below policy.floor = {policy.floor:g}"


def _clearly_worse(compared: Comparison | None) -> str | None:
    if compared is None or compared.trust.grade == "no" or compared.high >= 0:
        return None
    return f"by the log it earns less than version {compared.against}: {compared.in_words}"


def _not_surely_as_good(compared: Comparison | None, max_loss: float) -> str | None:
    if compared is None:
        return f"update.max_loss = {max_loss:g} is set, and no logged decision can tell what it would have earned"
    if compared.trust.grade == "no":
        return f"update.max_loss = {max_loss:g} is set, and the log cannot tell: {compared.trust.sentence}"
    if compared.low >= -max_loss:
        return None
    return (
        f"by the log it may earn less than version {compared.against} by more than update.max_loss = {max_loss:g}: "
        f"{compared.in_words}"
    )
