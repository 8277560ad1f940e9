"""What the service's pages ask of a workspace, answered in a process of its own: it loads tables and teachers."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.pipeline.queries import expect

__all__ = ["expect"]

__getattr__ = lazy(__name__, {}, modules=("expect",))
