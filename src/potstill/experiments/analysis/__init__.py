"""The analysis of randomised experiments: effects with intervals, checks, a verdict, and plans.

>>> report = analyse(Units(treated=..., decisions=..., outcomes={"reward": ...}), share=0.5)
>>> report.verdict.sentence
'Treatment is better: reward per decision +3.1 % (1.2 % to 5.0 %).'
"""

from potstill.experiments.analysis.breakdowns import Segment, Segments
from potstill.experiments.analysis.effects import Measured
from potstill.experiments.analysis.metrics import Metric
from potstill.experiments.analysis.power import anytime_needed, detectable, power_of, units_needed
from potstill.experiments.analysis.report import Report, analyse
from potstill.experiments.analysis.sample_ratio import Split
from potstill.experiments.analysis.units import Before, Daily, InvalidUnits, Units
from potstill.experiments.analysis.verdict import Verdict

__all__ = [
    "Before",
    "Daily",
    "InvalidUnits",
    "Measured",
    "Metric",
    "Report",
    "Segment",
    "Segments",
    "Split",
    "Units",
    "Verdict",
    "analyse",
    "anytime_needed",
    "detectable",
    "power_of",
    "units_needed",
]
