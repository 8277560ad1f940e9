"""Two versions on the same logged contexts: how often and where their actions differ."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.pipeline.queries.action_shares import labels, shares
from potstill.pipeline.queries.errors import CannotAnswer
from potstill.pipeline.queries.events import latest
from potstill.problem import Feature
from potstill.tables import context_fits, encode_contexts
from potstill.workspace import Workspace

#: Groups of a feature: ranges of a number, or values; the rest is one group.
RANGES, VALUES = 5, 8
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
    if feature.holds == "numbers":
        return None
    groups = _ranges(values) if feature.holds == "number" else _values(values)
    mean, found, spread = (q - p).mean(axis=0), [], 0.0
    for name, chosen in groups:
        if not chosen.any():
            continue
        change = (q[chosen] - p[chosen]).mean(axis=0)
        spread += float(chosen.mean()) * float(np.abs(change - mean).sum()) / 2
        found.append(_group(name, chosen, change, p, q, names))
    return {"feature": feature.name, "spread": spread, "groups": found}


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


def _ranges(values: pl.Series) -> list[tuple[str, NDArray[np.bool_]]]:
    """Ranges of a number with about as many contexts each."""
    known = values.drop_nulls().to_numpy()
    missing = [("missing", values.is_null().to_numpy())]
    if not len(known):
        return missing
    edges = np.unique(np.quantile(known, np.linspace(0, 1, RANGES + 1)))
    if len(edges) == 1:
        edges = np.array([edges[0], edges[0]])
    numbers = values.fill_null(np.nan).to_numpy()
    found = []
    for low, high in pairwise(edges):
        inside = (numbers >= low) & ((numbers < high) | (high == edges[-1]))
        found.append((f"{_short(low)} to {_short(high)}", inside))
    return found + missing


def _values(values: pl.Series) -> list[tuple[str, NDArray[np.bool_]]]:
    """The most frequent values, and all others together."""
    texts = values.cast(pl.String).fill_null("missing")
    counts = texts.value_counts(sort=True)
    frequent = counts[texts.name].head(VALUES).to_list()
    found = [(value, (texts == value).to_numpy()) for value in frequent]
    return [*found, ("other values", (~texts.is_in(frequent)).to_numpy())]


def _short(number: float) -> str:
    return f"{number:,.0f}" if 1000 <= abs(number) < 1e15 else f"{number:.4g}"
