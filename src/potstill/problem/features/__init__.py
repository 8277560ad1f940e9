"""Context features, and how each becomes float32 columns: one value at a time, or a whole NumPy column at once.

Both ways give the same float32, and so do the other runtimes, which follow ``docs/policy-format.md``.
`FeatureType` in ``contract.py`` says what a type states about itself; `Feature` lists the types.
"""

from potstill.problem.features.boolean import Boolean
from potstill.problem.features.categorical import Categorical
from potstill.problem.features.contract import Holds, KernelFeature
from potstill.problem.features.hashed import Hashed
from potstill.problem.features.moments import FIRST_SECOND, LAST_SECOND, PER_SECOND, RFC_3339
from potstill.problem.features.numeric import Numeric
from potstill.problem.features.text import Text
from potstill.problem.features.timestamp import Part, Timestamp
from potstill.problem.features.vector import LARGEST_FLOAT32, Vector

Feature = Numeric | Categorical | Boolean | Hashed | Vector | Text | Timestamp

__all__ = [
    "FIRST_SECOND",
    "LARGEST_FLOAT32",
    "LAST_SECOND",
    "PER_SECOND",
    "RFC_3339",
    "Boolean",
    "Categorical",
    "Feature",
    "Hashed",
    "Holds",
    "KernelFeature",
    "Numeric",
    "Part",
    "Text",
    "Timestamp",
    "Vector",
]
