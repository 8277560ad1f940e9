"""The analysis of randomised experiments: effects with intervals, checks, a verdict, and plans.

>>> report = analyse(Units(treated=..., decisions=..., outcomes={"reward": ...}), share=0.5)
>>> report.verdict.sentence
'Treatment is better: reward per decision +3.1 % (1.2 % to 5.0 %).'
"""

from potstill.evaluate.experiments.analysis import Report, analyse
from potstill.evaluate.experiments.measured import Measured
from potstill.evaluate.experiments.metrics import Metric
from potstill.evaluate.experiments.mismatch import Split
from potstill.evaluate.experiments.power import anytime_needed, detectable, power_of, units_needed
from potstill.evaluate.experiments.segments import Segment, Segments
from potstill.evaluate.experiments.units import Before, Daily, InvalidUnits, Units
from potstill.evaluate.experiments.verdict import Verdict

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
