"""Requests and replies as they go over the wire; requests to decide are typed by the problem."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from potstill.events import ID_BYTES, context_type, microseconds
from potstill.problem import MOST_METRICS, YEAR_2200, Problem
from potstill.registry import Hold
from potstill.workspace import ServeMode

Text = Annotated[str, Meta(min_length=1, max_length=ID_BYTES)]
Seconds = Annotated[float, Meta(ge=0, lt=YEAR_2200 / 1e6, description="Seconds since 1970, UTC.")]
Moment = Annotated[datetime, Meta(tz=True)] | Seconds
Probability = Annotated[float, Meta(gt=0, le=1)]
Density = Annotated[float, Meta(gt=0)]
Mode = Literal["online", "apprentice", "log-only", "fallback", "control", "design"]
Metrics = Annotated[dict[Text, float], Meta(max_length=MOST_METRICS)]
#: The most rewards of one observation.
MOST_REWARDS = 100
#: The most contexts in which expected rewards are asked for at once.
MOST_CONTEXTS = 100
_CONTEXTS = Meta(min_length=1, max_length=MOST_CONTEXTS)
Version = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Reason = Annotated[str, Meta(max_length=1000)]


# gc=False: requests hold no references back to themselves.
class _Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    pass


class DecideRequest(_Request, frozen=True, gc=False):
    """A decision to take.

    Attributes:
        context: Feature names and values; a Struct of the problem's features.
        id: Name of the decision; generated if left out.
        eligible: The actions that are allowed now; all if left out.
        unit: Whom or what it is decided for.
        action: The caller's own choice, in mode apprentice only.
        propensity: Probability, or density, with which the caller chose `action`, if it is known.
    """

    context: Any
    id: Text | None = None
    eligible: Any = None
    unit: Text | None = None
    action: Any = None
    propensity: float | None = None


class BatchRequest(_Request, frozen=True):
    """Decisions to take together.

    Attributes:
        requests: The requests, at most as many as the service's limit.
    """

    requests: list[DecideRequest]


class RewardRequest(_Request, frozen=True):
    """A reward of a decision.

    Attributes:
        id: Name of the decision.
        reward: A finite number within the bounds of the problem.
        key: Name of the reward among those of the decision: sending it again has no effect.
        time: When it was earned, RFC 3339 or seconds since 1970; the time of the request if left out.
        metrics: Other outcomes by name, for experiments.
    """

    id: Text
    reward: float
    key: Text | None = None
    time: Moment | None = None
    metrics: Metrics | None = None


class RewardsRequest(_Request, frozen=True):
    """Several rewards.

    Attributes:
        rewards: The rewards.
    """

    rewards: list[RewardRequest]


class ObservedReward(_Request, frozen=True):
    """A reward of an observation."""

    reward: float
    key: Text | None = None
    time: Moment | None = None
    metrics: Metrics | None = None


class Observation(_Request, frozen=True):
    """A decision that a device took on its own, and its rewards so far."""

    id: Text
    context: Any
    action: Any
    propensity: float
    policy: Version
    time: Moment
    eligible: Any = None
    floor: Annotated[float, Meta(ge=0, lt=1)] | None = None
    unit: Text | None = None
    reward: float | None = None
    reward_time: Moment | None = None
    metrics: Metrics | None = None
    rewards: Annotated[tuple[ObservedReward, ...], Meta(max_length=MOST_REWARDS)] = ()


class ObserveRequest(_Request, frozen=True):
    """Decisions that devices took on their own.

    Attributes:
        observations: The decisions, with their rewards so far.
    """

    observations: list[Observation]


class ExpectRequest(_Request, frozen=True):
    """Contexts in which to expect rewards.

    Attributes:
        contexts: The contexts.
    """

    contexts: Annotated[list[Any], _CONTEXTS]


class ChangeRequest(_Request, frozen=True):
    """A change by an administrator; author and reason are stored in the registry.

    Attributes:
        reason: Why it is changed.
        by: A person who uses a shared token; the author is the token's name otherwise.
    """

    reason: Reason = ""
    by: Reason = ""


class RollbackRequest(ChangeRequest, frozen=True):
    """Return to a version that served before.

    Attributes:
        to: The version; the previous one if left out.
        note: The same as `reason`.
    """

    to: Version | None = None
    note: Reason = ""


class PinRequest(ChangeRequest, frozen=True):
    """Pin the serving version.

    Attributes:
        version: A version to serve and pin instead.
    """

    version: Version | None = None


class PromoteRequest(ChangeRequest, frozen=True, kw_only=True):
    """Serve a version: a staged one, or a refused one in spite of what is against it. A pin is released.

    Attributes:
        version: The version.
        gates: Whether to refuse a version that the gates or the last evaluation are against.
    """

    version: Version
    gates: bool = False


class ModeRequest(ChangeRequest, frozen=True, kw_only=True):
    """Change the mode.

    Attributes:
        mode: ``online``, ``apprentice`` or ``log-only``.
    """

    mode: ServeMode


class ActionRequest(ChangeRequest, frozen=True, kw_only=True):
    """Add, retire or remove an action.

    Attributes:
        change: ``add``, which also brings a retired action back, ``retire`` or ``remove``.
        action: Name of the action.
        like: For ``add``: action as which the new one begins at the next update, with a tenth of its observations.
        share: For ``add``: share of decisions that are drawn uniformly until the next update; that of `potstill.toml`
            if left out.
        confirm: For ``remove``: whether to remove an action although its observations are left out then.
    """

    change: Literal["add", "retire", "remove"]
    action: Text
    like: Text | None = None
    share: Annotated[float, Meta(ge=0, lt=1)] | None = None
    confirm: bool = False


class ItemsRequest(ChangeRequest, frozen=True, kw_only=True):
    """Add, change or remove items of a catalogue.

    Attributes:
        items: Items to add or to change: each its ``id``, and the value of each feature by name.
        remove: Ids of items to remove.
        whole: Whether `items` are all items, so that others are removed.
    """

    items: list[dict[str, Any]] = []
    remove: list[Text] = []
    whole: bool = False


class DecideReply(Struct, frozen=True, omit_defaults=True, gc=False):
    """A decision.

    `would` is the action that the policy would have drawn, in mode apprentice only; `arm` that of an experiment.
    """

    id: str
    action: Any
    propensity: float
    policy: int
    mode: Mode
    would: Any = None
    arm: str | None = None


class BatchReply(Struct, frozen=True, gc=False):
    """Decisions in the order of the requests."""

    decisions: list[DecideReply]


class AcceptedReply(Struct, frozen=True):
    """Number of rewards or observations that were logged."""

    accepted: int


class RewardReply(Struct, frozen=True):
    """Id of the decision whose reward was logged."""

    id: str


class ProblemReply(Struct, frozen=True):
    """The problem as in problem.toml, with its hash; context, actions and reward follow."""

    name: str
    hash: str


class LogStatus(Struct, frozen=True, kw_only=True):
    """What this machine's log holds that is not in the lake yet; `lag_seconds` is the age of its oldest event."""

    segments: int
    bytes: int
    lag_seconds: float


