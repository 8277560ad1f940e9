"""The analysis of randomised experiments: effects with intervals, checks, a verdict, and plans.

>>> report = analyse(Units(treated=..., decisions=..., outcomes={"reward": ...}), share=0.5)
>>> report.verdict.sentence
'Treatment is better: reward per decision +3.1 % (1.2 % to 5.0 %).'
"""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.experiments.analysis import text
    from potstill.experiments.analysis.breakdowns import Segment, Segments
    from potstill.experiments.analysis.effects import Measured
    from potstill.experiments.analysis.metrics import Metric
    from potstill.experiments.analysis.page import report_page
    from potstill.experiments.analysis.planning import Need, Plan, Wanted, plan_for
    from potstill.experiments.analysis.power import anytime_needed, detectable, power_of, units_needed
    from potstill.experiments.analysis.report import (
        ADJUSTED,
        LEFT_OUT,
        NARROW,
        Report,
        analyse,
        effect_rows,
        is_adjusted,
        segment_rows,
        set_up,
        split_sentence,
    )
    from potstill.experiments.analysis.sample_ratio import Split
    from potstill.experiments.analysis.units import Before, Daily, InvalidUnits, Units
    from potstill.experiments.analysis.verdict import Verdict
    from potstill.experiments.analysis.workspace import Options, report_of

__all__ = [
    "ADJUSTED",
    "LEFT_OUT",
    "NARROW",
    "Before",
    "Daily",
    "InvalidUnits",
    "Measured",
    "Metric",
    "Need",
    "Options",
    "Plan",
    "Report",
    "Segment",
    "Segments",
    "Split",
    "Units",
    "Verdict",
    "Wanted",
    "analyse",
    "anytime_needed",
    "detectable",
    "effect_rows",
    "is_adjusted",
    "plan_for",
    "power_of",
    "report_of",
    "report_page",
    "segment_rows",
    "set_up",
    "split_sentence",
    "text",
    "units_needed",
]

__getattr__ = lazy(
    __name__,
    {
        "breakdowns": (
            "Segment",
            "Segments",
        ),
        "effects": ("Measured",),
        "metrics": ("Metric",),
        "page": ("report_page",),
        "planning": (
            "Need",
            "Plan",
            "Wanted",
            "plan_for",
        ),
        "power": (
            "anytime_needed",
            "detectable",
            "power_of",
            "units_needed",
        ),
        "report": (
            "ADJUSTED",
            "LEFT_OUT",
            "NARROW",
            "Report",
            "analyse",
            "effect_rows",
            "is_adjusted",
            "segment_rows",
            "set_up",
            "split_sentence",
        ),
        "sample_ratio": ("Split",),
        "units": (
            "Before",
            "Daily",
            "InvalidUnits",
            "Units",
        ),
        "verdict": ("Verdict",),
        "workspace": (
            "Options",
            "report_of",
        ),
    },
    modules=("text",),
)
