"""Change the list of actions in the text of `problem.toml`, and nothing else: comments and layout stay.

The text is scanned for lists, and the first whose change gives exactly the wanted problem is changed. What was written
is parsed and compared with what was meant before it is returned, so that a layout that is not understood is refused.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tomli_w

from potstill.errors import InvalidProblem

#: Strings, comments and punctuation of TOML. Multi-line strings come first.
_TOKEN = re.compile(
    r'(?P<string>"""(?:[^\\]|\\.)*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\')'
    r"|(?P<comment>#[^\n]*)|(?P<mark>[\[\]{},=])",
    re.DOTALL,
)
_REST_OF_LINE = re.compile(r"[ \t]*(?:#[^\r\n]*)?")


class CannotEdit(InvalidProblem):
    """The list of actions could not be changed in the text; the message says how to do it by hand."""


class _Item(NamedTuple):
    """Place of a text in a list, and of the comma after it; None if there is none."""

    start: int
    end: int
    comma: int | None


class _List(NamedTuple):
    """A list of texts: places of its brackets and of its items."""

    start: int
    end: int
    items: tuple[_Item, ...]


def with_actions(data: bytes, names: Sequence[str], retired: Sequence[str], where: str) -> bytes:
    """The text of a problem with another list of actions.

    Args:
        data: The text.
        names: Names of the actions: those of the text in their order, without some, and then new ones.
        retired: Those that are retired, likewise.
        where: Place of the text, for errors.

    Raises:
        CannotEdit: The text has a layout that is not understood.
    """
    text = data.decode()
    before = tomllib.loads(text)
    middle = _stated(before, names, before["actions"].get("retired"))
    text = _changed(text, _lists_of(text, before["actions"]["names"]), names, middle, where)
    wanted = _stated(before, names, list(retired))
    if "retired" in before["actions"]:
        text = _changed(text, _lists_of(text, before["actions"]["retired"]), retired, wanted, where)
    elif retired:
        text = _verified(_with_new_key(text, names, retired), wanted, where)
    return text.encode()


def _stated(problem: dict[str, Any], names: Sequence[str], retired: Sequence[str] | None) -> dict[str, Any]:
    actions = {**problem["actions"], "names": list(names)}
    return {**problem, "actions": actions if retired is None else {**actions, "retired": list(retired)}}


def _changed(text: str, lists: Iterator[_List], items: Sequence[str], wanted: dict[str, Any], where: str) -> str:
    """The text with other items in the first of some lists that gives what is wanted."""
    return _verified((_with_items(text, found, items) for found in lists), wanted, where)


def _verified(texts: Iterator[str], wanted: dict[str, Any], where: str) -> str:
    for text in texts:
        try:
            if tomllib.loads(text) == wanted:
                return text
        except tomllib.TOMLDecodeError:
            continue
    actions = tomli_w.dumps(wanted["actions"]).strip()
    raise CannotEdit(
        f"{where}: the list of actions could not be changed without changing more; edit the file so that its actions "
        f"are as follows, and run potstill update:\n{actions}"
    )


def _lists_of(text: str, items: Sequence[str]) -> Iterator[_List]:
    """Lists of texts in a file with the given items, in order."""
    for found in _lists(text):
        if [tomllib.loads(f"x={text[item.start : item.end]}")["x"] for item in found.items] == list(items):
            yield found


def _lists(text: str) -> Iterator[_List]:
    """Every list that has only texts, or nothing; headers of tables may be among them, and are ruled out later."""
    tokens = [token for token in _TOKEN.finditer(text) if token.lastgroup != "comment"]
    for first, token in enumerate(tokens):
        if token[0] != "[":
            continue
        items: list[_Item] = []
        for other in tokens[first + 1 :]:
            if other[0] == "]":
                yield _List(token.start(), other.start(), tuple(items))
                break
            if other.lastgroup == "string":
                items.append(_Item(other.start(), other.end(), None))
            elif other[0] == "," and items and items[-1].comma is None:
                items[-1] = items[-1]._replace(comma=other.start())
            else:
                break


def _with_items(text: str, found: _List, items: Sequence[str]) -> str:
    """The text with other items in a list: some are taken out, and new ones added behind those that stay."""
    present = [tomllib.loads(f"x={text[item.start : item.end]}")["x"] for item in found.items]
    text = _with_added(text, found, [item for item in items if item not in present])
    for place in reversed(range(len(present))):
        if present[place] not in items:
            text = _without(text, found, place)
    return text


def _with_added(text: str, found: _List, items: Sequence[str]) -> str:
    if not items:
        return text
    if not found.items:
        return f"{text[: found.end]}{', '.join(map(_quoted, items))}{text[found.end :]}"
    last = found.items[-1]
    indent = _indent(text, last)
    if indent is None:
        return f"{text[: last.end]}{''.join(f', {_quoted(item)}' for item in items)}{text[last.end :]}"
    # One item in each line: the new ones get lines of their own, behind the comment of the last one.
    end = _end_of_line(text, last)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = f",{newline}{indent}".join(map(_quoted, items))
    head = text[:end] if last.comma is not None else f"{text[: last.end]},{text[last.end : end]}"
    return f"{head}{newline}{indent}{lines}{',' if last.comma is not None else ''}{text[end:]}"


def _without(text: str, found: _List, place: int) -> str:
    """The text without an item, its comma, and its line if it has one to itself."""
    item = found.items[place]
    end = item.end if item.comma is None else item.comma + 1
    if _indent(text, item) is not None and text[_end_of_line(text, item) :][:1] in ("\n", "\r"):
        start = text.rfind("\n", 0, item.start) + 1
        return text[:start] + text[text.index("\n", end) + 1 :]
    if item.comma is None and place and (comma := found.items[place - 1].comma) is not None:
        between = text[comma + 1 : item.start]
        return text[:comma] + (between if between.strip() else "") + text[end:]
    return text[: item.start] + text[end:].lstrip(" \t")


def _indent(text: str, item: _Item) -> str | None:
    """What is before an item that begins its line, and ends it; None for others."""
    before = text[text.rfind("\n", 0, item.start) + 1 : item.start]
    return None if before.strip() or text[_end_of_line(text, item) :][:1] not in ("\n", "\r") else before


def _end_of_line(text: str, item: _Item) -> int:
    """Behind an item, its comma, and a comment in its line."""
    end = item.end if item.comma is None else item.comma + 1
    rest = _REST_OF_LINE.match(text, end)
    return end if rest is None else rest.end()


def _with_new_key(text: str, names: Sequence[str], retired: Sequence[str]) -> Iterator[str]:
    """The text with a list of retired actions, behind that of the names, in each way that TOML may want it."""
    value = f"retired = [{', '.join(map(_quoted, retired))}]"
    newline = "\r\n" if "\r\n" in text else "\n"
    for found, key in itertools.product(_lists_of(text, names), ("", "actions.")):
        end = found.end + 1
        rest = _REST_OF_LINE.match(text, end)
        line = end if rest is None else rest.end()
        indent = re.match(r"[ \t]*", text[text.rfind("\n", 0, found.start) + 1 :])
        yield f"{text[:line]}{newline}{indent[0] if indent else ''}{key}{value}{text[line:]}"
        yield f"{text[:end]}, {value}{text[end:]}"


def _quoted(name: str) -> str:
    return tomli_w.dumps({"x": name}).removeprefix("x = ").rstrip("\n")
