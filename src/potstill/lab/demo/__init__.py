"""The demo: one simulated problem, from the first decision to a report."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.lab.demo.demo import Demo
    from potstill.lab.demo.terminal import run

__all__ = ["Demo", "run"]

__getattr__ = lazy(__name__, {"demo": ("Demo",), "terminal": ("run",)})
