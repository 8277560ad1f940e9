"""Actions by rules, as control of an experiment: a file in which the first rule that matches names the action.

    default = "360p"                        # where no rule matches

    [[rule]]
    when = { connection = "wifi", bandwidth_kbps = { at_least = 5000, below = 9000 } }
    action = "720p"

A rule matches when all that it says of the context holds. Of a categorical feature it says a value, or a list of which
one must be it; of a boolean one, true or false; of a number, that number, or bounds: ``at_least``, ``above``,
``at_most``, ``below``. Of a missing value nothing holds, unless the problem says what stands in for it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from potstill.errors import shown
from potstill.experiments.config import ExperimentConfig, LabError
from potstill.policy import Policy
from potstill.problem import Boolean, Categorical, Feature, Problem

Test = Callable[[Any], bool]

_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}


class Condition(NamedTuple):
    """What must hold of one feature: its place among the problem's features, and a test of its value."""

    place: int
    test: Test


class Rule(NamedTuple):
    """An action, and the conditions under which it is taken."""

    conditions: tuple[Condition, ...]
    action: str

    def matches(self, values: Sequence[Any]) -> bool:
        """Whether all conditions hold of a context, given as its values in the order of the features."""
        return all(condition.test(values[condition.place]) for condition in self.conditions)


class Rules:
    """Rules in their order. Without any, a fixed action.

    Args:
        default: the action where none matches.
        rules: the first that matches counts.
    """

    def __init__(self, default: str, rules: Sequence[Rule] = ()) -> None:
        self._default, self._rules = default, tuple(rules)

    def action(self, values: Sequence[Any], eligible: Sequence[str] | None = None) -> str:
        """The action for a context.

        Args:
            values: of the context, in the order of the features.
            eligible: the actions that are allowed. If the one by the rules is not, it is the first that is.
        """
        action = next((rule.action for rule in self._rules if rule.matches(values)), self._default)
        return action if eligible is None or action in eligible else eligible[0]


class _RuleText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    when: dict[str, Any]
    action: str


class _Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    default: str
    rule: list[dict[str, Any]] = []


def read_rules(data: bytes, problem: Problem, where: str) -> Rules:
    """Rules from the text of their file; `LabError` if they do not fit the problem."""
    try:
        text = msgspec.toml.decode(data, type=_Text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LabError(f"{where}: {error}") from error
    _check_action(text.default, problem, f"{where}: default")
    return Rules(text.default, [_rule(rule, problem, f"{where}: rule {i}") for i, rule in enumerate(text.rule, 1)])


def _rule(stated: dict[str, Any], problem: Problem, where: str) -> Rule:
    try:
        text = msgspec.convert(stated, _RuleText)
    except msgspec.ValidationError as error:
        raise LabError(f"{where}: {error}") from error
    _check_action(text.action, problem, f"{where}: action")
    if not text.when:
        raise LabError(f"{where}: `when` is empty and would always match; say it in `default` instead")
    features = {feature.name: (place, feature) for place, feature in enumerate(problem.context)}
    conditions = []
    for name, stated in text.when.items():
        if name not in features:
            known = ", ".join(features) or "there are none"
            raise LabError(f"{where}: {name!r} is no feature of the problem; its features are {known}")
        place, feature = features[name]
        conditions.append(Condition(place, _standing_in(feature, _test(feature, stated, f"{where}: {name}"))))
    return Rule(tuple(conditions), text.action)


def _check_action(action: str, problem: Problem, where: str) -> None:
    if action not in problem.actions.names:
        known = ", ".join(problem.actions.names)
        raise LabError(f"{where}: {action!r} is no action of the problem; name one of {known}")


def _standing_in(feature: Feature, test: Test) -> Test:
    """A test that knows missing values: false, unless the problem says what stands in for them."""
    missing = feature.missing not in ("error", "flag") and test(feature.missing)
    return lambda value: missing if value is None else test(value)


def _test(feature: Feature, stated: object, where: str) -> Test:
    if isinstance(feature, Categorical):
        return _one_of(feature, stated, where)
    if isinstance(feature, Boolean):
        if not isinstance(stated, bool):
            raise LabError(f"{where}: expected true or false, got {shown(stated)}")
        return lambda value: value == stated
    if isinstance(stated, Mapping):
        return _within(stated, where)
    number = _number(stated, where)
    return lambda value: bool(value == number)


def _one_of(feature: Categorical, stated: object, where: str) -> Test:
    values = stated if isinstance(stated, list) else [stated]
    for value in values:
        if value not in feature.values:
            raise LabError(
                f"{where}: {shown(value)} is no value of the feature; its values are {', '.join(feature.values)}. "
                "A value that is to have a rule must be one of them: add it in problem.toml"
            )
    if not values:
        raise LabError(f"{where}: the list is empty, so that the rule would never match; leave the rule out")
    return frozenset(values).__contains__


def _within(stated: Mapping[str, object], where: str) -> Test:
    for word in stated:
        if word not in _BOUNDS:
            raise LabError(f"{where}: {word!r} is no bound; the bounds are {', '.join(_BOUNDS)}")
    if not stated:
        raise LabError(f"{where}: no bound is stated; the bounds are {', '.join(_BOUNDS)}")
    bounds = [(_BOUNDS[word], _number(value, f"{where}: {word}")) for word, value in stated.items()]
    if not _can_hold(bounds):
        raise LabError(f"{where}: {dict(stated)} holds of no number; widen a bound, or leave the rule out")
    return lambda value: all(compare(value, bound) for compare, bound in bounds)


def _can_hold(bounds: Sequence[tuple[Callable[[Any, Any], bool], float]]) -> bool:
    """Whether a number is within all bounds: one of them, or one just beside them."""
    numbers = [
        near
        for _, bound in bounds
        for near in (math.nextafter(bound, -math.inf), bound, math.nextafter(bound, math.inf))
    ]
    return any(all(compare(number, bound) for compare, bound in bounds) for number in numbers)


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise LabError(f"{where}: expected a finite number, got {shown(value)}")
    return float(value)


Control = Rules | Policy


def load_control(
    config: ExperimentConfig, problem: Problem, *, rules: bytes | None, policy: Callable[[int], Policy]
) -> Control:
    """The control of an experiment, checked against the problem.

    Args:
        config: the experiment.
        problem: that is decided.
        rules: the text of the file of rules, if there is one.
        policy: gives a policy by its version; its errors pass through.

    Raises:
        LabError: it does not fit the problem, or there is no such file.
    """
    config.check(problem)
    stated = config.control
    if stated.action is not None:
        return Rules(stated.action)
    if stated.rules is not None:
        return _rules(stated.rules, rules, problem)
    assert stated.policy is not None  # one of the three is
    return _policy(stated.policy, problem, policy)


def _rules(name: str, text: bytes | None, problem: Problem) -> Rules:
    if text is None:
        raise LabError(f"experiment.control: there is no file {name!r} in the workspace; put it beside potstill.toml")
    return read_rules(text, problem, name)


def _policy(version: int, problem: Problem, load: Callable[[int], Policy]) -> Policy:
    policy = load(version)
    if policy.problem.hash != problem.hash:
        raise LabError(
            f"experiment.control: version {version} decides an earlier problem ({policy.problem.hash}), and "
            f"problem.toml now says {problem.name!r} ({problem.hash}); name a version for this one: potstill versions"
        )
    return policy
