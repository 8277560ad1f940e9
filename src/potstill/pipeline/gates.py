"""Gates: reasons against letting a new policy serve. No reasons, no objection."""

from __future__ import annotations

import numpy as np

from potstill.distill import Report
from potstill.pipeline.comparison import Comparison
from potstill.policy import Policy
from potstill.workspace import UpdateConfig


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
