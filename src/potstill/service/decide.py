"""From requests to decisions and the rows that are logged of them. Nothing here waits or touches a disk."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.events import now
from potstill.events.validate import ID_BYTES, text
from potstill.events.wal.segment import DecisionBlock, DecisionRow
from potstill.policy import Policy
from potstill.policy.native_runtime import digests
from potstill.problem import Problem
from potstill.service.http import unfit
from potstill.service.snapshot import Snapshot
from potstill.service.wire import Decided, DecideRequest, Mode

_values = msgspec.structs.astuple


#: The log takes no propensity of zero, and tables keep float32: where the policy all but rules out what the caller did.
SMALLEST = float(np.finfo(np.float32).tiny)


class Questions:
    """Requests that are decided together.

    Attributes:
        requests: as they came.
        ids: of theirs; None where one is to be made up.
        values: of their contexts, in the order of the features.
        eligible: of theirs; None if all of them allow all actions.
        digests: of their contexts and eligible actions; requests that differ in them have different ones, but for
            chance.
        arms: of the experiment that they are decided in, or None; set by it, and None if there is none.
    """

    __slots__ = ("arms", "digests", "eligible", "ids", "requests", "values")

    def __init__(self, requests: Sequence[DecideRequest]) -> None:
        self.requests = requests
        self.arms: list[str | None] | None = None
        self.ids = [request.id for request in requests]
        self.values = [_values(request.context) for request in requests]
        eligible = [request.eligible for request in requests]
        self.eligible = eligible if any(eligible) else None
        self.digests = digests(self.values)
        if self.eligible is not None:
            pairs = zip(self.digests, self.eligible, strict=True)
            self.digests = [digest if some is None else hash((digest, some)) for digest, some in pairs]

    def __len__(self) -> int:
        return len(self.requests)

    def at(self, places: Sequence[int]) -> Questions:
        """Those at some places."""
        return Questions([self.requests[place] for place in places])


class Outcome(NamedTuple):
    """Decisions: what is answered, in the order of the requests, and what is logged."""

    replies: list[Decided]
    rows: list[DecisionRow | DecisionBlock]


class Decider:
    """Decides requests of one problem.

    Args:
        problem: whose they are.
        fallback: the action to take when the policy is not to decide, or cannot; None if there is none.
    """

    def __init__(self, problem: Problem, fallback: str | None) -> None:
        self._names = problem.actions.names
        self._places = {name: place for place, name in enumerate(self._names)}
        self._fallback = fallback

    def decide(self, snapshot: Snapshot, asked: Questions) -> Outcome | None:
        """Decide requests by one snapshot; None if there is neither a policy nor an action to fall back to.

        Raises:
            Refusal: a request does not fit the mode.
            InvalidEvent: an id is too long.
            InvalidPolicy: the policy cannot decide one of them.
        """
        refuse_misplaced_actions(snapshot, asked.requests)
        policy = snapshot.policy
        if snapshot.mode == "log-only":
            return self.fall_back(snapshot, asked, mode="log-only")
        if policy is None:
            return self.fall_back(snapshot, asked)
        if snapshot.mode == "apprentice":
            return self._watched(policy, asked)
        return self._decided(policy, asked) if len(asked) == 1 else self._decided_many(policy, asked)

    def fall_back(
        self,
        snapshot: Snapshot,
        asked: Questions,
        *,
        mode: Mode = "fallback",
        ids: list[str] | None = None,
        time: int | None = None,
    ) -> Outcome | None:
        """The fallback action, or the first that is eligible if it is not; None if there is no fallback.

        In mode apprentice it is the caller's own choice, which is carried out in any case.

        Args:
            snapshot: says the version that did not decide.
            asked: what to answer.
            mode: why.
            ids: of decisions that these take the place of; theirs, or made up, if left out.
            time: when it was decided; now, if left out.
        """
        if self._fallback is None:
            return None
        actions = [_allowed(request, self._fallback) for request in asked.requests]
        return self.fixed(snapshot, asked, actions, mode=mode, ids=ids, time=time)

    def fixed(
        self,
        snapshot: Snapshot,
        asked: Questions,
        actions: list[str],
        *,
        mode: Mode,
        ids: list[str] | None = None,
        time: int | None = None,
    ) -> Outcome:
        """Actions that no policy had a part in, each with propensity 1; other arguments are those of `fall_back`."""
        surely = [1.0] * len(asked)
        version = 0 if snapshot.policy is None else snapshot.policy.version
        moment = now() if time is None else time
        return _outcome(asked, ids or _ids(asked), actions, surely, version, mode, moment)

    def _decided(self, policy: Policy, asked: Questions) -> Outcome:
        """One decision: what `_decided_many` does, in a third of the time."""
        (request,), (values,) = asked.requests, asked.values
        eligible = request.eligible
        taken = policy.decide(policy.encode_rows(asked.values)[0], id=request.id, eligible=eligible)
        name, action, p, version = text(taken.id, "id"), taken.action, taken.propensity, taken.policy
        arm = None if asked.arms is None else asked.arms[0]
        row = DecisionRow(name, now(), action, p, version, eligible, None, _unit(request), None, values, arm)
        return Outcome([Decided(name, action, p, version, "online", None, arm)], [row])

    def _decided_many(self, policy: Policy, asked: Questions) -> Outcome:
        ids, eligible = _ids(asked), self._mask(asked)
        places, propensities = policy.decide_many(policy.encode_rows(asked.values), ids, eligible=eligible)
        actions = [self._names[place] for place in places.tolist()]
        return _outcome(asked, ids, actions, propensities.tolist(), policy.version, "online", now())

    def _watched(self, policy: Policy, asked: Questions) -> Outcome:
        """The callers' own choices, with the policy's probabilities of them."""
        actions = [_own_choice(request, place) for place, request in enumerate(asked.requests)]
        ids, eligible = _ids(asked), self._mask(asked)
        encoded = policy.encode_rows(asked.values)
        p = policy.probabilities_many(encoded, eligible=eligible)
        propensities = p[np.arange(len(p)), [self._places[action] for action in actions]]
        would = [self._names[place] for place in policy.decide_many(encoded, ids, eligible=eligible)[0].tolist()]
        stated = np.maximum(propensities, SMALLEST).tolist()
        return _outcome(asked, ids, actions, stated, policy.version, "apprentice", now(), would)

    def _mask(self, asked: Questions) -> NDArray[np.bool_] | None:
        if asked.eligible is None:
            return None
        mask = np.zeros((len(asked), len(self._names)), bool)
        for row, eligible in zip(mask, asked.eligible, strict=True):
            row[[self._places[name] for name in eligible or self._names]] = True
        return mask


def _outcome(
    asked: Questions,
    ids: list[str],
    actions: list[str],
    propensities: list[float],
    version: int,
    mode: Mode,
    time: int,
    would: list[str] | None = None,
) -> Outcome:
    names, arms = _short(ids), asked.arms
    logged = None if mode == "online" else mode
    block = DecisionBlock(
        names, time, actions, propensities, version, asked.eligible, None, _units(asked), logged, asked.values, arms
    )
    nothing = repeat(None)
    columns = (names, actions, propensities, repeat(version), repeat(mode), would or nothing, arms or nothing)
    return Outcome(list(map(Decided, *columns)), [block])


def _ids(asked: Questions) -> list[str]:
    return [name or secrets.token_hex(16) for name in asked.ids]


def _short(ids: list[str]) -> list[str]:
    """Ids that the log takes."""
    return ids if max(map(len, ids)) * 4 <= ID_BYTES else [text(name, "id") for name in ids]


def _unit(request: DecideRequest) -> str | None:
    return None if request.unit is None else text(request.unit, "unit")


def _units(asked: Questions) -> list[str | None] | None:
    units = [request.unit for request in asked.requests]
    return [_unit(request) for request in asked.requests] if any(units) else None


def _allowed(request: DecideRequest, fallback: str) -> str:
    """What to do without a policy: the caller's own choice if there is one, else the fallback, if it is eligible."""
    if request.action is not None:
        return request.action
    return fallback if request.eligible is None or fallback in request.eligible else request.eligible[0]


def _own_choice(request: DecideRequest, place: int) -> str:
    action = request.action or ""
    if request.eligible is not None and action not in request.eligible:
        raise unfit(f"action {action!r} is not eligible; allow it, or choose another - at request {place}")
    return action


def refuse_misplaced_actions(snapshot: Snapshot, requests: Sequence[DecideRequest]) -> None:
    """Refuse a caller's own choice where the mode has no use for it, and a request without one where it has."""
    wanted = snapshot.mode == "apprentice"
    for place, request in enumerate(requests):
        if (request.action is not None) == wanted:
            continue
        if wanted:
            raise unfit(f"mode apprentice logs your own choice: say it in `action` - at request {place}")
        raise unfit(f"`action` is for mode apprentice, and the mode is {snapshot.mode} - at request {place}")
