"""State of the background scrub: one small file beside the log, readable without the libraries of the lake."""

from __future__ import annotations

from pathlib import Path

import msgspec

from potstill.files import write_atomically

FILE = "scrub.json"


class ScrubState(msgspec.Struct, frozen=True, kw_only=True):
    """What the scrub of a lake has found. Times are microseconds since 1970, UTC.

    Attributes:
        time: When the last file was checked.
        files: Number of files that were checked in this pass.
        left: Number of files that are left in it.
        completed: When the last whole pass ended; None if there was none.
        damaged: What is wrong with each damaged file, by path.
    """

    time: int = 0
    files: int = 0
    left: int = 0
    completed: int | None = None
    damaged: dict[str, str] = {}

    @property
    def notices(self) -> list[str]:
        """Damage in words, with the way out."""
        return [f"{uri} is damaged: {what}; run potstill verify DIR" for uri, what in sorted(self.damaged.items())]


def read_scrub(spool: Path) -> ScrubState:
    """State of the scrub that writes beside a log; an empty one if there is none."""
    try:
        return msgspec.json.decode((spool / FILE).read_bytes(), type=ScrubState)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return ScrubState()


def write_scrub(spool: Path, state: ScrubState) -> None:
    """Record the state of the scrub."""
    write_atomically(spool / FILE, msgspec.json.encode(state))
