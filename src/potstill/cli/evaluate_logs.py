"""Inputs of `potstill evaluate`: the log at a place, and the policies that its options name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import polars as pl

from potstill.errors import InvalidAction, InvalidLog, InvalidOption, InvalidTarget
from potstill.evaluate import (
    WHY,
    ArrayFile,
    FixedActionTarget,
    LakeLog,
    Over,
    Progress,
    PropensityModel,
    TableLog,
    Target,
    columns_of,
    estimate_propensities,
    table_policy,
    target,
    text,
    training_rows,
)
from potstill.keys import Key
from potstill.policy import Policy
from potstill.problem import Continuous, Problem, Reward
from potstill.registry import UnknownVersion
from potstill.spaces import finite
from potstill.summaries import ApprenticeReport, read_report
from potstill.tables import Columns, PolicyColumns, is_table_file, scan_table
from potstill.workspace import Workspace

_ARRAYS = ".npy"
#: What --propensity says of a table that has none, and the column that is added then.
ESTIMATED, _COLUMN = "estimated", "estimated propensity"
_CURRENT = ("current", "serving")
#: Policies that both tables and workspaces accept.
_ANYWHERE = "action:NAME, uniform, logged, or a policy file"


class EvaluationRequest(NamedTuple):
    """The options of `potstill evaluate`.

    Attributes:
        place: A workspace or a table.
        policy: Policy to evaluate.
        against: Policy to compare it with.
        by: Features or columns to segment by.
        over: Periods of time.
        since: Earliest time, microseconds since 1970.
        until: Time before which rows must be, microseconds since 1970.
        unseen: Whether to use only decisions that neither policy was trained on.
        held_out: Whether policies are stated not to have been trained on these decisions, where the log cannot tell.
        position: Column of the position that an action was shown at.
        interval: Smallest and largest number, of a table whose action is a number.
    """

    place: str
    policy: str | None
    against: str | None
    by: Sequence[str]
    over: Over | None
    since: int | None
    until: int | None
    unseen: bool
    held_out: bool = False
    position: str | None = None
    interval: tuple[float | None, float | None] = (None, None)


class EvaluationInputs(NamedTuple):
    """A log, and the policies to compare on it.

    Attributes:
        log: The log.
        target: Policy to evaluate.
        against: Policy to compare it with.
        notes: Caveats about the log.
        learnt: Stated number of the log's rows that policies were trained on, by name.
        estimated: Whether propensities were estimated.
    """

    log: LakeLog | TableLog
    target: Target
    against: Target
    notes: list[str]
    learnt: Mapping[str, int]
    estimated: bool = False


def is_table(place: str) -> bool:
    """Whether a place is a table rather than a workspace."""
    return is_table_file(place) or (Path(place) / "_delta_log").is_dir()


def of_workspace(request: EvaluationRequest, on_progress: Progress) -> EvaluationInputs:
    """The log of a workspace, and versions of its registry or other policies."""
    workspace = Workspace(request.place)
    named = request.policy or "current"
    new = _workspace_target(workspace, named)
    against = request.against or _default_against(workspace, new)
    old = _workspace_target(workspace, against)
    log = LakeLog(
        workspace,
        after=max(map(_trained_to, (new, old))) if request.unseen else 0,
        since=request.since,
        until=request.until,
        by=request.by,
        on_progress=on_progress,
    )
    apprentice = _apprentice(workspace)
    if not len(log):
        raise InvalidLog("; ".join([_why_empty(log.left_out, request), *apprentice]))
    notes = [*text.left_out(log.left_out), *apprentice]
    return EvaluationInputs(log, new, old, notes, _held_out(request, log, new, old))


def _apprentice(workspace: Workspace) -> list[str]:
    """What the last update found in mode apprentice, a line; nothing without such decisions."""
    found = read_report(workspace.storage, ApprenticeReport)
    return [f"mode apprentice: {found.words}"] if found is not None and found.rows else []


def _trained_to(one: Target) -> int:
    """The last cut that a policy was trained on; 0 if there is none."""
    policy = getattr(one, "policy", None)
    return 0 if policy is None else int((policy.metadata.lineage.origin or {}).get("cut", 0))


def _held_out(request: EvaluationRequest, log: LakeLog | TableLog, *targets: Target) -> dict[str, int]:
    """Targets whose rows are stated to be held out, where the log cannot tell; what it can tell is not overruled."""
    return {one.name: 0 for one in targets if request.held_out and training_rows(log, one) is None}


def _default_against(workspace: Workspace, new: Target) -> str:
    """The default of --against: the serving version, or `logged` if that is evaluated."""
    try:
        serving = _workspace_target(workspace, "current")
    except InvalidTarget:
        return "logged"
    return "logged" if serving.name == new.name else "current"


def policy_of(workspace: Workspace, named: str) -> Policy:
    """A version of the registry, or a policy file."""
    if named in _CURRENT:
        return _serving(workspace)
    if named.isdecimal():
        return workspace.registry.policy(int(named))
    if not Path(named).is_file():
        raise InvalidTarget(f"there is no policy {named!r}; name a version of potstill versions, current, or a file")
    return Policy.load(named, workspace.problem)


def of_table(
    request: EvaluationRequest, columns: Columns, reward: Reward, on_progress: Progress, *, skip: bool
) -> EvaluationInputs:
    """A table as a log, and policies that its columns state or other policies."""
    if request.policy is None:
        raise InvalidTarget(f"name the policy to evaluate with --policy: column:NAME, columns:PREFIX, {_ANYWHERE}")
    there = columns_of(scan_table(request.place), request.place).names()
    names = [request.policy, request.against or "logged"]
    stated = {name: one for name in names if (one := _stated(name, there))}
    arrays = {name: ArrayFile(name) for name in names if name.endswith(_ARRAYS)}
    problem = next((Policy.load(name).problem for name in names if Path(name).is_file() and name not in arrays), None)
    _check_density(columns, request, problem)

    def opened(columns: Columns, table: pl.LazyFrame | None = None) -> TableLog:
        return TableLog(
            request.place,
            columns,
            problem=problem,
            reward=reward,
            interval=request.interval,
            targets=list(stated.values()),
            actions=next((one.actions for one in arrays.values()), None),
            position=request.position,
            by=by_position(request),
            skip=skip,
            since=request.since,
            until=request.until,
            table=table,
            on_progress=on_progress,
        )

    estimated = columns.propensity == ESTIMATED and ESTIMATED not in there
    log, model = _on_estimates(opened, columns) if estimated else (opened(columns), None)
    if not len(log):
        raise InvalidLog(f"{request.place}: no row is between --since and --until")
    new, old = (
        target(log.problem, arrays[name].on(log))
        if name in arrays
        else _table_target(log.problem, name, stated.get(name))
        for name in names
    )
    notes = [*text.left_out(log.left_out, log.unfit), *_columns_without(stated.values(), log.problem)]
    notes += _taken_interval(request, columns, log.problem)
    notes += [] if model is None else [model.in_words]
    return EvaluationInputs(log, new, old, notes, _held_out(request, log, new, old), estimated)


def _on_estimates(opened: Callable[..., TableLog], columns: Columns) -> tuple[TableLog, PropensityModel]:
    """A table with a column of estimated propensities."""
    without = opened(msgspec.structs.replace(columns, propensity=1.0))
    space = finite(without.problem.actions, f"--propensity {ESTIMATED}")
    if not without.problem.width:
        raise InvalidOption(
            f"--propensity {ESTIMATED} needs what the choices depended on: name these columns with --context"
        )
    blocks = list(without.blocks())
    contexts, actions = (np.concatenate([getattr(block, name) for block in blocks]) for name in ("contexts", "actions"))
    found = estimate_propensities(contexts, actions, len(space), Key(0).child("propensities"))
    column, used = np.ones(without.total), without.row_numbers()
    column[slice(None) if used is None else used] = found.propensities
    table = scan_table(without.place).with_columns(pl.Series(_COLUMN, column))
    return opened(msgspec.structs.replace(columns, propensity=_COLUMN), table), found.model


def _check_density(columns: Columns, request: EvaluationRequest, problem: Problem | None) -> None:
    """Raise if options state a number, and the policies choose from a list."""
    if columns.is_density and problem is not None and problem.actions.measure == "counting":
        raise InvalidOption("--density is for actions that are numbers, and the policy file chooses from a list")
    if request.interval != (None, None) and (problem is not None or not columns.is_density):
        why = "the policy file states its interval" if problem is not None else "name the density with --density"
        raise InvalidOption(f"--low and --high are for a table whose action is a number: {why}")


def _taken_interval(request: EvaluationRequest, columns: Columns, problem: Problem) -> list[str]:
    """A note on the interval that was taken from the table."""
    if not columns.is_density or None not in request.interval or not isinstance(problem.actions, Continuous):
        return []
    number = problem.actions
    return [
        f"{number.name} is taken as a number from {number.low:.6g} to {number.high:.6g}, the smallest and the largest "
        "in the table; --low and --high state others"
    ]


def by_position(request: EvaluationRequest) -> list[str]:
    """Columns to segment by, with that of positions."""
    return list(dict.fromkeys([*request.by, *([request.position] if request.position else [])]))


def _columns_without(stated: Iterable[PolicyColumns], problem: Problem) -> list[str]:
    """Notes that actions without a column count as never taken."""
    return [
        f"columns {one.name}… have none for {', '.join(without)}: their probability is taken as 0"
        for one in stated
        if (without := one.without(problem))
    ]


def moment(stated: str | None, option: str) -> int | None:
    """Microseconds since 1970 of a day or time in ISO 8601; UTC unless it states a zone."""
    if stated is None:
        return None
    try:
        time = datetime.fromisoformat(stated)
    except ValueError:
        raise InvalidOption(f"{option} must be a day or a time, such as 2026-11-16, got {stated!r}") from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1_000_000)


def _workspace_target(workspace: Workspace, named: str) -> Target:
    if named in _CURRENT or named.isdecimal():
        return target(workspace.problem, policy_of(workspace, named))
    return _portable_target(workspace.problem, named, "a version of potstill versions, current")


def _table_target(problem: Problem, named: str, stated: PolicyColumns | None) -> Target:
    if stated:
        return target(problem, table_policy(stated, problem))
    return _portable_target(problem, named, "column:NAME, columns:PREFIX")


def _portable_target(problem: Problem, named: str, others: str) -> Target:
    if named.startswith("action:"):
        action = named.removeprefix("action:")
        return target(problem, FixedActionTarget(problem, _action(problem, action)), f"always {action}")
    if named in ("uniform", "logged"):
        return target(problem, named)
    if named.endswith(_ARRAYS):
        raise InvalidTarget(f"{named}: an array has a row for each row of a table such as log.csv, not of a workspace")
    if Path(named).is_file():
        return target(problem, Policy.load(named, problem), Path(named).name)
    raise InvalidTarget(f"there is no policy {named!r}; name {others}, {_ANYWHERE}")


def _action(problem: Problem, stated: str) -> Any:
    """The action that an option names; numbers and lists are written as JSON."""
    try:
        return problem.actions.parse(stated)
    except InvalidAction as error:
        try:
            return problem.actions.parse(msgspec.json.decode(stated))
        except InvalidAction as second:
            raise InvalidTarget(f"--policy action:{stated}: {second}") from None
        except msgspec.DecodeError:
            raise InvalidTarget(f"--policy action:{stated}: {error}") from None


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


def _why_empty(unused: Mapping[str, int], request: EvaluationRequest) -> str:
    if unused:
        reasons = "; ".join(f"{rows:,} {why}: {WHY.get(why, 'of another source')}" for why, rows in unused.items())
        return f"no observation of {request.place} can be used, as propensities must be exact ({reasons})"
    if request.unseen:
        return f"{request.place} has no observations yet that these policies were not trained on; leave out --unseen"
    if (request.since, request.until) != (None, None):
        return f"{request.place} has no observations between --since and --until"
    return (
        f"{request.place} has no observations yet: potstill update turns decisions into observations once their reward "
        "window has closed; potstill status says how many are pending"
    )
