"""Tables of users and of the lake: reading them, inferring features, and checking rows against the problem."""

from potstill.tables.columns import (
    TIME,
    Columns,
    check_columns,
    check_context,
    check_propensity,
    context_column,
    context_schema,
    feature_columns,
)
from potstill.tables.csv import read_csv
from potstill.tables.encode import checked_contexts, encode_contexts
from potstill.tables.infer import actions_in, features_in, features_of, in_one_line
from potstill.tables.policy_columns import PolicyColumns, carried
from potstill.tables.scan import UnreadableTable, is_text, scan_table
from potstill.tables.validate import (
    FITS,
    NAMED,
    REASON,
    ROW,
    RowRules,
    action_rule,
    context_fits,
    context_rules,
    decision_fits,
    first_reasons,
    propensity_rule,
    refusal,
    reward_fits,
    reward_rule,
    time_fits,
    time_rule,
)

__all__ = [
    "FITS",
    "NAMED",
    "REASON",
    "ROW",
    "TIME",
    "Columns",
    "PolicyColumns",
    "RowRules",
    "UnreadableTable",
    "action_rule",
    "actions_in",
    "carried",
    "check_columns",
    "check_context",
    "check_propensity",
    "checked_contexts",
    "context_column",
    "context_fits",
    "context_rules",
    "context_schema",
    "decision_fits",
    "encode_contexts",
    "feature_columns",
    "features_in",
    "features_of",
    "first_reasons",
    "in_one_line",
    "is_text",
    "propensity_rule",
    "read_csv",
    "refusal",
    "reward_fits",
    "reward_rule",
    "scan_table",
    "time_fits",
    "time_rule",
]
