"""Studies: imitation error (``rates``), Bayes regret (``bayes``), how often to update (``cadence``), ``bakeoff``."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.lab.studies import (
        bakeoff,
        bakeoff_charts,
        bayes,
        bayes_charts,
        cadence,
        cadence_charts,
        rates,
        rates_charts,
    )

__all__ = [
    "bakeoff",
    "bakeoff_charts",
    "bayes",
    "bayes_charts",
    "cadence",
    "cadence_charts",
    "rates",
    "rates_charts",
]

__getattr__ = lazy(__name__, {}, modules=__all__)
