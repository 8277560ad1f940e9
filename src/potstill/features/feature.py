"""The feature types, as one type."""

from potstill.features.boolean import Boolean
from potstill.features.categorical import Categorical
from potstill.features.hashed import Hashed
from potstill.features.numeric import Numeric
from potstill.features.text import Text
from potstill.features.timestamp import Timestamp
from potstill.features.vector import Vector

Feature = Numeric | Categorical | Boolean | Hashed | Vector | Text | Timestamp
