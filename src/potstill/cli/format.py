"""Times, sizes and counts for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

_DURATIONS = ((86400, "days"), (3600, "hours"), (60, "minutes"))
_SIZES = ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"))


def timestamp(microseconds: int) -> str:
    """A moment, such as ``2026-11-16 03:50 UTC``."""
    return datetime.fromtimestamp(microseconds / 1e6, UTC).strftime("%Y-%m-%d %H:%M UTC")


def stamp() -> str:
    """The present time for a line of a log, such as ``2026-11-16 03:50:07 UTC``."""
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def duration(seconds: float) -> str:
    """A duration, such as ``3.5 hours``."""
    for unit, name in _DURATIONS:
        if seconds >= 2 * unit:
            return f"{seconds / unit:.3g} {name}"
    return f"{seconds:.0f} seconds"


def size(count: float) -> str:
    """A number of bytes, such as ``1.2 MB``."""
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:.3g} {name}"
    return f"{count:.0f} bytes"


def plural(number: int, what: str) -> str:
    """A count, such as ``1 segment`` or ``1,200 segments``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def mask_fidelity(measured: Sequence[Mapping[str, Any]]) -> str:
    """A policy's total variation from its teacher, by number of eligible actions."""
    return "total variation " + ", ".join(
        f"{part['tv_mean']:.2g} (at most {part['tv_max']:.2g}) among {part['actions']}" for part in measured
    )
