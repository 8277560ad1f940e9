"""Clients of the decision service: over HTTP for each decision, or on a device that decides on its own."""

from potstill.client.async_client import AsyncClient
from potstill.client.client import Client
from potstill.client.edge import EdgeClient
from potstill.client.errors import FolderInUse, NoPolicy, QueueFull, Refused, ServiceError, Unreachable
from potstill.client.retry import Retry
from potstill.client.sync import Synced
from potstill.client.wire import Answer, Observation

__all__ = [
    "Answer",
    "AsyncClient",
    "Client",
    "EdgeClient",
    "FolderInUse",
    "NoPolicy",
    "Observation",
    "QueueFull",
    "Refused",
    "Retry",
    "ServiceError",
    "Synced",
    "Unreachable",
]
