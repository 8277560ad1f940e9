"""The teacher of a workspace: the one place where a user's code is loaded.

Code is named by `potstill.toml`, or by the operator of `potstill tune`. A policy file, a lineage, the registry and
requests are data: what they say about a teacher is compared with the configured one and never imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from potstill.errors import InvalidOption
from potstill.teachers import (
    TEACHERS,
    AnyTeacher,
    ContinuousProgramTS,
    ModelFile,
    ProgramTS,
    from_config,
    load_class,
    make_teacher,
    program_from,
    to_config,
)
from potstill.workspace import (
    PROGRAM,
    Workspace,
    class_reference,
    installed_teachers,
    model_reference,
)


def load_teacher(workspace: Workspace, section: Mapping[str, Any]) -> AnyTeacher:
    """The teacher of a section ``[teacher]``; `InvalidOption` or `InvalidConfig` if there is none like it.

    Args:
        workspace: The workspace, which has the model file.
        section: The section of `potstill.toml`, or a variation of it that is being tuned.
    """
    kind = section.get("type")
    options = {name: value for name, value in section.items() if name != "type"}
    if kind == PROGRAM:
        measure = workspace.problem.actions.measure
        kind = ContinuousProgramTS if measure == "lebesgue" else ProgramTS
        return program_from(_model(workspace, options.pop("model", None)), options, kind)
    if not isinstance(kind, str) or kind in TEACHERS or (":" not in kind and kind not in installed_teachers()):
        return _registered(dict(section))
    reference = class_reference(kind)
    return make_teacher(load_class(reference), options, reference)


def with_options(teacher: AnyTeacher, recorded: Mapping[str, Any]) -> AnyTeacher:
    """A loaded teacher with the options of a lineage: its code, and the recorded values."""
    options = {name: value for name, value in recorded.items() if name not in ("type", "source")}
    if isinstance(teacher, ProgramTS) and isinstance(teacher.program, ModelFile):
        stated = {name: value for name, value in options.items() if name != "model"}
        return program_from(teacher.program, stated, type(teacher))
    return make_teacher(type(teacher), options, str(recorded.get("type")))


def is_recorded(teacher: AnyTeacher, recorded: Mapping[str, Any]) -> bool:
    """Whether a teacher is that of a lineage, with the same options and the same source."""
    if "source" in recorded:
        return bool(_plain(to_config(teacher)) == _plain(recorded))
    try:
        return bool(from_config(dict(recorded)) == teacher)
    except ValueError:  # an option or a teacher that this version of Potstill does not have
        return False


def _registered(section: dict[str, Any]) -> AnyTeacher:
    """A teacher of Potstill; the error lists those of installed packages as well."""
    try:
        return from_config(section)
    except InvalidOption as error:
        others = [PROGRAM, *installed_teachers(), "yourpackage:YourTeacher"]
        if section.get("type") in TEACHERS:
            raise
        raise InvalidOption(f"{error}, {', '.join(others)}") from error


def _model(workspace: Workspace, stated: object) -> ModelFile:
    reference = model_reference(stated)
    return ModelFile(reference.path, reference.function, reference.read(workspace.storage))


def _plain(config: Mapping[str, Any]) -> Any:
    """A configuration as JSON has it: lists, not tuples."""
    return msgspec.json.decode(msgspec.json.encode(config))
