"""Off-policy evaluation: what a policy would have earned on logged decisions.

>>> evaluate(ArrayLog(problem, contexts=..., actions=..., rewards=..., propensities=...), policy)  # doctest: +SKIP

Modules are layered: a log and targets become `Terms`, estimators turn terms into `Parts`, and intervals are made from
the influence of each row. What depends on the action space is behind `potstill.spaces.off_policy`.

The log of a workspace (`LakeLog`), that of a table (`TableLog`) and the HTML page (`page`) need more libraries and are
imported when first used. `continuous` and `rankings` hold estimators of numbers and of rankings on plain arrays.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from potstill.errors import InvalidLog, InvalidModel, InvalidTarget
from potstill.evaluate import text
from potstill.evaluate.blocks import numbered
from potstill.evaluate.confidence_sequences import margin
from potstill.evaluate.diagnostics import (
    Diagnostics,
    Trust,
    diagnose,
    estimator_note,
    trust,
    with_estimator_note,
)
from potstill.evaluate.empirical_likelihood import likelihood
from potstill.evaluate.estimates import INTERVALS, IntervalOptions, OffPolicyEstimate, PointEstimate
from potstill.evaluate.estimators import ESTIMATORS, Estimator, clipped_ips, dr_os, switch_dr
from potstill.evaluate.evaluation import Evaluation, SegmentEvaluation, TargetEvaluation, evaluate
from potstill.evaluate.intervals import Interval, check_level, fieller, normal
from potstill.evaluate.log import ArrayLog, Block, Log
from potstill.evaluate.models import FittedModel, FunctionModel, RewardModel, RidgeModel, fitted, predict
from potstill.evaluate.planning import FLOORS, ExplorationPlan, FloorEffect, TargetPrecision, plan
from potstill.evaluate.segments import Over, by_value
from potstill.evaluate.targets import FixedActionTarget, LoggedTarget, ProbabilityTarget, Target, target
from potstill.evaluate.terms import Terms, compute_terms
from potstill.evaluate.training_overlap import training_rows
from potstill.evaluate.weights import WeightHistogram
from potstill.spaces import Parts
from potstill.spaces.continuous import kernel_estimators as continuous
from potstill.spaces.ranking import ope as rankings

if TYPE_CHECKING:
    from potstill.evaluate import text
    from potstill.evaluate.array_file import ArrayFile
    from potstill.evaluate.lake_log import LakeLog, Progress
    from potstill.evaluate.log import WHY
    from potstill.evaluate.propensity_model import (
        EstimatedPropensities,
        PropensityModel,
        estimate_propensities,
        with_estimated_propensities,
    )
    from potstill.evaluate.report import page
    from potstill.evaluate.table_log import TableLog, TablePolicy, columns_of, table_contexts, table_policy

_LATER = {
    "ArrayFile": "potstill.evaluate.array_file",
    "LakeLog": "potstill.evaluate.lake_log",
    "Progress": "potstill.evaluate.lake_log",
    "TablePolicy": "potstill.evaluate.table_log",
    "TableLog": "potstill.evaluate.table_log",
    "WHY": "potstill.evaluate.log",
    "columns_of": "potstill.evaluate.table_log",
    "EstimatedPropensities": "potstill.evaluate.propensity_model",
    "PropensityModel": "potstill.evaluate.propensity_model",
    "estimate_propensities": "potstill.evaluate.propensity_model",
    "with_estimated_propensities": "potstill.evaluate.propensity_model",
    "page": "potstill.evaluate.report",
    "table_contexts": "potstill.evaluate.table_log",
    "table_policy": "potstill.evaluate.table_log",
}

__all__ = [
    "ESTIMATORS",
    "FLOORS",
    "INTERVALS",
    "WHY",
    "ArrayFile",
    "ArrayLog",
    "Block",
    "Diagnostics",
    "EstimatedPropensities",
    "Estimator",
    "Evaluation",
    "ExplorationPlan",
    "FittedModel",
    "FixedActionTarget",
    "FloorEffect",
    "FunctionModel",
    "Interval",
    "IntervalOptions",
    "InvalidLog",
    "InvalidModel",
    "InvalidTarget",
    "LakeLog",
    "Log",
    "LoggedTarget",
    "OffPolicyEstimate",
    "Over",
    "Parts",
    "PointEstimate",
    "ProbabilityTarget",
    "Progress",
    "PropensityModel",
    "RewardModel",
    "RidgeModel",
    "SegmentEvaluation",
    "TableLog",
    "TablePolicy",
    "Target",
    "TargetEvaluation",
    "TargetPrecision",
    "Terms",
    "Trust",
    "WeightHistogram",
    "by_value",
    "check_level",
    "clipped_ips",
    "columns_of",
    "compute_terms",
    "continuous",
    "diagnose",
    "dr_os",
    "estimate_propensities",
    "estimator_note",
    "evaluate",
    "fieller",
    "fitted",
    "likelihood",
    "margin",
    "normal",
    "numbered",
    "page",
    "plan",
    "predict",
    "rankings",
    "switch_dr",
    "table_contexts",
    "table_policy",
    "target",
    "text",
    "training_rows",
    "trust",
    "with_estimated_propensities",
    "with_estimator_note",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'potstill.evaluate' has no attribute {name!r}")
    return getattr(importlib.import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
