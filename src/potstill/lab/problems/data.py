"""The real data files, which are never part of the project: where they are looked for, and how they are fetched.

Places, in order: the folder that POTSTILL_DATA names; `../shared/data` beside the checkout, or beside the current
folder for an installed package; and the cache, which `potstill lab data` fills on machines with internet.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec


class MissingData(FileNotFoundError):
    """A data file is in none of the places; the message says which, and how to get it."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One data file.

    Attributes:
        name: of the file.
        about: what it is, where it comes from, and its licence.
        url: that it is fetched from, as published; no test reaches it.
        kind: how it is wrapped there.
        rows: that it has.
    """

    name: str
    about: str
    url: str
    kind: Literal["uci-zip", "excel"]
    rows: int

    def check(self, rows: int, path: Path) -> None:
        """Refuse a file that was cut off."""
        if rows != self.rows:
            raise ValueError(
                f"{path} has {rows:,} rows, and the real file has {self.rows:,}: delete it, and fetch it again with "
                "`potstill lab data`"
            )


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """Where a data file was found: in which of the places, and its path; both None if in none."""

    source: Source
    place: str | None
    path: Path | None


MUSHROOM = Source(
    name="agaricus-lepiota.data",
    about="UCI Mushroom (id 73), 8,124 rows, CC BY 4.0",
    url="https://archive.ics.uci.edu/static/public/73/mushroom.zip",
    kind="uci-zip",
    rows=8_124,
)
WARFARIN = Source(
    name="warfarin-iwpc.csv",
    about="IWPC warfarin patients (PharmGKB), 5,700 rows, CC BY-SA 4.0",
    url="https://api.pharmgkb.org/v1/download/submission/553247439",
    kind="excel",
    rows=5_700,
)
SOURCES = {source.name: source for source in (MUSHROOM, WARFARIN)}


def cache() -> Path:
    """The folder for what is fetched or made once."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "potstill" / "data"


def places() -> dict[str, Path]:
    """Where data is looked for, in order: why, and the folder."""
    named = os.environ.get("POTSTILL_DATA")
    if named and not Path(named).is_dir():
        raise MissingData(f"POTSTILL_DATA names {named}, which is not a folder: correct it, or unset it")
    kind, folder = _neighbour()
    return {
        **({"POTSTILL_DATA": Path(named)} if named else {}),
        kind: folder / "shared" / "data",
        "the download cache": cache(),
    }


def _neighbour() -> tuple[str, Path]:
    """What `../` is relative to: the checkout, if this file is in one."""
    checkout = Path(__file__).resolve().parents[4]
    if (checkout / "pyproject.toml").exists():
        return "beside the checkout", checkout.parent
    return "beside the current folder", Path.cwd().parent


def in_place(path: Path) -> bool:
    """Whether a path is a file with something in it."""
    return path.is_file() and path.stat().st_size > 0


def located() -> list[Located]:
    """Each data file, and which place it is taken from."""
    return [_locate(source) for source in SOURCES.values()]


def find(name: str) -> Path:
    """The path of a data file."""
    if (path := _locate(SOURCES[name]).path) is not None:
        return path
    searched = "; ".join(f"{folder} ({why})" for why, folder in places().items())
    raise MissingData(
        f"the data file {name} is not there; searched: {searched}. Fetch it with `potstill lab data`,"
        " or set POTSTILL_DATA to a folder that has it"
    )


def _locate(source: Source) -> Located:
    for place, folder in places().items():
        if in_place(folder / source.name):
            return Located(source=source, place=place, path=folder / source.name)
    return Located(source=source, place=None, path=None)
