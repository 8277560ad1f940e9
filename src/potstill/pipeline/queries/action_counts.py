"""Number of observations of each action."""

from __future__ import annotations

from potstill.events.lake import count_by_action
from potstill.workspace import Workspace


def action_counts(workspace: Workspace) -> dict[str, int]:
    """Number of observations of each action in the lake, also of those that are no actions any more."""
    return count_by_action(workspace.lake)
