"""Teachers of other packages: a class by its reference, and an instance from its options."""

from __future__ import annotations

import dataclasses
from importlib import import_module
from typing import Any

import msgspec

from potstill.decode import convert, unknown_name
from potstill.errors import InvalidOption, shown
from potstill.teachers.contract import AnyTeacher
from potstill.teachers.source import source_of_class

_METHODS = ("supports", "exactness", "init", "update", "sample_actions")
#: Keys of a recorded configuration that are not options.
RESERVED = ("type", "source")


def load_class(reference: str) -> type[AnyTeacher]:
    """Import a class by its reference ``module:Class``; `InvalidOption` if it is not the class of a teacher.

    This runs the code of the package. Call it with what a configuration states, never with what a file of a policy or
    a request does.
    """
    module, _, name = reference.partition(":")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidOption(f"teacher {reference!r}: there is no module {error.name!r}; install its package") from error
    except Exception as error:
        raise InvalidOption(f"teacher {reference!r}: {module} raised {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidOption(f"teacher {reference!r}: {unknown_name('name', part, _classes(found))}")
        found = getattr(found, part)
    _check_class(found, reference)
    kind: type[AnyTeacher] = found
    return kind


def make_teacher(kind: type[Any], options: dict[str, Any], reference: str) -> AnyTeacher:
    """A teacher of a class with options; `InvalidOption` for an option that it does not have."""
    try:
        if issubclass(kind, msgspec.Struct):
            config = kind.__struct_config__
            tag = {} if config.tag_field is None else {config.tag_field: config.tag}
            made: Any = convert({**options, **tag}, kind)
        else:
            known = [field.name for field in dataclasses.fields(kind) if field.init]
            for name in options:
                if name not in known:
                    raise InvalidOption(unknown_name("option", name, known))
            made = msgspec.convert(options, kind)
        msgspec.json.encode(own_options(made))
    except (ValueError, TypeError) as error:  # includes those of msgspec and of the class itself
        raise InvalidOption(f"teacher {reference!r}: {error}") from error
    teacher: AnyTeacher = made
    return teacher


def own_options(teacher: AnyTeacher) -> dict[str, Any]:
    """The options of a teacher that is a Struct or a dataclass, without its tag."""
    options: dict[str, Any] = msgspec.to_builtins(teacher)
    return {name: value for name, value in options.items() if name not in RESERVED}


def _classes(found: Any) -> list[str]:
    return sorted(name for name, value in vars(found).items() if isinstance(value, type) and not name.startswith("_"))


def _check_class(found: Any, reference: str) -> None:
    where = f"teacher {reference!r}"
    if not isinstance(found, type):
        raise InvalidOption(f"{where} must be a class, got {shown(found)}")
    missing = [name for name in _METHODS if not hasattr(found, name)]
    if missing:
        raise InvalidOption(f"{where} is not a teacher: it has no {', '.join(missing)}; see potstill.teachers.Teacher")
    if not (issubclass(found, msgspec.Struct) or dataclasses.is_dataclass(found)):
        raise InvalidOption(f"{where} must be a msgspec.Struct or a dataclass: its fields are its options")
    names = (
        found.__struct_fields__ if issubclass(found, msgspec.Struct) else [f.name for f in dataclasses.fields(found)]
    )
    taken = [name for name in RESERVED if name in names]
    if taken:
        raise InvalidOption(f"{where}: an option must not be called {taken[0]!r}, which a lineage uses itself")
    if source_of_class(found) is None:
        raise InvalidOption(f"{where}: its module {found.__module__} has no file, whose hash a lineage must name")
