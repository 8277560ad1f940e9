"""Endpoints: from the body and headers of a request to a reply. `routes` lists them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import msgspec

from potstill.events import Event, LoggedDecision, LoggedObservation, LoggedReward, now
from potstill.policy import Policy
from potstill.registry import Conflict, CorruptVersion, OtherProblem, Registry, UnknownVersion
from potstill.service import docs_page, status
from potstill.service.auth import author, visible
from potstill.service.http import (
    OCTETS,
    Headers,
    Refusal,
    Reply,
    header,
    json,
    too_large,
    unavailable,
    unfit,
)
from potstill.service.limits import Options
from potstill.service.metrics import CONTENT_TYPE, Metrics
from potstill.service.openapi import document
from potstill.service.problem_service import ProblemService
from potstill.service.read_body import read_body
from potstill.service.reads import ReadEndpoints, actions, evaluation, items, staging
from potstill.service.snapshot import write_mode
from potstill.service.status import in_thread, is_ready
from potstill.service.wire import (
    AcceptedReply,
    ActionRequest,
    AdminReply,
    BatchReply,
    ChangeRequest,
    DecideRequest,
    HealthReply,
    ItemsRequest,
    ModeRequest,
    Observation,
    ObservedReward,
    PinRequest,
    PromoteRequest,
    RewardReply,
    RewardRequest,
    RewardsRequest,
    RollbackRequest,
    hold_reply,
    micros,
)
from potstill.workspace import InvalidConfig, check_mode, in_words, is_uniform

Asked = TypeVar("Asked", bound=ChangeRequest)
_one_reward = msgspec.json.Decoder(RewardRequest).decode
_many_rewards = msgspec.json.Decoder(RewardsRequest).decode
#: Fields that an observation hands to the log as they are.
_SHARED = tuple(
    {*Observation.__struct_fields__} & {*LoggedDecision.__struct_fields__} - {"context", "time"},
)


class ProblemEndpoints(ReadEndpoints):
    """The endpoints of one problem; each takes the body and the headers of a request.

    Args:
        service: The problem.
        options: Limits, and the tokens that name the author of an administrator's request.
    """

    def __init__(self, service: ProblemService, options: Options) -> None:
        super().__init__(service)
        self._max_batch, self._guards = options.max_batch, options.guards
        self._problem = msgspec.json.encode(
            {**msgspec.to_builtins(service.workspace.problem), "hash": service.workspace.problem.hash}
        )

    async def decide(self, body: bytes, _: Headers) -> Reply:
        """Take one decision."""
        began = time.perf_counter()
        (reply,) = await self._service.decide_one(self._read(self._service.requests.read_decide, body))
        self._service.recorder.time_decide(time.perf_counter() - began)
        return json(reply)

    async def decide_batch(self, body: bytes, _: Headers) -> Reply:
        """Take several decisions by one policy."""
        began = time.perf_counter()
        replies = await self._service.decide(lambda: self._read_batch(body))
        self._service.recorder.time_decide(time.perf_counter() - began)
        return json(BatchReply(replies))

    async def reward(self, body: bytes, _: Headers) -> Reply:
        """Log one reward, or several."""
        request = self._read(_rewards, body)
        rewards = [request] if isinstance(request, RewardRequest) else request.rewards
        self._refuse_large(len(rewards))
        await self._service.log([_logged_reward(reward.id, reward) for reward in rewards])
        self._service.counts.rewards += len(rewards)
        self._service.recorder.count_rewards(len(rewards))
        return json(RewardReply(request.id) if isinstance(request, RewardRequest) else AcceptedReply(len(rewards)), 202)

    async def observe(self, body: bytes, _: Headers) -> Reply:
        """Log decisions that devices took on their own."""
        observations = self._read(self._service.requests.read_observe, body).observations
        self._refuse_large(len(observations))
        features = self._service.requests.features
        await self._service.log([event for one in observations for event in _events(one, features)])
        self._service.recorder.count_observations(len(observations))
        return json(AcceptedReply(len(observations)), 202)

    async def policy(self, _: bytes, headers: Headers) -> Reply:
        """The serving policy's file."""
        snapshot = self._service.snapshots.current
        if snapshot.policy is None:
            raise unavailable("policy", "no usable policy is loaded; retry, or roll back to a usable version")
        about = (
            (b"etag", snapshot.etag.encode()),
            (b"x-potstill-version", b"%d" % snapshot.policy.version),
            (b"x-potstill-time", b"%.3f" % (now() / 1e6)),  # not Date: the machine's clock may be wrong
        )
        if _matches(header(headers, b"if-none-match"), snapshot.etag.encode()):
            return Reply(b"", 304, OCTETS, about)
        return Reply(snapshot.artifact, 200, OCTETS, about)

    async def problem(self, _: bytes, __: Headers) -> Reply:
        """The problem, as JSON."""
        return Reply(self._problem)

    async def status(self, _: bytes, __: Headers) -> Reply:
        """Status of the problem."""
        return json(await in_thread(status.status, self._service))

    async def rollback(self, body: bytes, headers: Headers) -> Reply:
        """Return to a version that served before, and pin it."""
        return await self._change(
            RollbackRequest, body, headers, lambda r, asked, by: r.rollback(asked.to, asked.reason or asked.note, by)
        )

    async def pin(self, body: bytes, headers: Headers) -> Reply:
        """Pin the serving version or another."""
        return await self._change(
            PinRequest, body, headers, lambda r, asked, by: r.pin(asked.version, asked.reason, by)
        )

    async def unpin(self, body: bytes, headers: Headers) -> Reply:
        """Release the pin."""
        return await self._change(ChangeRequest, body, headers, lambda r, asked, by: r.unpin(asked.reason, by))

    async def pause(self, body: bytes, headers: Headers) -> Reply:
        """Pause updates."""
        return await self._change(ChangeRequest, body, headers, lambda r, asked, by: r.pause(asked.reason, by))

    async def resume(self, body: bytes, headers: Headers) -> Reply:
        """Resume updates."""
        return await self._change(ChangeRequest, body, headers, lambda r, asked, by: r.resume(asked.reason, by))

    async def promote(self, body: bytes, headers: Headers) -> Reply:
        """Serve a staged or a refused version."""

        def change(registry: Registry, asked: PromoteRequest, by: str) -> None:
            if asked.gates:
                self._pass_gates(registry, asked.version)
            registry.serve(asked.version, asked.reason, by)

        return await self._change(PromoteRequest, body, headers, change)

    async def mode(self, body: bytes, headers: Headers) -> Reply:
        """Change the mode; the registry records who did it, before it is done."""
        workspace = self._service.workspace

        def change(registry: Registry, asked: ModeRequest, by: str) -> None:
            check_mode(asked.mode, workspace.config.serve)
            with contextlib.suppress(UnknownVersion):  # nothing serves yet, and there is no journal to write in
                registry.record_mode(asked.mode, asked.reason, by)
            write_mode(workspace.storage, workspace.config.serve, asked.mode)

        return await self._change(ModeRequest, body, headers, change)

    async def _change(
        self, kind: type[Asked], body: bytes, headers: Headers, change: Callable[[Registry, Asked, str], object]
    ) -> Reply:
        """Change the registry as an administrator asks."""
        asked: Asked = self._read(msgspec.json.Decoder(kind).decode, body)
        by = author(self._guards, self._service.name, headers, asked.by)
        with _refusing():
            await asyncio.to_thread(change, self._service.workspace.registry, asked, by)
        return await self._admin_reply()

    async def change_actions(self, body: bytes, headers: Headers) -> Reply:
        """Add, retire or remove an action."""
        asked: ActionRequest = self._read(msgspec.json.Decoder(ActionRequest).decode, body)
        by = author(self._guards, self._service.name, headers, asked.by)
        with _refusing():
            return json(await actions.change_actions(self._service, asked, by))

    async def change_items(self, body: bytes, headers: Headers) -> Reply:
        """Add, change or remove items of a catalogue."""
        asked: ItemsRequest = self._read(msgspec.json.Decoder(ItemsRequest).decode, body)
        by = author(self._guards, self._service.name, headers, asked.by)
        with _refusing():
            return json(await items.change_items(self._service, asked, by))

    async def stage(self, body: bytes, headers: Headers) -> Reply:
        """Begin an update that stages its version."""
        asked: ChangeRequest = self._read(msgspec.json.Decoder(ChangeRequest).decode, body)
        by = author(self._guards, self._service.name, headers, asked.by)
        await staging.begin_staging(self._service, asked.reason, by)
        return json(await in_thread(staging.read_staging, self._service), 202)

    async def evaluate(self, body: bytes, headers: Headers) -> Reply:
        """Begin an evaluation."""
        asked: ChangeRequest = self._read(msgspec.json.Decoder(ChangeRequest).decode, body)
        by = author(self._guards, self._service.name, headers, asked.by)
        await evaluation.begin_evaluation(self._service, by)
        return json(await in_thread(evaluation.read_evaluation, self._service), 202)

    def _pass_gates(self, registry: Registry, version: int) -> None:
        """Return if nothing is against a version; `Refusal` otherwise."""
        listed = {one.version: one for one in registry.versions(version - 1)}
        against = [*listed[version].reasons] if version in listed else []
        if (worse := evaluation.worse_than_serving(self._service, version)) is not None:
            against.append(worse)
        if against:
            said = "; ".join(against)
            raise Refusal(409, "gates", f"the gates refuse version {version}: {said}; potstill promote overrides")

    async def _admin_reply(self) -> Reply:
        await self._service.reload()
        snapshot = self._service.snapshots.current
        serving = None if snapshot.policy is None else snapshot.policy.version
        reply = AdminReply(
            serving=serving,
            mode=snapshot.mode,
            pinned=hold_reply(snapshot.pinned),
            paused=hold_reply(snapshot.paused),
            notice=_uniform_notice(snapshot.policy),
        )
        return json(reply)

    def _read(self, decode: Callable[[bytes], Any], body: bytes) -> Any:
        return read_body(decode, body, self._service.name)

    def _read_batch(self, body: bytes) -> list[DecideRequest]:
        requests: list[DecideRequest] = self._read(self._service.requests.read_batch, body).requests
        self._refuse_large(len(requests))
        return requests

    def _refuse_large(self, count: int) -> None:
        if count > self._max_batch:
            raise too_large(f"at most {self._max_batch} at a time, got {count}; send them in several requests")


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Turn the errors of an administrator's request into refusals."""
    try:
        yield
    except UnknownVersion as error:
        raise Refusal(404, "unknown", str(error)) from error
    except (Conflict, CorruptVersion, OtherProblem) as error:
        raise Refusal(409, "conflict", str(error)) from error
    except InvalidConfig as error:
        raise unfit(str(error)) from error
    except OSError as error:
        raise unavailable("storage", "the workspace cannot be written now; retry") from error


