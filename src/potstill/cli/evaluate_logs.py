"""What `potstill evaluate` compares: the log at a place, and the policies that its options name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import msgspec

from potstill.errors import InvalidAction, InvalidLog, InvalidTarget
from potstill.evaluate import (
    WHY,
    FixedActionTarget,
    LakeLog,
    Over,
    Progress,
    TableLog,
    TablePolicy,
    Target,
    columns_of,
    target,
)
from potstill.evaluate.text import left_out
from potstill.policy import Policy
from potstill.problem import Problem, Reward
from potstill.registry import UnknownVersion
from potstill.tables import Columns, PolicyColumns, scan_table
from potstill.workspace import Workspace

_TABLES = (".csv", ".parquet", ".pq")
_CURRENT = ("current", "serving")
#: What both logs and workspaces understand.
_ANYWHERE = "action:NAME, uniform, logged, or the file of a policy"


class EvaluationRequest(NamedTuple):
    """What was asked for, as it was typed.

    Attributes:
        place: a workspace or a table.
        policy: to evaluate.
        against: to compare it with.
        by: features or columns for segments.
        over: stretches of time.
        since: from this moment on; microseconds since 1970.
        until: and before this one.
        unseen: only decisions that neither policy has learnt from.
    """

    place: str
    policy: str | None
    against: str | None
    by: Sequence[str]
    over: Over | None
    since: int | None
    until: int | None
    unseen: bool


class EvaluationInputs(NamedTuple):
    """A log, and the policies to compare on it.

    Attributes:
        log: the log.
        target: the policy to evaluate.
        against: the one to compare it with.
        notes: what a reader should know of the log.
        learnt: from how many of the log's rows policies have learnt, by their names.
    """

    log: LakeLog | TableLog
    target: Target
    against: Target
    notes: list[str]
    learnt: Mapping[str, int]


def is_table(place: str) -> bool:
    """Whether a place is a table, and not a workspace."""
    return PurePosixPath(place).suffix.lower() in _TABLES or (Path(place) / "_delta_log").is_dir()


def of_workspace(asked: EvaluationRequest, on_progress: Progress) -> EvaluationInputs:
    """The log of a workspace; versions of its registry, or policies from elsewhere."""
    workspace = Workspace(asked.place)
    named = asked.policy or "current"
    new = _of_workspace(workspace, named)
    against = asked.against or _usual(workspace, new)
    old = _of_workspace(workspace, against)
    learnt = {target.name: _learnt(workspace, name) for target, name in ((new, named), (old, against))}
    log = LakeLog(
        workspace,
        after=max(learnt.values()) if asked.unseen else 0,
        since=asked.since,
        until=asked.until,
        by=asked.by,
        on_progress=on_progress,
    )
    if not len(log):
        raise InvalidLog(_nothing(log.left_out, asked))
    return EvaluationInputs(
        log, new, old, left_out(log.left_out), {name: log.count_up_to(cut) for name, cut in learnt.items()}
    )


def _learnt(workspace: Workspace, named: str) -> int:
    """The last cut that a version has learnt from; 0 if it has from none."""
    if named not in _CURRENT and not named.isdecimal():
        return 0
    return int((policy_of(workspace, named).metadata.lineage.origin or {}).get("cut", 0))


def _usual(workspace: Workspace, new: Target) -> str:
    """What to compare with unless something is said: the serving version, or what was done if that is the new one."""
    try:
        serving = _of_workspace(workspace, "current")
    except InvalidTarget:
        return "logged"
    return "logged" if serving.name == new.name else "current"


def policy_of(workspace: Workspace, named: str) -> Policy:
    """A version of the registry, or the policy of a file."""
    if named in _CURRENT:
        return _serving(workspace)
    if named.isdecimal():
        return workspace.registry.policy(int(named))
    if not Path(named).is_file():
        raise InvalidTarget(f"there is no policy {named!r}; name a version of potstill versions, current, or a file")
    return Policy.load(named, workspace.problem)


def of_table(
    asked: EvaluationRequest, columns: Columns, reward: Reward, on_progress: Progress, *, skip: bool
) -> EvaluationInputs:
    """A table as a log; policies that its columns state, or policies from elsewhere."""
    if asked.policy is None:
        raise InvalidTarget(f"say with --policy what to evaluate: column:NAME, columns:PREFIX, {_ANYWHERE}")
    there = columns_of(scan_table(asked.place), asked.place)
    names = [asked.policy, asked.against or "logged"]
    stated = {name: one for name in names if (one := _stated(name, there))}
    log = TableLog(
        asked.place,
        columns,
        problem=next((Policy.load(name).problem for name in names if Path(name).is_file()), None),
        reward=reward,
        targets=list(stated.values()),
        by=asked.by,
        skip=skip,
        since=asked.since,
        until=asked.until,
        on_progress=on_progress,
    )
    if not len(log):
        raise InvalidLog(f"{asked.place}: no row is in the time that --since and --until state")
    new, old = (_of_table(log.problem, name, stated.get(name)) for name in names)
    return EvaluationInputs(
        log, new, old, [*left_out(log.left_out, log.unfit), *_never(stated.values(), log.problem)], {}
    )


def _never(stated: Iterable[PolicyColumns], problem: Problem) -> list[str]:
    """That actions without a column are never taken."""
    return [
        f"columns {one.name}… have none for {', '.join(without)}: a probability of 0 is taken"
        for one in stated
        if (without := one.without(problem))
    ]


def moment(text: str | None, option: str) -> int | None:
    """Microseconds since 1970 of a day or a moment in ISO 8601; UTC unless it says otherwise."""
    if text is None:
        return None
    try:
        stated = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{option} must be a day or a moment, such as 2026-11-16, got {text!r}") from None
    return round((stated if stated.tzinfo else stated.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def _of_workspace(workspace: Workspace, named: str) -> Target:
    if named in _CURRENT or named.isdecimal():
        return target(workspace.problem, policy_of(workspace, named))
    return _from_anywhere(workspace.problem, named, "a version of potstill versions, current")


def _of_table(problem: Problem, named: str, stated: PolicyColumns | None) -> Target:
    if stated:
        return target(problem, TablePolicy(stated, problem))
    return _from_anywhere(problem, named, "column:NAME, columns:PREFIX")


def _from_anywhere(problem: Problem, named: str, others: str) -> Target:
    if named.startswith("action:"):
        action = named.removeprefix("action:")
        return target(problem, FixedActionTarget(problem, _action(problem, action)), f"always {action}")
    if named in ("uniform", "logged"):
        return target(problem, named)
    if Path(named).is_file():
        return target(problem, Policy.load(named, problem), Path(named).name)
    raise InvalidTarget(f"there is no policy {named!r}; name {others}, {_ANYWHERE}")


def _action(problem: Problem, text: str) -> Any:
    """The action that an option names; numbers and lists are written as JSON."""
    try:
        return problem.actions.parse(text)
    except InvalidAction as error:
        try:
            return problem.actions.parse(msgspec.json.decode(text))
        except (InvalidAction, msgspec.DecodeError):
            raise InvalidTarget(f"--policy action:{text}: {error}") from None


def _serving(workspace: Workspace) -> Policy:
    try:
        return workspace.registry.policy()
    except UnknownVersion as error:
        raise InvalidTarget(
            f"{error}; until then, name another with --policy, such as uniform or action:NAME"
        ) from error


def _stated(named: str, there: Sequence[str]) -> PolicyColumns | None:
    kind, _, name = named.partition(":")
    if kind == "column" and name:
        return PolicyColumns.action(name, there)
    return PolicyColumns.probabilities(name, there) if kind == "columns" and name else None


def _nothing(unused: Mapping[str, int], asked: EvaluationRequest) -> str:
    if unused:
        told = "; ".join(f"{rows:,} {why}: {WHY.get(why, 'of another source')}" for why, rows in unused.items())
        return f"none of the observations of {asked.place} can be used, as propensities must be exact ({told})"
    if asked.unseen:
        return f"{asked.place} has no observations yet that these policies have not learnt from; leave out --unseen"
    if (asked.since, asked.until) != (None, None):
        return f"{asked.place} has no observations in the time that --since and --until state"
    return (
        f"{asked.place} has no observations yet: decisions become observations in potstill update, once their window "
        "for rewards has closed; potstill status says how many wait"
    )
