"""Errors about user input; every message names the value, the place and the way out."""

from __future__ import annotations

from collections.abc import Iterable

MAX_SHOWN = 60


class PotstillError(Exception):
    """Base of every error that Potstill raises on purpose."""


class InvalidProblem(PotstillError, ValueError):
    """The definition of a problem is invalid."""


class InvalidContext(PotstillError, ValueError):
    """A context does not fit the problem."""


class InvalidAction(InvalidContext):
    """A value is not an action of the space, or a restriction leaves no action."""


class UnsupportedSpace(PotstillError, TypeError):
    """A feature does not support this action space; the message says why, and what does."""


class InvalidObservation(PotstillError, ValueError):
    """An observation does not fit the problem."""


def shown(value: object) -> str:
    """A value for an error message: its repr, truncated, and its type."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more digits than Python prints, or deep nesting
        text = "a value too long to show"
    if len(text) > MAX_SHOWN:
        text = text[:MAX_SHOWN] + "…"
    return f"{text} ({type(value).__name__})"


def syntax_error(path: str, error: Exception) -> str:
    """Why a Python file cannot be compiled, with its line."""
    line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
    return f"{path}{line} is not valid Python: {error.msg if isinstance(error, SyntaxError) else error}"


def check_name(name: object, what: str) -> None:
    """Reject a name that is not a non-empty string encodable as UTF-8."""
    if not isinstance(name, str) or not name:
        raise InvalidProblem(f"{what} must be a non-empty string, got {shown(name)}")
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidProblem(f"{what} must be valid Unicode, got {shown(name)}") from None


def check_distinct(names: Iterable[str], what: str, error: type[PotstillError] = InvalidProblem) -> None:
    """Reject a list with a repeated name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise error(f"{what} {name!r} is named twice; names must be distinct")
        seen.add(name)


class InvalidLog(PotstillError, ValueError):
    """A log cannot be evaluated; the message names the rows, the values and the way out."""


class InvalidTarget(PotstillError, ValueError):
    """A target of an evaluation gives no valid distribution; the message names the row and the way out."""


class InvalidModel(PotstillError, ValueError):
    """A reward model does not give one finite number per row and action."""


class InvalidOption(PotstillError, ValueError):
    """An option or argument is unknown or out of range; the message names it, its value and the way out."""


class LabError(PotstillError, ValueError):
    """A problem, a run or an option of the lab is invalid; the message names the value and the way out."""
