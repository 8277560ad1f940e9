"""An OpenFeature provider: a decision is the evaluation of a flag, and a tracking event is a reward.

OpenFeature (https://openfeature.dev) is a vendor-neutral API for feature flags. A flag is a problem; its value is the
action; the metadata of an evaluation has the decision's id, propensity and version, which OpenFeature's own hooks pass
on to OpenTelemetry. This module needs the extra `openfeature`, and nothing else imports it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, TypeVar

from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import (
    FlagNotFoundError,
    GeneralError,
    InvalidContextError,
    TypeMismatchError,
)
from openfeature.flag_evaluation import FlagResolutionDetails, Reason
from openfeature.provider import AbstractProvider, Metadata
from openfeature.track import TrackingEventDetails

from potstill.client.client import Client
from potstill.client.errors import Refused, ServiceError
from potstill.client.wire import Answer
from potstill.errors import PotstillError, shown

T = TypeVar("T", bool, str, int, float)

#: Attribute of an evaluation context or of a tracking event that names the decision.
DECISION_ID = "decision_id"
#: Number of latest decisions, by flag and targeting key, that rewards find without an id.
REMEMBERED = 100_000
_TRUTHS = {"true": True, "false": False, "on": True, "off": False}


class PotstillProvider(AbstractProvider):
    """Evaluates flags by decisions of the service.

    The targeting key is the decision's unit. Attributes that are features of the problem are its context, and others
    are left out. Names of actions are strings; ``on`` and ``off``, or ``true`` and ``false``, are booleans; actions
    that are numbers are floats. If the service cannot be reached, OpenFeature answers with the flag's default value,
    unless the client has a fallback.

    >>> client = Client("http://127.0.0.1:8080/v1/video-upload")
    >>> provider = PotstillProvider({"upload-quality": client}, rewards={"uploaded": "upload-quality"})

    Args:
        flags: A client for each flag.
        rewards: Flag whose decision a tracking event rewards, by the event's name. The event's value is the reward,
            1 if it has none. An attribute ``decision_id`` names the decision; without it, it is the latest one of this
            provider for the targeting key.
    """

    def __init__(self, flags: Mapping[str, Client], *, rewards: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._flags, self._rewards = dict(flags), dict(rewards or {})
        self._features: dict[str, frozenset[str]] = {}
        self._latest: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._lock = Lock()
        for event, flag in self._rewards.items():
            if flag not in self._flags:
                raise ValueError(f"event {event!r} rewards flag {flag!r}, which is not among {', '.join(self._flags)}")

    def get_metadata(self) -> Metadata:  # noqa: D102
        return Metadata(name="potstill")

    def initialize(self, evaluation_context: EvaluationContext) -> None:
        """Ask the service for the features of each flag's problem; a flag whose service is away asks again later."""
        for flag in self._flags:
            try:
                self._features_of(flag)
            except PotstillError:
                continue

    def shutdown(self) -> None:
        """Send pending rewards, and close the clients."""
        for client in self._flags.values():
            client.close()

    def resolve_string_details(  # noqa: D102
        self, flag_key: str, default_value: str, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[str]:
        answer = self._decide(flag_key, evaluation_context)
        if not isinstance(answer.action, str):
            raise _mismatch(flag_key, answer, "a string")
        return _details(answer, answer.action)

    def resolve_boolean_details(  # noqa: D102
        self, flag_key: str, default_value: bool, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[bool]:
        answer = self._decide(flag_key, evaluation_context)
        if not isinstance(answer.action, str) or answer.action.lower() not in _TRUTHS:
            raise _mismatch(flag_key, answer, "a boolean: its actions are not on and off, or true and false")
        return _details(answer, _TRUTHS[answer.action.lower()])

    def resolve_float_details(  # noqa: D102
        self, flag_key: str, default_value: float, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[float]:
        answer = self._decide(flag_key, evaluation_context)
        return _details(answer, float(_number(flag_key, answer)))

    def resolve_integer_details(  # noqa: D102
        self, flag_key: str, default_value: int, evaluation_context: EvaluationContext | None = None
    ) -> FlagResolutionDetails[int]:
        answer = self._decide(flag_key, evaluation_context)
        number = _number(flag_key, answer)
        if number != int(number):
            raise _mismatch(flag_key, answer, "a whole number")
        return _details(answer, int(number))

    def resolve_object_details(  # noqa: D102
        self,
        flag_key: str,
        default_value: Sequence[Any] | Mapping[str, Any],
        evaluation_context: EvaluationContext | None = None,
    ) -> FlagResolutionDetails[Sequence[Any] | Mapping[str, Any]]:
        raise TypeMismatchError(f"flag {flag_key!r}: actions are names or numbers; ask for a string or a float")

    def track(
        self,
        tracking_event_name: str,
        evaluation_context: EvaluationContext | None = None,
        tracking_event_details: TrackingEventDetails | None = None,
    ) -> None:
        """Report a reward, for events that `rewards` names; others are ignored, and so are those of no decision."""
        flag = self._rewards.get(tracking_event_name)
        if flag is None:
            return
        details = tracking_event_details or TrackingEventDetails()
        named = details.attributes.get(DECISION_ID) or self._latest_of(flag, evaluation_context)
        if named is not None:
            self._flags[flag].reward(str(named), 1.0 if details.value is None else float(details.value))

    def _decide(self, flag: str, context: EvaluationContext | None) -> Answer:
        if flag not in self._flags:
            raise FlagNotFoundError(f"there is no flag {flag!r}; the provider has {', '.join(self._flags)}")
        context = context or EvaluationContext()
        try:
            features = self._features_of(flag)
            known = {name: value for name, value in context.attributes.items() if name in features}
            asked = context.attributes.get(DECISION_ID)
            unit = context.targeting_key or None
            answer = self._flags[flag].decide(known, id=None if asked is None else str(asked), unit=unit)
        except (Refused, ValueError) as error:
            raise InvalidContextError(str(error)) from error
        except ServiceError as error:
            raise GeneralError(str(error)) from error
        self._remember(flag, context, answer)
        return answer

    def _features_of(self, flag: str) -> frozenset[str]:
        if flag not in self._features:
            problem = self._flags[flag].policy().problem
            self._features[flag] = frozenset(feature.name for feature in problem.context)
        return self._features[flag]

    def _remember(self, flag: str, context: EvaluationContext, answer: Answer) -> None:
        if not context.targeting_key:
            return
        with self._lock:
            self._latest[flag, context.targeting_key] = answer.id
            self._latest.move_to_end((flag, context.targeting_key))
            if len(self._latest) > REMEMBERED:
                self._latest.popitem(last=False)

    def _latest_of(self, flag: str, context: EvaluationContext | None) -> str | None:
        if context is None or not context.targeting_key:
            return None
        with self._lock:
            return self._latest.get((flag, context.targeting_key))


def _number(flag: str, answer: Answer) -> float:
    """The action as a number, also where it is the name of one."""
    try:
        return float(answer.action)
    except ValueError:
        raise _mismatch(flag, answer, "a number") from None


def _mismatch(flag: str, answer: Answer, wanted: str) -> TypeMismatchError:
    return TypeMismatchError(f"flag {flag!r}: action {shown(answer.action)} is not {wanted}")


def _details(answer: Answer, value: T) -> FlagResolutionDetails[T]:
    metadata: dict[str, bool | int | float | str] = {"id": answer.id, "propensity": answer.propensity}
    metadata["mode"] = answer.mode
    if answer.policy is not None:
        metadata["version"] = str(answer.policy)
    return FlagResolutionDetails(
        value=value,
        reason=Reason.DEFAULT if answer.mode == "fallback" else Reason.SPLIT,
        variant=str(answer.action),
        flag_metadata=metadata,
    )
