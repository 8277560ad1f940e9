"""Add, retire and remove actions of a workspace while it serves.

`problem.toml` is replaced first, in one step, and then a version that is adapted to it is published, by which services
follow. A change that is killed in between is completed by the same command, by the next update or at the next start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from potstill.decode import unknown_name
from potstill.errors import InvalidAction, check_name
from potstill.policy import Policy
from potstill.problem import Catalog, Discrete, Problem
from potstill.spaces import NamedActions
from potstill.storage import child
from potstill.workspace.adapt import Adaptation
from potstill.workspace.change import CannotChangeActions, What, check_change, locked, publish_change, served
from potstill.workspace.problem_edit import with_actions
from potstill.workspace.problem_source import PROBLEM
from potstill.workspace.workspace import Change, Workspace

ActionState = Literal["chosen", "new", "retired"]
#: Types of teachers with the contract `PerAction`; a serving host does not import teachers to ask them.
PER_ACTION = ("linear-ts", "diagonal-linear-ts", "empirical-linear-ts", "lin-ucb", "catalog-linear-ts")


class ActionStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An action of a problem.

    Attributes:
        action: Its name.
        state: ``chosen`` by the policy; ``new``, with only the floor's propensity until the next update; or
            ``retired``.
        least: Its smallest propensity where it is eligible; 0 if it is retired.
    """

    action: str
    state: ActionState
    least: float


class ActionsReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The actions of a workspace, after a change if there was one.

    Attributes:
        actions: The actions, in the order of the problem.
        problem_hash: Hash of the problem.
        serving: The version that serves; None if none is published.
        text: What was done, in words; empty if nothing was asked for.
        changed: Whether anything was changed.
    """

    actions: list[ActionStatus]
    problem_hash: str
    serving: int | None = None
    text: str = ""
    changed: bool = False


class _Lists(NamedTuple):
    """Names of the actions, and those that are retired."""

    names: tuple[str, ...]
    retired: tuple[str, ...]


def keeps_actions_apart(teacher: Mapping[str, Any]) -> bool:
    """Whether a teacher, by its configuration, keeps the statistics of each action when the list changes."""
    return teacher.get("type") in PER_ACTION and teacher.get("weighting", "equal") == "equal"


def list_actions(workspace: Workspace) -> ActionsReport:
    """The actions of a workspace and how each is chosen."""
    return _report(workspace)


def add_action(
    place: str, name: str, *, like: str | None = None, share: float | None = None, reason: str = "", by: str = ""
) -> ActionsReport:
    """Add an action, or bring a retired one back.

    Args:
        place: The workspace.
        name: Name of the action.
        like: Action whose statistics it takes over at the next update, with a tenth of their weight.
        share: Share of decisions that are drawn uniformly from all actions until the next update, so that the new one
            gets its part of it; that of `potstill.toml` if left out, and 0 to wait for the update.
        reason: Why, for the registry's history.
        by: Who asks for it.

    Raises:
        CannotChangeActions: It cannot be added like this.
        CannotEdit: The layout of `problem.toml` is not understood.
    """
    check_name(name, "an action's name")
    if share is not None and not 0 <= share < 1:
        raise CannotChangeActions(f"share must be at least 0 and below 1, got {share!r}")

    def edit(workspace: Workspace, space: Discrete, _: Policy | None) -> _Lists:
        if like is not None:
            _check_like(workspace.config.teacher, space, name, like)
        if name not in space.names and (space.positions is not None or space.distances is not None):
            what = "positions" if space.positions is not None else "distances"
            raise CannotChangeActions(
                f"these actions have {what}, and {name!r} needs its own: add both to problem.toml and run potstill "
                "update, which publishes a version; services follow it"
            )
        names = tuple(space.names) if name in space.names else (*space.names, name)
        return _Lists(names, _without(space.retired, name))

    change = Change(reason, by, share, {} if like is None else {name: like})
    return _change(place, "add", name, edit, change)


def retire_action(place: str, name: str, *, reason: str = "", by: str = "") -> ActionsReport:
    """Choose an action no longer; its observations still teach, and `add_action` brings it back. See `add_action`."""

    def edit(_: Workspace, space: Discrete, __: Policy | None) -> _Lists:
        _check_known(space, name)
        _check_enough(space, name, "retired")
        # Behind those that are retired already, as problem.toml has them: `retired` has no order of its own.
        retired = tuple(space.retired)
        return _Lists(tuple(space.names), retired if name in retired else (*retired, name))

    return _change(place, "retire", name, edit, Change(reason, by))


def remove_action(place: str, name: str, *, reason: str = "", by: str = "") -> ActionsReport:
    """Take an action out of the problem: what was observed of it is left out from now on. See `add_action`."""

    def edit(_: Workspace, space: Discrete, before: Policy | None) -> _Lists:
        if name not in space.names and _had(before, name):
            return _Lists(tuple(space.names), tuple(space.retired))
        _check_known(space, name)
        _check_enough(space, name, "removed")
        if space.positions is not None or space.distances is not None:
            raise CannotChangeActions(
                f"these actions have positions or distances: take {name!r} and its own out of problem.toml and run "
                "potstill update, which publishes a version; services follow it. Or retire it"
            )
        return _Lists(_without(space.names, name), _without(space.retired, name))

    return _change(place, "remove", name, edit, Change(reason, by))


def _change(
    place: str, what: What, name: str, edit: Callable[[Workspace, Discrete, Policy | None], _Lists], change: Change
) -> ActionsReport:
    with locked(Workspace(place)) as workspace:
        space = workspace.problem.actions
        if isinstance(space, Catalog):
            raise CannotChangeActions(f"{workspace.url}: the actions are items of a catalogue; see potstill items")
        if not isinstance(space, Discrete):
            raise CannotChangeActions(
                f"{workspace.url}: actions are a list only where they have names; this is {space}"
            )
        before = served(workspace)
        wanted = edit(workspace, space, before)
        done = wanted == _Lists(tuple(space.names), tuple(space.retired))
        if not done:
            workspace = _written(workspace, what, name, wanted, before)
        published = publish_change(workspace, change, before)
        return _report(workspace, text=_told(what, name, space, done, published), changed=not done or published)


def _written(workspace: Workspace, what: What, name: str, wanted: _Lists, before: Policy | None) -> Workspace:
    """Write the changed problem, after checking that everything else fits it."""
    where = child(workspace.url, PROBLEM)
    data = with_actions(workspace.storage.read(PROBLEM), wanted.names, wanted.retired, where)
    problem = Problem.from_toml(data, where)
    check_change(workspace, problem, before, what, [name], where)
    workspace.storage.replace(PROBLEM, data)
    return Workspace(workspace.url)


def _report(workspace: Workspace, *, text: str = "", changed: bool = False) -> ActionsReport:
    space = workspace.problem.actions
    if not isinstance(space, NamedActions):
        raise CannotChangeActions(f"{workspace.url}: the action is a number ({space}), and has no list of actions")
    head, policy = workspace.registry.head(), workspace.serving()
    return ActionsReport(
        actions=[_status(policy, space, name) for name in space.names],
        problem_hash=workspace.problem.hash,
        serving=None if head is None else head.serving,
        text=text,
        changed=changed,
    )


def _status(policy: Policy, space: NamedActions, name: str) -> ActionStatus:
    if name in space.retired:
        return ActionStatus(action=name, state="retired", least=0.0)
    adaptation = Adaptation.of(policy)
    new = adaptation is not None and name in adaptation.untrained
    return ActionStatus(action=name, state="new" if new else "chosen", least=policy.floor)


def _told(what: What, name: str, space: Discrete, done: bool, published: bool) -> str:
    state = {"add": "chosen already", "retire": "retired already", "remove": "not an action any more"}.get(what, what)
    if done and published:
        return f"{name!r} is {state} in problem.toml; a version that follows it was missing, and is published now"
    if done:
        return f"{name!r} is {state}; nothing was changed"
    if what == "add":
        return f"{name!r} is {'chosen again' if name in space.names else 'added'}"
    return f"{name!r} is {what}d"


def _check_known(space: Discrete, name: str) -> None:
    if name not in space.names:
        raise InvalidAction(unknown_name("action", name, space.names))


def _check_enough(space: Discrete, name: str, how: str) -> None:
    if name in space.available and len(space.available) <= 2:
        raise CannotChangeActions(
            f"{name!r} cannot be {how}: two actions must be left to choose from, and there are only "
            f"{' and '.join(map(repr, space.available))}; add another one first"
        )


def _check_like(teacher: Mapping[str, Any], space: Discrete, name: str, like: str) -> None:
    others = [one for one in space.names if one != name]
    if like not in others:
        raise CannotChangeActions(f"like: {unknown_name('action', like, others)}")
    if not keeps_actions_apart(teacher):
        raise CannotChangeActions(
            f"like = {like!r} needs a teacher that keeps the statistics of each action apart ({', '.join(PER_ACTION)}; "
            f"weighting 'equal'); {teacher.get('type')} learns from all observations again. Leave it out: the new "
            "action then begins at the prior"
        )
    if name in space.names:
        raise CannotChangeActions(f"like = {like!r} is for a new action, and {name!r} is one already; leave it out")


def _had(policy: Policy | None, name: str) -> bool:
    """Whether the serving version, or the one that it was adapted from, has an action."""
    if policy is None:
        return False
    adaptation = Adaptation.of(policy)
    return name in getattr(policy.problem.actions, "names", ()) or (
        adaptation is not None and name in adaptation.removed
    )


def _without(names: Sequence[str], name: str) -> tuple[str, ...]:
    return tuple(one for one in names if one != name)
