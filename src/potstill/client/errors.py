"""What can go wrong between a client and its service; every message names the place and the way out."""

from __future__ import annotations

from potstill.errors import PotstillError


class ServiceError(PotstillError):
    """The service did not do what it was asked."""


class Unreachable(ServiceError):
    """No answer came in time: no network, a service that is down or overloaded. Trying later may help."""


class Refused(ServiceError):
    """The service answered, and refused. Trying again with the same request does not help.

    Attributes:
        status: of the reply, such as 422.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class QueueFull(PotstillError):
    """There is no room for another row; what is in the queue is kept."""


class FolderInUse(PotstillError):
    """Another process, or another client in this one, works in the folder."""


class NoPolicy(PotstillError):
    """There is no policy to decide with: none is stored, and none could be downloaded."""
