"""The pages' own files: style, scripts and the JavaScript runtime, under a path that names their contents."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from potstill.policy.export import javascript_runtime

_HERE = Path(__file__).parent / "static"
_TYPES = {".js": b"text/javascript; charset=utf-8", ".css": b"text/css; charset=utf-8"}


class Asset(NamedTuple):
    """A file.

    Attributes:
        data: Its bytes.
        content_type: Its media type.
        etag: Its entity tag.
    """

    data: bytes
    content_type: bytes
    etag: bytes


@cache
def assets() -> Mapping[str, Asset]:
    """All files by their address. The address changes with the contents, so that browsers may keep them for ever."""
    found = {name: path.read_bytes() for name, path in _files()}
    digest = hashlib.sha256(b"".join(name.encode() + data for name, data in found.items())).hexdigest()[:16]
    return {
        f"/static/{digest}/{name}": Asset(
            data, _TYPES[Path(name).suffix], f'"{hashlib.sha256(data).hexdigest()}"'.encode()
        )
        for name, data in found.items()
    }


@cache
def address(name: str) -> str:
    """Address of a file."""
    return next(path for path in assets() if path.split("/", 3)[3] == name)


def _files() -> Iterator[tuple[str, Path]]:
    for path in sorted(_HERE.iterdir()):
        if path.suffix in _TYPES:
            yield path.name, path
    runtime = javascript_runtime()
    for path in sorted(runtime.glob("src/*.js")):
        yield f"js/src/{path.name}", path
    yield "js/potstill.js", runtime / "potstill.js"
