"""Logs of Vowpal Wabbit's decision service (dsjson), also those of Azure Personalizer, as a table of decisions."""

from potstill.tables.dsjson.convert import Converted, convert_dsjson
from potstill.tables.dsjson.history import dsjson_history, unfit_events
from potstill.tables.dsjson.names import IN_WORDS, RULES, NameRule
from potstill.tables.dsjson.report import DsjsonReport, LeftOut

__all__ = [
    "IN_WORDS",
    "RULES",
    "Converted",
    "DsjsonReport",
    "LeftOut",
    "NameRule",
    "convert_dsjson",
    "dsjson_history",
    "unfit_events",
]
