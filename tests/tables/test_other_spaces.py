"""The rule, the log and the audit with a space that is no list of names: a number, whose propensity is a density."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec
import numpy as np
import polars as pl
import pytest

import potstill as ps
from potstill.errors import InvalidAction, PotstillError, UnsupportedSpace
from potstill.evaluate.log import ArrayLog
from potstill.evaluate.table_log import TableLog
from potstill.events import LoggedDecision
from potstill.events.validate import EventValidator
from potstill.pipeline import audit as audits
from potstill.spaces import WireTypes, register
from potstill.tables import TIME, Columns, PolicyColumns, decision_fits


@dataclass(frozen=True)
class UniformOn:
    """Uniform densities on [0, high]."""

    high: float
    rows: int

    def draw(self, u):
        return (u[:, :1] * self.high).astype(np.float32)

    def propensity(self, actions):
        return np.full(len(actions), 1 / self.high)

    def drawn(self, u, actions, tolerance):
        return np.abs(u[:, 0] * self.high - actions[:, 0]) <= tolerance * self.high


class UniformHead(msgspec.Struct, frozen=True):
    high: float
    outputs: int = 1
    draws: int = 2
    kernel: str = ""

    def check_floor(self, floor):
        pass

    def distribution(self, outputs, allowed, floor):
        return UniformOn(self.high, len(outputs))


class Amount(msgspec.Struct, frozen=True, tag_field="type", tag="amount-of-tests"):
    """A number from 0 to `high`."""

    high: float
    measure: ClassVar[str] = "lebesgue"
    wire: ClassVar[WireTypes] = WireTypes(float, float)
    columns: ClassVar[Mapping[str, Any]] = {"action": "number", "eligible": "number"}

    @property
    def examples(self):
        return [0.0, self.high]

    def parse(self, value):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= self.high:
            raise InvalidAction(f"an amount must be from 0 to {self.high}, got {value!r}")
        return float(value)

    def encode(self, values):
        return np.array([[self.parse(value)] for value in values], np.float32).reshape(-1, 1)

    def decode(self, actions):
        return actions[:, 0].tolist()

    def valid(self, actions):
        return (actions[:, 0] >= 0) & (actions[:, 0] <= self.high)

    def embed(self, actions):
        return actions

    def restrict(self, eligible):
        raise InvalidAction("amounts cannot be restricted")

    def allow(self, eligible):
        return None

    def head(self):
        return UniformHead(self.high)


register(Amount, learn="none")
PROBLEM = ps.Problem(name="amounts", context=[ps.Numeric("x", low=0, high=1)], actions=Amount(0.25))
ROW = {"context": {"x": 0.5}, "action": 0.125, "reward": 1.0, "propensity": 4.0}


def test_a_density_may_be_above_one():
    assert ps.Observations.from_records(PROBLEM, [ROW]).actions.tolist() == [[0.125]]
    columns = {"actions": [0.125], "rewards": [1.0], "propensities": [4.0]}
    assert len(ArrayLog(PROBLEM, contexts=[ROW["context"]], **columns)) == 1
    EventValidator(PROBLEM).encode(
        LoggedDecision(id="a", context=ROW["context"], action=0.125, propensity=4.0, policy=0)
    )


@pytest.mark.parametrize("change", [{"action": 0.5}, {"action": "0.1"}, {"propensity": 0.0}, {"propensity": 1e39}])
def test_rows_that_do_not_fit_are_refused(change):
    row = ROW | change
    with pytest.raises(PotstillError):
        ps.Observations.from_records(PROBLEM, [row])
    event = LoggedDecision(id="a", policy=0, **{name: row[name] for name in ("context", "action", "propensity")})
    with pytest.raises(PotstillError):
        EventValidator(PROBLEM).encode(event)


def test_tables_and_the_lake_hold_numbers(tmp_path):
    table = pl.DataFrame({"x": [0.5] * 3, "action": [0.125, 0.2, 0.5], "reward": 1.0, "propensity": 4.0})
    table.write_parquet(tmp_path / "t.parquet")
    log = TableLog(str(tmp_path / "t.parquet"), Columns(), problem=PROBLEM, skip=True)
    (block,) = log.blocks()
    assert block.actions.tolist() == np.float32([[0.125], [0.2]]).tolist()
    assert log.unfit == {"action must be an action of the problem, such as 0.0": 1}
    lake = table.rename({"x": "context_x"})
    assert lake.select(decision_fits(PROBLEM)).to_series().to_list() == [True, True, False]


def test_the_audit_repeats_draws_of_any_space():
    policy = ps.Policy.uniform(PROBLEM)
    decisions = [policy.decide({"x": 0.5}, id=f"id-{i}") for i in range(20)]
    rows = pl.DataFrame(
        {
            "id": [decision.id for decision in decisions],
            "action": [decision.action for decision in decisions],
            "propensity": [decision.propensity for decision in decisions],
            "context_x": 0.5,
        }
    ).with_columns(
        mode=pl.lit(None, pl.String),
        eligible=pl.lit(None, pl.Float64),
        would=pl.lit(None, pl.Float64),
        time=pl.lit(0).cast(TIME),
    )
    assert audits._check({0: policy}, 0, None, rows).clean
    altered = rows.with_columns(action=pl.col("action") / 2)
    found = audits._check({0: policy}, 0, None, altered)
    assert (found.checked, found.actions, found.propensities) == (20, 20, 0)
    assert found.mismatches[0].computed == pytest.approx(decisions[0].action)


def test_policies_in_columns_need_a_list():
    with pytest.raises(UnsupportedSpace, match="a policy in columns of a table needs a finite list of actions"):
        PolicyColumns("t_", ("t_a", "t_b"), ("a", "b")).rules(PROBLEM)
