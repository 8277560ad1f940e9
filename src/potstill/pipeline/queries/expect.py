"""Expected rewards by the teacher of the serving version, with intervals where its posterior has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import stdtrit

from potstill.pipeline.origin import Origin, learnt_by
from potstill.pipeline.queries.action_shares import BINS
from potstill.problem import Continuous
from potstill.registry import UnknownVersion
from potstill.spaces import FiniteSpace
from potstill.workspace import Workspace

LEVEL = 0.95
#: The last teacher that was loaded, with the version and the workspace that it is of.
_loaded: dict[tuple[str, int], Any] = {}


def expect(workspace: Workspace, *, contexts: list[dict[str, Any]]) -> dict[str, Any]:
    """Expected rewards of each action in some contexts, as the teacher of the serving version predicts them."""
    still, why = _still(workspace)
    encoded = np.stack([workspace.problem.encode(context) for context in contexts])
    found: dict[str, Any] = {"version": None, "labels": _labels(workspace), "mean": [], "low": [], "high": []}
    if still is None:
        return found | {"level": LEVEL, "why": why}
    found |= {"version": still.policy.version, "level": LEVEL, "why": None}
    if hasattr(still.teacher, "marginals"):
        location, scale, dof = still.teacher.marginals(still.state, encoded)
        half = np.asarray(scale) * stdtrit(np.minimum(dof, 1e9), (1 + LEVEL) / 2)
        return found | {
            "mean": np.asarray(location).tolist(),
            "low": (location - half).tolist(),
            "high": (location + half).tolist(),
        }
    from potstill.teachers import MeanRewards

    if isinstance(still.teacher, MeanRewards):
        mean = _coarse(workspace, np.asarray(still.teacher.mean_rewards(still.state, encoded)))
        return found | {"mean": mean.tolist(), "why": "The teacher gives no intervals."}
    return found | {"why": "The teacher gives no expected rewards."}


def _still(workspace: Workspace) -> tuple[Any, str | None]:
    """The teacher of the serving version with its state, or why there is none."""
    try:
        serving = workspace.registry.policy()
    except UnknownVersion as error:
        return None, str(error)
    key = workspace.url, serving.version
    if key not in _loaded:
        learnt = learnt_by(workspace, serving).policy
        nothing = f"version {serving.version} has learnt nothing yet"
        if learnt.metadata.lineage.teacher is None or Origin.of(learnt).prior:
            return None, nothing
        from potstill.pipeline.resume import start  # loads the teachers, which takes seconds

        begun = start(workspace, serving)
        if begun.base is None:
            return None, f"{begun.why_anew}; the next update learns it again" if begun.why_anew else nothing
        _loaded.clear()
        _loaded[key] = begun.still
    return _loaded[key], None


def _labels(workspace: Workspace) -> list[str]:
    space = workspace.problem.actions
    if isinstance(space, FiniteSpace):
        return [str(label) for label in space.labels]
    if isinstance(space, Continuous):
        edges = np.asarray(space.head().edges)
        middles = (edges[1:] + edges[:-1]) / 2
        return [f"{middle:.4g}" for middle in middles[_every(len(middles))]]
    return []


def _coarse(workspace: Workspace, mean: Any) -> Any:
    """Means at some of the bins of a number; of a list, all of them."""
    return mean[:, _every(mean.shape[1])] if isinstance(workspace.problem.actions, Continuous) else mean


def _every(bins: int) -> Any:
    return np.unique(np.linspace(0, bins - 1, min(2 * BINS, bins)).round().astype(int))
