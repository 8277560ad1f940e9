"""Changes of the actions of a workspace while it serves: the parts that lists and catalogues share.

The problem is replaced first, in one step, and then a version that is adapted to it is published, by which services
follow. A change that is killed in between is completed by the same command, by the next update or at the next start.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator
from typing import Literal

from potstill.errors import PotstillError
from potstill.experiments import InvalidExperiment, Rules
from potstill.files import hold, make_folder
from potstill.policy import Policy
from potstill.problem import Problem, difference
from potstill.registry import Conflict, OtherProblem
from potstill.workspace.adapt import can_adapt, is_uniform
from potstill.workspace.check import check_config
from potstill.workspace.design import read_design
from potstill.workspace.experiment import control_of, rules_of
from potstill.workspace.workspace import Change, Workspace

What = Literal["add", "retire", "remove", "change"]
_LOCK = "actions.lock"
#: How often a publication is tried again that another one was faster than.
_ATTEMPTS = 10


class CannotChangeActions(PotstillError, ValueError):
    """The actions cannot be changed as asked; the message says why and what to do."""


@contextlib.contextmanager
def locked(workspace: Workspace) -> Iterator[Workspace]:
    """Hold the lock of changes on this machine, and give the workspace as it is then."""
    make_folder(workspace.spool)
    held = hold(workspace.spool / _LOCK, wait=True)
    assert held is not None
    try:
        yield Workspace(workspace.url)
    finally:
        os.close(held)


def served(workspace: Workspace) -> Policy | None:
    """The policy that serves, also one for an earlier problem; None if none was published."""
    head = workspace.registry.head()
    return None if head is None or head.serving is None else workspace.before()


def check_change(
    workspace: Workspace, problem: Problem, before: Policy | None, what: What, names: Collection[str], where: str
) -> None:
    """Refuse a change that the rest of the workspace forbids, or that no version can be adapted to.

    Args:
        workspace: The workspace as it is.
        problem: The changed problem.
        before: The policy that serves.
        what: What is done to the actions of these names.
        names: Actions that are added, retired, removed or changed.
        where: The file that is to be replaced, for messages.
    """
    _check_uses(workspace, problem, what, names)
    if before is not None and not (can_adapt(before, problem) or is_uniform(before)):
        changed = difference(before.problem, workspace.problem).in_words
        raise CannotChangeActions(
            f"{where} has changed since version {before.version}, which serves: {changed}. Run potstill update first, "
            f"or put the old {where.rpartition('/')[2]} back"
        )


def _check_uses(workspace: Workspace, problem: Problem, what: What, names: Collection[str]) -> None:
    """Refuse to retire or remove an action that the configuration names, and a change that an experiment forbids."""
    config, goes = workspace.config, what in ("retire", "remove")
    if goes and config.serve.fallback in names:
        raise CannotChangeActions(
            f"cannot {what} {config.serve.fallback!r}: it is serve.fallback in potstill.toml; name another fallback "
            "there, and restart potstill serve, first"
        )
    stated = config.teacher.get("prior", {})
    if what == "remove" and (used := next((name for name in names if name in stated), None)):
        raise CannotChangeActions(f"cannot remove {used!r}: teacher.prior in potstill.toml names it; take it out first")
    if read_design(workspace.storage) is not None:
        raise CannotChangeActions(
            f"cannot {what} {_told(names)} while the points of an initial design are handed out: they are for the "
            "present actions. End it with potstill design DIR --end first"
        )
    changed = Workspace(workspace.url, problem, config)
    check_config(changed)
    _check_experiment(changed, what, names)


def _check_experiment(changed: Workspace, what: What, names: Collection[str]) -> None:
    experiment = changed.config.experiment
    if experiment is None:
        return
    end = "end the experiment first: take [experiment] out of potstill.toml, or name another control"
    try:
        control = control_of(changed, experiment, rules_of(changed, experiment))
    except InvalidExperiment as error:
        raise CannotChangeActions(
            f"cannot {what} {_told(names)} during experiment {experiment.name!r}: {error}; {end}"
        ) from error
    if what in ("retire", "remove") and isinstance(control, Rules):
        taken = next((name for name in names if name in control.actions), None)
        if taken is not None:
            raise CannotChangeActions(
                f"cannot {what} {taken!r}: control of experiment {experiment.name!r} takes it; {end}"
            )


def _told(names: Collection[str]) -> str:
    first = next(iter(names), "")
    return repr(first) if len(names) <= 1 else f"{first!r} and {len(names) - 1:,} more"


def publish_change(workspace: Workspace, change: Change, before: Policy | None) -> bool:
    """Publish a version for the problem, if none serves it and any was published; whether one was."""
    if before is None or before.problem.hash == workspace.problem.hash:
        return False
    for _ in range(_ATTEMPTS):
        head = workspace.registry.head()
        try:
            if workspace.start(change=change).problem.hash == workspace.problem.hash:
                return workspace.registry.head() != head
        except OtherProblem:
            if workspace.current() is workspace:
                raise
            break  # another machine, which does not see this one's lock, has changed the problem again
    raise Conflict(f"{workspace.url}: other changes were faster; repeat the command, which changes what is missing")
