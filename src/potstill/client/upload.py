"""Rows that leave only after the service has them, and bad rows that do not hold up the good ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from potstill.client.errors import Refused
from potstill.client.sansio import Call

R = TypeVar("R")
#: Refusals that may be about a single row. Others, such as 401 and 404, are about the client.
ABOUT_ROWS = frozenset({400, 409, 413, 422})


def upload(
    rows: Sequence[R],
    post: Callable[[Sequence[R]], Call[None]],
    accepted: Callable[[Sequence[R]], object],
    refused: Callable[[R, str], object],
) -> Call[None]:
    """Send rows; a batch that is refused is halved until the bad row stands alone.

    Args:
        rows: at least one.
        post: sends some of them.
        accepted: told of rows that the service has acknowledged.
        refused: told of a row that the service does not take, and why.
    """
    try:
        yield from post(rows)
    except Refused as error:
        if error.status not in ABOUT_ROWS:
            raise
        if len(rows) == 1:
            refused(rows[0], str(error))
            return
        middle = len(rows) // 2
        yield from upload(rows[:middle], post, accepted, refused)
        yield from upload(rows[middle:], post, accepted, refused)
    else:
        accepted(rows)
