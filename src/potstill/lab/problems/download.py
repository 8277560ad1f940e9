"""Fetching the data files, for machines with internet: each is checked before it is kept."""

from __future__ import annotations

import io
import urllib.request
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import polars as pl

from potstill.files import write_atomically
from potstill.lab.problems.data import SOURCES, Source, cache, in_place

_SECONDS = 60
#: What the consortium's sheet calls a column, and what the file that this project was built with calls it.
_RENAMED = {"Race (OMB)": "Race"}
_DOSE = "Therapeutic Dose of Warfarin"


class DownloadFailed(OSError):
    """A file could not be fetched, or is not what it should be."""


def download(folder: Path | None = None, sources: Iterable[Source] = tuple(SOURCES.values())) -> Iterator[Path]:
    """Fetch the data files that are not in the folder yet, one after the other.

    Args:
        folder: to keep them in; the cache if not given.
        sources: the files.
    """
    folder = folder or cache()
    for source in sources:
        path = folder / source.name
        if not in_place(path):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(path, fetch(source))
        yield path


def fetch(source: Source) -> bytes:
    """The contents of one file, as the rest of the lab reads it."""
    raw = _get(source)
    try:
        return _mushrooms(raw) if source.kind == "uci-zip" else _patients(raw)
    except (ValueError, zipfile.BadZipFile, KeyError, pl.exceptions.PolarsError) as error:
        raise _failed(source, f"is not what was expected: {str(error).splitlines()[0]}") from error


def _get(source: Source) -> bytes:
    request = urllib.request.Request(source.url, headers={"User-Agent": "potstill"})
    try:
        with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
            content: bytes = answer.read()
            return content
    except OSError as error:
        raise _failed(source, f"could not be fetched: {error}") from error


def _failed(source: Source, what: str) -> DownloadFailed:
    return DownloadFailed(
        f"{source.url} {what}. Get {source.name} by hand ({source.about}) and set POTSTILL_DATA to its folder"
    )


def _mushrooms(raw: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        content = archive.read("agaricus-lepiota.data")
    rows = content.decode("ascii").splitlines()
    edible = sum(row.startswith("e") for row in rows)
    if (len(rows), edible) != (8_124, 4_208) or any(row.count(",") != 22 for row in rows):
        raise ValueError(
            f"8,124 rows of 23 values were expected, 4,208 of them edible; got {len(rows):,} rows, {edible:,} edible"
        )
    return content


def _patients(raw: bytes) -> bytes:
    table = _sheet(raw).rename(_RENAMED, strict=False)
    dosed = table[_DOSE].cast(pl.Float64, strict=False).is_not_null().sum()
    if (len(table), dosed) != (5_700, 5_528):
        raise ValueError(f"5,700 patients were expected, 5,528 with a dose; got {len(table):,} and {dosed:,}")
    return table.write_csv(null_value="NA").encode()


def _sheet(raw: bytes) -> pl.DataFrame:
    try:
        return pl.read_excel(io.BytesIO(raw), sheet_name="Subject Data", infer_schema_length=0)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "the patients come as an Excel file: pip install fastexcel", name="fastexcel"
        ) from error
