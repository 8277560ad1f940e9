"""Two versions on the same logged contexts: how often and where their actions differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.pipeline.queries.action_shares import labels, shares
from potstill.pipeline.queries.errors import CannotAnswer
from potstill.pipeline.queries.events import latest
from potstill.pipeline.queries.groups import groups
from potstill.problem import Feature
from potstill.tables import context_fits, encode_contexts
from potstill.workspace import Workspace

Float64 = NDArray[np.float64]


def compare(workspace: Workspace, *, first: int, second: int, contexts: int) -> dict[str, Any]:
    """Compare two versions on the latest logged contexts.

    Args:
        workspace: The workspace.
        first: A version.
        second: Another version.
        contexts: The most contexts.
    """
    before, after = workspace.registry.policy(first), workspace.registry.policy(second)
    for policy in (before, after):
        if policy.problem.hash != workspace.problem.hash:
            raise CannotAnswer(409, f"version {policy.version} is for another problem than problem.toml; choose others")
    fits = context_fits(workspace.problem, workspace.lake.schema("decisions").names())
    rows = latest(workspace, "decisions", fits, contexts, workspace.lake.files("decisions"))
    if not len(rows):
        raise CannotAnswer(409, "no decision is logged yet, and versions are compared in logged contexts")
    encoded = encode_contexts(rows, workspace.problem)
    p, q = shares(before, encoded), shares(after, encoded)
    names, differ = labels(before), np.abs(p - q).sum(axis=1) / 2
    features = [
        _feature(feature, rows[f"context_{feature.name}"], p, q, names) for feature in workspace.problem.context
    ]
    found = [one for one in features if one is not None]
    return {
        "first": first,
        "second": second,
        "contexts": len(rows),
        "differ": float(differ.mean()),
        "differ_p95": float(np.quantile(differ, 0.95)),
        "labels": names,
        "before": p.mean(axis=0).tolist(),
        "after": q.mean(axis=0).tolist(),
        "features": sorted(found, key=lambda one: -one["spread"]),
    }


def _feature(feature: Feature, values: pl.Series, p: Float64, q: Float64, names: list[str]) -> dict[str, Any] | None:
    """Where two policies differ by the values of a feature; None for a feature that has no groups."""
    mean, found, spread = (q - p).mean(axis=0), [], 0.0
    for name, chosen in groups(feature, values):
        change = (q[chosen] - p[chosen]).mean(axis=0)
        spread += float(chosen.mean()) * float(np.abs(change - mean).sum()) / 2
        found.append(_group(name, chosen, change, p, q, names))
    return {"feature": feature.name, "spread": spread, "groups": found} if found else None


def _group(
    name: str, chosen: NDArray[np.bool_], change: Float64, p: Float64, q: Float64, names: list[str]
) -> dict[str, Any]:
    up, down = (int(change.argmax()), int(change.argmin())) if len(change) else (0, 0)
    return {
        "group": name,
        "contexts": int(chosen.sum()),
        "differ": float(np.abs(p[chosen] - q[chosen]).sum(axis=1).mean()) / 2,
        "more": names[up] if names else "",
        "more_by": float(change[up]) if names else 0.0,
        "less": names[down] if names else "",
        "less_by": float(-change[down]) if names else 0.0,
    }
