"""A fixed list of actions, by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.decode import unknown_name
from potstill.errors import InvalidAction, InvalidProblem, check_distinct, check_name, shown
from potstill.spaces.contract import Actions, Bool, ColumnType, Float32, WireTypes
from potstill.spaces.discrete.distances import check_distances, check_positions
from potstill.spaces.discrete.head import SoftmaxHead


class Discrete(msgspec.Struct, frozen=True, dict=True, omit_defaults=True, tag_field="type", tag="discrete"):
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

    measure: ClassVar[Literal["counting"]] = "counting"
    columns: ClassVar[Mapping[str, ColumnType]] = {"action": "string", "eligible": "strings"}

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

    def __len__(self) -> int:
        return len(self.names)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names."""
        return tuple(self.names)

    @property
    def examples(self) -> Sequence[str]:
        """The first two names that are not retired."""
        return self.available[:2]

    @property
    def format(self) -> int:
        """The lowest format of policy files that can state this list."""
        return 3 if self.retired else 1

    @cached_property
    def available(self) -> tuple[str, ...]:
        """The names that are not retired, in the order of the list."""
        return tuple(name for name in self.names if name not in self.retired)

    @cached_property
    def chosen(self) -> Bool:
        """Whether each action is chosen, bool[K]: false where it is retired."""
        return np.array([name not in self.retired for name in self.names])

    def narrow(self, allowed: Bool | None, rows: int) -> Bool | None:
        """What a policy chooses from, bool[N, K], where a request allows `allowed`, bool[K] or bool[N, K].

        The allowed actions without retired ones; all allowed ones where only retired ones are allowed.
        """
        if not self.retired:
            return allowed
        asked = np.broadcast_to(True if allowed is None else allowed, (rows, len(self.names)))
        left = asked & self.chosen
        return np.where(left.any(axis=1, keepdims=True), left, asked)

    def narrow_names(self, eligible: Sequence[str] | None) -> Sequence[str] | None:
        """The same for the names that one request allows."""
        if not self.retired:
            return eligible
        if eligible is None:
            return self.available
        return [name for name in eligible if name not in self.retired] or eligible

    @cached_property
    def wire(self) -> WireTypes:
        """One of the names; a list of one or more of them."""
        action: Any = Literal[tuple(self.names)]
        return WireTypes(action, Annotated[tuple[action, ...], msgspec.Meta(min_length=1, max_length=len(self))])

    def parse(self, value: object) -> str:
        """A name of the list, as a plain string."""
        try:
            return self.names[self._positions[value]]  # type: ignore[index]
        except (KeyError, TypeError):
            raise self._unknown(value) from None

    def index(self, name: object) -> int:
        """The position of an action."""
        try:
            return self._positions[name]  # type: ignore[index]
        except (KeyError, TypeError):
            raise self._unknown(name) from None

    def encode(self, values: Sequence[Any]) -> NDArray[np.int32]:
        """Positions int32[N]."""
        positions = np.empty(len(values), np.int32)
        for i, name in enumerate(values):
            try:
                positions[i] = self.index(name)
            except InvalidAction as error:
                raise InvalidAction(f"row {i}: {error}") from None
        return positions

    def decode(self, actions: Actions) -> list[str]:
        """The names at these positions."""
        names = self.names
        return [names[place] for place in actions.tolist()]

    def valid(self, actions: Actions) -> Bool:
        """Positions from 0 to K - 1."""
        known: Bool = (actions >= 0) & (actions < len(self.names))
        return known

    def features(self, actions: Actions) -> Float32:
        """One-hot, float32[N, K]: names carry no information about similarity."""
        return np.eye(len(self.names), dtype=np.float32)[actions]

    def restrict(self, eligible: object) -> EligibleNames:
        """The eligible names; at least one, each known."""
        if isinstance(eligible, str) or not isinstance(eligible, Iterable):
            raise InvalidAction(f"eligible must be a list of action names, got {shown(eligible)}")
        names = tuple(map(self.parse, eligible))
        if not names:
            raise InvalidAction("eligible is empty; name at least one action, or leave it out to allow all")
        return EligibleNames(names, self)

    def allow(self, eligible: Sequence[Sequence[str] | None]) -> Bool | None:
        """The eligible actions of each row, bool[N, K]; None allows all."""
        if not any(each is not None for each in eligible):
            return None
        allowed, positions = np.zeros((len(eligible), len(self.names)), bool), self._positions
        try:
            for row, names in zip(allowed, eligible, strict=True):
                row[slice(None) if names is None else [positions[name] for name in names]] = True
        except (KeyError, TypeError):  # Slow path, to name the unknown action: the service runs this for every batch.
            for names in eligible:
                _ = names is None or [self.index(name) for name in names]
            raise
        return allowed

    def head(self) -> SoftmaxHead:
        """A score for each action."""
        return SoftmaxHead(len(self.names))

    def _unknown(self, value: object) -> InvalidAction:
        return InvalidAction(f"unknown action {shown(value)}; the actions are {', '.join(self.names)}")

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}


def check_retired(retired: object, names: Sequence[str]) -> tuple[str, ...]:
    """Retired actions as a tuple; `InvalidProblem` if they are not names of the list, or leave fewer than two."""
    if isinstance(retired, str) or not isinstance(retired, (list, tuple)):
        raise InvalidProblem(f"retired must be a list of actions, got {shown(retired)}")
    for name in retired:
        if name not in names:
            raise InvalidProblem(f"retired: {unknown_name('action', name, names)}")
    check_distinct(tuple(retired), "retired action")
    if retired and len(names) - len(retired) < 2:
        raise InvalidProblem(
            f"retired leaves fewer than two of the actions {', '.join(names)}; leave two or more that can be chosen"
        )
    return tuple(retired)


class EligibleNames(msgspec.Struct, frozen=True):
    """A subset of the actions.

    Attributes:
        value: Names of the allowed actions, in the order given.
    """

    value: tuple[str, ...]
    space: Discrete

    @property
    def allowed(self) -> Bool:
        """The allowed actions as bool[1, K]."""
        mask = np.zeros((1, len(self.space)), bool)
        mask[0, [self.space.index(name) for name in self.value]] = True
        return mask

    def permits(self, action: str) -> bool:
        """Whether the name is among them."""
        return action in self.value

    def first(self) -> str:
        """The name stated first."""
        return self.value[0]
