"""A fixed list of actions, by name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from potstill.errors import InvalidProblem, check_distinct, check_name, shown
from potstill.spaces.contract import Actions, Float32
from potstill.spaces.discrete.distances import check_distances, check_positions
from potstill.spaces.named import NamedActions, check_retired


class Discrete(NamedActions, frozen=True, tag_field="type", tag="discrete"):
    """A fixed list of actions, by name. Arrays over actions follow the order of the list.

    Args:
        names: Names of the actions.
        positions: Position of each action on a line, such as the bitrate that it names. Imitation is then also measured
            by how far it moves actions, and `Student(distance="wasserstein")` minimises that.
        distances: The same for actions that are not on a line: a symmetric matrix of distances.
        retired: Actions that are no longer chosen, while what was observed of them still teaches. One is chosen only
            where a request allows no other.
    """

    names: Sequence[str]
    positions: Sequence[float] | None = None
    distances: Sequence[Sequence[float]] | None = None
    retired: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.names, str) or not isinstance(self.names, (list, tuple)) or len(self.names) < 2:
            raise InvalidProblem(f"actions must be a list of at least two names, got {shown(self.names)}")
        msgspec.structs.force_setattr(self, "names", tuple(self.names))
        for name in self.names:
            check_name(name, "an action's name")
        check_distinct(self.names, "action")
        if self.positions is not None and self.distances is not None:
            raise InvalidProblem("state positions or distances of actions, not both")
        if self.positions is not None:
            msgspec.structs.force_setattr(self, "positions", check_positions(self.positions, self.names))
        if self.distances is not None:
            msgspec.structs.force_setattr(self, "distances", check_distances(self.distances, self.names))
        msgspec.structs.force_setattr(self, "retired", check_retired(self.retired, self.names))

    @property
    def format(self) -> int:
        """The lowest format of policy files that can state this list."""
        return 3 if self.retired else 1

    def embed(self, actions: Actions) -> Float32:
        """One-hot, float32[N, K]: names carry no information about similarity."""
        return np.eye(len(self.names), dtype=np.float32)[actions]
