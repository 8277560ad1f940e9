"""Encoding of features to float32: one row at decision time, many rows when learning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidContext, shown
from potstill.features.feature import Feature

Float32 = NDArray[np.float32]


class Encoder:
    """Encodes several features into adjacent columns."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self.features = tuple(features)
        self.labels = tuple(chain.from_iterable(feature.labels for feature in features))
        self.width = len(self.labels)
        self._names = {feature.name for feature in features}
        self._writers = []
        at = 0
        for feature in features:
            self._writers.append((feature.name, feature.writer(at)))
            at += len(feature.labels)

    def one(self, context: Mapping[str, object] | Float32) -> Float32:
        """Encode one context to float32[d]."""
        if isinstance(context, np.ndarray):
            return self._encoded(context, (self.width,))
        if not isinstance(context, Mapping):
            raise InvalidContext(f"a context must be a mapping of feature names to values, got {shown(context)}")
        row = [0.0] * self.width
        found = 0
        for name, write in self._writers:
            value = context.get(name)
            found += value is not None or name in context
            write(value, row)
        if found != len(context):
            raise self._unknown(context)
        return np.array(row, np.float32)

    def many(self, contexts: Any) -> Float32:
        """Encode rows, columns, or an encoded array, to float32[N, d]."""
        if isinstance(contexts, np.ndarray) and contexts.dtype.kind == "f":
            return self._encoded(contexts, (len(contexts), self.width))
        if isinstance(contexts, Mapping):
            return self._columns(contexts)
        return self._rows(contexts)

    def _rows(self, rows: Iterable[Mapping[str, object]]) -> Float32:
        encoded = []
        for i, row in enumerate(rows):
            try:
                encoded.append(self.one(row))
            except InvalidContext as error:
                raise InvalidContext(f"row {i}: {error}") from None
        return np.stack(encoded) if encoded else np.zeros((0, self.width), np.float32)

    def _columns(self, columns: Mapping[str, Any]) -> Float32:
        if unknown := [name for name in columns if name not in self._names]:
            raise self._unknown(unknown)
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise InvalidContext(f"columns must have one length, got {lengths}")
        count = next(iter(lengths.values()), 0)
        encoded = np.zeros((count, self.width), np.float32)
        at = 0
        for feature in self.features:
            width = len(feature.labels)
            encoded[:, at : at + width] = _column(feature, columns.get(feature.name), count)
            at += width
        return encoded

    def _encoded(self, array: NDArray[Any], shape: tuple[int, ...]) -> Float32:
        if array.shape != shape:
            raise InvalidContext(
                f"an array is taken as already encoded and must have {self.width} columns, got shape {array.shape}"
            )
        with np.errstate(over="ignore"):
            encoded = np.ascontiguousarray(array, np.float32)
        if not (finite := np.isfinite(encoded)).all():  # also 1e300, which float32 cannot hold
            place = tuple(int(i) for i in np.argwhere(~finite)[0])
            raise InvalidContext(f"encoded context has a non-finite number at {place}: {array[place]}")
        return encoded

    def _unknown(self, names: Iterable[object]) -> InvalidContext:
        unknown = next(name for name in names if name not in self._names)
        known = ", ".join(sorted(self._names))
        return InvalidContext(f"unknown feature {shown(unknown)}; the problem's features are {known}")


def _column(feature: Feature, column: Any, count: int) -> Float32:
    if isinstance(column, np.ndarray):
        if column.ndim != 1 and (column.ndim != 2 or feature.holds != "numbers"):
            many = "one or two dimensions" if feature.holds == "numbers" else "one dimension"
            raise InvalidContext(f"column {feature.name!r} must have {many}, got shape {column.shape}")
        block = feature.encode_column(column)
        if block is not None:
            return block
    values = [None] * count if column is None else column
    return _value_by_value(feature, values, count)


def _value_by_value(feature: Feature, values: Iterable[object], count: int) -> Float32:
    """Slow path for columns of Python objects: lists, and arrays with missing values."""
    write = feature.writer(0)
    width = len(feature.labels)
    rows = []
    for i, value in enumerate(values):
        row = [0.0] * width
        try:
            write(value, row)
        except InvalidContext as error:
            raise InvalidContext(f"row {i}: {error}") from None
        rows.append(row)
    return np.array(rows, np.float32).reshape(count, width)
