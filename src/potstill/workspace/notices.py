"""Notices: what an operator should know about a workspace whose files have changed, and what to do."""

from __future__ import annotations

from potstill.events import read_scrub
from potstill.policy import Policy
from potstill.problem import Problem, difference, only_actions_differ
from potstill.workspace.adapt import Adaptation, can_adapt, in_words, is_uniform
from potstill.workspace.workspace import Workspace


def notices(workspace: Workspace, policy: Policy) -> list[str]:
    """Notices about a workspace and the policy that serves, or would serve after a start."""
    found = (_problem_notice(workspace, policy), _floor_notice(workspace, policy))
    return [*(notice for notice in found if notice is not None), *read_scrub(workspace.spool).notices]


def change_notice(before: Policy, earlier: Problem, problem: Problem) -> str:
    """What happens to a policy when a problem changes, and what to do.

    Args:
        before: The policy that serves.
        earlier: The problem that it decides.
        problem: The changed problem.
    """
    changed = difference(earlier, problem).in_words
    if earlier.hash == problem.hash:
        return f"problem.toml has changed: {changed}; restart potstill serve to follow"
    if can_adapt(before, problem) or is_uniform(before):
        follows = ", and running services follow" if only_actions_differ(earlier, problem) else ""
        return (
            f"problem.toml has changed: {changed}; restart potstill serve to follow: version {before.version} then "
            f"serves adapted to it. potstill update learns the changed problem{follows}"
        )
    return (
        f"problem.toml has changed: {changed}; version {before.version} does not fit it. Run potstill update, which "
        "learns from the observations that fit, then restart potstill serve; or restart it with --fresh, from a "
        "uniform policy; or put the old problem.toml back"
    )


def _problem_notice(workspace: Workspace, policy: Policy) -> str | None:
    head = workspace.registry.head()
    if head is None or head.serving is None or head.serving == policy.version:
        return None
    before = workspace.before()
    fits = {one.version for one in workspace.registry.versions() if one.problem == workspace.problem.hash}
    if policy.version in fits:
        changed = difference(before.problem, workspace.problem).in_words
        return (
            f"problem.toml has changed: {changed}; restart potstill serve to follow: version {policy.version}, which "
            "served this problem before, then serves"
        )
    told = change_notice(before, before.problem, workspace.problem)
    return told if is_uniform(policy) else f"{told}. After a start: {in_words(policy)}"


def _floor_notice(workspace: Workspace, policy: Policy) -> str | None:
    stated = workspace.config.policy.floor
    if stated == policy.floor or Adaptation.of(policy) is not None:
        return None
    return (
        f"policy.floor = {stated:g} in potstill.toml takes effect with the next version that an update publishes "
        f"(potstill update --force publishes one now); version {policy.version} serves with {policy.floor:g}"
    )
