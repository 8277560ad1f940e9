"""Features of contexts and items, and how each becomes float32 columns: one value at a time, or a whole column.

Both ways give the same float32, and so do the other runtimes, which follow ``docs/policy-format.md``.
`FeatureType` in ``contract.py`` says what a type states about itself; `Feature` lists the types; `Encoder` puts the
columns of several features side by side.
"""

from potstill.features.boolean import Boolean
from potstill.features.categorical import Categorical
from potstill.features.contract import Holds, KernelFeature
from potstill.features.encoding import Encoder
from potstill.features.feature import Feature
from potstill.features.hashed import Hashed
from potstill.features.moments import FIRST_SECOND, LAST_SECOND, PER_SECOND, RFC_3339
from potstill.features.numeric import Numeric
from potstill.features.text import Text
from potstill.features.timestamp import Part, Timestamp
from potstill.features.vector import LARGEST_FLOAT32, Vector

__all__ = [
    "FIRST_SECOND",
    "LARGEST_FLOAT32",
    "LAST_SECOND",
    "PER_SECOND",
    "RFC_3339",
    "Boolean",
    "Categorical",
    "Encoder",
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
