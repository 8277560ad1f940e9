"""Names of actions: dsjson logs actions as objects, and a list of actions has names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

from potstill.problem import as_text, flatten
from potstill.tables.infer import MOST_ACTIONS

NameRule = Literal["tag", "id", "features", "index"]
RULES: tuple[NameRule, ...] = get_args(NameRule)
#: What a rule takes for the name of an action.
IN_WORDS: Mapping[NameRule, str] = {
    "tag": "their _tag",
    "id": "their feature id",
    "features": "all their features",
    "index": "their position in the list",
}
#: Share of events that a rule must name.
_MOST = 0.99

Offered = Sequence[dict[str, Any]]


def name_actions(rule: NameRule, offered: Offered) -> list[str] | None:
    """Names of the actions of one event; None if the rule gives none, or one twice."""
    if rule == "index":
        return [str(place + 1) for place in range(len(offered))]
    names = [_BY[rule](action) for action in offered]
    found = [name for name in names if name]
    return found if len({*found}) == len(offered) else None


class RuleChoice:
    """The first of the rules that names the actions of nearly all events, with few enough names."""

    def __init__(self) -> None:
        self._events = 0
        self._named = dict.fromkeys(RULES, 0)
        self._names: dict[NameRule, set[str]] = {rule: set() for rule in RULES}

    def see(self, offered: Offered) -> None:
        """Count the rules that name the actions of an event."""
        self._events += 1
        for rule in RULES:
            if len(self._names[rule]) <= MOST_ACTIONS and (names := name_actions(rule, offered)):
                self._named[rule] += 1
                self._names[rule].update(names)

    @property
    def rule(self) -> NameRule:
        """The rule; positions if no other does."""
        fitting = (
            rule
            for rule in RULES
            if self._named[rule] >= _MOST * self._events and len(self._names[rule]) <= MOST_ACTIONS
        )
        return next(fitting, "index")


def _tag(action: dict[str, Any]) -> str:
    stated = action.get("_tag")
    return stated if isinstance(stated, str) else ""


def _id(action: dict[str, Any]) -> str:
    """The first feature that is called id, at any level."""
    for name, value in flatten(action).items():
        if name.rpartition(".")[2].lower() == "id" and not isinstance(value, list):
            return as_text(value)
    return ""


def _features(action: dict[str, Any]) -> str:
    return ", ".join(f"{name}={as_text(value)}" for name, value in sorted(flatten(action).items()))


_BY: Mapping[NameRule, Callable[[dict[str, Any]], str]] = {"tag": _tag, "id": _id, "features": _features}
