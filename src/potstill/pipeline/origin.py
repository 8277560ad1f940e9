"""The origin of a policy: the observations its teacher has learnt from. Imports nothing from the learning half."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from potstill.events.lake import count_of_actions
from potstill.policy import Policy
from potstill.problem import difference
from potstill.workspace import Adaptation, Workspace, keeps_actions_apart, source_of


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


class Learnt(NamedTuple):
    """The version whose teacher an update resumes.

    Attributes:
        policy: That version: the serving one, or the one that it was adapted from.
        like: Actions that were added since and begin as another one, and that one.
        why_not: Why the teacher has to learn from all observations again, since the actions have changed; None if not.
    """

    policy: Policy
    like: dict[str, str]
    why_not: str | None

    @property
    def awaits_update(self) -> bool:
        """Whether what was learnt is kept, and only a stand-in serves until an update distils it."""
        return self.why_not is None and self.policy.metadata.lineage.teacher is not None


def learnt_by(workspace: Workspace, serving: Policy) -> Learnt:
    """The version whose teacher an update resumes from the serving policy."""
    if Adaptation.of(serving) is None:
        return Learnt(serving, {}, None)
    policy, like = source_of(serving, workspace.registry.policy)
    return Learnt(policy, like, _why_not(workspace, policy))


def is_stand_in(workspace: Workspace, serving: Policy, latest: int | None) -> bool:
    """Whether an update is due however few observations are new: a policy that was only adapted serves.

    Not if a version was made after it, which then does not serve for a reason.

    Args:
        workspace: The workspace.
        serving: The serving policy.
        latest: The newest version; None if there is none.
    """
    adapted = Adaptation.of(serving) is not None and (latest is None or latest <= serving.version)
    return adapted and learnt_by(workspace, serving).awaits_update


def _why_not(workspace: Workspace, policy: Policy) -> str | None:
    """Why a teacher cannot keep what it knows of each action of a version."""
    teacher, changed = workspace.config.teacher, difference(policy.problem, workspace.problem)
    if not (changed.added or changed.removed or "reordered" in changed.in_words):
        return None
    if not keeps_actions_apart(teacher):
        return f"the actions have changed, and {teacher.get('type')} does not keep what it learns of them apart"
    added = set(changed.added)
    if added and count_of_actions(workspace.lake, added, Origin.of(policy).cut):
        return f"observations from before of {', '.join(map(repr, changed.added))} fit the problem again"
    return None


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
