"""Check the teacher of `potstill.toml`, without what trains a student."""

from __future__ import annotations

from potstill.teachers import AnyTeacher, check_support, from_config
from potstill.workspace import InvalidConfig, Workspace


def check_teacher(workspace: Workspace) -> AnyTeacher:
    """The configured teacher; `InvalidConfig` if there is none like it, or it cannot learn on this action space."""
    try:
        teacher = from_config(workspace.config.teacher)
        check_support(teacher, workspace.problem.actions)
    except ValueError as error:
        raise InvalidConfig(f"potstill.toml: {error}") from error
    return teacher