def _uniform_notice(policy: Policy | None) -> str | None:
    """Says that a version has learnt nothing, in case somebody rolled back so far; None if it has."""
    if policy is None or not is_uniform(policy):
        return None
    return f"version {policy.version} is {in_words(policy)}"


def _rewards(body: bytes) -> RewardRequest | RewardsRequest:
    """One reward or several, told apart by the field `rewards`; the word may also be a value of a single reward."""
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
    stated = {name: getattr(observation, name) for name in _SHARED}
    context = dict(zip(features, msgspec.structs.astuple(observation.context), strict=True))
    decision = LoggedDecision(context=context, time=micros(observation.time), **stated)
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


class ServiceEndpoints:
    """The endpoints of the service."""

    def __init__(self, problems: Sequence[ProblemService], options: Options, metrics: Metrics | None) -> None:
        self._problems, self._options, self._metrics = problems, options, metrics
        self._names = [service.name for service in problems]

    async def health(self, _: bytes, __: Headers) -> Reply:
        """The process is alive."""
        return json(HealthReply("alive"))

    async def ready(self, _: bytes, __: Headers) -> Reply:
        """Every problem has a policy, and its log can be written."""
        for service in self._problems:
            if not await in_thread(is_ready, service):
                raise unavailable("not ready", "a problem has no usable policy, or its log cannot be written")
        return json(HealthReply("ready"))

    async def metrics(self, _: bytes, headers: Headers) -> Reply:
        """Metrics of the problems that the caller may see."""
        seen = visible(self._options.guards, self._names, headers, "read")
        if self._metrics is None:
            raise Refusal(404, "unknown", "this service has no metrics; potstill serve has")
        text = await in_thread(self._metrics.exposition, seen)
        return Reply(text, content_type=CONTENT_TYPE.encode())

    async def openapi(self, _: bytes, headers: Headers) -> Reply:
        """The OpenAPI document of the problems that the caller may see."""
        seen = visible(self._options.guards, self._names, headers, "read")
        problems = [service.workspace.problem for service in self._problems if service.name in seen]
        closed = {name for name, guard in self._options.guards.items() if not guard.open}
        hidden = len(self._problems) - len(problems)
        limit, personalizer = self._options.max_batch, self._options.personalizer
        return json(document(problems, closed=closed, hidden=hidden, max_batch=limit, personalizer=personalizer))

    async def docs(self, _: bytes, __: Headers) -> Reply:
        """The OpenAPI document as a page."""
        return Reply(docs_page.PAGE, content_type=docs_page.CONTENT_TYPE, headers=docs_page.HEADERS)
