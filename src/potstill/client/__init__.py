"""Clients of the decision service: one that asks for each decision over HTTP, and one that decides on a device."""

from potstill.client.async_client import AsyncClient
from potstill.client.client import Client
from potstill.client.edge import EdgeClient
from potstill.client.errors import FolderInUse, NoPolicy, QueueFull, Refused, ServiceError, Unreachable
from potstill.client.retry import Retry
from potstill.client.sync import SyncReport
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
    "SyncReport",
    "Unreachable",
]
