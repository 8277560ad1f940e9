"""One problem, its events and its policies: the place that everything else works on."""

from potstill.workspace.config import Config, InvalidConfig
from potstill.workspace.workspace import NoWorkspace, Workspace, WorkspaceExists

__all__ = ["Config", "InvalidConfig", "NoWorkspace", "Workspace", "WorkspaceExists"]
