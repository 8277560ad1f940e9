"""The endpoint table. Dispatch, the OpenAPI document and the clients' tests all follow from it.

A new endpoint is a row here, a method of the same name as `handler` in `endpoints`, and its types in `wire`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from potstill.service import wire
from potstill.service.personalizer import wire as personalizer
from potstill.service.reads import (
    actions,
    compare,
    decisions,
    evaluation,
    expect,
    experiment,
    fidelity,
    insights,
    staging,
    versions,
)
from potstill.service.tokens import Scope
from potstill.summaries import ApprenticeReport, FeatureReport, Health, Overview
from potstill.workspace import ItemsReport

#: What a status other than success means.
REFUSALS = {
    400: "The body is not JSON.",
    401: "No token, or an unknown one.",
    403: "The token lacks the scope.",
    404: "There is no such version, or no metrics.",
    408: "The body took too long to arrive.",
    409: "The id was decided before with other context or eligible actions; or the version is unusable or refused.",
    413: "The body or the batch is too large.",
    415: "The body does not say that it is JSON: send Content-Type: application/json.",
    422: "The request does not fit the problem or the mode.",
    503: "Overloaded, or the event log or storage is unavailable: retry after the seconds in Retry-After.",
}
_BODY = (400, 408, 413, 415, 422, 503)


class Endpoint(NamedTuple):
    """One row of the table.

    Attributes:
        method: HTTP method; GET endpoints answer HEAD too.
        path: Path below ``/v1/PROBLEM/``, or below ``/`` for an endpoint of the service.
        handler: Name of the method in `endpoints` that answers.
        scope: Scope that a token needs; None if no token is needed.
        summary: One line.
        text: What a caller must know.
        request: Types of the body; one of them.
        reply: Types of the reply; one of them.
        refusals: Statuses other than success, besides 401 and 403.
        limit: Which limit holds for the body: of a single request or of a batch; None if it takes no body.
        status: Status of success.
        media: Media type of the reply.
        etag: Whether the reply has an ETag and If-None-Match is honoured.
        query: Fields of the query string, decoded by `http.read_query`; None if it has none. The handler gets the
            query string in place of a body.
    """

    method: Literal["GET", "POST"]
    path: str
    handler: str
    scope: Scope | None
    summary: str
    text: str = ""
    request: tuple[type[Any], ...] = ()
    reply: tuple[type[Any], ...] = ()
    refusals: tuple[int, ...] = ()
    limit: Literal["single", "batch"] | None = None
    status: int = 200
    media: str = "application/json"
    etag: bool = False
    query: type[Any] | None = None


#: What the pages show, as JSON; it is made of summaries, and reads no rows.
INSIGHTS = (
    Endpoint(
        "GET",
        "overview",
        "overview",
        "read",
        "Read the overview",
        "What serves, what arrives and what is earned over the last `hours` (24; 0 for everything), compared with "
        "control, the fallback action and uniformly random actions; and what is likely wrong.",
        reply=(Overview,),
        refusals=(422, 503),
        query=insights.RangeQuery,
    ),
    Endpoint(
        "GET",
        "apprentice",
        "apprentice",
        "read",
        "Read the apprentice's report",
        "Agreement of the policy with your own choices in mode apprentice, and whether it is ready to go live; made "
        "by the last update.",
        reply=(ApprenticeReport,),
        refusals=(503,),
    ),
    Endpoint(
        "GET",
        "features",
        "features",
        "read",
        "Read the report on features",
        "Which features matter to the policy and to the reward, and which are likely broken; made by the last update.",
        reply=(FeatureReport,),
        refusals=(503,),
    ),
    Endpoint(
        "GET",
        "health",
        "log_health",
        "read",
        "Read the health of the log",
        "Propensity audit, sample ratio of each version, entropy of the actions, and changes of the reward.",
        reply=(Health,),
        refusals=(422, 503),
        query=insights.RangeQuery,
    ),
)

#: Endpoints of each problem.
PROBLEM_ENDPOINTS = (
    Endpoint(
        "POST",
        "decide",
        "decide",
        "decide",
        "Decide",
        "Takes an action. The reply has its exact propensity, and comes when the decision is on disk. Send an id of "
        "your own: the same request again is then the same decision, and its rewards find it.",
        (wire.DecideRequest,),
        (wire.DecideReply,),
        (*_BODY, 409),
        "single",
    ),
    Endpoint(
        "POST",
        "decide/batch",
        "decide_batch",
        "decide",
        "Decide a batch",
        "Decides by one policy version, in order. One request that does not fit refuses the batch: nothing is logged.",
        (wire.BatchRequest,),
        (wire.BatchReply,),
        (*_BODY, 409),
        "batch",
    ),
    Endpoint(
        "POST",
        "reward",
        "reward",
        "reward",
        "Reward",
        "Reports the reward of a decision, at once or much later. Several rewards go as `rewards`. The reply comes "
        "when they are on disk.",
        (wire.RewardRequest, wire.RewardsRequest),
        (wire.RewardReply, wire.AcceptedReply),
        _BODY,
        "batch",
        202,
    ),
    Endpoint(
        "POST",
        "observe",
        "observe",
        "reward",
        "Observe",
        "Logs decisions that devices took on their own with a downloaded policy, with or without their rewards. "
        "An id counts once, so that sending it again has no effect.",
        (wire.ObserveRequest,),
        (wire.AcceptedReply,),
        _BODY,
        "batch",
        202,
    ),
    Endpoint(
        "GET",
        "policy",
        "policy",
        "read",
        "Download the policy",
        "The serving policy's file, to decide elsewhere. Send its ETag as If-None-Match to download only a newer one.",
        refusals=(503,),
        media="application/octet-stream",
        etag=True,
    ),
    Endpoint(
        "GET",
        "problem",
        "problem",
        "read",
        "Read the problem",
        "Features, actions and reward, with their hash.",
        reply=(wire.ProblemReply,),
        refusals=(503,),
    ),
    Endpoint(
        "GET",
        "status",
        "status",
        "read",
        "Read the status",
        "Serving version, mode, experiment, and how much of the event log is not in the lake yet.",
        reply=(wire.StatusReply,),
        refusals=(503,),
    ),
    *INSIGHTS,
    Endpoint(
        "POST",
        "admin/rollback",
        "rollback",
        "admin",
        "Roll back",
        "Returns to a version that served before, and pins it: updates do not replace it until `admin/unpin`. Other "
        "workers follow within seconds.",
        (wire.RollbackRequest,),
        (wire.AdminReply,),
        (*_BODY, 404, 409),
        "single",
    ),
    Endpoint(
        "POST",
        "admin/pin",
        "pin",
        "admin",
        "Pin a version",
        "Pins the serving version, or serves and pins another: updates stage their versions until `admin/unpin`.",
        (wire.PinRequest,),
        (wire.AdminReply,),
        (*_BODY, 404, 409),
        "single",
    ),
    Endpoint(
        "POST",
        "admin/unpin",
        "unpin",
        "admin",
        "Release the pin",
        "The next version that an update publishes serves.",
        (wire.ChangeRequest,),
        (wire.AdminReply,),
        (*_BODY, 404, 409),
        "single",
    ),
    Endpoint(
        "POST",
        "admin/pause",
        "pause",
        "admin",
        "Pause updates",
        "No update is made until `admin/resume`. Decisions and rewards are logged as before.",
        (wire.ChangeRequest,),
        (wire.AdminReply,),
        (*_BODY, 404, 409),
        "single",
    ),
    Endpoint(
        "POST",
        "admin/resume",
        "resume",
        "admin",
        "Resume updates",
        "Ends a pause.",
        (wire.ChangeRequest,),
        (wire.AdminReply,),
        (*_BODY, 404, 409),
        "single",
    ),
    Endpoint(
        "POST",
        "admin/stage",
        "stage",
        "admin",
        "Stage a version",
        "Begins an update whose version does not serve until it is promoted, by a process of low priority. `GET "
        "overview` has its outcome, and `GET versions` its version. It needs the extra `learn`.",
        (wire.ChangeRequest,),
        (staging.StagingReply,),
        (*_BODY, 409),
        "single",
        202,
    ),
    Endpoint(
        "POST",
        "admin/promote",
        "promote",
        "admin",
        "Promote a version",
        "Serves a staged version, or a refused one in spite of what is against it, unless the request says `gates`. "
        "It releases a pin.",
        (wire.PromoteRequest,),
        (wire.AdminReply,),
        (*_BODY, 404, 409),
        "single",
    ),
    Endpoint(
        "POST",
        "admin/mode",
        "mode",
        "admin",
        "Change the mode",
        "`online`: the policy decides. `apprentice`: your own choice is carried out, and logged with the policy's "
        "propensity of it. `log-only`: always the fallback action. Stored in the workspace; all workers follow.",
        (wire.ModeRequest,),
        (wire.AdminReply,),
        (*_BODY, 409),
        "single",
    ),
    Endpoint(
        "POST",
        "admin/actions",
        "change_actions",
        "admin",
        "Change the actions",
        "Adds, retires or removes an action without a restart: `problem.toml` changes, and a version adapted to it is "
        "published. The reply comes when this worker follows it; others follow within seconds.",
        (wire.ActionRequest,),
        (actions.ActionsReply,),
        (*_BODY, 409),
        "single",
    ),
    Endpoint(
        "POST",
        "admin/items",
        "change_items",
        "admin",
        "Change the items of a catalogue",
        "Adds, changes and removes items without a restart: `items.json` changes, and a version adapted to it is "
        "published. Items that are not named stay, unless the request says `whole`. The reply comes when this worker "
        "follows; others follow within seconds.",
        (wire.ItemsRequest,),
        (ItemsReport,),
        (*_BODY, 409),
        "batch",
    ),
    Endpoint(
        "POST",
        "admin/evaluate",
        "evaluate",
        "admin",
        "Begin an evaluation",
        "Off-policy evaluation of the serving version, staged and refused ones, the uniform policy and fixed actions, "
        "by a process of low priority. `GET evaluation` has its progress and its result. It needs the extra `learn`.",
        (wire.ChangeRequest,),
        (evaluation.EvaluationReply,),
        (*_BODY, 409),
        "single",
        202,
    ),
    # What the pages show, as JSON.
    Endpoint(
        "GET",
        "actions",
        "actions",
        "read",
        "List the actions",
        "The actions in their order, and whether each is chosen, new or retired.",
        reply=(actions.ActionsReply,),
        refusals=(422, 503),
    ),
    Endpoint(
        "GET",
        "versions",
        "versions",
        "read",
        "List the versions",
        "The latest versions with their fidelity, their comparison with the version that served, and what was against "
        "them; and the latest changes of the registry, with author and reason.",
        reply=(versions.VersionsReply,),
        refusals=(422, 503),
        query=versions.VersionsQuery,
    ),
    Endpoint(
        "GET",
        "version",
        "version",
        "read",
        "Read a version",
        "Its lineage, fidelity, the weights of its teacher's candidates, and the report of the update that made it.",
        reply=(versions.VersionReply,),
        refusals=(404, 409, 422, 503),
        query=versions.VersionQuery,
    ),
    Endpoint(
        "GET",
        "compare",
        "compare",
        "read",
        "Compare two versions",
        "How often and where the actions of two versions differ, in the latest logged contexts and by feature.",
        reply=(compare.CompareReply,),
        refusals=(404, 409, 422, 503),
        query=compare.CompareQuery,
    ),
    Endpoint(
        "GET",
        "fidelity",
        "fidelity",
        "read",
        "Compare a version with its teacher",
        "How far a version is from its own teacher in the latest logged contexts, by feature. It needs the extra "
        "`learn` where the service runs, and a version whose teacher's state is kept (`update.states_kept`).",
        reply=(fidelity.FidelityReply,),
        refusals=(404, 409, 422, 503),
        query=fidelity.FidelityQuery,
    ),
    Endpoint(
        "GET",
        "decisions",
        "decisions",
        "read",
        "List decisions",
        "The latest decisions, or those of a unit: of the lake, and of this machine's log that is not in the lake yet.",
        reply=(decisions.DecisionsReply,),
        refusals=(422, 503),
        query=decisions.DecisionsQuery,
    ),
    Endpoint(
        "GET",
        "decision",
        "decision",
        "read",
        "Read a decision",
        "Its request, the policy's probabilities, the draw, its rewards and how they were joined, and its audit.",
        reply=(decisions.DecisionReply,),
        refusals=(404, 422, 503),
        query=decisions.DecisionQuery,
    ),
    Endpoint(
        "POST",
        "expect",
        "expect",
        "read",
        "Expect rewards",
        "The expected reward of each action in some contexts with its interval, by the serving version's teacher. It "
        "needs the extra `learn` where the service runs. Nothing is logged.",
        (wire.ExpectRequest,),
        (expect.ExpectReply,),
        (*_BODY, 409),
        "single",
    ),
    Endpoint(
        "GET",
        "evaluation",
        "evaluation",
        "read",
        "Read the evaluation",
        "The last evaluation of what could serve, and the progress of the one that runs on this machine.",
        reply=(evaluation.EvaluationReply,),
        refusals=(503,),
    ),
    Endpoint(
        "GET",
        "experiment",
        "experiment",
        "read",
        "Report the experiment",
        "What `potstill experiment` reports: effects with intervals, checks and a verdict.",
        reply=(experiment.ExperimentReply,),
        refusals=(404, 422, 503),
        query=experiment.ExperimentQuery,
    ),
)

_REFUSED = (400, 408, 413, 415, 503)
#: Where they are.
PERSONALIZER = "/personalizer/v1.0/"
#: Endpoints of Azure Personalizer v1.0, if the service is asked for them. Their errors
#: have the shape of Personalizer; what is 422 elsewhere is 400.
PERSONALIZER_ENDPOINTS = (
    Endpoint(
        "POST",
        "rank",
        "rank",
        "decide",
        "Rank",
        "Decides as `decide` does: `rewardActionId` is the action to carry out. Features of the context go by their "
        "path, such as `user.age`; features of actions are not used. With `deferActivation` the decision is held on "
        "disk, and logged when it is activated.",
        (personalizer.RankRequest,),
        (personalizer.RankReply,),
        (*_REFUSED, 409),
        "single",
        201,
    ),
    Endpoint(
        "POST",
        "events/{eventId}/reward",
        "rank_reward",
        "reward",
        "Reward an event",
        "Reports the reward of an event; the reply comes when it is on disk.",
        (personalizer.RewardValue,),
        (),
        _REFUSED,
        "single",
        204,
    ),
    Endpoint(
        "POST",
        "events/{eventId}/activate",
        "rank_activate",
        "reward",
        "Activate an event",
        "Logs a decision that was ranked with `deferActivation`. Until then nothing learns from it.",
        refusals=(404, 503),
        status=204,
    ),
)
#: What their statuses mean, where it differs.
PERSONALIZER_REFUSALS = {
    **REFUSALS,
    400: "The request is not JSON, or does not fit.",
    404: "No decision is held under this id, or has been logged lately.",
    409: "The event was ranked before with other features or actions.",
}

#: Endpoints of the service. Those with a scope show only the problems that the token is for.
SERVICE_ENDPOINTS = (
    Endpoint("GET", "health", "health", None, "Whether the process is alive", reply=(wire.HealthReply,)),
    Endpoint(
        "GET",
        "ready",
        "ready",
        None,
        "Whether every problem has a policy and a writable log",
        reply=(wire.HealthReply,),
        refusals=(503,),
    ),
    Endpoint("GET", "metrics", "metrics", "read", "Metrics for Prometheus", refusals=(404, 503), media="text/plain"),
    Endpoint("GET", "openapi.json", "openapi", "read", "This document"),
    Endpoint("GET", "docs", "docs", None, "This document as a page", media="text/html"),
)


def personalizer_types() -> Iterator[type[Any]]:
    """Types of the requests and replies of Personalizer."""
    yield from (kind for row in PERSONALIZER_ENDPOINTS for kind in (*row.request, *row.reply))


def wire_types() -> Iterator[type[Any]]:
    """Types of all requests and replies of a problem, each once."""
    listed = [kind for row in PROBLEM_ENDPOINTS for kind in (*row.request, *row.reply)]
    yield from dict.fromkeys(listed)
