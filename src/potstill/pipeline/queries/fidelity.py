"""A version beside its own teacher in logged contexts, by the values of each feature."""

from __future__ import annotations

from typing import Any

import numpy as np

from potstill.keys import Key
from potstill.pipeline.queries.errors import CannotAnswer
from potstill.pipeline.queries.events import latest
from potstill.pipeline.queries.groups import groups
from potstill.tables import context_column, context_fits, encode_contexts
from potstill.workspace import Workspace


def fidelity(workspace: Workspace, *, version: int, contexts: int) -> dict[str, Any]:
    """How far a version is from its teacher in the latest logged contexts, before the floor.

    Args:
        workspace: The workspace.
        version: A version whose teacher's state is kept.
        contexts: The most contexts.
    """
    policy, problem = workspace.registry.policy(version), workspace.problem
    if policy.problem.hash != problem.hash:
        raise CannotAnswer(409, f"version {version} is for another problem than problem.toml")
    if policy.metadata.lineage.teacher is None:
        raise CannotAnswer(409, f"version {version} has no teacher of its own")
    # They take seconds to load, and so are not loaded before there is something to say.
    from potstill.pipeline.resume import start
    from potstill.spaces import learning
    from potstill.teachers import label

    begun = start(workspace, policy)
    if begun.base != version:
        raise CannotAnswer(409, begun.why_anew or f"version {version} has no teacher of its own")
    fits = context_fits(problem, workspace.lake.schema("decisions").names())
    rows = latest(workspace, "decisions", fits, contexts, workspace.lake.files("decisions"))
    if not len(rows):
        raise CannotAnswer(409, "no decision is logged yet, and fidelity is measured in logged contexts")
    encoded, space, still = encode_contexts(rows, problem), learning(problem.actions), begun.still
    labels = label(space, still.teacher, still.state, encoded, Key(0).child("fidelity"))
    kl, tv, *_ = space.divergences(labels, policy.distribution(encoded, floor=0.0))
    features = []
    for feature in problem.context:
        found = [
            {
                "group": name,
                "contexts": int(chosen.sum()),
                "kl": float(kl[chosen].mean()),
                "tv": float(tv[chosen].mean()),
            }
            for name, chosen in groups(feature, rows[context_column(feature.name)])
        ]
        if found:
            means = np.array([each["tv"] for each in found])
            features.append({"feature": feature.name, "spread": float(np.ptp(means)), "groups": found})
    return {
        "version": version,
        "contexts": len(rows),
        "kl": float(kl.mean()),
        "tv": float(tv.mean()),
        "features": sorted(features, key=lambda one: -one["spread"]),
    }
