"""HTML that is safe by construction: every text is escaped unless it is `Html` already."""

from __future__ import annotations

import html
from collections.abc import Iterable


class Html(str):
    """Markup that was made here. Nothing that a caller sent becomes one without being escaped."""

    __slots__ = ()


#: What an element may hold: markup, text to be escaped, numbers; None is left out.
Child = Html | str | int | float | None
_VOID = frozenset({"br", "hr", "input", "link", "meta", "col"})


def tag(name: str, /, *children: Child | Iterable[Child], **attributes: str | int | float | bool | None) -> Html:
    """An element.

    Args:
        name: Its name.
        children: What it holds.
        attributes: Attributes; `_` in a name becomes `-`, and one at its end is dropped (`class_`, `for_`). True is an
            attribute without a value, False and None leave it out.
    """
    opened = f"<{name}{''.join(_attribute(key, value) for key, value in attributes.items())}>"
    return Html(opened if name in _VOID else f"{opened}{join(*children)}</{name}>")


def join(*children: Child | Iterable[Child]) -> Html:
    """Elements and texts after each other."""
    return Html("".join(_child(child) for child in _flat(children)))


def _flat(children: Iterable[Child | Iterable[Child]]) -> Iterable[Child]:
    for child in children:
        if child is None or isinstance(child, str | int | float):
            yield child
        else:
            yield from child


def _child(child: Child) -> str:
    if child is None:
        return ""
    return child if isinstance(child, Html) else html.escape(_encodable(str(child)), quote=False)


def _attribute(key: str, value: str | int | float | bool | None) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(_encodable(str(value)))}"'


def _encodable(text: str) -> str:
    # A lone surrogate cannot be sent, and a NUL ends nothing but is not allowed in HTML.
    return text.encode("utf-8", errors="replace").decode("utf-8").replace("\0", "\N{REPLACEMENT CHARACTER}")
