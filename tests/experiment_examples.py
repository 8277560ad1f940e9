"""Simulated experiments: returning units with individual reward rates, in two arms."""

from typing import NamedTuple

import numpy as np
import polars as pl

from potstill.events.lake.schema import METRICS
from potstill.experiments.analysis.units import Before, Units
from potstill.tables import TIME
from potstill.workspace import Workspace, template

DAY = 86_400_000_000
#: 2026-11-16, a Monday.
START = 20_773 * DAY

CONFIG = """
[experiment]
name = "hd-first"
control = { action = "360p" }
share = 0.5
start = 2026-11-16T00:00:00Z
metrics = ["watched"]
"""


class World(NamedTuple):
    """Parameters of a simulated experiment.

    Attributes:
        units: Number of units.
        effect: Effect of treatment on the reward of each decision.
        share: Share of units in treatment.
        days: Days of the experiment; the data also covers as many days before it.
        each_day: Mean number of decisions per unit and day.
        returning: Share of units present from the beginning; others start on a random day.
    """

    units: int = 1000
    effect: float = 0.0
    share: float = 0.5
    days: int = 7
    each_day: float = 0.6
    returning: float = 0.7


def log(world: World, seed: int = 0) -> pl.DataFrame:
    """Observations of a simulated experiment, and of an equally long period before it."""
    rng = np.random.default_rng(seed)
    habits, treated = rng.beta(2, 3, world.units), rng.random(world.units) < world.share
    begins = np.where(rng.random(world.units) < world.returning, -world.days, rng.integers(0, world.days, world.units))
    counts = rng.poisson(world.each_day * (world.days - begins))
    who = np.repeat(np.arange(world.units), counts)
    times = START + (begins[who] * DAY + rng.random(len(who)) * (world.days - begins[who]) * DAY).astype(np.int64)
    inside = times >= START
    reward = (rng.random(len(who)) < habits[who] + world.effect * (treated[who] & inside)).astype(np.float64)
    watched = np.round(reward * rng.gamma(4, 15, len(who)), 3)
    arms = np.where(treated[who], "hd-first:treatment", "hd-first:control")
    connections = np.array(["2g", "3g", "4g", "wifi"])[who % 4]
    return pl.DataFrame(
        {
            "id": [f"d{i}" for i in range(len(who))],
            "time": pl.Series(times).cast(TIME),
            "action": np.where(treated[who] & inside, "720p", "360p"),
            "propensity": np.ones(len(who)),
            "policy": np.ones(len(who), np.int64),
            "unit": [f"user-{i}" for i in who],
            "arm": pl.Series(arms).set(pl.Series(~inside), None),
            "reward": reward,
            "rewarded": np.ones(len(who), bool),
            "metrics": pl.Series([[{"name": "watched", "value": value}] for value in watched], dtype=METRICS),
            "context_connection": connections,
            "context_bandwidth_kbps": rng.gamma(2, 2000, len(who)),
            "context_hd_screen": np.ones(len(who), bool),
        }
    ).sort("time")


def workspace(place, frame: pl.DataFrame | None = None, config: str = CONFIG) -> Workspace:
    """A workspace with an experiment, and its observations."""
    made = Workspace.create(place, template.PROBLEM.encode(), (template.CONFIG + config).encode())
    if frame is not None:
        made.lake.append("observations", frame.with_columns(problem=pl.lit(made.problem.hash)), writer="t", number=1)
    return made


def units(n: int, rng: np.random.Generator, effect: float = 0.0, share: float = 0.5, past: bool = False) -> Units:
    """Units with Poisson rewards at individual rates, including heavy users."""
    treated, rate = rng.random(n) < share, rng.gamma(2, 0.2, n)
    decisions = 1.0 + rng.poisson(rng.gamma(1, 3, n))
    reward = rng.poisson((rate + effect * treated) * decisions).astype(np.float64)
    earlier = rng.poisson(3, n)
    before = Before(earlier.astype(np.float64), {"reward": rng.poisson(rate * earlier).astype(np.float64)})
    return Units(treated=treated, decisions=decisions, outcomes={"reward": reward}, before=before if past else None)
