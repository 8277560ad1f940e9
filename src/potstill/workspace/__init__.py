"""Workspaces: one problem, its events and its policies, in a folder or an object store."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy
from potstill.workspace import template
from potstill.workspace.actions import (
    PER_ACTION,
    ActionsReport,
    ActionStatus,
    add_action,
    keeps_actions_apart,
    list_actions,
    remove_action,
    retire_action,
)
from potstill.workspace.adapt import Adaptation, adapt, adapt_again, in_words, is_uniform, source_of
from potstill.workspace.backup import (
    BackupReport,
    CorruptBackup,
    Manifest,
    NoBackup,
    back_up,
    list_backups,
    restore,
)
from potstill.workspace.change import CannotChangeActions
from potstill.workspace.check import check_config, check_mode, fallback_of
from potstill.workspace.config import Config, InvalidConfig, ServeConfig, ServeMode, UpdateConfig, read_config
from potstill.workspace.design import (
    DESIGN,
    DesignPoint,
    InitialDesign,
    InvalidDesign,
    decode_design,
    end_design,
    read_design,
    write_design,
)
from potstill.workspace.experiment import ExperimentStatus, control_of, experiment_status, rules_of
from potstill.workspace.items import ItemsReport, catalog_of, remove_items, sync_items
from potstill.workspace.notices import change_notice, notices
from potstill.workspace.overview import Overview, overview
from potstill.workspace.problem_edit import CannotEdit
from potstill.workspace.problem_file import problem_text
from potstill.workspace.problem_source import ITEMS, PROBLEM, ProblemSource, item_features, items_text, read_source
from potstill.workspace.registry_access import RegistryAccess, open_registry
from potstill.workspace.staging import recover, staging
from potstill.workspace.teacher_code import (
    PROGRAM,
    check_code,
    class_reference,
    installed_teachers,
    is_own_code,
    model_reference,
    same_code,
    states_prior,
)
from potstill.workspace.template import log_example
from potstill.workspace.workspace import CONFIG, NoFirstPolicy, NoWorkspace, Workspace, WorkspaceExists

if TYPE_CHECKING:
    from potstill.workspace.forget import CannotForget as CannotForget
    from potstill.workspace.forget import ForgetReport as ForgetReport
    from potstill.workspace.forget import forget_unit as forget_unit
    from potstill.workspace.verification import VerifyReport as VerifyReport
    from potstill.workspace.verification import repair as repair
    from potstill.workspace.verification import verify as verify

__all__ = [
    "CONFIG",
    "DESIGN",
    "ITEMS",
    "PER_ACTION",
    "PROBLEM",
    "PROGRAM",
    "ActionStatus",
    "ActionsReport",
    "Adaptation",
    "BackupReport",
    "CannotChangeActions",
    "CannotEdit",
    "Config",
    "CorruptBackup",
    "DesignPoint",
    "ExperimentStatus",
    "InitialDesign",
    "InvalidConfig",
    "InvalidDesign",
    "ItemsReport",
    "Manifest",
    "NoBackup",
    "NoFirstPolicy",
    "NoWorkspace",
    "Overview",
    "ProblemSource",
    "RegistryAccess",
    "ServeConfig",
    "ServeMode",
    "UpdateConfig",
    "Workspace",
    "WorkspaceExists",
    "adapt",
    "adapt_again",
    "add_action",
    "back_up",
    "catalog_of",
    "change_notice",
    "check_code",
    "check_config",
    "check_mode",
    "class_reference",
    "control_of",
    "decode_design",
    "end_design",
    "experiment_status",
    "fallback_of",
    "in_words",
    "installed_teachers",
    "is_own_code",
    "is_uniform",
    "item_features",
    "items_text",
    "keeps_actions_apart",
    "list_actions",
    "list_backups",
    "log_example",
    "model_reference",
    "notices",
    "open_registry",
    "overview",
    "problem_text",
    "read_config",
    "read_design",
    "read_source",
    "recover",
    "remove_action",
    "remove_items",
    "restore",
    "retire_action",
    "rules_of",
    "same_code",
    "source_of",
    "staging",
    "states_prior",
    "sync_items",
    "template",
    "write_design",
]

__getattr__ = lazy(
    __name__,
    {"verification": ("VerifyReport", "repair", "verify"), "forget": ("CannotForget", "ForgetReport", "forget_unit")},
)
