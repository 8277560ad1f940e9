"""Off-policy estimates: what a policy would have earned on what was logged; and the analysis of experiments.

>>> evaluate(ArrayLog(problem, contexts=..., actions=..., rewards=..., propensities=...), policy)  # doctest: +SKIP

The logs of a workspace (`lake.LakeLog`) and of a CSV or Parquet file (`table.TableLog`), charts and pages are in
modules of their own, which need more libraries; so is the analysis of randomised experiments (`experiments`).
"""

from potstill.errors import InvalidLog
from potstill.evaluate import continuous, rankings
from potstill.evaluate.blocks import numbered
from potstill.evaluate.diagnostics import Diagnostics, Trust, diagnose, trust
from potstill.evaluate.estimates import INTERVALS, Estimate
from potstill.evaluate.estimators import ESTIMATORS, Estimator, Parts, clipped_ips, dr_os, switch_dr
from potstill.evaluate.evaluation import Evaluation, Segment, Side, evaluate
from potstill.evaluate.intervals import Interval
from potstill.evaluate.log import ArrayLog, Block, Log
from potstill.evaluate.models import FittedModel, InvalidModel, RewardModel, RidgeModel
from potstill.evaluate.planning import Plan, plan
from potstill.evaluate.targets import InvalidTarget, Target, target
from potstill.evaluate.terms import Terms

__all__ = [
    "ESTIMATORS",
    "INTERVALS",
    "ArrayLog",
    "Block",
    "Diagnostics",
    "Estimate",
    "Estimator",
    "Evaluation",
    "FittedModel",
    "Interval",
    "InvalidLog",
    "InvalidModel",
    "InvalidTarget",
    "Log",
    "Parts",
    "Plan",
    "RewardModel",
    "RidgeModel",
    "Segment",
    "Side",
    "Target",
    "Terms",
    "Trust",
    "clipped_ips",
    "continuous",
    "diagnose",
    "dr_os",
    "evaluate",
    "numbered",
    "plan",
    "rankings",
    "switch_dr",
    "target",
    "trust",
]
