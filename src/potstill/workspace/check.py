"""Checks of `potstill.toml` against the problem, the same for every command."""

from __future__ import annotations

from typing import Any

from potstill.errors import InvalidAction
from potstill.storage import child
from potstill.workspace.config import InvalidConfig, ServeConfig, ServeMode
from potstill.workspace.workspace import CONFIG, Workspace


def check_config(workspace: Workspace) -> None:
    """Refuse options that do not fit the problem or each other; `InvalidConfig`."""
    fallback_of(workspace)
    check_mode(workspace.config.serve.mode, workspace.config.serve)
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


def check_mode(mode: ServeMode, stated: ServeConfig) -> None:
    """Refuse mode log-only without a fallback action; `InvalidConfig`."""
    if mode == "log-only" and stated.fallback is None:
        raise InvalidConfig("mode log-only needs an action to answer with: state serve.fallback in potstill.toml")


def _where(workspace: Workspace) -> str:
    return child(workspace.url, CONFIG)
