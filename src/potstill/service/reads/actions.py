"""The actions of a problem, and changes of them by an administrator."""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from potstill.errors import InvalidAction, InvalidProblem
from potstill.service.http import Refusal, unfit
from potstill.service.problem_service import ProblemService
from potstill.service.wire import ActionRequest
from potstill.workspace import (
    ActionsReport,
    ActionStatus,
    CannotChangeActions,
    add_action,
    list_actions,
    remove_action,
    retire_action,
)


class ActionsReply(Struct, frozen=True, kw_only=True):
    """The actions of a problem, after a change if one was asked for.

    Attributes:
        actions: The actions in their order.
        hash: Hash of the problem.
        serving: The version that serves; null if none is published.
        text: What was done, in words; empty if nothing was asked for.
        changed: Whether anything was changed.
        left_out: Number of observations that a removed action leaves out.
    """

    actions: list[ActionStatus]
    hash: str
    serving: int | None
    text: str = ""
    changed: bool = False
    left_out: int = 0


def read_actions(service: ProblemService) -> ActionsReply:
    """The actions of a problem."""
    try:
        return _reply(list_actions(service.workspace))
    except CannotChangeActions as error:
        raise unfit(str(error)) from error


async def change_actions(service: ProblemService, asked: ActionRequest, by: str) -> ActionsReply:
    """Change the actions, and follow the change in this worker; the others follow within seconds.

    Raises:
        Refusal: They cannot be changed as asked.
    """
    left_out = await _left_out(service, asked) if asked.change == "remove" else 0
    try:
        report = await asyncio.to_thread(_changed, service.workspace.url, asked, by)
    except (CannotChangeActions, InvalidAction, InvalidProblem) as error:
        raise unfit(str(error)) from error
    await service.follow()
    return msgspec.structs.replace(_reply(report), left_out=left_out if report.changed else 0)


async def _left_out(service: ProblemService, asked: ActionRequest) -> int:
    """Number of observations that a removal leaves out; `Refusal` if it is not confirmed."""
    if asked.action not in getattr(service.workspace.problem.actions, "names", ()):
        return 0
    counts = await service.queries.ask("action_counts", dict[str, int])
    count = counts.get(asked.action, 0)
    if count and not asked.confirm:
        message = f"{count:,} observations of {asked.action!r} would be left out; send confirm: true, or retire it"
        raise Refusal(409, "confirm", message)
    return count


def _changed(place: str, asked: ActionRequest, by: str) -> ActionsReport:
    if asked.change == "add":
        return add_action(place, asked.action, like=asked.like, share=asked.share, reason=asked.reason, by=by)
    change = retire_action if asked.change == "retire" else remove_action
    return change(place, asked.action, reason=asked.reason, by=by)


def _reply(report: ActionsReport) -> ActionsReply:
    return ActionsReply(
        actions=report.actions,
        hash=report.problem_hash,
        serving=report.serving,
        text=report.text,
        changed=report.changed,
    )
