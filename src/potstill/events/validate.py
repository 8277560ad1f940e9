"""Events as the bytes of the log; an event that does not fit the problem is refused before anything is written.

The rule is that of `Problem.encode` and `potstill.problem.validate`, so that every logged event can be learnt from.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args

import msgspec
import numpy as np

from potstill.clock import now
from potstill.errors import InvalidAction, PotstillError, shown
from potstill.events.records import (
    DecisionRow,
    Event,
    LoggedDecision,
    LoggedObservation,
    LoggedReward,
    Mode,
    ObservationRow,
    RewardRow,
)
from potstill.events.reward_keys import generated_key
from potstill.problem import (
    FIRST_SECOND,
    LARGEST,
    LARGEST_FLOAT32,
    LAST_SECOND,
    MOST_METRICS,
    PER_SECOND,
    RFC_3339,
    YEAR_2200,
    Feature,
    Holds,
    InvalidContext,
    InvalidProblem,
    Problem,
    can_be_field,
    propensity_must_be,
    propensity_range,
    reward_must_be,
    reward_range,
)
from potstill.spaces import ActionSpace, FiniteSpace

ID_BYTES = 1_000
EVENT_BYTES = 1024 * 1024
#: A whole text of RFC 3339: `$` alone also matches before a newline at the end.
TIME_PATTERN = rf"^(?:{RFC_3339})$(?!\n)"
VERSIONS = 2**63  # policy versions are 64-bit integers in the tables
_Finite = Annotated[float, msgspec.Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
_Float32 = Annotated[float, msgspec.Meta(ge=-LARGEST_FLOAT32, le=LARGEST_FLOAT32)]
_REAL = (int, float, np.integer, np.floating)
_MODES: tuple[str, ...] = get_args(Mode)


def check_names(problem: Problem) -> None:
    """Refuse features whose names differ only in case: columns of a Delta table are case-insensitive."""
    seen: dict[str, str] = {}
    for feature in problem.context:
        other = seen.setdefault(feature.name.lower(), feature.name)
        if other != feature.name:
            raise InvalidProblem(
                f"features {other!r} and {feature.name!r} differ only in upper and lower case, "
                "and columns of a Delta table must not; rename one of them in the problem"
            )


def _check_fields(problem: Problem) -> None:
    for feature in problem.context:
        if not can_be_field(feature.name):
            raise InvalidProblem(
                f"feature {feature.name!r} cannot be logged or asked for: its name has a quotation mark, a backslash "
                "or a control character; rename it in the problem"
            )


class InvalidEvent(PotstillError, ValueError):
    """An event does not fit the problem; nothing was written."""


class EventValidator:
    """Checks and encodes events of one problem."""

    def __init__(self, problem: Problem) -> None:
        check_names(problem)
        _check_fields(problem)
        self._problem = problem
        self._context_type = context_type(problem.context)
        self._space, self._canonical = problem.actions, _canonical(problem.actions)
        self._low, self._high = reward_range(problem)
        self._whole = problem.reward.whole
        self._above, self._at_most = propensity_range(problem.actions)

    def encode(self, event: Event) -> bytes:
        """An event as the payload of a frame.

        Raises:
            InvalidContext: The context does not fit the problem.
            InvalidEvent: Something else in it does not.
        """
        row: msgspec.Struct
        if isinstance(event, LoggedDecision):
            row = self._decision(event, now() if event.time is None else event.time)
        elif isinstance(event, LoggedReward):
            row = self._reward(event)
        elif isinstance(event, LoggedObservation):
            row = self._observation(event)
        else:
            raise InvalidEvent(f"expected a LoggedDecision, LoggedReward or LoggedObservation, got {shown(event)}")
        return payload(row)

    def _decision(self, event: LoggedDecision, time: int) -> DecisionRow:
        action = self._action(event.action)
        return DecisionRow(
            text(event.id, "id"),
            _time(time, "time"),
            action,
            self._propensity(event.propensity),
            _version(event.policy),
            None if event.eligible is None else self._eligible(event.eligible, action),
            None if event.floor is None else _floor(event.floor),
            None if event.unit is None else text(event.unit, "unit"),
            None if event.mode is None else _mode(event.mode),
            self._values(event.context),
            None if event.arm is None else text(event.arm, "arm"),
            None if event.would is None else self._action(event.would),
            None if event.own_propensity is None else self._propensity(event.own_propensity, "own_propensity"),
        )

    def _reward(self, event: LoggedReward) -> RewardRow:
        time, key = event.time, event.key
        if key is not None:
            key = text(key, "key")
        elif time is None:  # the time of logging tells rewards apart only to the microsecond
            key = generated_key()
        return RewardRow(
            text(event.id, "id"),
            now() if time is None else _time(time, "time"),
            self._amount(event.reward),
            key,
            None if event.metrics is None else _metrics(event.metrics),
        )

    def _observation(self, event: LoggedObservation) -> ObservationRow:
        decision = event.decision
        if not isinstance(decision, LoggedDecision):
            raise InvalidEvent(f"decision must be a LoggedDecision, got {shown(decision)}")
        if decision.time is None:
            raise InvalidEvent(f"observation {shown(decision.id)}: the decision needs its time; set `time`")
        return ObservationRow(
            self._decision(decision, decision.time),
            None if event.reward is None else self._amount(event.reward),
            _time(decision.time if event.reward_time is None else event.reward_time, "reward_time"),
            None if event.metrics is None else self._metrics_of(event),
        )

    def _metrics_of(self, event: LoggedObservation) -> dict[str, float]:
        if event.reward is None:
            raise InvalidEvent(f"observation {shown(event.decision.id)}: metrics need a reward, and there is none")
        return _metrics(event.metrics)

    def _values(self, context: Mapping[str, Any]) -> tuple[Any, ...]:
        """Values of a context in feature order. Plain types, which nearly all contexts have, are checked in C."""
        try:
            return msgspec.structs.astuple(msgspec.convert(context, self._context_type))
        except msgspec.ValidationError:
            return self._values_of_other_types(context)

    def _values_of_other_types(self, context: Mapping[str, Any]) -> tuple[Any, ...]:
        if not isinstance(context, Mapping):
            raise InvalidContext(f"a logged context must be a mapping of feature names to values, got {shown(context)}")
        plain = {_plain(name): _plain(value) for name, value in context.items()}
        try:
            return msgspec.structs.astuple(msgspec.convert(plain, self._context_type))
        except msgspec.ValidationError as error:
            self._problem.encode(context)
            raise InvalidContext(f"context: {error}") from error

    def _action(self, value: Any) -> Any:
        try:
            return self._canonical[value]
        except (KeyError, TypeError):
            pass
        try:
            return self._space.parse(value)
        except InvalidAction as error:
            raise InvalidEvent(str(error)) from None

    def _eligible(self, eligible: Any, action: Any) -> Any:
        try:
            restriction = self._space.restrict(eligible)
        except InvalidAction as error:
            raise InvalidEvent(str(error)) from None
        if not restriction.permits(action):
            raise InvalidEvent(f"eligible must contain the action that was taken, {action!r}, got {shown(eligible)}")
        return restriction.value

    def _propensity(self, value: object, what: str = "propensity") -> float:
        propensity = _number(value, what)
        if not self._above < propensity <= self._at_most:
            raise InvalidEvent(f"{what} must be {propensity_must_be(self._space)}, got {shown(value)}")
        return propensity

    def _amount(self, reward: object) -> float:
        amount = _number(reward, "reward")
        if not self._low <= amount <= self._high or (self._whole and not amount.is_integer()):
            raise InvalidEvent(f"reward must be {reward_must_be(self._problem)}, got {shown(reward)}")
        return amount


def _canonical(space: ActionSpace) -> dict[Any, Any]:
    """Values of a finite space by themselves: looking one up is 0.1 µs faster than parsing it, of 2.3 µs per event."""
    if not isinstance(space, FiniteSpace):
        return {}
    return {value: value for value in space.decode(np.arange(len(space)))}


def payload(row: msgspec.Struct) -> bytes:
    """A row as the payload of a frame; `InvalidEvent` if it is too long, or not Unicode."""
    try:
        encoded = _encode(row)
    except UnicodeEncodeError as error:
        raise InvalidEvent(f"text must be valid Unicode, got {shown(error.object)}: {error.reason}") from None
    if len(encoded) > EVENT_BYTES:
        raise InvalidEvent(f"an event has at most {EVENT_BYTES} bytes, got {len(encoded)}")
    return encoded


def context_type(features: Sequence[Feature], number: Any = _Finite) -> type[msgspec.Struct]:
    """A Struct type with one field for each feature, in order, called as the feature is.

    Args:
        features: Features of the problem.
        number: Type of numbers. `float` is enough for JSON, which has only finite numbers.
    """
    fields: list[Any] = []
    for i, feature in enumerate(features):
        kind = _value_type(feature, number)
        fields.append((f"f{i}", kind | None, None) if feature.optional else (f"f{i}", kind))
    names = {f"f{i}": feature.name for i, feature in enumerate(features)}
    return msgspec.defstruct("Context", fields, kw_only=True, forbid_unknown_fields=True, rename=names, gc=False)


def _value_type(feature: Feature, number: Any) -> Any:
    """Type of a feature's values in requests and logs."""
    if feature.holds == "numbers":  # a tuple, so that rows stay hashable
        return Annotated[tuple[_Float32, ...], msgspec.Meta(min_length=feature.length, max_length=feature.length)]
    if feature.moment is not None:
        return _moment_type(feature.moment)
    if feature.longest is not None:
        return Annotated[str, msgspec.Meta(max_length=feature.longest)]
    types: dict[Holds, Any] = {"number": number, "string": str, "boolean": bool}
    return types[feature.holds]


