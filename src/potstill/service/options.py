"""How a worker serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from potstill.service.tokens import Guard

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a worker serves.

    Attributes:
        guards: who may call a problem, by its name; those that are not named are open to all.
        metrics: makes what counts and tells, given a function that looks up how problems stand: `metrics.Metrics`.
        max_body: bytes of a request to decide, and of all that are not batches.
        max_batch_body: bytes of a batch.
        max_batch: requests, rewards or observations in a batch.
        max_in_flight: requests at a time; beyond that, callers are told to come again.
        max_bytes_in_flight: of the bodies of all of them.
        read_seconds: how long a body may take to arrive.
        patience: how long to wait for the disk, in seconds.
        reload_seconds: between two looks for a new version; what ``potstill.toml`` says if left out.
        remembered: how many decisions to know again by their ids.
        cors: origins of pages that may call.
    """

    guards: Mapping[str, Guard] = field(default_factory=dict)
    metrics: Callable[[Callable[[], Iterable[Any]]], Any] | None = None
    max_body: int = MIB
    max_batch_body: int = 16 * MIB
    max_batch: int = 1000
    max_in_flight: int = 1000
    max_bytes_in_flight: int = 256 * MIB
    read_seconds: float = 10.0
    patience: float = 1.5
    reload_seconds: float | None = None
    remembered: int = 100_000
    cors: Sequence[str] = ()
