"""Strict decoding of TOML and JSON: an unknown key or type is refused with the nearest name that there is.

`check_keys` raises `msgspec.ValidationError`, as msgspec does for values that do not fit: callers handle one error.
msgspec alone ignores unknown keys, or refuses them without saying which there are.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

T = TypeVar("T")


def from_toml(data: bytes, kind: type[T]) -> T:
    """A value of a type from TOML."""
    check_keys(msgspec.toml.decode(data), kind)
    return msgspec.toml.decode(data, type=kind)


def convert(value: object, kind: type[T]) -> T:
    """A value of a type from plain mappings and lists."""
    check_keys(value, kind)
    return msgspec.convert(value, kind)


def check_keys(value: object, kind: Any, path: str = "$") -> None:
    """Raise `msgspec.ValidationError` if a mapping in `value` has a key or a ``type`` that `kind` does not have."""
    _check(value, _type_info(kind), path)


def unknown_name(what: str, name: object, known: Iterable[str]) -> str:
    """The message for a name that is not among those known: the nearest, and all of them."""
    listed = list(known)
    near = difflib.get_close_matches(name, listed, 1) if isinstance(name, str) else []
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return f"unknown {what} {name!r}{meant}; must be one of: {', '.join(listed) or 'none'}"


@cache
def _type_info(kind: Any) -> inspect.Type:
    return inspect.type_info(kind)


def _check(value: object, info: inspect.Type, path: str) -> None:
    if isinstance(info, inspect.Metadata):
        _check(value, info.type, path)
    elif isinstance(value, Mapping):
        _check_mapping(value, info, path)
    elif isinstance(value, str):
        _check_literal(value, _members(info), path)
    elif isinstance(value, Sequence):
        for member in _members(info):
            if isinstance(member, inspect.CollectionType):
                for i, item in enumerate(value):
                    _check(item, member.item_type, f"{path}[{i}]")


def _check_mapping(value: Mapping[Any, object], info: inspect.Type, path: str) -> None:
    structs = [member for member in _members(info) if isinstance(member, inspect.StructType)]
    if structs:
        struct = _tagged(value, structs, path)
        fields = {field.encode_name: field.type for field in struct.fields}
        for name, item in value.items():
            if name != struct.tag_field and name not in fields:
                raise msgspec.ValidationError(f"{unknown_name('key', name, fields)} - at `{path}`")
            if name in fields:
                _check(item, fields[name], f"{path}.{name}")
    for member in _members(info):
        if isinstance(member, inspect.DictType):
            for name, item in value.items():
                _check(item, member.value_type, f"{path}.{name}")


def _tagged(value: Mapping[Any, object], structs: Sequence[inspect.StructType], path: str) -> inspect.StructType:
    """The struct that a mapping names by its tag; the only one if there is no choice."""
    if len(structs) == 1:
        return structs[0]
    by_tag = {struct.tag: struct for struct in structs}
    field = structs[0].tag_field
    stated = value.get(field)
    if field not in value:
        raise msgspec.ValidationError(
            f"`{field}` is missing; must be one of: {', '.join(map(str, by_tag))} - at `{path}`"
        )
    if stated not in by_tag:
        raise msgspec.ValidationError(f"{unknown_name(str(field), stated, map(str, by_tag))} - at `{path}.{field}`")
    return by_tag[stated]


def _check_literal(value: str, members: Sequence[inspect.Type], path: str) -> None:
    """Refuse a text where only certain texts are taken."""
    literals = [str(one) for member in members if isinstance(member, inspect.LiteralType) for one in member.values]
    others = (inspect.LiteralType, inspect.NoneType, inspect.BoolType, inspect.IntType, inspect.FloatType)
    if literals and value not in literals and all(isinstance(member, others) for member in members):
        raise msgspec.ValidationError(f"{unknown_name('value', value, literals)} - at `{path}`")


def _members(info: inspect.Type) -> Sequence[inspect.Type]:
    return info.types if isinstance(info, inspect.UnionType) else (info,)
