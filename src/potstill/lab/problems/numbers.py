"""Problems whose action is a number: prices, bids, and any column of a table as a dose."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from potstill.lab.problems.environment import Columns, Float32, Float64
from potstill.lab.problems.table import TableProblem, known_targets
from potstill.problem import Boolean, Categorical, Continuous, Feature, Numeric, Problem, Reward
from potstill.tables import features_of

#: Grid on which the best price or bid is searched: finer than anything that a policy resolves.
_GRID = 2_000


class Pricing(msgspec.Struct, frozen=True):
    """Quote a price to a visitor who buys or not. The reward is the revenue, price times sold.

    A visitor buys with probability sigmoid((worth - price) / spread), where worth and spread depend on the context. The
    best price differs between visitors by a factor of about four.
    """

    @property
    def problem(self) -> Problem:
        """The problem."""
        return Problem(
            name="pricing",
            context=[
                Numeric("visits", low=0, high=20),
                Numeric("basket", low=0, high=200),
                Categorical("segment", ["student", "family", "business"]),
                Boolean("weekend"),
            ],
            actions=Continuous("price", 1, 40),
            reward=Reward(low=0.0, high=40.0),
        )

    def contexts(self, n: int, rng: np.random.Generator) -> Columns:
        """Visitors."""
        return {
            "visits": np.minimum(rng.poisson(4, n), 20).astype(np.float64),
            "basket": np.minimum(rng.gamma(2.0, 30.0, n), 200.0),
            "segment": rng.choice(np.array(["student", "family", "business"]), n, p=[0.4, 0.4, 0.2]),
            "weekend": rng.random(n) < 2 / 7,
        }

    def encode(self, contexts: Columns) -> Float32:
        """Encoded contexts, float32[N, d]."""
        return self.problem.encode_many(contexts)

    def rewards(self, contexts: Columns, actions: NDArray[Any], rng: np.random.Generator) -> Float64:
        """The price where the visitor buys, else 0."""
        sold = rng.random(len(actions)) < self._demand(contexts, actions)
        return np.where(sold, actions, 0.0)

    def regrets(self, contexts: Columns, actions: NDArray[Any]) -> Float64:
        """Expected revenue below that of the best price."""
        grid = np.linspace(1, 40, _GRID)
        best = (grid * self._demand(contexts, grid[None])).max(axis=1)
        regret: Float64 = best - actions * self._demand(contexts, actions)
        return np.maximum(regret, 0.0)

    def _demand(self, contexts: Columns, price: NDArray[Any]) -> Float64:
        """The probability of a sale; prices [N], or [1, G] for a grid in every context."""
        segment = contexts["segment"]
        base = np.select([segment == "student", segment == "family"], [6.0, 11.0], 22.0)
        worth = base + 0.06 * contexts["basket"] + 2.0 * np.sqrt(contexts["visits"]) - 3.0 * contexts["weekend"]
        spread = np.where(segment == "business", 4.0, 2.0)
        if price.ndim == 2:
            worth, spread = worth[:, None], spread[:, None]
        demand: Float64 = 1 / (1 + np.exp((price - worth) / spread))
        return demand


class Bidding(msgspec.Struct, frozen=True):
    """Bid in a first-price auction. The reward of a won auction is its value less the bid; of a lost one 0.

    The highest competing bid is log-normal with a median that depends on the context. The value is known up to noise,
    from what the context says.
    """

    @property
    def problem(self) -> Problem:
        """The problem."""
        return Problem(
            name="bidding",
            context=[
                Numeric("value", low=0.1, high=10, scale="log"),
                Numeric("hour", low=0, high=24),
                Categorical("site", ["news", "video", "games", "mail"]),
                Boolean("mobile"),
            ],
            actions=Continuous("bid", 0.05, 10, "log"),
            reward=Reward(low=-20.0, high=20.0),
        )

    def contexts(self, n: int, rng: np.random.Generator) -> Columns:
        """Auctions."""
        return {
            "value": np.exp(rng.normal(0.3, 0.7, n)).clip(0.1, 10.0),
            "hour": rng.random(n) * 24,
            "site": rng.choice(np.array(["news", "video", "games", "mail"]), n),
            "mobile": rng.random(n) < 0.6,
        }

    def encode(self, contexts: Columns) -> Float32:
        """Encoded contexts, float32[N, d]."""
        return self.problem.encode_many(contexts)

    def rewards(self, contexts: Columns, actions: NDArray[Any], rng: np.random.Generator) -> Float64:
        """Value less bid where the bid wins."""
        noise, chance = np.exp(0.3 * rng.standard_normal(len(actions)) - 0.045), rng.random(len(actions))
        won = chance < self._winning(contexts, actions)
        return np.where(won, contexts["value"] * noise - actions, 0.0).clip(-20, 20)

    def regrets(self, contexts: Columns, actions: NDArray[Any]) -> Float64:
        """Expected profit below that of the best bid."""
        grid = np.geomspace(0.05, 10, _GRID)
        best = ((contexts["value"][:, None] - grid) * self._winning(contexts, grid[None])).max(axis=1)
        regret: Float64 = best - (contexts["value"] - actions) * self._winning(contexts, actions)
        return np.maximum(regret, 0.0)

    def _winning(self, contexts: Columns, bid: NDArray[Any]) -> Float64:
        """The probability of winning, logistic in the log of the bid; bids [N], or [1, G] for a grid everywhere."""
        site = contexts["site"]
        median = np.select([site == "news", site == "video", site == "games"], [0.4, 1.0, 0.25], 0.6)
        median = (
            median * (1 + 0.5 * np.cos((contexts["hour"] - 20) * np.pi / 12)) * np.where(contexts["mobile"], 0.8, 1.2)
        )
        if bid.ndim == 2:
            median = median[:, None]
        chance: Float64 = 1 / (1 + (median / bid) ** 3)
        return chance


class TableDose(TableProblem):
    """Choose a number: the reward falls with its distance to the right amount of each row.

    An action a earns 1 - |a - amount| / (high - low), with the amount clipped to the range, so that rewards lie in
    [0, 1] and have no noise.

    Args:
        table: The rows.
        dose: Column of the right amount, numbers; rows without one are left out.
        low: Smallest action; the smallest amount by default.
        high: Largest action; the largest amount by default.
        features: Columns of the context, by name or as a `Feature`; all but the dose by default.
        without: Columns to leave out of the context.
        name: Name of the problem.
        resample: Draw rows with replacement; if not, a trial uses each row at most once.
    """

    def __init__(
        self,
        table: pl.DataFrame,
        *,
        dose: str,
        low: float | None = None,
        high: float | None = None,
        features: Sequence[str | Feature] | None = None,
        without: Collection[str] = (),
        name: str = "dose",
        resample: bool = True,
    ) -> None:
        known, amounts = known_targets(table, dose)
        space = Continuous(
            dose, float(amounts.min() if low is None else low), float(amounts.max() if high is None else high)
        )
        problem = Problem(
            name=name,
            context=features_of(known, features, target=dose, without=without),
            actions=space,
            reward=Reward(low=0.0, high=1.0),
        )
        super().__init__(known, problem, dropped=len(table) - len(known), resample=resample)
        self._range, self._amounts = space.high - space.low, amounts.clip(space.low, space.high)

    def rewards(self, contexts: Columns, actions: NDArray[Any], rng: np.random.Generator) -> Float64:  # noqa: ARG002
        """Reward of each number, without noise."""
        return np.asarray(1 - self.regrets(contexts, actions)).clip(0, 1)

    def regrets(self, contexts: Columns, actions: NDArray[Any]) -> Float64:
        """Distance to the right amount, as a share of the range."""
        distance: Float64 = np.abs(actions - self._amounts[contexts["row"]]) / self._range
        return distance
