"""Requests and replies of Personalizer, as its public API description has them. Unknown fields are ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from potstill.events import ID_BYTES

Name = Annotated[str, Meta(min_length=1, max_length=ID_BYTES)]


class RankableAction(Struct, frozen=True, rename="camel"):
    """An action that is offered. Its features are not used: the policy's actions are a list of names."""

    id: Name
    features: list[Any] | None = None


class RankRequest(Struct, frozen=True, rename="camel", kw_only=True):
    """A decision to take.

    Attributes:
        actions: Actions on offer.
        context_features: Features of the context, nested.
        excluded_actions: Ids of offered actions that are not to be chosen.
        event_id: Name of the decision; generated if left out.
        defer_activation: Whether the decision counts only once it is activated.
    """

    actions: Annotated[list[RankableAction], Meta(min_length=1)]
    context_features: list[Any] | None = None
    excluded_actions: list[str] | None = None
    event_id: Name | None = None
    defer_activation: bool | None = False


class RankedAction(Struct, frozen=True):
    """An action and the probability with which it is chosen; 0 if it is excluded."""

    id: str
    probability: float


class RankReply(Struct, frozen=True, rename="camel"):
    """A decision: `rewardActionId` is the action to carry out, the first of the ranking."""

    ranking: list[RankedAction]
    event_id: str
    reward_action_id: str


class RewardValue(Struct, frozen=True):
    """The reward of an event.

    Attributes:
        value: The reward: more is better.
    """

    value: float


class ErrorDetail(Struct, frozen=True):
    """Why a request was refused."""

    code: Literal["BadRequest", "ResourceNotFound", "InternalServerError"]
    message: str


class PersonalizerError(Struct, frozen=True):
    """Why a request was refused, in the shape of Personalizer."""

    error: ErrorDetail
