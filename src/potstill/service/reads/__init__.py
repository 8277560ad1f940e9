"""What can be read about a problem: a JSON endpoint each, whose reply is what the page of the same name shows."""

from potstill.service.reads import (
    actions,
    compare,
    decisions,
    evaluation,
    expect,
    experiment,
    fidelity,
    insights,
    items,
    staging,
    versions,
)
from potstill.service.reads.endpoints import ReadEndpoints

__all__ = [
    "ReadEndpoints",
    "actions",
    "compare",
    "decisions",
    "evaluation",
    "expect",
    "experiment",
    "fidelity",
    "insights",
    "items",
    "staging",
    "versions",
]
