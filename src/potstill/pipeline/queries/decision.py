"""The whole story of one decision: request, probabilities, draw, rewards, how they were joined, and its audit."""

from __future__ import annotations

import contextlib
import datetime as dt
from typing import Any

import msgspec
import numpy as np
import polars as pl

from potstill.events.join import read_cut
from potstill.pipeline.audit import audit_rows
from potstill.pipeline.queries.action_shares import labels, shares
from potstill.pipeline.queries.errors import CannotAnswer
from potstill.pipeline.queries.events import latest, microseconds
from potstill.policy import Policy
from potstill.registry import CorruptVersion, UnknownVersion
from potstill.spaces import lake_columns
from potstill.tables import context_fits, encode_contexts
from potstill.workspace import Workspace

SKEW = dt.timedelta(minutes=1)
#: The most rows of one id.
MOST = 100
_FIELDS = ("id", "time", "action", "propensity", "policy", "eligible", "floor", "unit", "mode", "arm", "log")
#: What mode apprentice logs besides.
_APPRENTICE = ("would", "own_propensity")


def decision(workspace: Workspace, *, id: str) -> dict[str, Any]:  # noqa: A002
    """Everything that is known of an id."""
    lake, same = workspace.lake, pl.col("id") == id
    found = latest(workspace, "decisions", same, MOST, lake.files("decisions"))
    since = microseconds(found["time"][-1] - SKEW) if len(found) else 0
    rewards = latest(workspace, "rewards", same, MOST, [f for f in lake.files("rewards") if f.last >= since])
    if not len(found) and not len(rewards):
        raise CannotAnswer(404, f"there is no decision {id[:100]!r} in the lake or in this machine's log")
    first = found.sort("time").head(1)
    observed = _observation(workspace, first) if len(first) else None
    policy = _policy(workspace, first)
    return {
        "decisions": [_decision(workspace, row) for row in found.sort("time").iter_rows(named=True)],
        **_drawn(policy, first),
        "rewards": [_reward(workspace, first, row) for row in rewards.sort("time").iter_rows(named=True)],
        "observation": observed,
        "final": _final(workspace, first) if len(first) and observed is None else None,
        "audit": _audit(workspace, found),
    }


def _decision(workspace: Workspace, row: dict[str, Any]) -> dict[str, Any]:
    context = {feature.name: row[f"context_{feature.name}"] for feature in workspace.problem.context}
    known = {name: row[name] for name in (*_FIELDS, *_APPRENTICE) if name in row}
    return known | {"context": context}


def _policy(workspace: Workspace, first: pl.DataFrame) -> Policy | None:
    if not len(first) or first["policy"][0] is None:
        return None
    with contextlib.suppress(UnknownVersion, CorruptVersion):
        return workspace.registry.policy(int(first["policy"][0]))
    return None


def _drawn(policy: Policy | None, first: pl.DataFrame) -> dict[str, Any]:
    """The policy's probabilities in the context, and the draws of the id."""
    nothing: dict[str, Any] = {"labels": [], "probabilities": [], "draws": []}
    if policy is None or not len(first.filter(context_fits(policy.problem, first.columns))):
        return nothing
    allowed = lake_columns(policy.problem.actions).allowed(first["eligible"])
    p = shares(policy, encode_contexts(first, policy.problem), allowed, first["floor"][0])
    draws = np.ravel(policy.uniforms([first["id"][0]])).tolist()
    return {"labels": labels(policy), "probabilities": p[0].tolist(), "draws": draws}


def _reward(workspace: Workspace, first: pl.DataFrame, row: dict[str, Any]) -> dict[str, Any]:
    known = {name: row[name] for name in ("time", "reward", "key", "log")}
    known["metrics"] = {one["name"]: one["value"] for one in row["metrics"] or ()}
    if not len(first):
        return known | {"delay": None, "counts": "orphan: no decision of this id is known"}
    delay = row["time"] - first["time"][0]
    window = dt.timedelta(seconds=workspace.problem.reward.window_seconds)
    counts = "in the window"
    if delay > window:
        counts = f"late: after the window of {workspace.problem.reward.window}"
    elif delay < -SKEW:
        counts = "before the decision, not used"
    return known | {"delay": delay.total_seconds(), "counts": counts}


def _observation(workspace: Workspace, first: pl.DataFrame) -> dict[str, Any] | None:
    """The observation that the join made of a decision, with its cut."""
    lake, day = workspace.lake, first["time"][0].date()
    rows = lake.scan("observations", days=[day]).filter(pl.col("id") == first["id"][0]).collect(engine="streaming")
    if not len(rows):
        return None
    row = rows.row(0, named=True)
    found = {"reward": row["reward"], "rewarded": row["rewarded"], "cut": row["cut"], "made": None, "aggregate": None}
    with contextlib.suppress(FileNotFoundError, PermissionError, msgspec.DecodeError):
        cut = read_cut(workspace.cuts, int(row["cut"]))
        found |= {"made": cut.made, "aggregate": cut.aggregate if cut.kind == "join" else None}
    return found


def _final(workspace: Workspace, first: pl.DataFrame) -> int:
    """When the decision is final, and the next join takes it; microseconds since 1970."""
    seconds = workspace.problem.reward.window_seconds + workspace.config.join.settle_seconds
    return microseconds(first["time"][0]) + seconds * 1_000_000


def _audit(workspace: Workspace, found: pl.DataFrame) -> str:
    """The verdict of the audit in words."""
    if not len(found):
        return "nothing to audit: there is no decision"
    result = audit_rows(workspace, found)
    if result.mismatches:
        one = result.mismatches[0]
        return f"wrong: the log says {one.what} {one.logged}, and version {one.policy} gives {one.computed}"
    if result.missing:
        return f"version {min(result.missing)} is not in the registry, so that nothing can be recomputed"
    if result.unfit:
        return "the context or the action does not fit the problem of its policy"
    if result.fixed:
        return "a fixed action, which no policy drew"
    return "clean: propensity and draw agree with the policy"
