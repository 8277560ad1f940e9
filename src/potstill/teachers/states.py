"""A teacher's state as one safetensors file, without pickle; what is read back continues to the bit.

A state is nested (named) tuples of arrays whose structure does not depend on what was observed, so that the state of a
fresh teacher says how to read the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from potstill.files import write_atomically
from potstill.problem import Problem
from potstill.teachers.contract import AnyTeacher
from potstill.teachers.registry import to_config


class InvalidState(ValueError):
    """A state file cannot be used; the message says why."""


def save_state(path: str | Path, teacher: AnyTeacher, state: Any, problem: Problem) -> None:
    """Write a teacher's state, atomically, with what it needs to be read back only by an equal teacher."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in _leaves(state)}
    write_atomically(path, save(arrays, _metadata(teacher, problem)))


def load_state(path: str | Path, teacher: AnyTeacher, problem: Problem) -> Any:
    """Read a state that an equal teacher wrote for the same problem."""
    try:
        with safe_open(path, framework="numpy") as file:
            found, names = file.metadata() or {}, file.keys()
            arrays = {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise InvalidState(f"{path}: not a readable state: {error}") from error
    for name, expected in _metadata(teacher, problem).items():
        if found.get(name) != expected:
            raise InvalidState(f"{path}: its {name} is {found.get(name)}, but here it is {expected}")
    try:
        return _rebuild(teacher.init(problem), arrays, "state")
    except KeyError as error:
        raise InvalidState(f"{path}: array {error} is missing") from None


def _metadata(teacher: AnyTeacher, problem: Problem) -> dict[str, str]:
    return {"problem": problem.hash, "teacher": msgspec.json.encode(to_config(teacher), order="sorted").decode()}


def _leaves(state: Any, name: str = "state") -> Iterator[tuple[str, Any]]:
    if isinstance(state, tuple):
        for i, part in enumerate(state):
            yield from _leaves(part, f"{name}.{i}")
    else:
        yield name, state


def _rebuild(like: Any, arrays: dict[str, Any], name: str) -> Any:
    if not isinstance(like, tuple):
        return arrays[name]
    parts = [_rebuild(part, arrays, f"{name}.{i}") for i, part in enumerate(like)]
    return type(like)(*parts) if hasattr(like, "_fields") else tuple(parts)
