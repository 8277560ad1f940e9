"""Gates: reasons against letting a new policy serve. No reasons, no objection."""

from __future__ import annotations

import numpy as np

from potstill.policy import Policy
from potstill.still import Report
from potstill.workspace.config import UpdateConfig


def objections(policy: Policy, report: Report, config: UpdateConfig) -> list[str]:
    """Why a policy should not serve, each in words; its version is kept in any case."""
    gates = (_not_finite(policy), _unfaithful(report, config.max_kl), _below_floor(policy, report))
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
