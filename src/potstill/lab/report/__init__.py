"""The report of a folder of runs."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.lab.report.report import write_report
    from potstill.lab.report.tables import estimate

__all__ = ["estimate", "write_report"]

__getattr__ = lazy(__name__, {"report": ("write_report",), "tables": ("estimate",)})
