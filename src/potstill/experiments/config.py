"""The section ``[experiment]`` of `potstill.toml`: what is compared with what, on whom, and since when."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from potstill.errors import PotstillError
from potstill.problem import Boolean, Problem

Arm = Literal["control", "treatment"]
#: The value of `unit` that means the field of a request, and not a feature.
UNIT = "unit"

_Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)]
_Share = Annotated[float, Meta(gt=0, lt=1)]
_Version = Annotated[int, Meta(ge=0)]


#: What a line must look like, by its name.
_LOOKS = {
    "name": 'small letters, digits and hyphens, at most 64, such as "hd-first"',
    "control": 'one of { action = "…" }, { rules = "rules.toml" } and { policy = 3 }',
    "control.action": "the name of an action, in quotes",
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
    """What is wrong in ``[experiment]``, for those who wrote it, from what msgspec says; other errors as they are."""
    place = _PLACE.search(error)
    if place is None or place[1] not in _LOOKS or not error.startswith("Expected"):
        return error
    return f"experiment.{place[1]} must be {_LOOKS[place[1]]}"


class LabError(PotstillError, ValueError):
    """An experiment does not fit the problem; the message says what, and the way out."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ControlConfig(_Table, frozen=True):
    """What control does: one of the three.

    Attributes:
        action: always this one.
        rules: a file of rules in the workspace; see `potstill.experiments.rules`.
        policy: a version of the registry, which decides as it did when it served.
    """

    action: str | None = None
    rules: str | None = None
    policy: _Version | None = None

    def __post_init__(self) -> None:
        stated = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(stated) != 1:
            raise LabError(
                'control must be one of { action = "…" }, { rules = "rules.toml" } and { policy = 3 }, '
                f"got {' and '.join(stated) or 'none of them'}"
            )

    @property
    def in_words(self) -> str:
        """Such as ``always 360p``."""
        if self.action is not None:
            return f"always {self.action}"
        return f"the rules of {self.rules}" if self.rules is not None else f"policy {self.policy}"


class ExperimentConfig(_Table, frozen=True):
    """A randomised experiment: the policy that serves, which is treatment, against control.

    Attributes:
        name: of the experiment; another name assigns all units anew.
        control: what it is compared with.
        share: of the units that are in treatment.
        unit: ``"unit"``, the field of that name in a request; or the name of a context feature.
        start: before it there is no experiment.
        train_on_control: whether the teacher learns from what control did.
        metrics: names of outcomes, sent with rewards, that a report is to show; all of them if left out.
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
        """The start as people read it; empty if there is none."""
        return "" if self.start is None else f"{self.start.astimezone(UTC):%Y-%m-%d %H:%M} UTC"

    def arm(self, arm: Arm) -> str:
        """An arm as it is logged, such as ``hd-first:control``."""
        return f"{self.name}:{arm}"

    def check(self, problem: Problem) -> None:
        """Refuse what the problem does not have; `LabError`."""
        names = problem.actions.names
        if self.control.action is not None and self.control.action not in names:
            raise LabError(
                f"experiment.control: {self.control.action!r} is no action of the problem; name one of "
                f"{', '.join(names)}"
            )
        check_unit(self.unit, problem)


def check_unit(unit: str, problem: Problem, where: str = "experiment.unit") -> None:
    """Refuse a unit that the problem does not have; `LabError`.

    Args:
        unit: ``"unit"``, or the name of a context feature.
        problem: whose features count.
        where: it was stated.
    """
    features = {feature.name: feature for feature in problem.context}
    if unit != UNIT and unit not in features:
        raise LabError(
            f"{where}: {unit!r} is no feature of the problem; write {UNIT!r} for the unit that requests state, "
            f"or name a feature: {', '.join(features) or 'there are none'}"
        )
    if unit != UNIT and isinstance(features[unit], Boolean):
        raise LabError(
            f"{where}: {unit!r} is true or false, which makes two units at most; name what tells users, devices or "
            "sessions apart"
        )
