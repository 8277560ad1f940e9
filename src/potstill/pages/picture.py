"""Smaller PNG files: charts have few colours, so that one byte per pixel is enough.

What draws charts writes four bytes per pixel and compresses them in haste. Pages in a repository should not grow by
that with every run.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_RGBA_8_BIT = (8, 6, 0, 0, 0)
_COLOURS = 256


def smaller(png: bytes) -> bytes:
    """The picture with at most 256 colours, on white; as it was if it is not such a PNG as charts are drawn to."""
    chunks = dict(_chunks(png))
    width, height, *kind = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    rows = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(height, -1)
    if tuple(kind) != _RGBA_8_BIT or not (rows[:, 0] == 1).all():
        return png
    # All rows are filtered by "Sub": each pixel is stored as its difference to the one on its left, modulo 256.
    pixels = rows[:, 1:].reshape(height, width, 4).cumsum(axis=1, dtype=np.uint8)
    palette, index = _few_colours(_on_white(pixels))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    data = np.concatenate([np.zeros((height, 1), np.uint8), index], axis=1)
    parts = [
        (b"IHDR", header),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(data.tobytes(), 9)),
        (b"IEND", b""),
    ]
    return min(_SIGNATURE + b"".join(_chunk(*part) for part in parts), png, key=len)


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The chunks of a PNG, those with the picture's data as one."""
    at, data = len(_SIGNATURE), b""
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at : at + 8])
        content = png[at + 8 : at + 8 + length]
        data += content if name == b"IDAT" else b""
        yield name, data if name == b"IDAT" else content
        at += 12 + length


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))


def _on_white(pixels: Bytes) -> Bytes:
    alpha = pixels[..., 3:].astype(np.uint16)
    mixed: NDArray[Any] = (pixels[..., :3] * alpha + 255 * (255 - alpha) + 127) // 255
    return mixed.astype(np.uint8)


def _few_colours(pixels: Bytes) -> tuple[Bytes, Bytes]:
    """A palette uint8[C, 3] of the most frequent colours, and for each pixel the position of the nearest one."""
    code = pixels.astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    codes, index, counts = np.unique(code, return_inverse=True, return_counts=True)
    colours = np.stack([codes >> 16, codes >> 8 & 255, codes & 255], axis=1)
    palette = colours[np.argsort(-counts, kind="stable")[:_COLOURS]].astype(np.float32)
    # Squared distances, less what is the same for the whole palette.
    nearest = ((palette**2).sum(axis=1) - 2 * colours.astype(np.float32) @ palette.T).argmin(axis=1)
    return palette.astype(np.uint8), nearest.astype(np.uint8)[index].reshape(code.shape)
