"""Workspaces: one problem, its events and its policies, in a folder or an object store."""

from potstill.workspace import template
from potstill.workspace.config import Config, InvalidConfig, ServeConfig, ServeMode, UpdateConfig, read_config
from potstill.workspace.experiment import ExperimentStatus, control_of, experiment_status, rules_of
from potstill.workspace.overview import Overview, overview
from potstill.workspace.template import log_example
from potstill.workspace.workspace import CONFIG, PROBLEM, NoWorkspace, Workspace, WorkspaceExists

__all__ = [
    "CONFIG",
    "PROBLEM",
    "Config",
    "ExperimentStatus",
    "InvalidConfig",
    "NoWorkspace",
    "Overview",
    "ServeConfig",
    "ServeMode",
    "UpdateConfig",
    "Workspace",
    "WorkspaceExists",
    "control_of",
    "experiment_status",
    "log_example",
    "overview",
    "read_config",
    "rules_of",
    "template",
]
