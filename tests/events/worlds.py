"""Small workspaces of events for tests: rows of the oracle written to a real lake, and what a join made of them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from events.join_oracle import SECOND, D, R, World

import potstill as ps
from potstill.events.join import JoinReport, join, preview
from potstill.events.lake import Lake
from potstill.events.lake.schema import METRICS
from potstill.parallel import Map
from potstill.storage import child, open_storage
from potstill.tables import TIME

ACTIONS = ("l", "r")
WINDOW, SETTLE = 100, 20
#: A moment before midnight, so that worlds straddle days.
BASE = 1_700_006_400 * SECOND - 150 * SECOND


def world(aggregate: str = "sum", **stated: float) -> World:
    return World(WINDOW, SETTLE, -0.5, aggregate, **stated)


def after(time: int) -> int:
    """When a decision of that time has just become final."""
    return time + (WINDOW + SETTLE) * SECOND


def mixed_events(seed: int, size: int) -> list[D | R]:
    """Of few ids, over two days: decisions that are copies or conflict, rewards of every kind."""
    rng = np.random.default_rng(seed)
    names, seconds = rng.integers(0, 1 + size // 2, size), rng.integers(0, 2 * 86_400, size)
    found: list[D | R] = []
    for i in range(size):
        name, time = f"id-{names[i]}", BASE + int(seconds[i]) * SECOND
        found.append(D(name, time, action="lr"[i % 6 == 1]) if i % 2 else R(name, time, float(i % 3), "k"))
        if i % 6 == 5:
            found.append(R(name, time + int(rng.integers(-90, 200)) * SECOND))
    return found


def problem_of(world: World) -> ps.Problem:
    bounds = {"low": None if world.low == -float("inf") else world.low}
    bounds["high"] = None if world.high == float("inf") else world.high
    return ps.Problem(
        name="world",
        context=[ps.Numeric("x", low=0, high=1), ps.Categorical("c", ["a", "b"]), ps.Boolean("b", missing="flag")],
        actions=ps.Discrete(list(ACTIONS)),
        reward=ps.Reward(default=world.default, window=f"{world.window}s", **bounds),
    )


class Workspace:
    """A lake and its cuts, beside the oracle's lists."""

    def __init__(self, place: str | Path, world: World) -> None:
        self.world, self.problem = world, problem_of(world)
        self.lake = Lake(child(str(place), "events"), self.problem)
        self.cuts = open_storage(child(str(place), "cuts"))
        self.number = 0

    def add(self, *events: D | R, files: int = 1) -> None:
        """Append events to the lake and to the oracle's lists."""
        decisions = [event for event in events if isinstance(event, D)]
        rewards = [event for event in events if isinstance(event, R)]
        self.world.decisions += decisions
        self.world.rewards += rewards
        for part in _split(decisions, files):
            self._append("decisions", decision_frame(part))
        for part in _split(rewards, files):
            self._append("rewards", reward_frame(part))

    def compact(self) -> None:
        for table in ("decisions", "rewards", "observations"):
            handle = self.lake.tables[table].current()
            if handle is not None:
                handle.optimize.compact()

    def join(self, now: int, each: Map | None = None) -> JoinReport:
        return join(self.lake, self.cuts, self.problem, **self._stated(), now=now, each=each)

    def preview(self, now: int) -> JoinReport:
        return preview(self.lake, self.cuts, self.problem, **self._stated(), now=now)

    def observed(self) -> list[dict[str, Any]]:
        """The rows of the table of observations in the oracle's terms."""
        frame = self.lake.scan("observations").sort("cut", "time", "id").collect()
        assert frame["weight"].to_list() == [1.0] * len(frame)
        return [
            {
                "id": row["id"],
                "time": row["time"],
                "said": (row["policy"], row["action"], row["propensity"]),
                "x": row["context_x"],
                "reward": row["reward"],
                "rewarded": row["rewarded"],
                "metrics": row["metrics"] and {metric["name"]: metric["value"] for metric in row["metrics"]},
                "of": (row["eligible"] and tuple(row["eligible"]), row["unit"], row["arm"]),
                "source": row["source"],
                "cut": row["cut"],
            }
            for row in frame.with_columns(pl.col("time").dt.epoch("us")).iter_rows(named=True)
        ]

    def _stated(self) -> dict[str, Any]:
        return {"aggregate": self.world.aggregate, "settle": self.world.settle}

    def _append(self, table: Any, frame: pl.DataFrame) -> None:
        self.number += 1
        self.lake.append(table, frame, writer="test", number=self.number)


def decision_frame(rows: Iterable[D]) -> pl.DataFrame:
    rows = list(rows)
    return pl.DataFrame(
        {
            "id": pl.Series([d.id for d in rows], dtype=pl.String),
            "time": pl.Series([d.time for d in rows], dtype=pl.Int64).cast(TIME),
            "action": [d.action if d.fits else "gone" for d in rows],
            "propensity": [d.propensity for d in rows],
            "policy": pl.Series([d.policy for d in rows], dtype=pl.Int64),
            "eligible": pl.Series([d.eligible for d in rows], dtype=pl.List(pl.String)),
            "unit": pl.Series([d.unit for d in rows], dtype=pl.String),
            "arm": pl.Series([d.arm for d in rows], dtype=pl.String),
            "mode": pl.Series([d.mode for d in rows], dtype=pl.String),
            "problem": ["hash"] * len(rows),
            "context_x": [d.x for d in rows],
            "context_c": ["a"] * len(rows),
            "context_b": pl.Series([None] * len(rows), dtype=pl.Boolean),
        }
    )


def reward_frame(rows: Iterable[R]) -> pl.DataFrame:
    rows = list(rows)
    return pl.DataFrame(
        {
            "id": pl.Series([r.id for r in rows], dtype=pl.String),
            "time": pl.Series([r.time for r in rows], dtype=pl.Int64).cast(TIME),
            "reward": pl.Series([r.reward for r in rows], dtype=pl.Float64),
            "key": pl.Series([r.key for r in rows], dtype=pl.String),
            "metrics": pl.Series([_metrics(r) for r in rows], dtype=METRICS),
        }
    )


def _metrics(reward: R) -> list[dict[str, Any]] | None:
    return [{"name": name, "value": value} for name, value in reward.metrics] or None


def counts(report: JoinReport) -> dict[str, Any]:
    """A report in the oracle's terms."""
    if report.cut is None:
        return {"cut": None, "pending": report.pending}
    names = ("cut", "pending", "decisions", "rewarded", "defaulted", "duplicates", "conflicting", "ambiguous", "unfit")
    rewards = {name: getattr(report.rewards, name) for name in ("matched", "late", "too_late", "orphans")}
    rewards["reward_duplicates"] = report.rewards.duplicates
    rewards["reward_conflicting"] = report.rewards.conflicting
    return {name: getattr(report, name) for name in names} | rewards


def _split(rows: list[Any], files: int) -> list[list[Any]]:
    return [part for part in (rows[i::files] for i in range(files)) if part]
