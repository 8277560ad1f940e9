"""From requests to decisions, and to the rows that log them. Pure computation: no waiting, no disk."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple

import msgspec
import numpy as np

from potstill.events import ID_BYTES, DecisionBlock, DecisionRow, now, text
from potstill.policy import Policy, digests
from potstill.problem import Problem
from potstill.service.http import unfit
from potstill.service.snapshot import Snapshot
from potstill.service.wire import DecideReply, DecideRequest, Mode
from potstill.spaces import ActionSpace, Allowed, FiniteSpace

#: Values of a context, in the order of the features.
values_of = msgspec.structs.astuple

#: Smallest propensity that is logged: the log refuses zero, and tables hold float32. It matters in mode apprentice,
#: where the policy may all but rule out the caller's choice.
SMALLEST = float(np.finfo(np.float32).tiny)


class Batch:
    """Requests that are decided together.

    Attributes:
        requests: The requests.
        ids: Their ids; None where one is to be generated.
        values: Values of their contexts, in the order of the features.
        eligible: Their restrictions; None if every request allows all actions.
        digests: Digests of context and restriction; requests that differ in them have different digests, with
            probability close to 1.
        arms: Their arms; None outside of experiments. Set by the experiment.
    """

    __slots__ = ("arms", "digests", "eligible", "ids", "requests", "values")

    def __init__(self, requests: Sequence[DecideRequest]) -> None:
        self.requests = requests
        self.arms: list[str | None] | None = None
        self.ids = [request.id for request in requests]
        self.values = [values_of(request.context) for request in requests]
        eligible = [request.eligible for request in requests]
        self.eligible = None if eligible.count(None) == len(eligible) else eligible
        self.digests = context_digests(self.values, self.eligible)

    def __len__(self) -> int:
        return len(self.requests)

    def at(self, places: Sequence[int]) -> Batch:
        """The requests at some places."""
        return Batch([self.requests[place] for place in places])


class Decisions(NamedTuple):
    """Replies in the order of the requests, and the rows to log."""

    replies: list[DecideReply]
    rows: list[DecisionRow | DecisionBlock]


def decide_parts(batch: Batch, parts: Sequence[tuple[list[int], Callable[[Batch], Decisions]]]) -> Decisions:
    """Decide the requests at some places in one way and others in another; replies are in the order of the requests.

    Args:
        batch: The requests.
        parts: Places, and what decides them; each place is in one part.
    """
    by_place: dict[int, DecideReply] = {}
    rows: list[DecisionRow | DecisionBlock] = []
    for places, decide in parts:
        if places:
            made = decide(batch if len(places) == len(batch) else batch.at(places))
            by_place.update(zip(places, made.replies, strict=True))
            rows.extend(made.rows)
    return Decisions([by_place[place] for place in range(len(batch))], rows)


class Decider:
    """Decides requests of one problem.

    Args:
        problem: The problem.
        fallback: Action to take when the policy must not or cannot decide; None if there is none.
    """

    def __init__(self, problem: Problem, fallback: Any) -> None:
        self._space: ActionSpace = problem.actions
        self._fallback = fallback
        # The wire type of a finite space is its canonical form: a tuple of actions.
        self._canonical = isinstance(problem.actions, FiniteSpace)

    def decide(self, snapshot: Snapshot, batch: Batch) -> Decisions | None:
        """Decide requests by one snapshot; None if there is neither a policy nor a fallback action.

        Raises:
            Refusal: A request does not fit the mode.
            InvalidAction: A restriction is not of the action space.
            InvalidEvent: An id is too long.
            InvalidPolicy: The policy cannot decide one of them.
        """
        check_own_actions(snapshot, batch.requests)
        policy = snapshot.policy
        if snapshot.mode == "log-only":
            return self.fall_back(snapshot, batch, mode="log-only")
        if policy is None:
            return self.fall_back(snapshot, batch)
        if snapshot.mode == "apprentice":
            return self._apprentice(policy, batch)
        if len(batch) > 1:
            return self._decide_many(policy, batch)
        return self.decide_one(
            policy, batch.requests[0], batch.values[0], None if batch.arms is None else batch.arms[0]
        )

    def decide_one(
        self, policy: Policy, request: DecideRequest, values: tuple[Any, ...], arm: str | None = None
    ) -> Decisions:
        """Decide one request by a policy: what `decide` does with several, in a third of the time.

        Args:
            policy: The policy.
            request: The request.
            values: Values of its context, in the order of the features.
            arm: Its arm; None outside of experiments.
        """
        decision = policy.decide_row(values, id=request.id, eligible=request.eligible)
        name, action, p, version = text(decision.id, "id"), decision.action, decision.propensity, decision.policy
        row = DecisionRow(name, now(), action, p, version, decision.eligible, None, _unit(request), None, values, arm)
        return Decisions([DecideReply(name, action, p, version, "online", None, arm)], [row])

    def fall_back(
        self,
        snapshot: Snapshot,
        batch: Batch,
        *,
        mode: Mode = "fallback",
        ids: list[str] | None = None,
        time: int | None = None,
    ) -> Decisions | None:
        """The fallback action, or the first eligible one where it is not eligible; None if there is no fallback.

        In mode apprentice it is the caller's own choice, which is carried out in any case.

        Args:
            snapshot: States the version that did not decide.
            batch: The requests.
            mode: Why the policy did not decide.
            ids: Ids of the decisions that these replace; the requests' own, or generated ones, if left out.
            time: When it was decided; now if left out.
        """
        if self._fallback is None:
            return None
        actions = [self._fallback_of(request) for request in batch.requests]
        return self.fixed(snapshot, batch, actions, mode=mode, ids=ids, time=time)

    def fixed(
        self,
        snapshot: Snapshot,
        batch: Batch,
        actions: list[Any],
        *,
        mode: Mode,
        ids: list[str] | None = None,
        time: int | None = None,
    ) -> Decisions:
        """Given actions, each with propensity 1; other arguments are those of `fall_back`."""
        certain = [1.0] * len(batch)
        version = 0 if snapshot.policy is None else snapshot.policy.version
        moment = now() if time is None else time
        return self._decisions(batch, ids or _ids(batch), actions, certain, version, mode, moment)

    def _decide_many(self, policy: Policy, batch: Batch) -> Decisions:
        ids = _ids(batch)
        actions, propensities = policy.decide_rows(batch.values, ids, eligible=self._allowed(batch))
        values = self._space.decode(actions)
        return self._decisions(batch, ids, values, propensities.tolist(), policy.version, "online", now())

    def _apprentice(self, policy: Policy, batch: Batch) -> Decisions:
        """The callers' own choices, with the policy's propensities of them."""
        actions = [self._own_action(request, place) for place, request in enumerate(batch.requests)]
        ids, allowed = _ids(batch), self._allowed(batch)
        encoded = policy.encode_rows(batch.values)
        would = self._space.decode(policy.decide_many(encoded, ids, eligible=allowed)[0])
        own = [request.propensity for request in batch.requests]
        distribution = policy.distribution(encoded, eligible=allowed)
        propensities = np.maximum(distribution.propensity(self._space.encode(actions)), SMALLEST).tolist()
        return self._decisions(batch, ids, actions, propensities, policy.version, "apprentice", now(), would, own)

    def _decisions(
        self,
        batch: Batch,
        ids: list[str],
        actions: list[Any],
        propensities: list[float],
        version: int,
        mode: Mode,
        time: int,
        would: list[Any] | None = None,
        own: list[float | None] | None = None,
    ) -> Decisions:
        names, arms, eligible, units = _checked_ids(ids), batch.arms, self._restrictions(batch), _units(batch)
        logged = None if mode == "online" else mode
        stated = own if own is not None and any(one is not None for one in own) else None
        block = DecisionBlock(
            names,
            time,
            actions,
            propensities,
            version,
            eligible,
            None,
            units,
            logged,
            batch.values,
            arms,
            would,
            stated,
        )
        nothing = repeat(None)
        columns = (names, actions, propensities, repeat(version), repeat(mode), would or nothing, arms or nothing)
        return Decisions(list(map(DecideReply, *columns)), [block])

    def _restrictions(self, batch: Batch) -> list[Any] | None:
        """Restrictions in the form that is logged."""
        if batch.eligible is None or self._canonical:
            return batch.eligible
        return [None if one is None else self._space.restrict(one).value for one in batch.eligible]

    def _allowed(self, batch: Batch) -> Allowed | None:
        return None if batch.eligible is None else self._space.allow(batch.eligible)

    def _fallback_of(self, request: DecideRequest) -> Any:
        """What to do without a policy: the caller's own choice if there is one, else the fallback, if eligible."""
        if request.action is not None:
            return self._space.parse(request.action)
        if request.eligible is None:
            return self._fallback
        restriction = self._space.restrict(request.eligible)
        return self._fallback if restriction.permits(self._fallback) else restriction.first()

    def _own_action(self, request: DecideRequest, place: int) -> Any:
        action = self._space.parse(request.action)
        if request.eligible is not None and not self._space.restrict(request.eligible).permits(action):
            raise unfit(f"action {action!r} is not eligible; allow it, or choose another - at request {place}")
        return action


