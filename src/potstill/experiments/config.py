"""The section ``[experiment]`` of `potstill.toml`."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from potstill.errors import InvalidAction, PotstillError
from potstill.problem import Problem

Arm = Literal["control", "treatment"]
#: Value of `unit` that stands for the request's field rather than a feature.
UNIT = "unit"

_Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)]
_Share = Annotated[float, Meta(gt=0, lt=1)]
_Version = Annotated[int, Meta(ge=0)]


#: The expected value of each option, in words.
_LOOKS = {
    "name": 'small letters, digits and hyphens, at most 64, such as "hd-first"',
    "control": 'one of { action = "…" }, { rules = "rules.toml" } and { policy = 3 }',
    "control.action": "an action of the problem",
    "control.rules": "the name of a file in the workspace, in quotes",
    "control.policy": "the number of a version",
    "share": "a number above 0 and below 1, such as 0.5",
    "unit": '"unit", or the name of a context feature, in quotes',
    "start": "a time with its zone, such as 2026-11-16T00:00:00Z",
    "train_on_control": "true or false",
    "metrics": 'a list of names, such as ["watched"]',
}
_PLACE = re.compile(r" - at `\$\.experiment\.([a-z_.]+)(\[[.\d]*\])?`$")


def in_words(error: str) -> str:
    """A decoder's error about ``[experiment]`` in the terms of the file; other errors unchanged."""
    place = _PLACE.search(error)
    if place is None or place[1] not in _LOOKS or not error.startswith("Expected"):
        return error
    return f"experiment.{place[1]} must be {_LOOKS[place[1]]}"


class InvalidExperiment(PotstillError, ValueError):
    """An experiment does not fit the problem."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ControlConfig(_Table, frozen=True):
    """What the control arm does: one of three.

    Attributes:
        action: A fixed action.
        rules: A file of rules in the workspace; see `potstill.experiments.rules`.
        policy: A version of the registry, which decides as it did when it served.
    """

    action: Any = None
    rules: str | None = None
    policy: _Version | None = None

    def __post_init__(self) -> None:
        stated = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(stated) != 1:
            raise InvalidExperiment(
                'control must be one of { action = "…" }, { rules = "rules.toml" } and { policy = 3 }, '
                f"got {' and '.join(stated) or 'none of them'}"
            )

    @property
    def in_words(self) -> str:
        """Control for people, such as ``always 360p``."""
        if self.action is not None:
            return f"always {self.action}"
        return f"the rules of {self.rules}" if self.rules is not None else f"policy {self.policy}"


class ExperimentConfig(_Table, frozen=True):
    """A randomised experiment: the serving policy, which is treatment, against control.

    Attributes:
        name: Name of the experiment, which salts the assignment: another name assigns all units again.
        control: What the policy is compared with.
        share: Share of units in treatment.
        unit: What is randomised: ``"unit"``, the field of a request, or the name of a context feature.
        start: Start of the experiment; None for at once.
        train_on_control: Whether the teacher learns from control's decisions.
        metrics: Names of the metrics to report; all if left out.
    """

    name: _Name
    control: ControlConfig
    share: _Share = 0.5
    unit: Annotated[str, Meta(min_length=1)] = UNIT
    start: Annotated[datetime, Meta(tz=True)] | None = None
    train_on_control: bool = True
    metrics: tuple[Annotated[str, Meta(min_length=1)], ...] = ()

    @property
    def starts(self) -> str:
        """The start for people, such as ``2026-11-16 00:00 UTC``; empty if there is none."""
        return "" if self.start is None else f"{self.start.astimezone(UTC):%Y-%m-%d %H:%M} UTC"

    def arm(self, arm: Arm) -> str:
        """An arm as it is logged, such as ``hd-first:control``."""
        return f"{self.name}:{arm}"

    def check(self, problem: Problem) -> None:
        """Refuse an action or unit that the problem does not have; `InvalidExperiment`."""
        try:
            _ = self.control.action is None or problem.actions.parse(self.control.action)
        except InvalidAction as error:
            raise InvalidExperiment(f"experiment.control: {error}") from error
        check_unit(self.unit, problem)


def check_unit(unit: str, problem: Problem, where: str = "experiment.unit") -> None:
    """Refuse a unit that the problem does not have; `InvalidExperiment`.

    Args:
        unit: ``"unit"``, or the name of a context feature.
        problem: The problem.
        where: Where it was stated, for the message.
    """
    features = {feature.name: feature for feature in problem.context}
    if unit != UNIT and unit not in features:
        raise InvalidExperiment(
            f"{where}: {unit!r} is not a feature of the problem; write {UNIT!r} for the unit of requests, "
            f"or name a feature: {', '.join(features) or 'there are none'}"
        )
    if unit != UNIT and features[unit].holds == "numbers":
        raise InvalidExperiment(
            f"{where}: {unit!r} is a list of numbers, which identifies nobody; name a feature that identifies users, "
            "devices or sessions"
        )
    if unit != UNIT and features[unit].holds == "boolean":
        raise InvalidExperiment(
            f"{where}: {unit!r} is true or false, which makes at most two units; name a feature that identifies users, "
            "devices or sessions"
        )
