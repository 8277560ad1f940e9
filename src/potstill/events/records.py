"""Events: decisions, rewards and observations, as callers hand them in and as the log stores them.

`DecisionRow` lists the fields of a decision. The log writes them in this order, `DecisionBlock` has the same ones by
column, and the lake's columns and frames follow from the `Column` beside each field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import repeat, starmap
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_type_hints

import msgspec

from potstill.policy import Decision
from potstill.spaces import ColumnType

#: Why an action was taken that the policy did not draw. ``apprentice``: the caller's own choice, logged with the
#: policy's probability of it. The others are fixed actions with propensity 1: ``log-only``, the policy does not decide
#: yet; ``fallback``, it could not; ``control``, the control arm of an experiment; ``design``, the initial design.
Mode = Literal["apprentice", "log-only", "fallback", "control", "design"]
#: An action or a restriction as the action space's wire types have it.
Value = bool | int | float | str | tuple[Any, ...] | dict[str, Any]
FeatureValue = float | str | bool | tuple[float, ...] | None


class LoggedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision as it was taken.

    Attributes:
        id: Name of the decision; its rewards carry the same id.
        context: Feature names and values, as they were sent.
        action: The action that was taken.
        propensity: The exact probability, or density, with which it was taken.
        policy: Version of the policy that decided.
        eligible: The actions that were allowed, if not all of them were.
        floor: The smallest propensity that was asked for, if it was not the policy's own.
        unit: Whom or what it was decided for, such as a user; experiments randomise it.
        mode: None if the policy drew the action; otherwise why it was taken, see `Mode`.
        arm: Arm of an experiment, ``NAME:control`` or ``NAME:treatment``; None outside of experiments.
        would: In mode ``apprentice``, the action that the policy would have drawn.
        own_propensity: In mode ``apprentice``, the probability or density with which the caller chose the action, if
            the caller stated it. Off-policy evaluation then uses the decision.
        time: Microseconds since 1970, UTC; the time of logging if left out.
    """

    id: str
    context: Mapping[str, Any]
    action: Any
    propensity: float
    policy: int
    eligible: Any = None
    floor: float | None = None
    unit: str | None = None
    mode: Mode | None = None
    arm: str | None = None
    would: Any = None
    own_propensity: float | None = None
    time: int | None = None

    @classmethod
    def of(
        cls, decision: Decision, context: Mapping[str, Any], time: int | None = None, unit: str | None = None
    ) -> LoggedDecision:
        """What `Policy.decide` returned for a context."""
        return cls(context=context, unit=unit, time=time, **msgspec.structs.asdict(decision))


class LoggedReward(msgspec.Struct, frozen=True, kw_only=True):
    """A reward, some time after its decision.

    Attributes:
        id: Id of the decision.
        reward: A finite number.
        key: Name of the reward among those of one decision; a second one with the same key is a retry and counts once.
            Without a key, rewards that state the same time and value are one; those without a time are all counted.
        metrics: Other outcomes that experiments report, finite numbers by name; policies do not learn from them.
        time: Microseconds since 1970, UTC; the time of logging if left out.
    """

    id: str
    reward: float
    key: str | None = None
    metrics: Mapping[str, float] | None = None
    time: int | None = None


class LoggedObservation(msgspec.Struct, frozen=True, kw_only=True):
    """A decision together with its reward, from a device that queued them until it could send them.

    Attributes:
        decision: The decision; it must state its time.
        reward: A finite number, or None if there was none.
        reward_time: Microseconds since 1970, UTC; the time of the decision if left out.
        metrics: Metrics of the reward, as in `LoggedReward`.
    """

    decision: LoggedDecision
    reward: float | None = None
    reward_time: int | None = None
    metrics: Mapping[str, float] | None = None


Event = LoggedDecision | LoggedReward | LoggedObservation


class Column(NamedTuple):
    """How the lake stores a field of a decision.

    Attributes:
        type: Type of the column; ``action`` and ``eligible`` have those that the action space states.
        observed: Whether the table of observations has the column too.
    """

    type: ColumnType | Literal["time", "action", "eligible"]
    observed: bool = True


class DecisionRow(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="d"):
    """A decision as the log stores it: with its time, and the context's values in the problem's feature order.

    Fields that were added later are last and have defaults, since older segments lack them.
    """

    id: Annotated[str, Column("string")]
    time: Annotated[int, Column("time")]
    action: Annotated[Value, Column("action")]
    propensity: Annotated[float, Column("number")]
    policy: Annotated[int, Column("integer")]
    eligible: Annotated[Value | None, Column("eligible")]
    floor: Annotated[float | None, Column("number", observed=False)]
    unit: Annotated[str | None, Column("string")]
    mode: Annotated[str | None, Column("string", observed=False)]
    values: tuple[FeatureValue, ...]  # the lake has a column for each feature instead
    arm: Annotated[str | None, Column("string")] = None
    would: Annotated[Value | None, Column("action")] = None
    own_propensity: Annotated[float | None, Column("number")] = None


class DecisionBlock(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="b"):
    """Decisions that were taken together, by column: a fraction of the bytes and time of as many rows.

    Fields are those of `DecisionRow`, in its order. A list has one item per decision; what is no list holds for all.
    """

    id: list[str]
    time: int
    action: list[Value]
    propensity: list[float]
    policy: int
    eligible: list[Value | None] | None
    floor: float | None
    unit: list[str | None] | None
    mode: str | None
    values: list[tuple[FeatureValue, ...]]
    arm: list[str | None] | None = None
    would: list[Value | None] | None = None
    own_propensity: list[float | None] | None = None

    def __len__(self) -> int:
        return len(self.id)

    def rows(self) -> Iterator[DecisionRow]:
        """The decisions one by one; ValueError if the columns differ in length."""
        columns = [
            value if isinstance(value, list) else repeat(value, len(self)) for value in msgspec.structs.astuple(self)
        ]
        return starmap(DecisionRow, zip(*columns, strict=True))

    def halves(self) -> tuple[DecisionBlock, DecisionBlock]:
        """The same decisions as two blocks."""
        middle = len(self) // 2
        return self._slice(slice(middle)), self._slice(slice(middle, None))

    def _slice(self, places: slice) -> DecisionBlock:
        columns: dict[str, Any] = msgspec.structs.asdict(self)
        parts = {name: value[places] for name, value in columns.items() if isinstance(value, list)}
        return msgspec.structs.replace(self, **parts)


class RewardRow(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="r"):
    """A `LoggedReward` as the log stores it: with its time."""

    id: str
    time: int
    reward: float
    key: str | None
    metrics: dict[str, float] | None = None


class ObservationRow(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="o"):
    """A `LoggedObservation` as the log stores it; without a reward, `reward_time` is the decision's."""

    decision: DecisionRow
    reward: float | None
    reward_time: int
    metrics: dict[str, float] | None = None


Row = DecisionRow | RewardRow | ObservationRow


def _columns() -> Iterator[tuple[str, Column]]:
    for name, annotation in get_type_hints(DecisionRow, include_extras=True).items():
        yield from ((name, column) for column in get_args(annotation) if isinstance(column, Column))


#: Columns of the lake that hold fields of a decision, in their order.
DECISION_COLUMNS: Mapping[str, Column] = dict(_columns())


def microseconds(moment: datetime) -> int:
    """A moment with a time zone as microseconds since 1970, UTC."""
    if moment.tzinfo is None:
        raise ValueError(f"a time needs a time zone, got {moment!r}; datetime.now(UTC) has one")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
