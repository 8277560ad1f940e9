"""Errors of clients; every message names the place and the way out."""

from __future__ import annotations

from potstill.errors import PotstillError


class ServiceError(PotstillError):
    """A call of the service failed."""


class Unreachable(ServiceError):
    """No reply in time: no network, or a service that is down or overloaded. A retry may succeed."""


class Refused(ServiceError):
    """The service refused the request. A retry of the same request will fail too.

    Attributes:
        status: Status of the reply, such as 422.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class QueueFull(PotstillError):
    """The queue is full; its rows are kept, and nothing was added."""


class FolderInUse(PotstillError):
    """Another client, in this or another process, uses the folder."""


class NoPolicy(PotstillError):
    """There is no policy: none is stored, and none could be downloaded."""
