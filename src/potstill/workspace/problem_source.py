"""Where a workspace states its problem: `problem.toml`, and `items.json` beside it for the items of a catalogue."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from potstill.problem import Feature, InvalidProblem, Problem
from potstill.storage import Storage, child

PROBLEM, ITEMS = "problem.toml", "items.json"


class ProblemSource(NamedTuple):
    """The texts of a problem.

    Attributes:
        toml: The text of `problem.toml`.
        items: That of `items.json`; None if there is none, or nothing needs it.
    """

    toml: bytes
    items: bytes | None

    def problem(self, where: str) -> Problem:
        """The problem; `InvalidProblem` names the file."""
        return Problem.from_toml(self.toml, child(where, PROBLEM), self.items)


def read_source(storage: Storage) -> ProblemSource:
    """The texts of a workspace's problem; `FileNotFoundError` without `problem.toml`."""
    toml, items = storage.read(PROBLEM), None
    if b"catalog" in toml:  # other problems need no second look, which object stores charge for
        with contextlib.suppress(FileNotFoundError):
            items = storage.read(ITEMS)
    return ProblemSource(toml, items)


def read_problem(storage: Storage) -> Problem:
    """The problem of a workspace; `FileNotFoundError` without `problem.toml`."""
    return read_source(storage).problem(storage.url)


def item_features(toml: bytes, where: str) -> tuple[Feature, ...]:
    """The features of items that the text of a problem states; `InvalidProblem` if its actions are no catalogue."""
    try:
        stated = msgspec.toml.decode(toml, type=_Stated)
        if stated.actions.get("type") != "catalog":
            raise InvalidProblem(f"{where}: items need a catalogue, actions of type 'catalog', got {stated.actions}")
        return msgspec.convert(stated.actions.get("features", ()), tuple[Feature, ...])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidProblem(f"{where}: {error}") from error


class _Stated(msgspec.Struct):
    actions: dict[str, Any]


def items_text(items: Iterable[Mapping[str, Any]]) -> bytes:
    """The text of `items.json`: one item in each line."""
    return b"[\n" + b",\n".join(map(msgspec.json.encode, items)) + b"\n]\n"
