"""Control of an experiment by rules: the first rule that matches a context names the action.

    default = "360p"                        # where no rule matches

    [[rule]]
    when = { connection = "wifi", bandwidth_kbps = { at_least = 5000, below = 9000 } }
    action = "720p"

A rule matches when all its conditions hold. The condition on a feature of strings is a value, or a list of values; on
a boolean one, true or false; on a number, that number or bounds: ``at_least``, ``above``, ``at_most``, ``below``. No
condition holds for a missing value, unless the problem states a value to use instead.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from potstill.decode import convert, from_toml
from potstill.errors import InvalidAction, shown
from potstill.experiments.config import ExperimentConfig, InvalidExperiment
from potstill.policy import Policy
from potstill.problem import Categorical, Feature, Problem
from potstill.spaces import ActionSpace

Test = Callable[[Any], bool]

_BOUNDS: dict[str, Callable[[Any, Any], bool]] = {
    "at_least": operator.ge,
    "above": operator.gt,
    "at_most": operator.le,
    "below": operator.lt,
}


class Condition(NamedTuple):
    """A condition on one feature: its place among the problem's features, and a test of its value."""

    place: int
    test: Test


class Rule(NamedTuple):
    """An action, and the conditions under which it is taken."""

    conditions: tuple[Condition, ...]
    action: Any

    def matches(self, values: Sequence[Any]) -> bool:
        """Whether all conditions hold for a context, given as its values in the order of the features."""
        return all(condition.test(values[condition.place]) for condition in self.conditions)


class Rules:
    """Rules in order. Without any, a fixed action.

    Args:
        space: The action space.
        default: Action where no rule matches.
        rules: The rules; the first that matches counts.
    """

    def __init__(self, space: ActionSpace, default: Any, rules: Sequence[Rule] = ()) -> None:
        self._space, self._default, self._rules = space, default, tuple(rules)

    @property
    def actions(self) -> tuple[Any, ...]:
        """The actions that the rules name, and the default."""
        return (self._default, *(rule.action for rule in self._rules))

    def action(self, values: Sequence[Any], eligible: Any = None) -> Any:
        """The action for a context.

        Args:
            values: Values of the context, in the order of the features.
            eligible: The actions that are allowed; the first of them is taken where the rules' action is not.
        """
        action = next((rule.action for rule in self._rules if rule.matches(values)), self._default)
        if eligible is None:
            return action
        restriction = self._space.restrict(eligible)
        return action if restriction.permits(action) else restriction.first()