def context_digests(values: list[Any], eligible: Sequence[Any] | None) -> list[int]:
    """Digests of contexts and restrictions, for this process alone."""
    found = digests(values)
    if eligible is None:
        return found
    return [digest if one is None else _digest(digest, one) for digest, one in zip(found, eligible, strict=True)]


def _digest(context: int, eligible: Any) -> int:
    try:
        return hash((context, eligible))
    except TypeError:  # a restriction that is a list or a mapping
        return hash((context, msgspec.json.encode(eligible)))


def _ids(batch: Batch) -> list[str]:
    return [name or secrets.token_hex(16) for name in batch.ids]


def _checked_ids(ids: list[str]) -> list[str]:
    """Ids that the log accepts. Short ones need no check each."""
    return ids if max(map(len, ids)) * 4 <= ID_BYTES else [text(name, "id") for name in ids]


def _unit(request: DecideRequest) -> str | None:
    return None if request.unit is None else text(request.unit, "unit")


def _units(batch: Batch) -> list[str | None] | None:
    units = [request.unit for request in batch.requests]
    return [_unit(request) for request in batch.requests] if any(units) else None


def check_own_actions(snapshot: Snapshot, requests: Sequence[DecideRequest]) -> None:
    """Refuse a caller's own action or propensity outside of mode apprentice, and a request without an action in it."""
    wanted = snapshot.mode == "apprentice"
    if not wanted:
        _refuse_own_propensities(requests)
    if [request.action for request in requests].count(None) == (0 if wanted else len(requests)):
        return
    for place, request in enumerate(requests):
        if (request.action is not None) == wanted:
            continue
        if wanted:
            raise unfit(f"mode apprentice logs your own choice: state it in `action` - at request {place}")
        raise unfit(f"`action` is for mode apprentice, and the mode is {snapshot.mode} - at request {place}")


def _refuse_own_propensities(requests: Sequence[DecideRequest]) -> None:
    for place, request in enumerate(requests):
        if request.propensity is not None:
            raise unfit(
                "`propensity` is that of your own `action`, in mode apprentice; the reply states the policy's "
                f"- at request {place}"
            )
