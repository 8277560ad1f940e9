"""Checks of `potstill.toml` against the problem, the same for every command."""

from __future__ import annotations

from typing import Any

from potstill.errors import InvalidAction
from potstill.storage import child
from potstill.workspace.config import InvalidConfig
from potstill.workspace.workspace import CONFIG, Workspace


def check_config(workspace: Workspace) -> None:
    """Refuse options that do not fit the problem; `InvalidConfig`."""
    fallback_of(workspace)
    try:
        workspace.problem.actions.head().check_floor(workspace.config.policy.floor)
    except ValueError as error:
        raise InvalidConfig(f"{_where(workspace)}: policy.{error}") from error


def fallback_of(workspace: Workspace) -> Any:
    """The configured fallback action, parsed; None if there is none, `InvalidConfig` if it is no action."""
    stated = workspace.config.serve.fallback
    try:
        return None if stated is None else workspace.problem.actions.parse(stated)
    except InvalidAction as error:
        raise InvalidConfig(f"{_where(workspace)}: serve.fallback must be an action: {error}") from error


def _where(workspace: Workspace) -> str:
    return child(workspace.url, CONFIG)
