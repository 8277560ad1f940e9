"""Explicit randomness: a key identifies a stream of random numbers; equal keys give equal streams."""

from __future__ import annotations

import zlib

import msgspec
import numpy as np


class Key(msgspec.Struct, frozen=True):
    """A splittable seed. Functions that need randomness take a key; there are no hidden generators.

    >>> Key(7).child("label", 3) == Key(7).child("label", 3)
    True

    Attributes:
        seed: The seed.
        path: Names of the children that led here, as numbers.
    """

    seed: int
    path: tuple[int, ...] = ()

    def child(self, *names: int | str) -> Key:
        """An independent key for a named purpose, such as ``key.child("batch", 4)``."""
        words = tuple(n if isinstance(n, int) else zlib.crc32(n.encode()) for n in names)
        return Key(self.seed, self.path + words)

    def generator(self) -> np.random.Generator:
        """A fresh NumPy generator for this key."""
        return np.random.default_rng(self._sequence())

    def integer(self) -> int:
        """A 32-bit seed for libraries with their own generators, such as JAX."""
        return int(self._sequence().generate_state(1, np.uint32)[0])

    def _sequence(self) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=self.path)
