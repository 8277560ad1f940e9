"""Items of a catalogue: rows with an id and the values of features, checked and encoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potstill.decode import unknown_name
from potstill.errors import InvalidContext, InvalidProblem, check_distinct, check_name, shown
from potstill.features import Encoder, Feature

Float32 = NDArray[np.float32]
#: One item: its id, and the value of each feature by name.
Item = Mapping[str, Any]
#: Key of an item's id.
ID = "id"


def check_features(features: object) -> tuple[Feature, ...]:
    """Features of items: at least one, names distinct and none of them that of the id."""
    if not isinstance(features, (list, tuple)) or not features:
        raise InvalidProblem(f"features must be a list of one or more features of items, got {shown(features)}")
    for feature in features:
        if not isinstance(feature, Feature):
            raise InvalidProblem(f"features must hold features, such as Numeric('price', 0, 100), got {shown(feature)}")
        if feature.name == ID:
            raise InvalidProblem(f"a feature of items cannot be called {ID!r}, which is the key of an item's id")
    check_distinct(tuple(feature.name for feature in features), "feature")
    return tuple(features)


def check_items(items: object, features: Sequence[Feature]) -> tuple[dict[str, Any], ...]:
    """Items in canonical form: plain values, numbers as floats, missing values left out."""
    if isinstance(items, (str, Mapping)) or not isinstance(items, Sequence) or len(items) < 2:
        raise InvalidProblem(
            f"items must be a list of at least two items, each with an {ID!r}, got {shown(items)}; those of a "
            "workspace are in items.json, which potstill init --items makes of a table"
        )
    plain = {"number": _number, "boolean": _boolean, "string": _string, "numbers": _numbers}
    canonical = {feature.name: plain[feature.holds] for feature in features}
    found = tuple(_canonical(item, place, canonical) for place, item in enumerate(items))
    check_distinct((item[ID] for item in found), "item")
    return found


def encode_items(items: Sequence[Item], features: Sequence[Feature]) -> Float32:
    """Encoded features of canonical items, float32[K, e]; `InvalidProblem` names the item and the feature."""
    encoder = Encoder(features)
    try:
        return encoder.many({feature.name: _column(feature, items) for feature in features})
    except InvalidContext:
        for item in items:
            try:
                encoder.one({name: value for name, value in item.items() if name != ID})
            except InvalidContext as error:
                raise InvalidProblem(f"item {item[ID]!r}: {error}") from None
        raise


def _canonical(item: object, place: int, canonical: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise InvalidProblem(f"items[{place}] must be a mapping with an {ID!r} and features, got {shown(item)}")
    if ID not in item:
        raise InvalidProblem(f"items[{place}] has no {ID!r}, got {shown(dict(item))}")
    name = item[ID]
    check_name(name, f"the id of items[{place}]")
    found = {ID: str.__str__(name)}
    for key, value in item.items():
        if key in canonical:
            if value is not None:
                found[key] = canonical[key](value)
        elif key != ID:
            raise InvalidProblem(f"item {name!r}: {unknown_name('feature', key, canonical)}")
    return found


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) else value


def _boolean(value: Any) -> Any:
    return bool(value) if isinstance(value, np.bool_) else value


def _string(value: Any) -> Any:
    return str.__str__(value) if isinstance(value, str) else value


def _numbers(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_number(one) for one in value] if isinstance(value, (list, tuple)) else value


def _column(feature: Feature, items: Sequence[Item]) -> Any:
    """Values of a feature in all items: an array where they can be encoded as a whole, else a list."""
    values: list[Any] = [item.get(feature.name) for item in items]
    kinds = set(map(type, values))
    if kinds in ({float}, {bool}):
        return np.array(values)
    if kinds == {str} and not any(value.endswith("\0") for value in values):  # which arrays of strings would drop
        return np.array(values)
    if kinds == {list} and all(set(map(type, value)) == {float} for value in values):
        return np.array(values) if len(set(map(len, values))) == 1 else values
    return values
