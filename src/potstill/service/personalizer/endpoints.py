"""Rank, reward and activate, in terms of the service: each decision takes the same path as that of `decide`."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from potstill.errors import InvalidContext, PotstillError
from potstill.events import DecisionBlock, DecisionRow, LoggedReward, now
from potstill.policy import Policy
from potstill.problem import fit_context, flatten
from potstill.service.decide import Decisions, values_of
from potstill.service.http import Headers, Refusal, Reply, json, unavailable, undecodable, unfit
from potstill.service.personalizer.held import HeldDecisions
from potstill.service.personalizer.wire import RankedAction, RankReply, RankRequest, RewardValue
from potstill.service.problem_service import ProblemService
from potstill.service.wire import DecideReply, DecideRequest
from potstill.spaces import FiniteSpace, finite

_read_rank = msgspec.json.Decoder(RankRequest).decode
_read_reward = msgspec.json.Decoder(RewardValue).decode
_read_held = msgspec.msgpack.Decoder(tuple[DecideReply, list[DecisionRow | DecisionBlock]]).decode
#: Modes in which the policy's probabilities are those of the reply.
_BY_POLICY = ("online", "apprentice")
#: File of held decisions, in the folder of the log.
FILE = "held.sqlite"
T = TypeVar("T")

_UNKNOWN = (
    "no deferred decision has this event id here: it was not ranked with deferActivation on this machine, or longer "
    "ago than decisions are held"
)


class PersonalizerEndpoints:
    """The endpoints of Personalizer for one problem; each takes the id of an event, a body and headers.

    Args:
        service: The problem; its actions are a list.
    """

    def __init__(self, service: ProblemService) -> None:
        self._service, self._problem = service, service.workspace.problem
        self._space: FiniteSpace = finite(self._problem.actions, "the interface of Personalizer")
        self._places = {name: place for place, name in enumerate(self._space.labels)}
        self._request = service.requests.types[DecideRequest]
        self._held = HeldDecisions(service.workspace.spool / FILE)

    async def rank(self, _: str, body: bytes, __: Headers) -> Reply:
        """Decide; the reply comes when the decision is on disk, logged or held."""
        began = time.perf_counter()
        asked: RankRequest = _decoded(_read_rank, body)
        request = self._decide_request(asked)
        if asked.defer_activation and not await self._is_logged(request.id):
            reply = await self._hold(request)
        else:
            (reply,) = await self._service.decide_one(request)
        ranking = await self._ranking(asked, request, reply)
        self._service.recorder.time_decide(time.perf_counter() - began)
        return json(RankReply(ranking, reply.id, reply.action), 201)

    async def rank_reward(self, event: str, body: bytes, _: Headers) -> Reply:
        """Log the reward of an event."""
        asked: RewardValue = _decoded(_read_reward, body)
        await self._service.log([LoggedReward(id=event, reward=asked.value)])
        self._service.counts.rewards += 1
        self._service.recorder.count_rewards(1)
        return Reply(b"", 204)

    async def rank_activate(self, event: str, _: bytes, __: Headers) -> Reply:
        """Log a decision that was held; a decision that is logged already stays as it is."""
        held = await _on_disk(self._held.find, event)
        if held is None:
            if not await self._service.has_decided(event):
                raise Refusal(404, "unknown", _UNKNOWN)
        elif not held.activated:
            reply, rows = _read_held(held.decision)
            await self._service.log_drawn(Decisions([reply], [self._activated(row) for row in rows]))
            await _on_disk(self._held.mark, event)
        return Reply(b"", 204)

    def _activated(self, row: DecisionRow | DecisionBlock) -> DecisionRow | DecisionBlock:
        """A row that is activated now: within its window it counts from its request, as in Personalizer; else from now.

        The join has not reached the former yet, and rewards that came before the activation count. The latter would
        have no window left.
        """
        window = self._problem.reward.window_seconds * 1_000_000
        return row if now() < row.time + window else msgspec.structs.replace(row, time=now())

    def _decide_request(self, asked: RankRequest) -> DecideRequest:
        """The request to decide: features by name, and eligible actions where not all are offered."""
        offered = self._offered(asked)
        try:
            context = fit_context(self._problem.context, flatten(asked.context_features or []))
        except InvalidContext as error:
            raise unfit(str(error)) from error
        stated: dict[str, Any] = {"context": context, "id": asked.event_id}
        if len(offered) < len(self._space):
            stated["eligible"] = sorted(offered, key=self._places.__getitem__)
        if self._service.snapshots.current.mode == "apprentice":
            stated["action"] = offered[0]  # the baseline of Personalizer
        try:
            found: DecideRequest = msgspec.convert(stated, self._request)
        except msgspec.ValidationError as error:
            raise undecodable(error, self._problem.name) from error
        return found

    def _offered(self, asked: RankRequest) -> list[str]:
        """Ids of the actions that may be chosen, in the order of the request."""
        ids, excluded = [action.id for action in asked.actions], {*(asked.excluded_actions or ())}
        for place, name in enumerate(ids):
            if name not in self._places:
                raise unfit(
                    f"actions[{place}]: {name!r} is not an action of {self._problem.name!r}; add it with potstill "
                    "actions add, or leave it out"
                )
        if len({*ids}) < len(ids):
            raise unfit("actions: an id is stated twice; state each action once")
        offered = [name for name in ids if name not in excluded]
        if not offered:
            raise unfit("excludedActions: every action is excluded; leave one")
        return offered

    async def _is_logged(self, name: str | None) -> bool:
        """Whether a decision is logged already, and needs no activation."""
        return name is not None and self._service.knows(name) and await self._service.has_decided(name)

    async def _hold(self, request: DecideRequest) -> DecideReply:
        """Decide, and hold the decision on disk instead of logging it."""
        drawn = self._service.draw(request)
        (reply,) = drawn.replies
        digest = hashlib.sha256(msgspec.json.encode((values_of(request.context), request.eligible))).digest()
        held = await _on_disk(self._held.hold, reply.id, digest, msgspec.msgpack.encode((reply, drawn.rows)))
        if held.request != digest:
            raise Refusal(409, "conflict", "this event id was ranked before with other features or actions")
        found: DecideReply = _read_held(held.decision)[0]
        return found

    async def _ranking(self, asked: RankRequest, request: DecideRequest, reply: DecideReply) -> list[RankedAction]:
        """The chosen action, then the others by probability.

        As in Personalizer, excluded ones stay at their places, unless it is the first.
        """
        p = await self._probabilities(request, reply)
        ids, excluded = [action.id for action in asked.actions], {*(asked.excluded_actions or ())}
        stay = {place: name for place, name in enumerate(ids) if place and name in excluded}
        others = [name for name in ids if name != reply.action and name not in stay.values()]
        others.sort(key=lambda name: (name in excluded, -p.get(name, 0.0)))
        ranked = iter([reply.action, *others])
        names = [stay.get(place) or next(ranked) for place in range(len(ids))]
        return [RankedAction(name, 0.0 if name in excluded else p.get(name, 0.0)) for name in names]

    async def _probabilities(self, request: DecideRequest, reply: DecideReply) -> Mapping[str, float]:
        """Probability of each action, by the version that decided; 1 where no policy did."""
        if reply.mode not in _BY_POLICY:
            return {reply.action: 1.0}
        policy = self._service.snapshots.current.policy
        if policy is None or policy.version != reply.policy:  # a repeated decision, or a version has come meanwhile
            policy = await self._version(reply.policy)
        eligible = None if request.eligible is None else self._space.allow([request.eligible])
        p = policy.distribution(policy.encode_rows([values_of(request.context)]), eligible=eligible)
        found = dict(zip(self._space.labels, _row(p), strict=True))
        return {**found, reply.action: reply.propensity}

    async def _version(self, version: int) -> Policy:
        try:
            return await asyncio.to_thread(self._service.workspace.registry.policy, version)
        except (PotstillError, OSError) as error:
            raise unavailable("policy", f"the version that decided cannot be read: {error}") from error


def _row(distribution: Any) -> Sequence[float]:
    found: list[float] = distribution.p[0].tolist()
    return found


def _decoded(decode: Callable[[bytes], Any], body: bytes) -> Any:
    try:
        return decode(body)
    except msgspec.ValidationError as error:
        raise unfit(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "json", f"the body is not JSON: {error}") from error


async def _on_disk(work: Callable[..., T], *arguments: object) -> T:
    try:
        return await asyncio.to_thread(work, *arguments)
    except (sqlite3.Error, OSError) as error:
        raise unavailable("log", "held decisions cannot be read or written; nothing was recorded; retry") from error
