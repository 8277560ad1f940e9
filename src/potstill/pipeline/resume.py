"""Resume from the serving policy and its teacher's state, at the start of an update."""

from __future__ import annotations

from typing import NamedTuple

from potstill.distill import AutoStudent, Still, Student
from potstill.pipeline.backlog import SameTeacher
from potstill.pipeline.check import check_student, check_teacher
from potstill.pipeline.load_teacher import is_recorded
from potstill.pipeline.origin import Origin, learnt_by, left_out
from potstill.policy import Policy
from potstill.registry import NoState
from potstill.teachers import AnyTeacher, InvalidState
from potstill.workspace import Adaptation, Workspace


class Start(NamedTuple):
    """A still that is ready for the next batch.

    Attributes:
        still: Still with the serving policy.
        base: Version whose teacher is resumed; None if the teacher starts from its prior.
        after: Cut up to which the teacher has learnt.
        without: Arms of experiments that are excluded from learning.
        why_anew: Why the serving version's teacher cannot be resumed; None if it can.
    """

    still: Still
    base: int | None
    after: int
    without: tuple[str, ...]
    why_anew: str | None


def configured(workspace: Workspace) -> tuple[AnyTeacher, Student | AutoStudent]:
    """The teacher and the student of `potstill.toml`."""
    teacher = check_teacher(workspace)
    return teacher, check_student(workspace, teacher)


def same_teacher(workspace: Workspace) -> SameTeacher:
    """Whether a teacher's configuration, from a lineage, is that of `potstill.toml`."""
    teacher, _ = configured(workspace)
    return lambda config: is_recorded(teacher, config)


def continue_from(still: Still, policy: Policy) -> Policy:
    """Let a still continue from a policy; returns the policy.

    An adapted policy gives untrained actions a score that imitation would not reach from, so it starts afresh.
    """
    still.policy, still.warm = policy, Adaptation.of(policy) is None
    return policy


def start(workspace: Workspace, serving: Policy) -> Start:
    """Resume from the serving policy, with its teacher's state if the configured teacher is the same."""
    teacher, student = configured(workspace)
    stated = workspace.config.policy
    still = Still(workspace.problem, teacher, student=student, seed=stated.seed, floor=stated.floor)
    policy = continue_from(still, serving.with_floor(stated.floor))
    without = left_out(workspace, serving)
    learnt = learnt_by(workspace, serving)
    base = learnt.policy
    if base.metadata.lineage.teacher is None or Origin.of(base).prior:
        return Start(still, None, 0, without, None)
    if learnt.why_not is not None:
        return Start(still, None, 0, without, learnt.why_not)
    try:
        still.recall(policy, workspace.registry.teacher(base.version), base.problem, learnt.like)
    except NoState:
        return Start(still, None, 0, without, f"the teacher's state of version {base.version} was deleted")
    except InvalidState as error:
        why = f"the teacher's state of version {base.version} does not fit: {error}"
        return Start(still, None, 0, without, why)
    return Start(still, base.version, Origin.of(base).cut, without, None)
