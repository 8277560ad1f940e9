"""What the service's pages ask of a workspace, answered in a process of its own: it loads tables and teachers."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.pipeline.queries import expect
    from potstill.pipeline.queries.action_shares import labels, place, shares

__all__ = ["expect", "labels", "place", "shares"]

__getattr__ = lazy(
    __name__,
    {"action_shares": ("labels", "place", "shares")},
    modules=("expect",),
)
