"""The backlog: observations that an update would learn from. Imports nothing from the learning half."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from potstill.events.lake import count_observations
from potstill.pipeline.origin import Origin
from potstill.policy import InvalidPolicy, Policy
from potstill.registry import CorruptVersion, UnknownVersion
from potstill.workspace import Adaptation, Workspace

#: Whether a teacher's configuration, from a lineage, is the configured one.
SameTeacher = Callable[[Mapping[str, Any]], bool]


class Backlog(NamedTuple):
    """Observations since the serving version.

    Attributes:
        observations: Number of observations after the cut up to which the resumed teacher has learnt.
        unfit: Number of further observations that do not fit the problem, which has changed; they are left out. Those
            before that cut count too while an adapted policy serves.
        unseen: Number of those that the newest version has not learnt from either.
        newest: Version that has learnt from the others and does not serve; None if there is none.
    """

    observations: int
    unfit: int
    unseen: int
    newest: int | None

    @property
    def known(self) -> str:
        """What became of observations that a version has learnt from which does not serve; empty if there is none."""
        if self.newest is None or self.unseen == self.observations:
            return ""
        return (
            f"; version {self.newest}, which does not serve, has learnt from {self.observations - self.unseen:,} "
            "others: potstill promote serves it, potstill update --force learns from them again"
        )


def backlog(
    workspace: Workspace, serving: Policy, after: int, to: int, without: Collection[str], same: SameTeacher
) -> Backlog:
    """Observations of the cuts above `after` and up to `to`.

    An update of observations that are all in a version of the same teacher would only make that version again: after a
    rollback, or while versions are staged or refused. They are not new.

    Args:
        workspace: The workspace.
        serving: The serving policy.
        after: Cut up to which its teacher has learnt.
        to: The last cut.
        without: Arms of experiments that the teacher does not learn from.
        same: Whether a version's teacher is the configured one.
    """
    lake, problem = workspace.lake, workspace.problem
    observations = count_observations(lake, after, to, without=without, problem=problem)
    # Where only the actions have changed, those before `after` that do not fit were learnt, and are left out now.
    since = 0 if Adaptation.of(serving) is not None else after
    fitting = count_observations(lake, since, to, without=without, problem=problem) if since < after else observations
    unfit = count_observations(lake, since, to, without=without) - fitting
    newest = _newest(workspace)
    if newest is None or newest.version == serving.version or not _same(newest, workspace, without, same):
        return Backlog(observations, unfit, observations, None)
    unseen = count_observations(lake, max(after, Origin.of(newest).cut), to, without=without, problem=problem)
    return Backlog(observations, unfit, unseen, newest.version)


def _newest(workspace: Workspace) -> Policy | None:
    """The version that was published last, if it can be read."""
    head = workspace.registry.head()
    try:
        return None if head is None else workspace.registry.policy(head.latest)
    except (CorruptVersion, InvalidPolicy, UnknownVersion):
        return None


def _same(newest: Policy, workspace: Workspace, without: Collection[str], same: SameTeacher) -> bool:
    teacher = newest.metadata.lineage.teacher
    if teacher is None or newest.problem.hash != workspace.problem.hash:
        return False
    return tuple(sorted(without)) == Origin.of(newest).without and same(teacher)
