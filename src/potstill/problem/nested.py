"""Nested features as a flat context: the rule of the dsjson importer and of the Personalizer endpoints.

- Objects are levels, and levels are joined by dots: ``{"user": {"age": 30}}`` is ``user.age``.
- Lists add no level: ``[{"age": 30}, {"device": "ios"}]`` are ``age`` and ``device``. A list of numbers is one value,
  and each string of a list is a feature that is true.
- ``FromUrl``, in which Personalizer logs the features of a request, adds no level: a log and a request then agree.
- Keys that begin with ``_`` and null are no features, as in Vowpal Wabbit.
- Of two values with one name the later one counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from potstill.errors import InvalidContext, shown
from potstill.features import Feature

#: The namespace in which Personalizer logs the features of a request.
_REQUEST = "FromUrl"
#: Levels beyond which a context is refused.
_DEEPEST = 32
#: Words for the values of a boolean that are strings.
_WORDS = {"true": True, "false": False}

Flat = dict[str, bool | int | float | str | list[float]]


def flatten(nested: object) -> Flat:
    """Features by name; `InvalidContext` if they are nested too deeply."""
    found: Flat = {}
    _walk(nested, "", found, 0)
    return found


def as_text(value: object) -> str:
    """A value as a string feature or a part of a name: ``true``, ``3`` for 3.0, other numbers as they are written."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    if isinstance(value, list):
        return "[" + ", ".join(map(as_text, value)) + "]"
    return str(value)


def fit_context(features: Iterable[Feature], flat: Mapping[str, Any]) -> dict[str, Any]:
    """The features of a problem, each value as its feature holds it; other names are left out.

    Numbers and booleans become strings where a feature holds strings, booleans 1 and 0 where it holds numbers, and
    numbers true unless they are 0 where it holds booleans.
    """
    return {feature.name: _fit(feature, flat[feature.name]) for feature in features if feature.name in flat}


def _walk(value: object, name: str, found: Flat, depth: int) -> None:
    if depth > _DEEPEST:
        raise InvalidContext(f"features are nested more than {_DEEPEST} levels deep, at {shown(name)}; flatten them")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not key.startswith("_"):
                _walk(inner, _below(name, key), found, depth + 1)
    elif isinstance(value, list):
        _walk_list(value, name, found, depth)
    elif name and isinstance(value, (bool, int, float, str)):
        found[name] = value


def _walk_list(values: list[Any], name: str, found: Flat, depth: int) -> None:
    if name and values and all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in values):
        found[name] = values
        return
    for one in values:
        _walk({one: True} if isinstance(one, str) else one, name, found, depth + 1)


def _below(name: str, key: str) -> str:
    if name:
        return f"{name}.{key}"
    return "" if key == _REQUEST else key


def _fit(feature: Feature, value: Any) -> Any:
    if feature.holds == "string":
        return value if isinstance(value, str) else as_text(value)
    if feature.holds == "number" and isinstance(value, bool):
        return float(value)
    if feature.holds == "boolean":
        if isinstance(value, (int, float)):
            return bool(value)
        return _WORDS.get(value, value) if isinstance(value, str) else value
    return value
