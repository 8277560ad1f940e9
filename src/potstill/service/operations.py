"""What can be asked about a problem, and how it may end: the table behind the OpenAPI document."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from potstill.service.tokens import Scope

#: What a status means, other than that all went well.
FAULTS = {
    "400": "The body is not JSON.",
    "401": "No token, or one that is unknown.",
    "403": "The token lacks the scope.",
    "404": "There is no such version.",
    "408": "The body took too long to arrive.",
    "409": "The id was decided before, with another context or other eligible actions.",
    "413": "The body or the batch is too large.",
    "415": "The body does not say that it is JSON: send Content-Type: application/json.",
    "422": "The request does not fit the problem, or the mode.",
    "503": "Too busy, or the log is away: try again after the seconds that Retry-After says.",
}
_SENT = ("400", "408", "413", "415", "422", "503")


class Operation(NamedTuple):
    """What can be asked about a problem.

    Attributes:
        method: of HTTP.
        path: below that of the problem.
        scope: that a token needs.
        summary: a line.
        text: what a caller must know.
        faults: statuses that it may end with.
        body: the schemas of the request, one of them.
        status: if all goes well.
        reply: the schemas of the reply, one of them.
    """

    method: str
    path: str
    scope: Scope
    summary: str
    text: str
    faults: Sequence[str] = ()
    body: Sequence[str] = ()
    status: str = "200"
    reply: Sequence[str] = ()


OPERATIONS = (
    Operation(
        "post",
        "decide",
        "decide",
        "Decide",
        "Takes an action, and answers when the decision is on disk with its exact probability. Send an id of your own: "
        "the same request again is then the same decision, and its rewards find it.",
        (*_SENT, "409"),
        ("DecideRequest",),
        reply=("Decided",),
    ),
    Operation(
        "post",
        "decide/batch",
        "decide",
        "Decide many",
        "Decides by one policy version, in order. One request that does not fit refuses the batch: nothing is logged.",
        (*_SENT, "409"),
        ("BatchRequest",),
        reply=("BatchDecided",),
    ),
    Operation(
        "post",
        "reward",
        "reward",
        "Reward",
        "Says what came of a decision, at once or much later. A list goes as `rewards`. On disk before it is answered.",
        _SENT,
        ("RewardRequest", "RewardsRequest"),
        "202",
        ("Rewarded", "Accepted"),
    ),
    Operation(
        "post",
        "observe",
        "reward",
        "Observe",
        "Takes up decisions that devices took on their own with a downloaded policy, with or without their rewards. "
        "An id counts once, so that sending it again is harmless.",
        _SENT,
        ("ObserveRequest",),
        "202",
        ("Accepted",),
    ),
    Operation(
        "get",
        "policy",
        "read",
        "Download the policy",
        "The policy that serves, to decide elsewhere. Send its ETag as If-None-Match to get a newer one only.",
        ("503",),
    ),
    Operation("get", "problem", "read", "Read the problem", "Features, actions and reward, with their hash.", ("503",)),
    Operation(
        "get",
        "status",
        "read",
        "Read the status",
        "What serves since when, in which mode, and how much of the log is on its way to the lake.",
        ("503",),
        reply=("Status",),
    ),
    Operation(
        "post",
        "admin/rollback",
        "admin",
        "Roll back",
        "Lets a version serve that served before. Other workers follow within seconds.",
        (*_SENT, "404", "409"),
        ("RollbackRequest",),
        reply=("Moved",),
    ),
    Operation(
        "post",
        "admin/mode",
        "admin",
        "Change the mode",
        "`online`: the policy decides. `apprentice`: your own choice is carried out, and logged with the policy's "
        "probability of it. `log-only`: always the fallback action. Kept in the workspace; all workers follow.",
        _SENT,
        ("ModeRequest",),
        reply=("Moved",),
    ),
)
