"""A teacher's state as one safetensors file, without pickle; what is read back continues to the bit.

A state is nested (named) tuples of arrays whose structure does not depend on what was observed, so that the state of a
fresh teacher says how to read the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from potstill.errors import PotstillError
from potstill.files import write_atomically
from potstill.problem import Problem
from potstill.teachers.contract import AnyTeacher
from potstill.teachers.registry import to_config

TreeT = TypeVar("TreeT")


class InvalidState(PotstillError, ValueError):
    """A state file cannot be used; the message says why."""


def save_state(path: str | Path, teacher: AnyTeacher, state: Any, problem: Problem) -> None:
    """Write a teacher's state, atomically, with what it needs to be read back only by an equal teacher."""
    write_atomically(path, pack(state, teacher, problem))


def load_state(path: str | Path, teacher: AnyTeacher, problem: Problem) -> Any:
    """Read a state that an equal teacher wrote for the same problem."""
    try:
        return unpack(Path(path).read_bytes(), teacher.init(problem), teacher, problem)
    except InvalidState as error:
        raise InvalidState(f"{path}: {error}") from error


def pack(tree: Any, teacher: AnyTeacher, problem: Problem) -> bytes:
    """Nested tuples of arrays as the bytes of a file, with the teacher and the problem that they belong to."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in _leaves(tree)}
    data: bytes = save(arrays, _metadata(teacher, problem))
    return data


def unpack(data: bytes, like: TreeT, teacher: AnyTeacher, problem: Problem) -> TreeT:
    """What `pack` wrote for an equal teacher and problem, in the structure of `like`."""
    expected = _metadata(teacher, problem)
    try:
        arrays, found = load(data), metadata_of(data)
        options = _differing(found.get("teacher", "{}"), expected["teacher"])
    except (SafetensorError, msgspec.DecodeError) as error:
        raise InvalidState(f"not a readable state: {error}") from error
    if found.get("problem") != expected["problem"]:
        raise InvalidState(f"its problem is {found.get('problem')}, but here it is {expected['problem']}")
    if options:
        raise InvalidState(f"its teacher differs from the one here in {', '.join(options)}")
    try:
        rebuilt: TreeT = _rebuild(like, arrays, "state")
    except KeyError as error:
        raise InvalidState(f"another version of Potstill wrote it, without {error}") from None
    return rebuilt


def digest(tree: Any, teacher: AnyTeacher, problem: Problem) -> str:
    """The SHA-256 of what `pack` writes, which says the same in one of several orders."""
    found = hashlib.sha256(msgspec.json.encode(_metadata(teacher, problem), order="sorted"))
    for name, leaf in _leaves(tree):
        array = np.asarray(leaf, order="C")
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.atleast_1d(array).data)
    return found.hexdigest()


class _Header(msgspec.Struct, rename={"metadata": "__metadata__"}):
    metadata: dict[str, str] = {}


def metadata_of(data: bytes) -> dict[str, str]:
    """What `save` was given beside the arrays; the library gives it back only for files on disk."""
    size = int.from_bytes(data[:8], "little")
    return msgspec.json.decode(data[8 : 8 + size], type=_Header).metadata


def _metadata(teacher: AnyTeacher, problem: Problem) -> dict[str, str]:
    return {"problem": problem.hash, "teacher": msgspec.json.encode(to_config(teacher), order="sorted").decode()}


def _differing(found: str, expected: str) -> list[str]:
    """The options in which two configurations of a teacher differ, such as ``recipe.noise``; or its type alone."""
    one, other = (dict(_options(msgspec.json.decode(config, type=dict[str, Any]))) for config in (found, expected))
    if one.get("type") != other.get("type"):
        return ["type"]
    return sorted(name for name in one.keys() | other.keys() if one.get(name, ...) != other.get(name, ...))


def _options(config: dict[str, Any], within: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _options(value, f"{within}{name}.")
        else:
            yield within + name, value


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
