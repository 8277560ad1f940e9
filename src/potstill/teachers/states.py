"""A teacher's state as one safetensors file, without pickle. A restored state continues bit for bit.

A state is a nested (named) tuple of arrays whose structure does not depend on the observations. The state of a new
teacher therefore serves as the template for reading the file. A teacher whose states have changed their meaning says so
by `state_format`, a number above 1, and states of other formats are refused.
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
    """A state file cannot be used; the message gives the reason."""


def save_state(path: str | Path, teacher: AnyTeacher, state: Any, problem: Problem) -> None:
    """Write a teacher's state atomically, with its configuration and problem hash, which `load_state` checks."""
    write_atomically(path, pack(state, teacher, problem))


def load_state(path: str | Path, teacher: AnyTeacher, problem: Problem) -> Any:
    """Read a state written by an equally configured teacher for the same problem."""
    try:
        return unpack(Path(path).read_bytes(), teacher.init(problem), teacher, problem)
    except InvalidState as error:
        raise InvalidState(f"{path}: {error}") from error


def pack(tree: Any, teacher: AnyTeacher, problem: Problem) -> bytes:
    """Serialise nested tuples of arrays, with the teacher's configuration and the problem hash."""
    arrays = {name: np.asarray(leaf, order="C") for name, leaf in _leaves(tree)}
    data: bytes = save(arrays, _metadata(teacher, problem))
    return data


def unpack(data: bytes, like: TreeT, teacher: AnyTeacher, problem: Problem) -> TreeT:
    """Deserialise the bytes of `pack`, in the structure of `like`; the teacher and problem must match."""
    expected = _metadata(teacher, problem)
    try:
        arrays, found = load(data), metadata_of(data)
        options = _differences(found.get("teacher", "{}"), expected["teacher"])
    except (SafetensorError, msgspec.DecodeError) as error:
        raise InvalidState(f"not a readable state: {error}") from error
    if found.get("problem") != expected["problem"]:
        raise InvalidState(f"it belongs to problem {found.get('problem')}, expected {expected['problem']}")
    if found.get("objective") != expected.get("objective"):
        raise InvalidState(f"its objective is {found.get('objective')}, expected {expected.get('objective')}")
    if options:
        raise InvalidState(f"its teacher differs from the configured teacher in {', '.join(options)}")
    if found.get("format", "1") != expected.get("format", "1"):
        raise InvalidState(
            f"its format is {found.get('format', '1')} and this version of Potstill reads format "
            f"{expected.get('format', '1')} of {type(teacher).__name__}; learn from the observations again"
        )
    try:
        rebuilt: TreeT = _rebuild(like, arrays, "state")
    except KeyError as error:
        raise InvalidState(f"it was written by another version of Potstill and lacks {error}") from None
    return rebuilt


def digest(tree: Any, teacher: AnyTeacher, problem: Problem) -> str:
    """SHA-256 of a state. Independent of the order in which safetensors stores arrays, unlike a hash of `pack`."""
    found = hashlib.sha256(msgspec.json.encode(_metadata(teacher, problem), order="sorted"))
    for name, leaf in _leaves(tree):
        array = np.asarray(leaf, order="C")
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(np.atleast_1d(array).data)
    return found.hexdigest()


class _Header(msgspec.Struct, rename={"metadata": "__metadata__"}):
    metadata: dict[str, str] = {}


def metadata_of(data: bytes) -> dict[str, str]:
    """The metadata of packed bytes; safetensors returns it only for files on disk."""
    size = int.from_bytes(data[:8], "little")
    return msgspec.json.decode(data[8 : 8 + size], type=_Header).metadata


def _metadata(teacher: AnyTeacher, problem: Problem) -> dict[str, str]:
    stated = {"problem": problem.hash, "teacher": msgspec.json.encode(to_config(teacher), order="sorted").decode()}
    if problem.reward.objective is not None:
        stated["objective"] = problem.reward.objective
    number = getattr(teacher, "state_format", 1)
    return stated if number == 1 else {**stated, "format": str(number)}


def _differences(found: str, expected: str) -> list[str]:
    """Names of the options in which two configurations differ, such as ``recipe.noise``; ``type`` if types differ."""
    one, other = (dict(_options(msgspec.json.decode(config, type=dict[str, Any]))) for config in (found, expected))
    if "type" not in one:  # a state of another package's teacher, from before its code was named
        other = {name: value for name, value in other.items() if name != "type" and not name.startswith("source.")}
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
