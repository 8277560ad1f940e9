"""Check the teacher and the student of `potstill.toml`, without what trains a student."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potstill.errors import UnsupportedSpace
from potstill.pipeline.load_teacher import load_teacher
from potstill.teachers import AnyTeacher, check_support
from potstill.workspace import PROGRAM, InvalidConfig, Workspace, check_code, is_own_code, states_prior

if TYPE_CHECKING:
    from potstill.distill import AutoStudent, Student


def check_learning(workspace: Workspace) -> None:
    """Refuse a teacher or a student that an update would refuse; `InvalidConfig`.

    A student without options is not looked at: it is valid, and checking it imports JAX. A user's own model is read and
    not run: only an update runs it.
    """
    if is_own_code(workspace.config.teacher):
        try:
            check_code(workspace.storage, workspace.config.teacher)
        except InvalidConfig as error:
            raise InvalidConfig(f"potstill.toml: {error}") from error
    else:
        check_teacher(workspace)
    if workspace.config.student:
        check_student(workspace)


def check_teacher(workspace: Workspace) -> AnyTeacher:
    """The configured teacher; `InvalidConfig` if there is none like it, or it cannot learn on this action space."""
    try:
        teacher = load_teacher(workspace, workspace.config.teacher)
        check_support(teacher, workspace.problem)
        if states_prior(workspace.config.teacher) and workspace.config.teacher.get("type") != PROGRAM:
            teacher.init(workspace.problem)  # names of the prior are those of the problem
    except (ValueError, UnsupportedSpace) as error:
        raise InvalidConfig(f"potstill.toml: [teacher]: {error}") from error
    return teacher


def check_student(workspace: Workspace, teacher: AnyTeacher | None = None) -> Student | AutoStudent:
    """The configured student of a teacher; `InvalidConfig` if an option is unknown or has no such value."""
    from potstill.distill import student_from_config

    try:
        return student_from_config(workspace.config.student, teacher)
    except ValueError as error:  # includes msgspec.ValidationError
        raise InvalidConfig(f"potstill.toml: {error}") from error
