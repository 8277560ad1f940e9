"""The pages' own files: style, scripts and the JavaScript runtime, under a path that names their contents."""

from __future__ import annotations

import gzip
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
        gzipped: The same, compressed: about a third.
        content_type: Its media type.
        etag: Its entity tag.
    """

    data: bytes
    gzipped: bytes
    content_type: bytes
    etag: bytes

    @classmethod
    def of(cls, name: str, data: bytes) -> Asset:
        """A file of a name."""
        etag = f'"{hashlib.sha256(data).hexdigest()}"'.encode()
        return cls(data, gzip.compress(data, mtime=0), _TYPES[Path(name).suffix], etag)

    @property
    def gzipped_etag(self) -> bytes:
        """The entity tag of the compressed bytes, which must be another."""
        return self.etag[:-1] + b'-gzip"'


@cache
def assets() -> Mapping[str, Asset]:
    """All files by their address. The address changes with the contents, so that browsers may keep them for ever."""
    found = {name: path.read_bytes() for name, path in _files()}
    digest = hashlib.sha256(b"".join(name.encode() + data for name, data in found.items())).hexdigest()[:16]
    return {f"/static/{digest}/{name}": Asset.of(name, data) for name, data in found.items()}


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
