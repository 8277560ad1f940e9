"""How many connections a worker keeps open: few enough that its log always has descriptors."""

from __future__ import annotations

import resource
from collections.abc import Collection
from typing import Any, Protocol

#: The most connections of a worker; an idle one costs about 15 KB.
MOST = 10_000
#: The fewest, where even the reserve is more than the process may open.
FEWEST = 16
#: Descriptors for everything else: libraries, pipes and the registry; and for the log and lookups of each problem.
RESERVE, RESERVE_PER_PROBLEM = 48, 12
#: Share of the idle connections that is closed at once to make room: looking for them takes time.
SHARE = 0.05


class Idle(Protocol):
    """A connection, as far as it matters here."""

    transport: Any

    @property
    def idle_since(self) -> float | None:
        """When it began to wait for a request; None if one is in work."""


def most_connections(problems: int) -> int:
    """The most connections of a process, by its limit on open files."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST if soft == resource.RLIM_INFINITY else soft - RESERVE - RESERVE_PER_PROBLEM * problems
    return max(min(allowed, MOST), FEWEST)


def make_room(connections: Collection[Any], newest: Idle) -> bool:
    """Close the connections that have been idle for longest, as nginx does; False if there is none."""
    idle = [(since, other) for other in connections if other is not newest and (since := other.idle_since) is not None]
    idle.sort(key=lambda pair: pair[0])
    for _, connection in idle[: max(1, round(SHARE * len(idle)))]:
        connection.transport.close()
    return bool(idle)
