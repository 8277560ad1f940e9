"""The endpoints of one problem: from the bytes of a request to a reply."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from potstill.events import Event, LoggedDecision, LoggedObservation, LoggedReward
from potstill.registry import Conflict, CorruptVersion, OtherProblem, UnknownVersion
from potstill.service import docs_page, status
from potstill.service.auth import allowed
from potstill.service.http import (
    OCTETS,
    Headers,
    Refusal,
    Reply,
    header,
    json,
    too_large,
    unavailable,
    undecodable,
    unfit,
)
from potstill.service.limits import Options
from potstill.service.metrics import CONTENT_TYPE, Metrics
from potstill.service.openapi import document
from potstill.service.problem_service import Served
from potstill.service.snapshot import write_mode
from potstill.service.status import looked_up, ready
from potstill.service.wire import (
    Accepted,
    BatchDecided,
    DecideRequest,
    ModeRequest,
    Moved,
    Observation,
    ObservedReward,
    Rewarded,
    RewardRequest,
    RewardsRequest,
    RollbackRequest,
    micros,
)
from potstill.workspace.config import InvalidConfig

_one_reward = msgspec.json.Decoder(RewardRequest).decode
_many_rewards = msgspec.json.Decoder(RewardsRequest).decode


class Endpoints:
    """The endpoints of one problem; each takes the body and the headers of a request.

    Args:
        served: the problem.
        max_batch: the most requests, rewards or observations at a time.
    """

    def __init__(self, served: Served, max_batch: int) -> None:
        self._served, self._max_batch = served, max_batch
        self._problem = msgspec.json.encode(
            {**msgspec.to_builtins(served.workspace.problem), "hash": served.workspace.problem.hash}
        )

    async def decide(self, body: bytes, _: Headers) -> Reply:
        """Take one decision."""
        began = time.perf_counter()
        (decided,) = await self._served.decide(lambda: [self._read(self._served.requests.read_decide, body)])
        self._served.counting.took(time.perf_counter() - began)
        return json(decided)

    async def decide_batch(self, body: bytes, _: Headers) -> Reply:
        """Take several decisions, by one policy."""
        began = time.perf_counter()
        decided = await self._served.decide(lambda: self._read_batch(body))
        self._served.counting.took(time.perf_counter() - began)
        return json(BatchDecided(decided))

    async def reward(self, body: bytes, _: Headers) -> Reply:
        """Take up one reward, or several."""
        request = self._read(_rewards, body)
        rewards = [request] if isinstance(request, RewardRequest) else request.rewards
        self._refuse_large(len(rewards))
        await self._served.log([_logged_reward(reward.id, reward) for reward in rewards])
        self._served.counts.rewards += len(rewards)
        self._served.counting.rewarded(len(rewards))
        return json(Rewarded(request.id) if isinstance(request, RewardRequest) else Accepted(len(rewards)), 202)

    async def observe(self, body: bytes, _: Headers) -> Reply:
        """Take up decisions that were taken elsewhere."""
        observations = self._read(self._served.requests.read_observe, body).observations
        self._refuse_large(len(observations))
        features = self._served.requests.features
        await self._served.log([event for one in observations for event in _events(one, features)])
        self._served.counting.observed(len(observations))
        return json(Accepted(len(observations)), 202)

    async def policy(self, _: bytes, headers: Headers) -> Reply:
        """The file of the policy that serves."""
        snapshot = self._served.serving.now
        if snapshot.policy is None:
            raise unavailable("policy", "there is no sound policy to send; try again, or roll back to one")
        about = ((b"etag", snapshot.etag.encode()), (b"x-potstill-version", b"%d" % snapshot.policy.version))
        if _matches(header(headers, b"if-none-match"), snapshot.etag.encode()):
            return Reply(b"", 304, OCTETS, about)
        return Reply(snapshot.artifact, 200, OCTETS, about)

    async def problem(self, _: bytes, __: Headers) -> Reply:
        """What is decided."""
        return Reply(self._problem)

    async def status(self, _: bytes, __: Headers) -> Reply:
        """How it stands."""
        return json(await status.looked_up(status.status, self._served))

    async def rollback(self, body: bytes, _: Headers) -> Reply:
        """Return to a version that served before."""
        request = self._read(msgspec.json.Decoder(RollbackRequest).decode, body)
        with _refusing():
            await asyncio.to_thread(self._served.workspace.registry.rollback, request.to, request.note)
        return await self._moved()

    async def mode(self, body: bytes, _: Headers) -> Reply:
        """Answer in another mode."""
        request = self._read(msgspec.json.Decoder(ModeRequest).decode, body)
        workspace = self._served.workspace
        with _refusing():
            await asyncio.to_thread(write_mode, workspace.storage, workspace.config.serve, request.mode)
        return await self._moved()

    async def _moved(self) -> Reply:
        await self._served.reload()
        snapshot = self._served.serving.now
        return json(Moved(serving=None if snapshot.policy is None else snapshot.policy.version, mode=snapshot.mode))

    def _read(self, decode: Callable[[bytes], Any], body: bytes) -> Any:
        try:
            return decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise undecodable(error, self._served.name) from error

    def _read_batch(self, body: bytes) -> list[DecideRequest]:
        requests: list[DecideRequest] = self._read(self._served.requests.read_batch, body).requests
        self._refuse_large(len(requests))
        return requests

    def _refuse_large(self, count: int) -> None:
        if count > self._max_batch:
            raise too_large(f"at most {self._max_batch} at a time, got {count}; send them in several requests")


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """What can be wrong with an administrator's request."""
    try:
        yield
    except UnknownVersion as error:
        raise Refusal(404, "unknown", str(error)) from error
    except (Conflict, CorruptVersion, OtherProblem) as error:
        raise Refusal(409, "conflict", str(error)) from error
    except InvalidConfig as error:
        raise unfit(str(error)) from error
    except OSError as error:
        raise unavailable("storage", "the workspace cannot be written now; try again") from error