class _RuleText(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    when: dict[str, Any]
    action: Any


class _Text(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    default: Any
    rule: list[dict[str, Any]] = []


def read_rules(data: bytes, problem: Problem, where: str) -> Rules:
    """Rules from the text of their file; `InvalidExperiment` if they do not fit the problem."""
    try:
        text = from_toml(data, _Text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidExperiment(f"{where}: {error}") from error
    default = _action(text.default, problem, f"{where}: default")
    rules = [_rule(rule, problem, f"{where}: rule {i}") for i, rule in enumerate(text.rule, 1)]
    return Rules(problem.actions, default, rules)


def _rule(stated: dict[str, Any], problem: Problem, where: str) -> Rule:
    try:
        text = convert(stated, _RuleText)
    except msgspec.ValidationError as error:
        raise InvalidExperiment(f"{where}: {error}") from error
    action = _action(text.action, problem, f"{where}: action")
    if not text.when:
        raise InvalidExperiment(f"{where}: `when` is empty and would always match; use `default` instead")
    features = {feature.name: (place, feature) for place, feature in enumerate(problem.context)}
    conditions = []
    for name, stated in text.when.items():
        if name not in features:
            known = ", ".join(features) or "there are none"
            raise InvalidExperiment(f"{where}: {name!r} is not a feature of the problem; its features are {known}")
        place, feature = features[name]
        conditions.append(Condition(place, _with_missing(feature, _test(feature, stated, f"{where}: {name}"))))
    return Rule(tuple(conditions), action)


def _action(stated: object, problem: Problem, where: str) -> Any:
    try:
        return problem.actions.parse(stated)
    except InvalidAction as error:
        raise InvalidExperiment(f"{where}: {error}") from error


def _with_missing(feature: Feature, test: Test) -> Test:
    """A test that handles missing values: false, unless the problem states a value to use instead."""
    missing = feature.missing not in ("error", "flag") and test(feature.missing)
    return lambda value: missing if value is None else test(value)


def _test(feature: Feature, stated: object, where: str) -> Test:
    if feature.holds == "numbers":
        raise InvalidExperiment(f"{where}: a rule cannot test a list of numbers; use another feature")
    if feature.moment == "text":
        raise InvalidExperiment(
            f"{where}: a rule cannot test a time that is a string, since one moment has many spellings; use another "
            "feature, or define this one with unit='s'"
        )
    if feature.holds == "string":
        return _one_of(feature, stated, where)
    if feature.holds == "boolean":
        if not isinstance(stated, bool):
            raise InvalidExperiment(f"{where}: expected true or false, got {shown(stated)}")
        return lambda value: value == stated
    if isinstance(stated, Mapping):
        return _within(stated, where)
    number = _number(stated, where)
    return lambda value: bool(value == number)


def _one_of(feature: Feature, stated: object, where: str) -> Test:
    values = stated if isinstance(stated, list) else [stated]
    for value in values:
        if not isinstance(feature, Categorical) and not isinstance(value, str):
            raise InvalidExperiment(f"{where}: expected a string or a list of strings, got {shown(value)}")
        if isinstance(feature, Categorical) and value not in feature.values:
            raise InvalidExperiment(
                f"{where}: {shown(value)} is not a value of the feature; its values are {', '.join(feature.values)}. "
                "To have a rule for it, add it in problem.toml"
            )
    if not values:
        raise InvalidExperiment(f"{where}: the list is empty, so the rule would never match; remove the rule")
    return frozenset(values).__contains__


def _within(stated: Mapping[str, object], where: str) -> Test:
    for word in stated:
        if word not in _BOUNDS:
            raise InvalidExperiment(f"{where}: {word!r} is not a bound; the bounds are {', '.join(_BOUNDS)}")
    if not stated:
        raise InvalidExperiment(f"{where}: no bound is stated; the bounds are {', '.join(_BOUNDS)}")
    bounds = [(_BOUNDS[word], _number(value, f"{where}: {word}")) for word, value in stated.items()]
    if not _can_hold(bounds):
        raise InvalidExperiment(f"{where}: {dict(stated)} holds for no number; widen a bound, or remove the rule")
    return lambda value: all(compare(value, bound) for compare, bound in bounds)


def _can_hold(bounds: Sequence[tuple[Callable[[Any, Any], bool], float]]) -> bool:
    """Whether any number is within all bounds; it is enough to try the bounds and their neighbours."""
    numbers = [
        near
        for _, bound in bounds
        for near in (math.nextafter(bound, -math.inf), bound, math.nextafter(bound, math.inf))
    ]
    return any(all(compare(number, bound) for compare, bound in bounds) for number in numbers)


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InvalidExperiment(f"{where}: expected a finite number, got {shown(value)}")
    return float(value)


Control = Rules | Policy


def load_control(
    config: ExperimentConfig, problem: Problem, *, rules: bytes | None, policy: Callable[[int], Policy]
) -> Control:
    """The control of an experiment, checked against the problem.

    Args:
        config: The experiment.
        problem: The problem.
        rules: The text of the file of rules, if there is one.
        policy: Loads a policy by its version; its errors pass through.

    Raises:
        InvalidExperiment: It does not fit the problem, or the file is missing.
    """
    config.check(problem)
    stated = config.control
    if stated.action is not None:
        return Rules(problem.actions, problem.actions.parse(stated.action))
    if stated.rules is not None:
        return _rules(stated.rules, rules, problem)
    assert stated.policy is not None  # one of the three is stated
    return _policy(stated.policy, problem, policy)


def _rules(name: str, text: bytes | None, problem: Problem) -> Rules:
    if text is None:
        raise InvalidExperiment(
            f"experiment.control: there is no file {name!r} in the workspace; put it beside potstill.toml"
        )
    return read_rules(text, problem, name)


def _policy(version: int, problem: Problem, load: Callable[[int], Policy]) -> Policy:
    policy = load(version)
    if policy.problem.hash != problem.hash:
        raise InvalidExperiment(
            f"experiment.control: version {version} decides an earlier problem ({policy.problem.hash}), and "
            f"problem.toml now says {problem.name!r} ({problem.hash}); name a version for this one: potstill versions"
        )
    return policy
