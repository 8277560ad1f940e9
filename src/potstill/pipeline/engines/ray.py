"""The Ray engine: distributes items over the processors of a machine or a cluster."""

from __future__ import annotations

import logging
import os
import socket
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import ray
from ray._private import ray_constants
from ray.exceptions import RayError, RayTaskError

from potstill.parallel import ONE_THREAD, environment
from potstill.pipeline.engines import EngineFailed, ItemT, ResultT

#: Look-ahead per worker: one item in progress and one queued.
AHEAD = 2
#: Number of retries of an item whose worker is lost.
RETRIES = 3


class RayEngine:
    """Each item runs on one processor. An item whose worker is lost is retried on another.

    Args:
        address: Address of a cluster, or ``auto``. Without one, Ray is started on loopback and stopped with the engine.
        options: Options of `ray.init` if Ray is started here.
    """

    name = "ray"

    def __init__(self, address: str | None = None, **options: Any) -> None:
        if address is not None:
            _check_reachable(address)
        self._own = not ray.is_initialized()
        self.dashboard: str | None = self._connect(address, options) if self._own else None

    @property
    def workers(self) -> int:
        """Current number of processors of the cluster; autoscaling may change it."""
        return max(int(ray.cluster_resources().get("CPU", 1)), 1)

    def map(self, function: Callable[..., ResultT], items: Iterable[ItemT], *common: Any) -> Iterator[ResultT]:
        """Yield ``function(item, *common)`` for each item, in order; `common` is sent to each machine once."""
        remote = _remote(function)
        stored = [ray.put(value) for value in common]
        ahead: deque[Any] = deque()
        for item in items:
            ahead.append(remote.remote(item, *stored))
            if len(ahead) >= AHEAD * self.workers:
                yield _result(ahead.popleft())
        while ahead:
            yield _result(ahead.popleft())

    def close(self) -> None:
        """Disconnect from the cluster, or stop Ray if it was started here."""
        if self._own:
            ray.shutdown()

    def _connect(self, address: str | None, options: dict[str, Any]) -> str | None:
        """Start or connect to Ray; returns the URL of its dashboard, if any."""
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if address is None:
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports over the network
            # Ray binds to loopback only if clusters are disabled.
            ray_constants.ENABLE_RAY_CLUSTER = False
            quiet |= options
        try:
            # Workers have one processor each and inherit this environment; a running cluster has its own.
            with environment(ONE_THREAD), warnings.catch_warnings():
                # Forking is safe here: Ray's child processes do not use JAX.
                warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
                context = ray.init(address="local" if address is None else address, **quiet)
        except (OSError, RuntimeError, ValueError, RayError) as error:
            place = "on this machine" if address is None else f"at {address}"
            raise EngineFailed(f"no Ray {place}: {str(error).strip().splitlines()[0]}") from error
        return f"http://{context.dashboard_url}" if context.dashboard_url else None


@cache
def _remote(function: Callable[..., Any]) -> Any:
    """The Ray remote of a function, cached so that it is sent to the cluster once."""
    return ray.remote(num_cpus=1, max_retries=RETRIES)(function)


def _check_reachable(address: str) -> None:
    """Fail within seconds if nothing listens at an address; Ray itself would wait for minutes."""
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if colon and port.isdigit():
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise EngineFailed(f"no Ray at {address}: {error}") from error


def _result(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        line = str(error).strip().splitlines()[0]
        raise EngineFailed(f"Ray has lost an item {RETRIES + 1} times or cannot continue: {line}") from error
