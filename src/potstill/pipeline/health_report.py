"""Health of the latest decisions: are propensities and actions those of the policies, in the ratio that they say?"""

from __future__ import annotations

import math

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.pipeline.audit import LoadedPolicies, audit_rows
from potstill.pipeline.queries import labels, place, shares
from potstill.pipeline.recent_rows import latest_rows
from potstill.policy import Policy
from potstill.problem import Continuous
from potstill.spaces import FiniteSpace, lake_columns
from potstill.summaries import ActionRatio, HealthReport, VersionHealth
from potstill.tables import context_fits, encode_contexts
from potstill.workspace import Workspace, is_uniform

#: Decisions that are looked at, the latest, and versions that are listed, the newest.
ROWS, VERSIONS = 10_000, 20
#: p-value below which a ratio is broken, over all actions of a version: a false alarm in a thousand sound versions.
ALARM = 0.001
#: Expected decisions with an action, and without it, that a normal approximation needs.
FEWEST = 20


def read_health(workspace: Workspace, now: int) -> HealthReport:
    """The report over the latest decisions."""
    frame = latest_rows(workspace.lake, "decisions", ROWS)
    policies = LoadedPolicies(workspace)
    found = audit_rows(workspace, frame)
    decided = latest_rows(workspace.lake, "decisions", ROWS, pl.col("mode").is_null(), pl.col("policy").is_not_null())
    versions = [
        health
        for (version,), rows in decided.group_by("policy", maintain_order=True)
        if (policy := policies[int(version)]) is not None and (health := _version(policy, rows)) is not None
    ]
    versions.sort(key=lambda one: -one.version)
    return HealthReport(
        made=now,
        decisions=found.decisions,
        checked=found.checked,
        propensities=found.propensities,
        actions=found.actions,
        missing=sum(found.missing.values()),
        unfit=found.unfit,
        decided=len(decided),
        renormalised=_renormalised(policies, decided),
        versions=versions[:VERSIONS],
        towers=_has_tower(policies, versions),
    )


def _has_tower(policies: LoadedPolicies, versions: list[VersionHealth]) -> bool:
    """Whether the latest version that has decided has an item tower."""
    latest = policies[versions[0].version] if versions else None
    return latest is not None and latest.tower is not None


def _renormalised(policies: LoadedPolicies, decided: pl.DataFrame) -> int:
    """Number of decisions among some of the actions, by versions that were not trained on masks."""
    restricted = decided.filter(pl.col("eligible").is_not_null())
    return sum(
        int((rows["eligible"].list.n_unique() < len(policy.problem.actions)).sum())
        for (version,), rows in restricted.group_by("policy")
        if (policy := policies[int(version)]) is not None
        and isinstance(policy.problem.actions, FiniteSpace)
        and not policy.masked
        and not is_uniform(policy)
    )


def _version(policy: Policy, rows: pl.DataFrame) -> VersionHealth | None:
    """Sample ratio and entropy of a version's own decisions; None if no row fits its problem."""
    fit = rows.filter(context_fits(policy.problem, rows.columns), pl.col("floor").is_null())
    # A retried decision is in the log twice, and would count as two draws.
    fit = fit.unique("id", keep="first", maintain_order=True)
    if not len(fit):
        return None
    space, columns = policy.problem.actions, lake_columns(policy.problem.actions)
    p = shares(policy, encode_contexts(fit, policy.problem), columns.allowed(fit["eligible"]))
    if not p.shape[1]:
        return VersionHealth(version=policy.version, rows=len(fit), entropy=None)
    taken = columns.actions(fit["action"])
    ratios = _ratios(labels(policy), p, place(space, taken) if isinstance(space, Continuous) else taken)
    least = min((math.erfc(abs(one.z) / math.sqrt(2)) for one in ratios), default=1.0)
    corrected = min(least * max(len(ratios), 1), 1.0)
    return VersionHealth(
        version=policy.version,
        rows=len(fit),
        entropy=_entropy(p),
        actions=ratios,
        p=corrected,
        broken=corrected < ALARM,
    )


def _ratios(names: list[str], p: NDArray[np.float64], taken: NDArray[np.integer]) -> list[ActionRatio]:
    """Actions taken beside the sum of their propensities, of those with enough of both."""
    counts, expected, spread = np.bincount(taken, minlength=p.shape[1]), p.sum(axis=0), (p * (1 - p)).sum(axis=0)
    return [
        ActionRatio(
            action=names[at],
            taken=int(counts[at]),
            expected=float(expected[at]),
            z=float((counts[at] - expected[at]) / math.sqrt(spread[at])),
        )
        for at in range(p.shape[1])
        if spread[at] >= FEWEST
    ]


def _entropy(p: NDArray[np.float64]) -> float:
    """Mean entropy of distributions, relative to that of the uniform one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, -p * np.log(p), 0.0)
    return float(terms.sum(axis=1).mean() / math.log(p.shape[1]))
