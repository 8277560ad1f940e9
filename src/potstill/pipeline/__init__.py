"""A workspace's update, and what looks back at it."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.pipeline.audit import Audit, run_audit
    from potstill.pipeline.candidates import make_candidates
    from potstill.pipeline.check import check_learning
    from potstill.pipeline.design import make_design
    from potstill.pipeline.design_progress import DesignProgress, read_design_progress
    from potstill.pipeline.first_look import FirstLook, Looked, no_look, run_first_look
    from potstill.pipeline.reproduce import Reproduction, reproduce_version
    from potstill.pipeline.status import Status, read_status
    from potstill.pipeline.tune import IntervalEstimate, TuningResult, run_tuning
    from potstill.pipeline.update import UpdateReport, preview_update, run_update
    from potstill.pipeline.warm_start import ImportReport, import_history

__all__ = [
    "Audit",
    "DesignProgress",
    "FirstLook",
    "ImportReport",
    "IntervalEstimate",
    "Looked",
    "Reproduction",
    "Status",
    "TuningResult",
    "UpdateReport",
    "check_learning",
    "import_history",
    "make_candidates",
    "make_design",
    "no_look",
    "preview_update",
    "read_design_progress",
    "read_status",
    "reproduce_version",
    "run_audit",
    "run_first_look",
    "run_tuning",
    "run_update",
]

__getattr__ = lazy(
    __name__,
    {
        "audit": (
            "Audit",
            "run_audit",
        ),
        "candidates": ("make_candidates",),
        "check": ("check_learning",),
        "design": ("make_design",),
        "design_progress": (
            "DesignProgress",
            "read_design_progress",
        ),
        "first_look": (
            "FirstLook",
            "Looked",
            "no_look",
            "run_first_look",
        ),
        "reproduce": (
            "Reproduction",
            "reproduce_version",
        ),
        "status": (
            "Status",
            "read_status",
        ),
        "tune": (
            "IntervalEstimate",
            "TuningResult",
            "run_tuning",
        ),
        "update": (
            "UpdateReport",
            "preview_update",
            "run_update",
        ),
        "warm_start": (
            "ImportReport",
            "import_history",
        ),
    },
)
