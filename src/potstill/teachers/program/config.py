"""A program teacher from its configuration, and back."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any, get_type_hints

import msgspec

from potstill.decode import convert
from potstill.errors import InvalidOption
from potstill.teachers.program.model_file import ModelFile
from potstill.teachers.program.program_ts import ProgramTS


def program_from(model: ModelFile, options: dict[str, Any], kind: type[ProgramTS] = ProgramTS) -> ProgramTS:
    """A program teacher with a model and options such as ``{"draws": 500}``; `InvalidOption` for others."""
    try:
        stated = convert(options, _options())
    except msgspec.ValidationError as error:
        raise InvalidOption(f"teacher 'program': {error}") from error
    _ = model.program
    return kind(model, **msgspec.structs.asdict(stated))


def program_config(teacher: ProgramTS, model: ModelFile) -> dict[str, Any]:
    """The configuration of a program teacher with its model and the hash of its source."""
    options = {field.name: getattr(teacher, field.name) for field in fields(teacher)[1:]}
    return {"type": "program", "model": str(model), **options, "source": msgspec.to_builtins(model.source)}


@cache
def _options() -> type[msgspec.Struct]:
    """The options of `ProgramTS` as a type to decode: its fields without the program."""
    hints = get_type_hints(ProgramTS)
    columns = [(field.name, hints[field.name], field.default) for field in fields(ProgramTS)[1:]]
    return msgspec.defstruct("ProgramOptions", columns, frozen=True, kw_only=True)
