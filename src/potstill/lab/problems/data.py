"""Search and download of real data files, which are not part of the project.

Searched in order: the folder named by POTSTILL_DATA; `../shared/data` beside the checkout, or beside the current
folder for an installed package; and the cache, which `potstill lab data` fills over the internet.
"""

from __future__ import annotations

import io
import os
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec
import polars as pl

from potstill.errors import LabError, PotstillError
from potstill.files import SHARED, write_atomically

_SECONDS = 60
#: Column names in the consortium's sheet, and those in the file that this project was built with.
_RENAMED = {"Race (OMB)": "Race"}
_DOSE = "Therapeutic Dose of Warfarin"


class MissingData(PotstillError, FileNotFoundError):
    """A data file was not found; the message names the places searched and how to get it."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """One data file.

    Attributes:
        name: Name of the file.
        about: Contents, origin and licence.
        url: URL of the published file; no test fetches it.
        kind: Archive format at that URL.
        rows: Number of rows.
    """

    name: str
    about: str
    url: str
    kind: Literal["uci-zip", "excel"]
    rows: int

    def check(self, rows: int, path: Path) -> None:
        """Reject a truncated file."""
        if rows != self.rows:
            raise LabError(
                f"{path} has {rows:,} rows, and the real file has {self.rows:,}: delete it, and download it again with "
                "`potstill lab data`"
            )


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """Place and path of a data file; both None if it was not found."""

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
    """Cache folder for downloaded and generated files."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "potstill" / "data"


def places() -> dict[str, Path]:
    """Folders that are searched for data, in order, with a label each."""
    named = os.environ.get("POTSTILL_DATA")
    if named and not Path(named).is_dir():
        raise MissingData(f"POTSTILL_DATA names {named}, which is not a folder: correct it, or unset it")
    kind, folder = _neighbour()
    return {
        **({"POTSTILL_DATA": Path(named)} if named else {}),
        kind: folder / "shared" / "data",
        "the download cache": cache(),
    }


def tables() -> Path:
    """The folder `tables` of the data, in the first place that has one."""
    searched = [place / "tables" for place in places().values()]
    for folder in searched:
        if folder.is_dir():
            return folder
    raise MissingData(
        f"there is no folder of tables; searched {', '.join(map(str, searched))}: name a folder or files, or set "
        "POTSTILL_DATA to a folder that has one"
    )


def _neighbour() -> tuple[str, Path]:
    """The checkout, if this file is in one; `../` is relative to it."""
    checkout = Path(__file__).resolve().parents[4]
    if (checkout / "pyproject.toml").exists():
        return "beside the checkout", checkout.parent
    return "beside the current folder", Path.cwd().parent


def in_place(path: Path) -> bool:
    """Whether a path is a non-empty file."""
    return path.is_file() and path.stat().st_size > 0


def located() -> list[Located]:
    """Each data file and the place it was found in."""
    return [_locate(source) for source in SOURCES.values()]


def find(name: str) -> Path:
    """The path of a data file."""
    if (path := _locate(SOURCES[name]).path) is not None:
        return path
    searched = "; ".join(f"{folder} ({why})" for why, folder in places().items())
    raise MissingData(
        f"data file {name} not found; searched: {searched}. Download it with `potstill lab data`,"
        " or set POTSTILL_DATA to a folder that has it"
    )


def _locate(source: Source) -> Located:
    for place, folder in places().items():
        if in_place(folder / source.name):
            return Located(source=source, place=place, path=folder / source.name)
    return Located(source=source, place=None, path=None)


class DownloadFailed(PotstillError, OSError):
    """A file could not be downloaded, or is not the expected one."""


def download(folder: Path | None = None, sources: Iterable[Source] = tuple(SOURCES.values())) -> Iterator[Path]:
    """Download the data files that are not in the folder yet.

    Args:
        folder: Folder for the files; the cache if not given.
        sources: The files.
    """
    folder = folder or cache()
    for source in sources:
        path = folder / source.name
        if not in_place(path):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, fetch(source), SHARED)
        yield path


def fetch(source: Source) -> bytes:
    """The contents of one file, as the rest of the lab reads it."""
    raw = _get(source)
    try:
        return _mushrooms(raw) if source.kind == "uci-zip" else _patients(raw)
    except (ValueError, zipfile.BadZipFile, KeyError, pl.exceptions.PolarsError) as error:
        raise _failed(source, f"has unexpected content: {str(error).splitlines()[0]}") from error


def _get(source: Source) -> bytes:
    request = urllib.request.Request(source.url, headers={"User-Agent": "potstill"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            content: bytes = answer.read()
            return content
    except OSError as error:
        raise _failed(source, f"could not be downloaded: {error}") from error


def _failed(source: Source, what: str) -> DownloadFailed:
    return DownloadFailed(
        f"{source.url} {what}. Download {source.name} by hand ({source.about}) and set POTSTILL_DATA to its folder"
    )


def _mushrooms(raw: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        content = archive.read("agaricus-lepiota.data")
    rows = content.decode("ascii").splitlines()
    edible = sum(row.startswith("e") for row in rows)
    if (len(rows), edible) != (8_124, 4_208) or any(row.count(",") != 22 for row in rows):
        raise LabError(
            f"expected 8,124 rows of 23 values, 4,208 of them edible; got {len(rows):,} rows, {edible:,} edible"
        )
    return content


def _patients(raw: bytes) -> bytes:
    table = _sheet(raw).rename(_RENAMED, strict=False)
    dosed = table[_DOSE].cast(pl.Float64, strict=False).is_not_null().sum()
    if (len(table), dosed) != (5_700, 5_528):
        raise LabError(f"expected 5,700 patients, 5,528 with a dose; got {len(table):,} and {dosed:,}")
    return table.write_csv(null_value="NA").encode()


def _sheet(raw: bytes) -> pl.DataFrame:
    try:
        return pl.read_excel(io.BytesIO(raw), sheet_name="Subject Data", infer_schema_length=0)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the patients are in an Excel file, which needs a reader: pip install fastexcel", name="fastexcel"
        ) from error
