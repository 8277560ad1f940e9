"""Lines of logs, plain or compressed; what of a file cannot be read is a line that is damaged."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

from potstill.tables.scan import UnreadableTable

_GZIP, _MARK = b"\x1f\x8b", b"\xef\xbb\xbf"


class Line(NamedTuple):
    """A line of a log.

    Attributes:
        file: Name of the file.
        number: Number of the line, from 1.
        text: Its bytes; None if the file cannot be read from here on.
        at: Bytes of the file that are read.
    """

    file: str
    number: int
    text: bytes | None
    at: int


def check_files(places: Sequence[str]) -> list[Path]:
    """The files; `UnreadableTable` if one is missing or stated twice."""
    paths = [Path(place) for place in places]
    for path in paths:
        if path.is_dir():
            raise UnreadableTable(f"{path} is a folder: name its files, such as {path}/*.json")
        if not path.is_file():
            raise UnreadableTable(f"{path}: there is no such file")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UnreadableTable("a log is stated twice; name each file once")
    return paths


def read_lines(path: Path) -> Iterator[Line]:
    """The lines of a file that are not blank."""
    number, name = 0, str(path)
    with path.open("rb") as raw:
        packed = raw.peek(2)[:2] == _GZIP
        opened: IO[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw  # type: ignore[assignment]
        try:
            for number, line in enumerate(opened, 1):
                text = (line.removeprefix(_MARK) if number == 1 else line).strip()
                if text:
                    yield Line(name, number, text, raw.tell())
        except (EOFError, OSError, zlib.error):
            yield Line(name, number + 1, None, raw.tell())
