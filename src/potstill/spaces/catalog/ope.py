"""Off-policy evaluation on a catalogue: one reward model for all items, by their features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from potstill.spaces.catalog.space import Catalog
from potstill.spaces.contract import Float32, Float64, LoggedRows
from potstill.spaces.finite_ope import FiniteOffPolicy
from potstill.spaces.ope import SharedRidge
from potstill.spaces.ope import off_policy as general


@dataclass(frozen=True, eq=False)
class CatalogRidge:
    """A shared regression on context, item features and their products, evaluated for all items at once.

    Attributes:
        shared: The regression.
        items: Encoded features of all items, float64[K, e].
    """

    shared: SharedRidge
    items: Float64

    def predict(self, contexts: Float32, fold: int) -> Float64:
        """Rewards of all items, float64[n, K]."""
        ridge, e = self.shared.ridge, self.items.shape[1]
        x, weights = contexts.astype(np.float64), ridge.weights[fold][:, 0]
        d = x.shape[1]
        of_context, of_item, of_both = np.split(weights, [d, d + e])
        by_item = of_item + x @ of_both.reshape(d, e)
        found: Float64 = ridge.constants[fold, 0] + (x @ of_context)[:, None] + by_item @ self.items.T
        return found


class CatalogOffPolicy(FiniteOffPolicy):
    """Distributions over items as those of a list; an item without rows is predicted from those like it."""

    def __init__(self, space: Catalog) -> None:
        super().__init__(space)
        self._general, self._catalog = general(space), space

    def columns(self, width: int) -> int:
        """One number per item, or inputs of the reward model."""
        return max(super().columns(width), self._general.columns(width))

    def fit(  # type: ignore[override]
        self, rows: Iterable[tuple[int, LoggedRows]], penalties: Sequence[float], prior: float
    ) -> CatalogRidge:
        """One ridge regression for all items."""
        return CatalogRidge(self._general.fit(rows, penalties, prior), self._catalog.encoded.astype(np.float64))


def off_policy(space: Catalog) -> CatalogOffPolicy:
    """Off-policy evaluation on a catalogue."""
    return CatalogOffPolicy(space)