def _moment_type(moment: str) -> Any:
    """Type of a time: text of RFC 3339, or a number of a unit since 1970."""
    if moment == "text":
        return Annotated[str, msgspec.Meta(pattern=TIME_PATTERN)]
    low, high = FIRST_SECOND * PER_SECOND[moment], LAST_SECOND * PER_SECOND[moment]
    return Annotated[float, msgspec.Meta(ge=low, lt=high)]


def _plain(value: Any) -> Any:
    """NumPy arrays and scalars, and subclasses of str, int and float, as plain Python types."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return float(value) if isinstance(value, np.floating) else value.item()
    if isinstance(value, str):
        return str.__str__(value)  # str() of an enumeration's member would give its name
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return int(value) if isinstance(value, int) else float(value)
    return value


# Subclasses of str pass `msgspec.convert`, and come to the hook.
_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode


def text(value: object, what: str) -> str:
    """A non-empty string of at most `ID_BYTES` bytes; `InvalidEvent` otherwise."""
    if type(value) is str and 0 < len(value) <= ID_BYTES // 4:  # a character has at most four bytes
        return value
    if not isinstance(value, str) or not value:
        raise InvalidEvent(f"{what} must be a non-empty string, got {shown(value)}")
    length = len(value.encode(errors="replace"))
    if length > ID_BYTES:
        raise InvalidEvent(f"{what} must have at most {ID_BYTES} bytes in UTF-8, got {length}: {shown(value)}")
    return str.__str__(value)


def _number(value: object, what: str) -> float:
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, _REAL):
        raise InvalidEvent(f"{what} must be a number, got {shown(value)}")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _metrics(values: object) -> dict[str, float]:
    if not isinstance(values, Mapping):
        raise InvalidEvent(f"metrics must be a mapping of names to numbers, got {shown(values)}")
    if len(values) > MOST_METRICS:
        raise InvalidEvent(f"a reward may have at most {MOST_METRICS} metrics, got {len(values)}; leave some out")
    metrics = {text(name, "a metric's name"): _number(value, f"metric {name}") for name, value in values.items()}
    for name, value in metrics.items():
        if not abs(value) <= LARGEST:
            raise InvalidEvent(f"metric {name} must be a finite number of at most {LARGEST:g} in size, got {value}")
    return metrics


def _floor(value: object) -> float:
    floor = _number(value, "floor")
    if not 0 <= floor < 1:
        raise InvalidEvent(f"floor must be a probability below 1, got {shown(value)}")
    return floor


def _mode(value: object) -> str:
    if value not in _MODES:
        raise InvalidEvent(f"mode must be one of {', '.join(_MODES)}, or left out, got {shown(value)}")
    return str(value)


def _version(value: object) -> int:
    version = _whole(value, "policy")
    if not 0 <= version < VERSIONS:
        raise InvalidEvent(f"policy must be the version of a policy, got {shown(value)}")
    return version


def _time(value: object, what: str) -> int:
    time = _whole(value, what)
    if not 0 <= time < YEAR_2200:
        raise InvalidEvent(f"{what} must be microseconds since 1970, before the year 2200, got {shown(value)}")
    return time


def _whole(value: object, what: str) -> int:
    if type(value) is int:
        return value
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidEvent(f"{what} must be a whole number, got {shown(value)}")
    return int(value)
