"""The first policy of a workspace whose teacher has an informed prior: it imitates that prior."""

from __future__ import annotations

import contextlib

from potstill.distill import Still
from potstill.pipeline.resume import configured
from potstill.registry import Conflict
from potstill.teachers import has_informed_prior
from potstill.workspace import Workspace


def publish_first(workspace: Workspace) -> None:
    """Publish version 0, distilled from the prior, if nothing is published and the prior prefers actions."""
    if workspace.registry.head() is not None:
        return
    teacher, student = configured(workspace)
    if not has_informed_prior(teacher):
        return
    stated = workspace.config.policy
    still = Still(workspace.problem, teacher, student=student, seed=stated.seed, floor=stated.floor)
    with contextlib.suppress(Conflict):  # another process published first
        workspace.registry.publish(
            still.policy, teacher=None, report=b"{}", expected=0, note="imitates the prior of its teacher"
        )
