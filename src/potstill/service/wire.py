"""What goes over the wire: requests, typed by the problem, and replies."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from potstill.events import microseconds
from potstill.events.validate import ID_BYTES, context_type
from potstill.problem import YEAR_2200, Problem
from potstill.workspace.config import ServeMode

Text = Annotated[str, Meta(min_length=1, max_length=ID_BYTES)]
Seconds = Annotated[float, Meta(ge=0, lt=YEAR_2200 / 1e6, description="Seconds since 1970, UTC.")]
Moment = Annotated[datetime, Meta(tz=True)] | Seconds
Probability = Annotated[float, Meta(gt=0, le=1)]
Mode = Literal["online", "apprentice", "log-only", "fallback", "control"]
Metrics = dict[Text, float]
Whole = Annotated[int, Meta(ge=0, le=2**63 - 1)]


# gc=False: requests hold no references back to themselves.
class _Request(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    pass


class DecideRequest(_Request, frozen=True, gc=False):
    """A decision to take.

    Attributes:
        context: feature names and values; in requests of a problem, of the type of its contexts.
        id: names the decision; one is made up if left out.
        eligible: the actions that are allowed now; all if left out.
        unit: who or what it is decided for.
        action: the caller's own choice, in mode apprentice only.
    """

    context: Any
    id: Text | None = None
    eligible: tuple[str, ...] | None = None
    unit: Text | None = None
    action: str | None = None


class BatchRequest(_Request, frozen=True):
    """Decisions to take together."""

    requests: list[DecideRequest]


class RewardRequest(_Request, frozen=True):
    """A reward of a decision; `key` names it among those of that decision, so that sending it again is harmless."""

    id: Text
    reward: float
    key: Text | None = None
    time: Moment | None = None
    metrics: Metrics | None = None


class RewardsRequest(_Request, frozen=True):
    """Several rewards."""

    rewards: list[RewardRequest]


class ObservedReward(_Request, frozen=True):
    """A reward of an observation."""

    reward: float
    key: Text | None = None
    time: Moment | None = None
    metrics: Metrics | None = None


class Observation(_Request, frozen=True):
    """A decision that was taken elsewhere, and what came of it so far."""

    id: Text
    context: Any
    action: str
    propensity: Probability
    policy: Whole
    time: Moment
    eligible: tuple[str, ...] | None = None
    floor: Annotated[float, Meta(ge=0, lt=1)] | None = None
    unit: Text | None = None
    reward: float | None = None
    reward_time: Moment | None = None
    metrics: Metrics | None = None
    rewards: tuple[ObservedReward, ...] = ()


class ObserveRequest(_Request, frozen=True):
    """Decisions that were taken elsewhere."""

    observations: list[Observation]


class RollbackRequest(_Request, frozen=True):
    """Return to a version that served before: the last one if `to` is left out."""

    to: Whole | None = None
    note: Annotated[str, Meta(max_length=1000)] = ""


class ModeRequest(_Request, frozen=True):
    """Answer in another mode from now on."""

    mode: ServeMode


class Decided(Struct, frozen=True, omit_defaults=True, gc=False):
    """A decision. `would` is the action that the policy would have taken, in mode apprentice only.

    `arm` is that of the experiment that it was decided in, and absent outside of any.
    """

    id: str
    action: str
    propensity: float
    policy: int
    mode: Mode
    would: str | None = None
    arm: str | None = None


class BatchDecided(Struct, frozen=True, gc=False):
    """Decisions in the order of the requests."""

    decisions: list[Decided]


class Accepted(Struct, frozen=True):
    """How many rewards or observations were taken up."""

    accepted: int


class Rewarded(Struct, frozen=True):
    """The decision whose reward was taken up."""

    id: str


class LogStatus(Struct, frozen=True, kw_only=True):
    """What of this machine's log is not in the lake yet; `lag_seconds` is the age of the oldest of it."""

    segments: int
    bytes: int
    lag_seconds: float


class Status(Struct, frozen=True, kw_only=True):
    """How a problem stands; `decisions` and `rewards` are those of the answering worker since it started.

    `experiment` is the name of the one that is followed, also before its start; null if there is none.
    `experiment_state` says whether requests are in it, and what is wrong with what potstill.toml says now.
    """

    problem: str
    hash: str
    serving: int | None
    mode: str
    experiment: str | None
    experiment_state: str | None
    since: datetime
    decisions: int
    rewards: int
    log: LogStatus
    ready: bool


class Moved(Struct, frozen=True, kw_only=True):
    """What an administrator's request has come to."""

    serving: int | None
    mode: str


class Failure(Struct, frozen=True):
    """Why a request was refused."""

    error: str


class Requests:
    """The requests of one problem: what they look like, and how they are read.

    Attributes:
        decide: the type of a request to decide.
        batch: of many.
        observe: of observations.
        features: the names of the features, in the order of a context's fields.
    """

    def __init__(self, problem: Problem) -> None:
        self.features = tuple(feature.name for feature in problem.context)
        context = context_type(problem.context, float)
        action: Any = Literal[tuple(problem.actions.names)]
        eligible: Any = Annotated[tuple[action, ...], Meta(min_length=1)] | None
        self.decide = _typed(DecideRequest, context=context, eligible=eligible, action=action | None)
        self.batch = _typed(BatchRequest, requests=list[self.decide])  # type: ignore[name-defined]
        observation: Any = _typed(Observation, context=context, eligible=eligible, action=action)
        self.observe = _typed(ObserveRequest, observations=list[observation])
        self.read_decide = msgspec.json.Decoder(self.decide).decode
        self.read_batch = msgspec.json.Decoder(self.batch).decode
        self.read_observe = msgspec.json.Decoder(self.observe).decode


def _typed(general: type[Struct], **types: Any) -> Any:
    """A request type with some of its fields narrowed to a problem."""
    fields: list[Any] = []
    for field in msgspec.structs.fields(general):
        if field.name in types:
            required = field.default is msgspec.NODEFAULT
            fields.append((field.name, types[field.name], *(() if required else (field.default,))))
    return msgspec.defstruct(general.__name__, fields, bases=(general,), frozen=True, kw_only=True, gc=False)


def micros(moment: datetime | float | None) -> int | None:
    """A moment of a request in microseconds since 1970."""
    if moment is None:
        return None
    return microseconds(moment) if isinstance(moment, datetime) else round(moment * 1e6)
