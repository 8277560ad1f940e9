"""Checks of what a problem states about distances between its actions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from potstill.errors import InvalidProblem, shown

#: Largest accepted violation of symmetry and of the triangle inequality, relative to the largest distance: rounding.
_ROUNDING = 1e-9


def check_positions(positions: object, names: Sequence[str]) -> tuple[float, ...]:
    """One finite number for each action, all different."""
    found = _numbers(positions, "positions")
    if found.shape != (len(names),):
        raise InvalidProblem(f"positions must be {len(names)} numbers, one for each action, got {shown(positions)}")
    order = np.argsort(found)
    same = np.flatnonzero(np.diff(found[order]) == 0)
    if same.size:
        first, second = (names[i] for i in order[same[0] : same[0] + 2])
        raise InvalidProblem(f"positions: {first!r} and {second!r} are both at {found[order[same[0]]]:g}")
    return tuple(found.tolist())


def check_distances(distances: object, names: Sequence[str]) -> tuple[tuple[float, ...], ...]:
    """A metric: symmetric, zero only from an action to itself, and never longer than a detour."""
    found, k = _numbers(distances, "distances"), len(names)
    if found.shape != (k, k):
        raise InvalidProblem(f"distances must be {k} rows of {k} numbers, one for each action, got {shown(distances)}")
    rounding = _ROUNDING * float(np.abs(found).max())
    _refuse(np.abs(found - found.T) > rounding, found, names, "is not the same in both directions")
    _refuse(np.eye(k, dtype=bool) & (found != 0), found, names, "must be 0")
    _refuse(~np.eye(k, dtype=bool) & ~(found > 0), found, names, "must be above 0")
    detour = (found[:, :, None] + found[None, :, :]).min(axis=1)
    _refuse(found > detour + rounding, found, names, "is longer than a detour by another action")
    return tuple(map(tuple, found.tolist()))


def _numbers(values: object, what: str) -> Any:
    try:
        found = np.array(values, np.float64)
    except (TypeError, ValueError):
        raise InvalidProblem(f"{what} must be numbers, got {shown(values)}") from None
    if isinstance(values, str) or not np.isfinite(found).all():
        raise InvalidProblem(f"{what} must be finite numbers, got {shown(values)}")
    return found


def _refuse(bad: Any, found: Any, names: Sequence[str], why: str) -> None:
    places = np.argwhere(bad)
    if places.size:
        i, j = places[0]
        raise InvalidProblem(f"distances: from {names[i]!r} to {names[j]!r} it is {found[i, j]:g}, which {why}")
