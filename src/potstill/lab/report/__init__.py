"""The report of a folder of runs."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.lab.report.report import write_markdown, write_report
    from potstill.lab.report.rows import alike, latencies
    from potstill.lab.report.tables import estimate, latency_tables, same_language_table

__all__ = ["alike", "estimate", "latencies", "latency_tables", "same_language_table", "write_markdown", "write_report"]

__getattr__ = lazy(
    __name__,
    {
        "report": ("write_markdown", "write_report"),
        "rows": ("alike", "latencies"),
        "tables": ("estimate", "latency_tables", "same_language_table"),
    },
)
