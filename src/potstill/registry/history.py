"""What became of each version, as the entries tell."""

from __future__ import annotations

from collections.abc import Sequence

from potstill.registry.entries import Entry, State, Version


def versions_in(entries: Sequence[Entry], after: int = 0) -> list[Version]:
    """The versions after a number that were published in these entries, which go on to the last one there is."""
    served = {entry.serving for entry in entries}
    serving = entries[-1].serving if entries else None
    return [
        _version(entry, served, serving) for entry in entries if entry.event == "published" and entry.version > after
    ]


def _version(entry: Entry, served: set[int | None], serving: int | None) -> Version:
    return Version(
        version=entry.version,
        state=_state(entry, served, serving),
        time=entry.time,
        parent=entry.parent,
        problem=entry.problem,
        observations=entry.observations,
        kl=entry.kl,
        reasons=entry.reasons,
        note=entry.note,
        files=entry.files,
    )


def _state(entry: Entry, served: set[int | None], serving: int | None) -> State:
    if entry.version == serving:
        return "serving"
    if entry.version in served:
        return "served before"
    return "refused" if entry.reasons else "staged"
