"""A policy in a NumPy file (.npy), one row for each row of a table: probabilities of actions, or numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidTarget
from potstill.evaluate.log import Block
from potstill.evaluate.table_log import TableLog


class ArrayFile:
    """A file of probabilities, float[N, K], or float[N, K, L] for L positions, or of numbers float[N]; read as needed.

    Columns are actions in natural order. If the actions are integers, column k is action k. Numbers are for a table
    whose action is a number.

    Args:
        path: The file.
    """

    def __init__(self, path: str) -> None:
        self.name = Path(path).name
        try:
            self._array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise InvalidTarget(f"{path}: it is no array of NumPy that can be read ({error})") from None
        if self._array.dtype.kind != "f" or self._array.ndim not in (1, 2, 3):
            raise InvalidTarget(
                f"{path}: there must be probabilities float[rows, actions], or float[rows, actions, positions], or "
                f"numbers float[rows], got {self._shape}"
            )

    @property
    def actions(self) -> int | None:
        """Number of actions; None for numbers."""
        return int(self._array.shape[1]) if self._array.ndim > 1 else None

    def on(self, log: TableLog) -> ArrayTarget | NumberArrayTarget:
        """The policy as a target on the rows of a table."""
        is_density = log.problem.actions.measure == "lebesgue"
        if is_density != (self._array.ndim == 1):
            needed = "numbers float[rows]" if is_density else "probabilities float[rows, actions]"
            raise InvalidTarget(f"{self.name}: there must be {needed}, got {self._shape}")
        if len(self._array) != log.total:
            raise InvalidTarget(
                f"{self.name} has {len(self._array):,} rows, but {log.place} has {log.total:,}; there must be one for "
                "each, in the same order"
            )
        if is_density:
            return NumberArrayTarget(self.name, self._array, log.row_numbers())
        return ArrayTarget(self.name, self._array, log.row_numbers(), self._places(log))

    @property
    def _shape(self) -> str:
        return f"{self._array.dtype}{list(self._array.shape)}"

    def _places(self, log: TableLog) -> NDArray[np.int64] | None:
        """The position of each row as a place in the last dimension; None if there is none."""
        if self._array.ndim == 2:
            return None
        positions, places = log.positions()
        if len(positions) != self._array.shape[2]:
            raise InvalidTarget(
                f"{self.name} has probabilities for {self._array.shape[2]} positions, but --position has "
                f"{len(positions)}: {', '.join(positions) or 'name its column'}"
            )
        return places


class ArrayTarget:
    """A policy whose probabilities are rows of an array.

    Args:
        name: Name in reports.
        array: Probabilities, float[N, K] or float[N, K, L].
        rows: Row of the array for each row of the log, int64[n]; None for all in order.
        places: Place in the last dimension for each row of the log, int64[n].
    """

    def __init__(
        self, name: str, array: NDArray[Any], rows: NDArray[np.int64] | None, places: NDArray[np.int64] | None
    ) -> None:
        self.name = name
        self._array, self._rows, self._places = array, rows, places

    def probabilities(self, block: Block, first_row: int) -> NDArray[Any]:
        """The probability of each action in each row, float[n, K]."""
        here = slice(first_row, first_row + len(block))
        found = np.asarray(self._array[here if self._rows is None else self._rows[here]])
        if self._places is None:
            return found
        picked: NDArray[Any] = np.take_along_axis(found, self._places[here][:, None, None], axis=2)[:, :, 0]
        return picked


class NumberArrayTarget:
    """A policy that gives one number per row, from an array.

    Args:
        name: Name in reports.
        array: Numbers, float[N].
        rows: Row of the array for each row of the log, int64[n]; None for all in order.
    """

    def __init__(self, name: str, array: NDArray[Any], rows: NDArray[np.int64] | None) -> None:
        self.name, self._array, self._rows = name, array, rows

    def actions(self, block: Block, first_row: int) -> NDArray[Any]:
        """The number of each row, float64[n]."""
        here = slice(first_row, first_row + len(block))
        return np.asarray(self._array[here if self._rows is None else self._rows[here]], np.float64)
