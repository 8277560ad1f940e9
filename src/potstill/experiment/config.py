"""The section ``[experiment]`` of `potstill.toml`: what is compared with what, on whom, and since when."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from potstill.problem import Boolean, Problem

Arm = Literal["control", "treatment"]
#: The value of `unit` that means the field of a request, and not a feature.
UNIT = "unit"

_Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)]
_Share = Annotated[float, Meta(gt=0, lt=1)]
_Version = Annotated[int, Meta(ge=0)]


class InvalidExperiment(ValueError):
    """An experiment does not fit the problem; the message says what, and the way out."""


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ControlConfig(_Table, frozen=True):
    """What control does: one of the three.

    Attributes:
        action: always this one.
        rules: a file of rules in the workspace; see `potstill.experiment.rules`.
        policy: a version of the registry, which decides as it did when it served.
    """

    action: str | None = None
    rules: str | None = None
    policy: _Version | None = None

    def __post_init__(self) -> None:
        stated = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        if len(stated) != 1:
            raise InvalidExperiment(
                'control must be one of { action = "…" }, { rules = "rules.toml" } and { policy = 3 }, '
                f"got {' and '.join(stated) or 'none of them'}"
            )


class ExperimentConfig(_Table, frozen=True):
    """A randomised experiment: the policy that serves, which is treatment, against control.

    Attributes:
        name: of the experiment; another name assigns all units anew.
        control: what it is compared with.
        share: of the units that are in treatment.
        unit: ``"unit"``, the field of that name in a request; or the name of a context feature.
        start: before it there is no experiment.
        train_on_control: whether the teacher learns from what control did.
        metrics: names of outcomes, sent with rewards, that a report is to show.
    """

    name: _Name
    control: ControlConfig
    share: _Share = 0.5
    unit: Annotated[str, Meta(min_length=1)] = UNIT
    start: Annotated[datetime, Meta(tz=True)] | None = None
    train_on_control: bool = True
    metrics: tuple[Annotated[str, Meta(min_length=1)], ...] = ()

    def arm(self, arm: Arm) -> str:
        """An arm as it is logged, such as ``hd-first:control``."""
        return f"{self.name}:{arm}"

    def check(self, problem: Problem) -> None:
        """Refuse what the problem does not have; `InvalidExperiment`."""
        names = problem.actions.names
        if self.control.action is not None and self.control.action not in names:
            raise InvalidExperiment(
                f"experiment.control: {self.control.action!r} is no action of the problem; name one of "
                f"{', '.join(names)}"
            )
        features = {feature.name: feature for feature in problem.context}
        if self.unit != UNIT and self.unit not in features:
            raise InvalidExperiment(
                f"experiment.unit: {self.unit!r} is no feature of the problem; write {UNIT!r} for the unit that "
                f"requests state, or name a feature: {', '.join(features) or 'there are none'}"
            )
        if self.unit != UNIT and isinstance(features[self.unit], Boolean):
            raise InvalidExperiment(
                f"experiment.unit: {self.unit!r} is true or false, which makes two units at most; name what tells "
                "users, devices or sessions apart"
            )
