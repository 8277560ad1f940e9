"""One line of a dsjson log: an event with its label, or an outcome that was logged apart."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from potstill.errors import PotstillError
from potstill.problem import Flat, InvalidContext, flatten

#: Largest excess of a logged probability over 1 that is rounding.
_ROUNDING = 1e-5
_decode = msgspec.json.Decoder().decode

DAMAGED = "damaged or truncated: not JSON"
NO_EVENT = "neither an event with `c` nor an outcome with `EventId`"
SLOTS = "several slots in one event (CCB, slates): a decision here has one action"
NUMBER = "the action is a number (CATS): only lists of actions are imported"
NO_ACTIONS = "no list of actions (`c._multi`)"
NOT_OFFERED = "the chosen action is not one of those offered"
NO_PROBABILITY = "no probability of the chosen action in (0, 1]"
NO_COST = "the cost or reward is not a finite number"
DROPPED = "`pdrop` is not in [0, 1)"
SKIPPED = "`_skipLearn`: not to be learnt from"
NOT_ACTIVATED = "deferred, and not activated"
APPRENTICE = "apprentice mode: the label is not what the action earned (`_original_label_cost` differs)"
TOO_DEEP = "features are nested too deeply"


class UnfitLine(PotstillError, ValueError):
    """A line is no event that can be imported; the message is the reason that it is counted under."""


class Outcome(NamedTuple):
    """A reward, or an activation, of an event.

    Attributes:
        id: Id of the event.
        value: The reward; None if there is none.
        activates: Whether it says that the action was taken.
    """

    id: str
    value: float | None
    activates: bool


class Event(NamedTuple):
    """A decision of one action.

    Attributes:
        id: Id of the event; None if the line has none.
        time: Microseconds since 1970; None if the line has none.
        context: Features, flattened.
        offered: Actions as they are logged.
        chosen: Position of the chosen one.
        propensity: Its probability.
        reward: Minus the label's cost; None if the line has no label.
        outcomes: Outcomes that the line holds.
        deferred: Whether it counts only if an outcome activates it.
        pdrop: Probability with which the event could have been dropped from the log.
        baseline: Whether the line names a baseline action.
    """

    id: str | None
    time: int | None
    context: Flat
    offered: Sequence[dict[str, Any]]
    chosen: int
    propensity: float
    reward: float | None
    outcomes: Sequence[Outcome]
    deferred: bool
    pdrop: float
    baseline: bool

    def earned(self, others: Sequence[Outcome]) -> float:
        """The reward: that of the label, or else the first of the outcomes, or else 0.

        A label of 0 in a line without outcomes is no more than the default, and gives way to an outcome that was logged
        apart.

        Raises:
            UnfitLine: The event was not activated.
        """
        known = [*self.outcomes, *others]
        if self.deferred and not any(outcome.activates for outcome in known):
            raise UnfitLine(NOT_ACTIVATED)
        values = [outcome.value for outcome in known if outcome.value is not None]
        if self.reward is not None and (self.reward or self.outcomes or not values):
            return self.reward
        return values[0] if values else 0.0


def parse_line(line: bytes) -> Event | Outcome:
    """An event or an outcome; `UnfitLine` with the reason if it is neither, or cannot be held."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UnfitLine(DAMAGED) from None
    if not isinstance(found, dict):
        raise UnfitLine(NO_EVENT)
    if isinstance(found.get("c"), dict):
        return _event(found, found["c"])
    if isinstance(found.get("EventId"), str) and not found.keys().isdisjoint(_OUTCOME):
        return _outcome(found)
    raise UnfitLine(NO_EVENT)


#: Fields of which an outcome has at least one.
_OUTCOME = ("RewardValue", "v", "Observations", "ActionTaken", "DeferredAction")


def _event(found: dict[str, Any], c: dict[str, Any]) -> Event:
    offered = _offered(found, c)
    chosen = _chosen(found, len(offered))
    if found.get("_skipLearn") is True:
        raise UnfitLine(SKIPPED)
    reward = _negative(found.get("_label_cost"))
    if reward is not None and _negative(found.get("_original_label_cost"), reward) != reward:
        raise UnfitLine(APPRENTICE)
    pdrop = _number(found.get("pdrop"), 0.0, DROPPED)
    if not 0 <= pdrop < 1:
        raise UnfitLine(DROPPED)
    try:
        context = flatten(c)
    except InvalidContext:
        raise UnfitLine(TOO_DEEP) from None
    name = found.get("EventId")
    return Event(
        id=name if isinstance(name, str) and name else None,
        time=_time(found.get("Timestamp")),
        context=context,
        offered=offered,
        chosen=chosen,
        propensity=_propensity(found, chosen),
        reward=reward,
        outcomes=_outcomes(found.get("o")),
        deferred=found.get("_deferred") is True or found.get("DeferredAction") is True,
        pdrop=pdrop,
        baseline="_ba" in found,
    )


