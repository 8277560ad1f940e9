"""Studies of imitation error (``rates``) and of how often to update (``cadence``)."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.lab.studies import cadence, cadence_charts, rates, rates_charts

__all__ = ["cadence", "cadence_charts", "rates", "rates_charts"]

__getattr__ = lazy(__name__, {}, modules=__all__)
