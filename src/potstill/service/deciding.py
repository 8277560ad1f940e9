"""From requests to decisions and the rows that are logged of them. Nothing here waits or touches a disk."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from potstill.events import now
from potstill.events.checked import ID_BYTES, text
from potstill.events.segment import DecisionRow
from potstill.policy import Policy
from potstill.problem import Problem
from potstill.service.columns import Columns
from potstill.service.errors import unfit
from potstill.service.questions import Questions
from potstill.service.serving import Snapshot
from potstill.service.wire import Decided, DecideRequest, Mode

#: The log takes no propensity of zero, and tables keep float32: where the policy all but rules out what the caller did.
SMALLEST = float(np.finfo(np.float32).tiny)


class Outcome(NamedTuple):
    """Decisions: what is answered, and what is logged, each in the order of the requests."""

    replies: list[Decided]
    rows: list[DecisionRow]


class Decider:
    """Decides requests of one problem.

    Args:
        problem: whose they are.
        fallback: the action to take when the policy is not to decide, or cannot; None if there is none.
    """

    def __init__(self, problem: Problem, fallback: str | None) -> None:
        self._names = problem.actions.names
        self._places = {name: place for place, name in enumerate(self._names)}
        self._features = tuple(feature.name for feature in problem.context)
        self._columns = Columns(problem)
        self._fallback = fallback

    def decide(self, snapshot: Snapshot, asked: Questions) -> Outcome | None:
        """Decide requests by one snapshot; None if there is neither a policy nor an action to fall back to.

        Raises:
            Refusal: a request does not fit the mode.
            InvalidEvent: an id is too long.
            InvalidPolicy: the policy cannot decide one of them.
        """
        _refuse_misplaced_actions(snapshot, asked.requests)
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
        instead_of: Outcome | None = None,
    ) -> Outcome | None:
        """The fallback action, or the first that is eligible if it is not; None if there is no fallback.

        In mode apprentice it is the caller's own choice, which is carried out in any case.

        Args:
            snapshot: says the version that did not decide.
            asked: what to answer.
            mode: why.
            instead_of: decisions that these take the place of; they get their ids, and times just before theirs.
        """
        if self._fallback is None:
            return None
        actions = [_allowed(request, self._fallback) for request in asked.requests]
        surely = [1.0] * len(asked)
        version = 0 if snapshot.policy is None else snapshot.policy.version
        if instead_of is None:
            return _outcome(asked, _ids(asked.requests), actions, surely, version, mode, now())
        ids = [reply.id for reply in instead_of.replies]
        return _outcome(asked, ids, actions, surely, version, mode, instead_of.rows[0].time - 1)

    def _decided(self, policy: Policy, asked: Questions) -> Outcome:
        """One decision: what `_decided_many` does, in a third of the time."""
        (request,), (values,) = asked.requests, asked.values
        context, eligible = dict(zip(self._features, values, strict=True)), request.eligible
        taken = policy.decide(context, id=request.id, eligible=eligible)
        name, action, p, version = text(taken.id, "id"), taken.action, taken.propensity, taken.policy
        row = DecisionRow(name, now(), action, p, version, eligible, None, _unit(request), None, values)
        return Outcome([Decided(name, action, p, version, "online")], [row])

    def _decided_many(self, policy: Policy, asked: Questions) -> Outcome:
        ids, eligible = _ids(asked.requests), self._eligible(asked.requests)
        places, propensities = policy.decide_many(self._columns.encode(asked.values), ids, eligible=eligible)
        actions = [self._names[place] for place in places.tolist()]
        return _outcome(asked, ids, actions, propensities.tolist(), policy.version, "online", now())

    def _watched(self, policy: Policy, asked: Questions) -> Outcome:
        """The callers' own choices, with the policy's probabilities of them."""
        actions = [_own_choice(request, place) for place, request in enumerate(asked.requests)]
        ids, eligible = _ids(asked.requests), self._eligible(asked.requests)
        encoded = self._columns.encode(asked.values)
        p = policy.probabilities_many(encoded, eligible=eligible)
        propensities = p[np.arange(len(p)), [self._places[action] for action in actions]]
        would = [self._names[place] for place in policy.decide_many(encoded, ids, eligible=eligible)[0].tolist()]
        stated = np.maximum(propensities, SMALLEST).tolist()
        return _outcome(asked, ids, actions, stated, policy.version, "apprentice", now(), would)

    def _eligible(self, requests: Sequence[DecideRequest]) -> NDArray[np.bool_] | None:
        if all(request.eligible is None for request in requests):
            return None
        mask = np.zeros((len(requests), len(self._names)), bool)
        for row, request in zip(mask, requests, strict=True):
            row[[self._places[name] for name in request.eligible or self._names]] = True
        return mask


def _outcome(
    asked: Questions,
    ids: Sequence[str],
    actions: Sequence[str],
    propensities: Sequence[float],
    version: int,
    mode: Mode,
    time: int,
    would: Sequence[str] | None = None,
) -> Outcome:
    logged = None if mode == "online" else mode
    taken = list(zip(_short(ids), actions, propensities, strict=True))
    rows = [
        DecisionRow(name, time, action, p, version, request.eligible, None, _unit(request), logged, values)
        for request, values, (name, action, p) in zip(asked.requests, asked.values, taken, strict=True)
    ]
    if would is None:
        return Outcome([Decided(name, action, p, version, mode) for name, action, p in taken], rows)
    told = zip(taken, would, strict=True)
    return Outcome([Decided(name, action, p, version, mode, other) for (name, action, p), other in told], rows)


def _ids(requests: Sequence[DecideRequest]) -> list[str]:
    return [request.id or secrets.token_hex(16) for request in requests]


def _short(ids: Sequence[str]) -> Sequence[str]:
    """Ids that the log takes."""
    return ids if max(map(len, ids)) * 4 <= ID_BYTES else [text(name, "id") for name in ids]


def _unit(request: DecideRequest) -> str | None:
    return None if request.unit is None else text(request.unit, "unit")


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


def _refuse_misplaced_actions(snapshot: Snapshot, requests: Sequence[DecideRequest]) -> None:
    wanted = snapshot.mode == "apprentice"
    for place, request in enumerate(requests):
        if (request.action is not None) == wanted:
            continue
        if wanted:
            raise unfit(f"mode apprentice logs your own choice: say it in `action` - at request {place}")
        raise unfit(f"`action` is for mode apprentice, and the mode is {snapshot.mode} - at request {place}")