def _rewards(body: bytes) -> RewardRequest | RewardsRequest:
    """One reward or several: the field `rewards` makes the difference, and may be text in a reward."""
    if b'"rewards"' not in body:
        return _one_reward(body)
    try:
        return _many_rewards(body)
    except msgspec.ValidationError:
        with contextlib.suppress(msgspec.ValidationError):
            return _one_reward(body)
        raise


def _logged_reward(decision_id: str, reward: RewardRequest | ObservedReward) -> LoggedReward:
    return LoggedReward(
        id=decision_id, reward=reward.reward, key=reward.key, metrics=reward.metrics, time=micros(reward.time)
    )


def _events(observation: Observation, features: Sequence[str]) -> list[Event]:
    decision = LoggedDecision(
        id=observation.id,
        context=dict(zip(features, msgspec.structs.astuple(observation.context), strict=True)),
        action=observation.action,
        propensity=observation.propensity,
        policy=observation.policy,
        eligible=observation.eligible,
        floor=observation.floor,
        unit=observation.unit,
        time=micros(observation.time),
    )
    first: Event = decision
    if observation.reward is not None or observation.metrics is not None:
        first = LoggedObservation(
            decision=decision,
            reward=observation.reward,
            reward_time=micros(observation.reward_time),
            metrics=observation.metrics,
        )
    return [first, *(_logged_reward(observation.id, reward) for reward in observation.rewards)]


def _matches(stated: bytes | None, etag: bytes) -> bool:
    """Whether a caller has these bytes already."""
    return stated is not None and (stated.strip() == b"*" or etag in stated)


class Whole:
    """The endpoints of the service as a whole."""

    def __init__(self, problems: Sequence[Served], options: Options, metrics: Metrics | None) -> None:
        self._problems, self._options, self._metrics = problems, options, metrics
        self._names = [served.name for served in problems]

    async def health(self, _: bytes, __: Headers) -> Reply:
        """The process lives."""
        return json({"status": "alive"})

    async def ready(self, _: bytes, __: Headers) -> Reply:
        """Every problem has a policy, and its log takes events."""
        for served in self._problems:
            if not await looked_up(ready, served):
                raise unavailable("not ready", "a problem has no sound policy, or its log cannot be written")
        return json({"status": "ready"})

    async def metrics(self, _: bytes, headers: Headers) -> Reply:
        """What was counted, of the problems that the caller may see."""
        seen = allowed(self._options, self._names, headers, "read")
        if self._metrics is None:
            raise Refusal(404, "unknown", "this service counts nothing; potstill serve does")
        text = await looked_up(self._metrics.exposition, seen)
        return Reply(text, content_type=CONTENT_TYPE.encode())

    async def openapi(self, _: bytes, headers: Headers) -> Reply:
        """What can be asked, of the problems that the caller may see."""
        seen = allowed(self._options, self._names, headers, "read")
        problems = [served.workspace.problem for served in self._problems if served.name in seen]
        secured = any(not guard.open for guard in self._options.guards.values())
        return json(document(problems, secured=secured, max_batch=self._options.max_batch))

    async def docs(self, _: bytes, __: Headers) -> Reply:
        """A page that shows it."""
        return Reply(docs_page.PAGE, content_type=docs_page.CONTENT_TYPE, headers=docs_page.HEADERS)
