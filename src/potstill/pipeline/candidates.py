"""Candidates of a hyperparameter selection: the workspace's present settings, and variations of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from potstill.distill import student_from_config
from potstill.pipeline.load_teacher import load_teacher
from potstill.workspace import InvalidConfig, Workspace

PRESENT = "present"
_SECTIONS = ("teacher", "student")


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a teacher and a student, as in `potstill.toml`.

    Attributes:
        name: Name of the candidate.
        teacher: Section ``[teacher]``.
        student: Section ``[student]``.
    """

    name: str
    teacher: dict[str, Any]
    student: dict[str, Any]

    def check(self, workspace: Workspace) -> None:
        """Raise `InvalidConfig` if there is no such teacher or student."""
        try:
            load_teacher(workspace, self.teacher)
            student_from_config(self.student)
        except ValueError as error:  # includes those of msgspec
            raise InvalidConfig(f"candidate {self.name!r}: {error}") from error


def make_candidates(workspace: Workspace, teachers: Sequence[str], alternatives: Sequence[str]) -> list[Candidate]:
    """The present settings, and every combination of teachers and alternatives.

    Args:
        workspace: The workspace.
        teachers: Types of teachers, each with its defaults; the present teacher if empty.
        alternatives: Options with their values as a TOML array, such as ``student.hidden=[[50], [100, 100]]`` or
            ``teacher.discount=[0.99, 1.0]``.
    """
    own = msgspec.to_builtins(workspace.config)
    bases = [_Base((name,), _teacher(own, name), own["student"]) for name in teachers]
    found = [Candidate(name=PRESENT, teacher=own["teacher"], student=own["student"])]
    changes = [_values(text) for text in alternatives]
    for base in bases or [_Base((), own["teacher"], own["student"])]:
        for chosen in itertools.product(*changes):
            candidate = base.changed(chosen)
            if (candidate.teacher, candidate.student) not in [(one.teacher, one.student) for one in found]:
                found.append(candidate)
    for candidate in found:
        candidate.check(workspace)
    return found


class _Change(msgspec.Struct, frozen=True):
    section: str
    option: str
    value: Any

    def __str__(self) -> str:
        return f"{self.option}={msgspec.json.encode(self.value).decode()}"


class _Base(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    teacher: dict[str, Any]
    student: dict[str, Any]

    def changed(self, changes: Sequence[_Change]) -> Candidate:
        sections = {"teacher": dict(self.teacher), "student": dict(self.student)}
        for change in changes:
            sections[change.section][change.option] = change.value
        return Candidate(name=" ".join([*self.names, *map(str, changes)]) or PRESENT, **sections)


def _teacher(own: dict[str, Any], name: str) -> dict[str, Any]:
    """The present teacher with its options, or another type with its defaults."""
    return own["teacher"] if own["teacher"].get("type") == name else {"type": name}


def _values(text: str) -> list[_Change]:
    """The changes of ``section.option=[value, value]``."""
    path, equals, array = text.partition("=")
    section, dot, option = path.strip().partition(".")
    if not (equals and dot and option) or section not in _SECTIONS:
        raise InvalidConfig(
            f"--set must look like student.hidden=[[50], [100, 100]] or teacher.discount=[0.99, 1.0], got {text!r}"
        )
    try:
        values = msgspec.toml.decode(f"values = {array}")["values"]
    except msgspec.DecodeError as error:
        raise InvalidConfig(f"--set {path}: {array!r} is not a TOML array: {error}") from error
    if not isinstance(values, list) or not values:
        raise InvalidConfig(f"--set {path}: the values must be in brackets, such as [{array}], got {array!r}")
    return [_Change(section, option, value) for value in values]
