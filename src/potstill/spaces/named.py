"""Actions with names, in a list: what `Discrete` and `Catalog` share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.decode import unknown_name
from potstill.errors import InvalidAction, InvalidProblem, check_distinct, shown
from potstill.spaces.contract import Actions, Bool, ColumnType, WireTypes
from potstill.spaces.softmax import SoftmaxHead

#: Names that a message lists at most.
_LISTED = 50


class NamedActions(msgspec.Struct, frozen=True, dict=True, omit_defaults=True):
    """Actions with names, in a list. Arrays over actions follow its order; encoded actions are positions.

    A subclass has `names` and `retired`, each a tuple, and `embed`.
    """

    measure: ClassVar[Literal["counting"]] = "counting"
    columns: ClassVar[Mapping[str, ColumnType]] = {"action": "string", "eligible": "strings"}

    @property
    def names(self) -> Sequence[str]:
        """Names of the actions."""
        raise NotImplementedError

    @property
    def retired(self) -> Sequence[str]:
        """Actions that are no longer chosen."""
        raise NotImplementedError

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

    @cached_property
    def available(self) -> tuple[str, ...]:
        """The names that are not retired, in the order of the list."""
        retired = set(self.retired)
        return tuple(name for name in self.names if name not in retired)

    @cached_property
    def chosen(self) -> Bool:
        """Whether each action is chosen, bool[K]: false where it is retired."""
        retired = set(self.retired)
        return np.array([name not in retired for name in self.names])

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
        return named_types(Literal[tuple(self.names)], len(self))

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
        more = f" and {len(self.names) - _LISTED:,} more" if len(self.names) > _LISTED else ""
        listed = ", ".join(self.names[:_LISTED])
        return InvalidAction(f"unknown action {shown(value)}; the actions are {listed}{more}")

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.names)}


def named_types(action: Any, most: int) -> WireTypes:
    """Wire types of names: an action, and a list of one or more of them."""
    return WireTypes(action, Annotated[tuple[action, ...], msgspec.Meta(min_length=1, max_length=most)])


def check_retired(retired: object, names: Sequence[str]) -> tuple[str, ...]:
    """Retired actions as a tuple; `InvalidProblem` if they are not names of the list, or leave fewer than two."""
    if isinstance(retired, str) or not isinstance(retired, (list, tuple)):
        raise InvalidProblem(f"retired must be a list of actions, got {shown(retired)}")
    known = set(names) if retired else ()
    for name in retired:
        if name not in known:
            raise InvalidProblem(f"retired: {unknown_name('action', name, names[:_LISTED])}")
    check_distinct(tuple(retired), "retired action")
    if retired and len(names) - len(retired) < 2:
        listed = ", ".join(names) if len(names) <= _LISTED else f"{', '.join(names[:_LISTED])} …"
        raise InvalidProblem(
            f"retired leaves fewer than two of the actions {listed}; leave two or more that can be chosen"
        )
    return tuple(retired)


class EligibleNames(msgspec.Struct, frozen=True):
    """A subset of the actions.

    Attributes:
        value: Names of the allowed actions, in the order given.
    """

    value: tuple[str, ...]
    space: NamedActions

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
