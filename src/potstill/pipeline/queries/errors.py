"""Errors of queries."""

from __future__ import annotations

from potstill.errors import PotstillError


class CannotAnswer(PotstillError, ValueError):
    """A query cannot be answered.

    Attributes:
        status: Status of HTTP: 404 for what is not there, 409 for what does not fit together.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
