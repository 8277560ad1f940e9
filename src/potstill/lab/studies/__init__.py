"""Studies of imitation error (``rates``), of Bayes regret (``bayes``), and of how often to update (``cadence``)."""

from typing import TYPE_CHECKING

from potstill.lazy import lazy

if TYPE_CHECKING:
    from potstill.lab.studies import bayes, bayes_charts, cadence, cadence_charts, rates, rates_charts

__all__ = ["bayes", "bayes_charts", "cadence", "cadence_charts", "rates", "rates_charts"]

__getattr__ = lazy(__name__, {}, modules=__all__)
