"""Resume from the serving policy and its teacher's state, at the start of an update."""

from __future__ import annotations

from typing import NamedTuple

from potstill.decode import convert
from potstill.distill import Still, Student
from potstill.pipeline.origin import Origin, left_out
from potstill.policy import Policy
from potstill.registry import NoState
from potstill.teachers import AnyTeacher, InvalidState, from_config
from potstill.workspace import InvalidConfig, Workspace


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


def configured(workspace: Workspace) -> tuple[AnyTeacher, Student]:
    """The teacher and the student of `potstill.toml`."""
    try:
        return from_config(workspace.config.teacher), convert(workspace.config.student, Student)
    except ValueError as error:  # includes msgspec.ValidationError
        raise InvalidConfig(f"potstill.toml: {error}") from error


def start(workspace: Workspace, serving: Policy) -> Start:
    """Resume from the serving policy, with its teacher's state if the configured teacher is the same."""
    teacher, student = configured(workspace)
    stated = workspace.config.policy
    still = Still(workspace.problem, teacher, student=student, seed=stated.seed, floor=stated.floor)
    policy = serving.with_floor(stated.floor)
    still.policy = policy
    without = left_out(workspace, serving)
    if policy.metadata.lineage.teacher is None:
        return Start(still, None, 0, without, None)
    try:
        still.recall(policy, workspace.registry.teacher(policy.version))
    except NoState:
        return Start(still, None, 0, without, f"the teacher's state of version {policy.version} was deleted")
    except InvalidState as error:
        why = f"the teacher's state of version {policy.version} does not fit: {error}"
        return Start(still, None, 0, without, why)
    return Start(still, policy.version, Origin.of(policy).cut, without, None)
