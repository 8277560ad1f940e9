"""Action spaces: what can be chosen."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidContext, InvalidProblem, check_distinct, check_name, shown


class Discrete(msgspec.Struct, frozen=True, dict=True, omit_defaults=True, tag_field="type", tag="discrete"):
    """A fixed list of actions, by name. Arrays over actions follow the order of the list."""

    names: Sequence[str]

    def __post_init__(self) -> None:
        if isinstance(self.names, str) or not isinstance(self.names, (list, tuple)) or len(self.names) < 2:
            raise InvalidProblem(f"actions must be a list of at least two names, got {shown(self.names)}")
        msgspec.structs.force_setattr(self, "names", tuple(self.names))
        for name in self.names:
            check_name(name, "an action's name")
        check_distinct(self.names, "action")

    def __len__(self) -> int:
        return len(self.names)

    def index(self, name: object) -> int:
        """The position of an action."""
        try:
            return self._positions[name]  # type: ignore[index]
        except (KeyError, TypeError):
            raise InvalidContext(f"unknown action {shown(name)}; the actions are {', '.join(self.names)}") from None

    def mask(self, eligible: Sequence[str]) -> NDArray[np.bool_]:
        """The eligible actions as bool[K]; at least one, each known."""
        if isinstance(eligible, str):
            raise InvalidContext(f"eligible must be a list of action names, got {shown(eligible)}")
        mask = np.zeros(len(self), bool)
        for name in eligible:
            mask[self.index(name)] = True
        if not mask.any():
            raise InvalidContext("eligible is empty; name at least one action, or leave it out to allow all")
        return mask

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}


ActionSpace = Discrete
