"""The origin of a policy: the observations its teacher has learnt from. Imports nothing from the learning half."""

from __future__ import annotations

from typing import Any

import msgspec

from potstill.policy import Policy
from potstill.workspace import Workspace


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Origin of a workspace's policy, in its lineage.

    Attributes:
        base: Version whose teacher was resumed; None if the teacher learnt from all observations again.
        after: Cut up to which the base had learnt; 0 without a base.
        cut: Cut up to which this policy has learnt.
        contexts: Extra contexts that it was distilled on, if any: table, number of rows and SHA-256.
        without: Arms of experiments whose observations were excluded.
        prior: Whether it is the first policy, distilled from the prior of its teacher before any observation.
    """

    base: int | None = None
    after: int = 0
    cut: int = 0
    contexts: dict[str, Any] | None = None
    without: tuple[str, ...] = ()
    prior: bool = False

    @classmethod
    def of(cls, policy: Policy) -> Origin:
        """Origin of a policy; an empty one if it has learnt nothing."""
        return msgspec.convert(policy.metadata.lineage.origin or {}, cls)


def left_out(workspace: Workspace, serving: Policy) -> tuple[str, ...]:
    """Arms of experiments whose observations are excluded from learning.

    These are the arms that the serving version excluded, plus control of the current experiment unless
    `train_on_control` is set. Excluded arms stay excluded after the experiment, even when a teacher learns from all
    observations again.
    """
    arms, experiment = set(Origin.of(serving).without), workspace.config.experiment
    if experiment is not None:
        control = {experiment.arm("control")}
        arms = arms - control if experiment.train_on_control else arms | control
    return tuple(sorted(arms))
