"""Short texts: n-grams of the characters of words, counted in a fixed number of columns by their hashes."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidContext, InvalidProblem, shown
from potstill.features.contract import (
    FeatureType,
    Float32,
    Holds,
    KernelFeature,
    Writer,
    check_size,
    with_flag,
)
from potstill.siphash import siphash, siphash_many

#: Most characters (code points) of a text: encoding takes time in proportion.
LONGEST_TEXT = 4_096
#: Characters of an n-gram; a single one says less than its bounds.
SHORTEST_NGRAM, LONGEST_NGRAM = 2, 8
#: Key of the hash. It is public: the columns of an n-gram are the same for every policy.
KEY = bytes(16)
#: Neither locale nor a version of Unicode matters: only ASCII is folded and split.
_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_WORD = re.compile("[0-9a-z\x80-\U0010ffff]+")
#: Distinct n-grams whose hashes are kept: those of one language's words, and some.
_KEPT = 1 << 16


class Text(FeatureType, frozen=True, tag="text"):
    """A short text such as a title or a query, by the n-grams of its words' characters.

    Words are runs of ASCII letters and digits and of all characters beyond ASCII; ASCII letters count as lower case.
    Each word has a space put before and after it, and every ``ngrams`` characters in a row are an n-gram. Its hash adds
    1 to one of ``size`` columns, or subtracts 1. The columns are then divided by their Euclidean length, so that a long
    text weighs no more than a short one. The order of words does not count.

    Args:
        name: Key in the context.
        size: Number of columns.
        ngrams: Characters of an n-gram.
        missing: What an absent or ``None`` value means: ``"error"``; or ``"flag"``, 0 in all columns and 1 in a column
            of its own. A text without words, such as the empty one, is 0 in all columns.
    """

    name: str
    size: int
    ngrams: int = 3
    missing: Literal["error", "flag"] = "error"

    holds: ClassVar[Holds] = "string"

    def __post_init__(self) -> None:
        self.check_common("error", "flag")
        check_size(self.name, self.size, 2)
        whole = isinstance(self.ngrams, int) and not isinstance(self.ngrams, bool)
        if not whole or not SHORTEST_NGRAM <= self.ngrams <= LONGEST_NGRAM:
            raise InvalidProblem(
                f"feature {self.name!r}: ngrams must be a whole number from {SHORTEST_NGRAM} to {LONGEST_NGRAM}, "
                f"got {shown(self.ngrams)}"
            )

    @property
    def longest(self) -> int:
        """Most characters of a value."""
        return LONGEST_TEXT

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return with_flag(tuple(f"{self.name}~{i}" for i in range(self.size)), self.name, self.missing)

    @property
    def example(self) -> str:
        """A value for examples."""
        return f"Some words of a {self.name}"

    @property
    def blank(self) -> str:
        """A value that is encoded as zeros."""
        return ""

    @property
    def must_be(self) -> str:
        """What a value must be, for messages."""
        return f"a text of at most {LONGEST_TEXT} characters"

    @property
    def in_words(self) -> str:
        """Description of the values, for the documentation of an API."""
        return f"A text of at most {LONGEST_TEXT} characters."

    @property
    def kernel(self) -> KernelFeature:
        """The feature as the C kernel has it."""
        return KernelFeature("ngrams", self.missing_in_kernel, size=self.size, ngrams=self.ngrams)

    def pieces(self, text: str) -> Iterator[str]:
        """The n-grams of a text, in order; a word that is too short for one is an n-gram as a whole."""
        for word in _WORD.findall(text.translate(_LOWER)):
            bounded = f" {word} "
            for at in range(max(len(bounded) - self.ngrams + 1, 1)):
                yield bounded[at : at + self.ngrams]

    def writer(self, at: int) -> Writer:
        """Encode one value at columns ``at`` to ``at + width`` of a row of zeros."""

        def put(value: str, row: list[float]) -> None:
            row[at : at + self.size] = self._columns(value)

        return self.string_writer(put, at + self.size)

    def _columns(self, text: str) -> list[float]:
        self._check(text)
        counts = [0] * self.size
        for ngram in self.pieces(text):
            hashed = _hash(ngram)
            counts[hashed % self.size] += _sign(hashed)
        length = math.sqrt(sum(count * count for count in counts))
        return [count / length for count in counts] if length else [0.0] * self.size

    def encode_column(self, column: NDArray[Any]) -> Float32 | None:
        """Encode an array of strings to float32[N, width], each n-gram hashed once; None to go value by value."""
        if column.dtype.kind not in "UO":
            return None
        values = column.tolist()
        if not all(isinstance(value, str) or (value is None and self.optional) for value in values):
            return None
        block = np.zeros((len(values), len(self.labels)), np.float32)
        self._count(values, block)
        # Counts are integers below 2**24, so that float32 holds them and the sum of squares is exact in any order.
        length = np.sqrt(np.einsum("ij,ij->i", block, block, dtype=np.float64))[:, None]
        block[:] = np.divide(block, length, out=np.zeros(block.shape), where=length > 0)
        if self.missing == "flag":
            block[:, self.size] = [value is None for value in values]
        return block

    def _count(self, values: list[str | None], block: Float32) -> None:
        """Add the n-grams of each row to its columns."""
        codes: dict[str, int] = {}
        rows, found = [], []
        for row, value in enumerate(values):
            if value is not None:
                self._check(value, f"row {row}: ")
                of_row = [codes.setdefault(ngram, len(codes)) for ngram in self.pieces(value)]
                found += of_row
                rows.append((row, len(of_row)))
        hashes = siphash_many(KEY, [ngram.encode() for ngram in codes])[found] if found else np.zeros(0, np.uint64)
        places = np.repeat([row for row, _ in rows], [count for _, count in rows]).astype(np.intp)
        signs = np.where(hashes >> np.uint64(63), np.float32(-1), np.float32(1))
        np.add.at(block, (places, (hashes % np.uint64(self.size)).astype(np.intp)), signs)

    def draw(self, rng: np.random.Generator, count: int) -> Float32:
        """Texts of some thirty n-grams, float32[count, size], for contexts before any was observed."""
        share = min(30 / self.size, 1.0)
        counts = rng.choice([-1.0, 0.0, 1.0], (count, self.size), p=[share / 2, 1 - share, share / 2])
        length = np.linalg.norm(counts, axis=1, keepdims=True)
        scaled: NDArray[np.float64] = np.divide(counts, length, out=counts, where=length > 0)
        return scaled.astype(np.float32)

    def _check(self, text: str, place: str = "") -> None:
        if len(text) > LONGEST_TEXT:
            raise InvalidContext(
                f"{place}feature {self.name!r}: expected a text of at most {LONGEST_TEXT} characters, got one of "
                f"{len(text)}; cut it"
            )
        try:
            str.encode(text)
        except UnicodeEncodeError:
            raise InvalidContext(
                f"{place}feature {self.name!r}: expected a text of valid Unicode, got {shown(text)}; "
                "replace lone surrogates"
            ) from None


@lru_cache(_KEPT)
def _hash(ngram: str) -> int:
    return siphash(KEY, ngram.encode())


def _sign(hashed: int) -> int:
    """Of an n-gram's 1: two n-grams in one column then cancel as often as they add up, and distances stay unbiased."""
    return -1 if hashed >> 63 else 1