def _offered(found: dict[str, Any], c: dict[str, Any]) -> Sequence[dict[str, Any]]:
    if "_slots" in c or "_outcomes" in found:
        raise UnfitLine(SLOTS)
    if "_label_ca" in found or "pdf" in found:
        raise UnfitLine(NUMBER)
    offered = c.get("_multi")
    if not isinstance(offered, list) or not offered or not all(isinstance(one, dict) for one in offered):
        raise UnfitLine(NO_ACTIONS)
    return offered


def _chosen(found: dict[str, Any], offered: int) -> int:
    """Position of the chosen action: by the label, or else the first of the ranking, as Vowpal Wabbit has it."""
    stated = []
    if _is_whole(found.get("_labelIndex")):
        stated.append(found["_labelIndex"])
    if _is_whole(found.get("_label_Action")):
        stated.append(found["_label_Action"] - 1)
    ranking = _ranking(found)
    stated = stated or ranking[:1]
    if not stated or len({*stated}) > 1 or not 0 <= stated[0] < offered:
        raise UnfitLine(NOT_OFFERED)
    return stated[0]


def _ranking(found: dict[str, Any]) -> list[int]:
    """Positions of the ranking `a`, which counts from 1; from 0 if it has a 0."""
    actions = found.get("a")
    if not isinstance(actions, list) or not all(_is_whole(one) for one in actions):
        return []
    first = 0 if 0 in actions else 1
    return [one - first for one in actions]


def _propensity(found: dict[str, Any], chosen: int) -> float:
    """`_label_probability`; without it, that of the chosen action in `p`, which is in the order of the ranking."""
    stated = found.get("_label_probability")
    if stated is None:
        p = found.get("p", found.get("_p"))
        ranking = _ranking(found)
        at = ranking.index(chosen) if chosen in ranking else 0
        stated = p[at] if isinstance(p, list) and at < len(p) else None
    found_p = _number(stated, 0.0, NO_PROBABILITY)
    if not 0 < found_p <= 1 + _ROUNDING:
        raise UnfitLine(NO_PROBABILITY)
    return min(found_p, 1.0)


def _outcome(found: dict[str, Any]) -> Outcome:
    """An outcome that was logged apart."""
    parts = _outcomes(found.get("Observations"))
    stated, values = found.get("RewardValue", found.get("v")), [part.value for part in parts if part.value is not None]
    value = _number(stated, 0.0, NO_COST) if stated is not None else next(iter(values), None)
    return Outcome(found["EventId"], value, _activates(found) or any(part.activates for part in parts))


def _outcomes(listed: object) -> list[Outcome]:
    """Outcomes within a line; values that are no numbers are what the label was worked out from."""
    parts = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [Outcome("", _real(one.get("v")), _activates(one)) for one in parts]


def _activates(outcome: dict[str, Any]) -> bool:
    return outcome.get("ActionTaken") is True or outcome.get("DeferredAction") is False


def _negative(cost: object, default: float | None = None) -> float | None:
    """Minus a cost, and never minus zero."""
    return default if cost is None else 0.0 - _number(cost, 0.0, NO_COST)


def _number(value: object, default: float, reason: str) -> float:
    if value is None:
        return default
    found = _real(value)
    if found is None:
        raise UnfitLine(reason)
    return found


def _real(value: object) -> float | None:
    """A finite number; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    found = as_float(value)
    return found if math.isfinite(found) else None


def as_float(value: float) -> float:
    """A number as a float; infinite if it is a whole number beyond floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _time(stated: object) -> int | None:
    if not isinstance(stated, str):
        return None
    try:
        moment = msgspec.convert(_six_digits(stated), datetime)
    except msgspec.ValidationError:
        return None
    return round(moment.timestamp() * 1e6) if moment.tzinfo else None


def _six_digits(stated: str) -> str:
    """A time without the digits beyond microseconds, of which .NET writes one."""
    head, point, rest = stated.partition(".")
    digits = rest.rstrip("Zz")
    return f"{head}{point}{digits[:6]}Z" if point and digits.isdigit() else stated
