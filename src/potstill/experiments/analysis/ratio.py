"""Ratio metrics, such as reward per decision: sums over units divided by sums over units.

Units are random, so both sums are. The delta method replaces the ratio by a mean of one value per unit that moves as
the ratio does (Deng, Knoblich, Lu 2018, "Applying the delta method in metric analytics").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


def linearised(total: Values, size: Values) -> Values:
    """One value per unit whose mean is Σ total / Σ size, and whose variance over √n is that of this ratio."""
    ratio = total.sum() / size.sum()
    linear: Values = ratio + (total - ratio * size) / size.mean()
    return linear
