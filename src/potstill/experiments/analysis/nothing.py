"""Why there is nothing to report on an experiment yet."""

from __future__ import annotations

import polars as pl

from potstill.experiments.analysis.read import arms
from potstill.experiments.config import ExperimentConfig
from potstill.workspace import Workspace
from potstill.workspace.experiment import standing


def why_nothing(workspace: Workspace, name: str, config: ExperimentConfig | None, now: int) -> str:
    """The reason in words, from what is most likely to be mended on.

    Args:
        workspace: where its decisions would be.
        name: of the experiment.
        config: what potstill.toml says of it; None if it is another one, or there is none.
        now: microseconds since 1970.
    """
    stands = standing(workspace, now) if config is not None else None
    if stands is not None and stands.state == "not started":
        return stands.why
    logged = _logged_arms(workspace)
    waiting = sum(logged.get(arm, 0) for arm in arms(name))
    if waiting:
        return (
            f"{waiting:,} of its decisions are in the lake, and none is an observation yet; potstill update makes "
            f"them, when the reward's window of {workspace.problem.reward.window} has closed"
        )
    others = sorted({arm.rpartition(":")[0] for arm in logged})
    beside = f". The lake has decisions of {', '.join(others)}: --name shows those" if others else ""
    if stands is not None and stands.state == "refused":
        return f"no service follows it, since {stands.why}{beside}"
    return (
        "no decision of it is in the lake; it needs requests that state a unit, and potstill events flush or update"
        f"{beside}"
    )


def _logged_arms(workspace: Workspace) -> dict[str, int]:
    """How many decisions each arm has in the lake, whether or not they are observations."""
    decisions = workspace.lake.scan("decisions").filter(pl.col("arm").is_not_null())
    counted = decisions.group_by("arm").agg(pl.len()).collect(engine="streaming")
    return dict(counted.iter_rows())
