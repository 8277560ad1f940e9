"""The fields of a decision: one list, from which the log, the lake and the frames follow."""

import msgspec
import pytest

import potstill as ps
from potstill.events import LoggedDecision
from potstill.events.records import DECISION_COLUMNS, DecisionBlock, DecisionRow

PROBLEM = ps.Problem(name="p", context=[ps.Boolean("b")], actions=ps.Discrete(["x", "y"]))
ROW = DecisionRow("a", 1, "x", 0.5, 3, ("x",), 0.1, "u", "control", (True,), "e:control")


def test_a_block_has_the_fields_of_a_row_in_its_order():
    assert DecisionBlock.__struct_fields__ == DecisionRow.__struct_fields__


def test_a_logged_decision_has_every_field_of_a_row_but_calls_its_values_a_context():
    assert set(LoggedDecision.__struct_fields__) == {*DecisionRow.__struct_fields__, "context"} - {"values"}


def test_every_field_but_the_values_is_a_column():
    assert tuple(DECISION_COLUMNS) == tuple(name for name in DecisionRow.__struct_fields__ if name != "values")


def test_rows_hold_any_value_that_json_has():
    for action, eligible in ((2.5, (0.0, 3.0)), (("b", "a"), ("a", "b", "c")), (7, {"low": 1}), (True, None)):
        row = msgspec.structs.replace(ROW, action=action, eligible=eligible)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(row), type=DecisionRow) == row


def test_the_bytes_of_a_row_are_as_they_were():
    before = ["d", "a", 1, "x", 0.5, 3, ["x"], 0.1, "u", "control", [True], "e:control"]
    assert msgspec.msgpack.encode(ROW) == msgspec.msgpack.encode([*before, None, None])
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(before), type=DecisionRow) == ROW
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(before[:-1]), type=DecisionRow).arm is None


def test_the_columns_of_the_lake_are_as_they_were():
    pytest.importorskip("polars", reason="needs the lake")
    from potstill.events.lake.schema import table_schema

    decision = ["id", "time", "day", "action", "propensity", "policy"]
    assert table_schema("decisions", PROBLEM).names() == [
        *decision, "eligible", "floor", "unit", "mode", "arm", "would", "own_propensity", "problem", "context_b"
    ]  # fmt: skip
    assert table_schema("observations", PROBLEM).names() == [
        *decision, "reward", "rewarded", "metrics", "weight", "eligible", "unit", "arm", "would", "own_propensity",
        "source", "cut", "problem", "context_b",
    ]  # fmt: skip
