"""What can be wrong with what a user hands in; every message names the value, the place and the way out."""

from __future__ import annotations

from collections.abc import Iterable

MAX_SHOWN = 60


class PotstillError(Exception):
    """Base of every error that Potstill raises on purpose."""


class InvalidProblem(PotstillError, ValueError):
    """The definition of a problem does not make sense."""


class InvalidContext(PotstillError, ValueError):
    """A context does not fit the problem."""


class InvalidAction(InvalidContext):
    """A value is no action of the space, or a restriction leaves nothing to choose."""


class UnsupportedSpace(PotstillError, TypeError):
    """Something does not work with this action space; the message says why, and what does."""


class InvalidObservation(PotstillError, ValueError):
    """An observation does not fit the problem."""


def shown(value: object) -> str:
    """A value as an error message shows it: its repr, cut short, and its type."""
    text = repr(value)
    if len(text) > MAX_SHOWN:
        text = text[:MAX_SHOWN] + "…"
    return f"{text} ({type(value).__name__})"


def check_name(name: object, what: str) -> None:
    """Refuse a name that is not a non-empty string that UTF-8 can hold."""
    if not isinstance(name, str) or not name:
        raise InvalidProblem(f"{what} must be a non-empty string, got {shown(name)}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidProblem(f"{what} must be valid Unicode, got {shown(name)}") from None


def check_distinct(names: Iterable[str], what: str) -> None:
    """Refuse a list in which a name stands twice."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InvalidProblem(f"{what} {name!r} is named twice; names must be distinct")
        seen.add(name)


class InvalidLog(PotstillError, ValueError):
    """A log cannot be evaluated; the message names the rows, the values and the way out."""


class InvalidTarget(PotstillError, ValueError):
    """A target of an evaluation does not say what it would have done; the message names the row and the way out."""


class InvalidModel(PotstillError, ValueError):
    """A reward model gives something other than one finite number per row and action."""


class InvalidOption(PotstillError, ValueError):
    """An option or argument is unknown or out of range; the message names it, its value and the way out."""