class HoldReply(Struct, frozen=True, kw_only=True):
    """Who pinned the serving version or paused updates, when and why."""

    by: str
    reason: str
    since: datetime


class StatusReply(Struct, frozen=True, kw_only=True):
    """Status of a problem; `decisions` and `rewards` are those of the answering worker since it started.

    `mode_fault` says why the mode that was set last is not used, if it is not. `decides` says what the serving version
    decides by. `notices` say what an operator should know and do.
    """

    problem: str
    hash: str
    serving: int | None
    decides: str | None
    pinned: HoldReply | None
    paused: HoldReply | None
    mode: str
    mode_fault: str | None
    experiment: str | None
    experiment_state: str | None
    since: datetime
    decisions: int
    rewards: int
    log: LogStatus
    ready: bool
    notices: list[str]


class AdminReply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Version, mode, pin and pause after an administrator's request; `notice` is what to know about the version."""

    serving: int | None
    mode: str
    pinned: HoldReply | None = None
    paused: HoldReply | None = None
    notice: str | None = None


class HealthReply(Struct, frozen=True):
    """State of the process."""

    status: str


class ErrorReply(Struct, frozen=True):
    """Why a request was refused."""

    error: str


class Requests:
    """Request and reply types of one problem, and their decoders.

    Attributes:
        types: Types of this problem by the general type that they narrow.
        features: Names of the features, in the order of a context's fields.
    """

    def __init__(self, problem: Problem) -> None:
        self.features = tuple(feature.name for feature in problem.context)
        wire = problem.actions.wire
        context: Any = context_type(problem.context, float)
        fields = {"context": context, "action": wire.action, "eligible": wire.eligible | None}
        propensity = Probability if problem.actions.measure == "counting" else Density
        own = {"action": wire.action | None, "propensity": propensity | None}
        decide: Any = _narrow(DecideRequest, {**fields, **own})
        observation: Any = _narrow(Observation, {**fields, "propensity": propensity})
        reply: Any = _narrow(DecideReply, {"action": wire.action, "would": wire.action | None})
        self.types: Mapping[type[Struct], Any] = {
            DecideRequest: decide,
            BatchRequest: _narrow(BatchRequest, {"requests": list[decide]}),
            ExpectRequest: _narrow(ExpectRequest, {"contexts": Annotated[list[context], _CONTEXTS]}),
            ObserveRequest: _narrow(ObserveRequest, {"observations": list[observation]}),
            DecideReply: reply,
            BatchReply: _narrow(BatchReply, {"decisions": list[reply]}),
        }
        self.read_decide = self._decoder(DecideRequest)
        self.read_batch = self._decoder(BatchRequest)
        self.read_observe = self._decoder(ObserveRequest)
        self.read_expect = self._decoder(ExpectRequest)

    def _decoder(self, general: type[Struct]) -> Any:
        return msgspec.json.Decoder(self.types[general]).decode


def _narrow(general: type[Struct], types: Mapping[str, Any]) -> Any:
    """A type with some of its fields narrowed to a problem."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(general):
        if field.name in types:
            required = field.default is msgspec.NODEFAULT
            fields.append((field.name, types[field.name], *(() if required else (field.default,))))
    return msgspec.defstruct(general.__name__, fields, bases=(general,), frozen=True, kw_only=True, gc=False)


def hold_reply(hold: Hold | None) -> HoldReply | None:
    """A pin or a pause as it goes over the wire."""
    if hold is None:
        return None
    return HoldReply(by=hold.by, reason=hold.reason, since=moment(hold.time))


def moment(time: int) -> datetime:
    """A time in microseconds since 1970, as it goes over the wire."""
    return datetime.fromtimestamp(time / 1e6, UTC)


def micros(moment: datetime | float | None) -> int | None:
    """A moment of a request in microseconds since 1970."""
    if moment is None:
        return None
    return microseconds(moment) if isinstance(moment, datetime) else round(moment * 1e6)
