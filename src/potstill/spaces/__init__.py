"""Action spaces behind one contract. `check_space` is imported on first use, because it needs Polars."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy
from potstill.spaces.catalog import Catalog
from potstill.spaces.continuous import Continuous, HistogramDistribution
from potstill.spaces.contract import (
    Actions,
    ActionSpace,
    Allowed,
    ColumnType,
    Distribution,
    Divergences,
    FiniteSpace,
    Head,
    LakeColumns,
    Learning,
    LoggedRows,
    LoggedSupport,
    OffPolicy,
    Restriction,
    RewardPredictions,
    WireTypes,
)
from potstill.spaces.discrete import Discrete
from potstill.spaces.finite import FiniteDistribution, check_floor, finite, mix_floor
from potstill.spaces.influence import Parts
from potstill.spaces.named import NamedActions
from potstill.spaces.registry import from_config, is_space, lake_columns, learning, off_policy, register
from potstill.spaces.softmax import SoftmaxHead

if TYPE_CHECKING:
    from potstill.spaces.conformance import check_space
    from potstill.spaces.lake import polars_type
    from potstill.spaces.masked import MaskedLearning, masked_learning, masks_of_size

__all__ = [
    "ActionSpace",
    "Actions",
    "Allowed",
    "Catalog",
    "ColumnType",
    "Continuous",
    "Discrete",
    "Distribution",
    "Divergences",
    "FiniteDistribution",
    "FiniteSpace",
    "Head",
    "HistogramDistribution",
    "LakeColumns",
    "Learning",
    "LoggedRows",
    "LoggedSupport",
    "MaskedLearning",
    "NamedActions",
    "OffPolicy",
    "Parts",
    "Restriction",
    "RewardPredictions",
    "SoftmaxHead",
    "WireTypes",
    "check_floor",
    "check_space",
    "finite",
    "from_config",
    "is_space",
    "lake_columns",
    "learning",
    "masked_learning",
    "masks_of_size",
    "mix_floor",
    "off_policy",
    "polars_type",
    "register",
]

__getattr__ = lazy(
    __name__,
    {
        "conformance": ("check_space",),
        "lake": ("polars_type",),
        "masked": ("MaskedLearning", "masked_learning", "masks_of_size"),
    },
)
