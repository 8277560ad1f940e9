"""Notices a changed `problem.toml`: a service keeps the problem that it was started with, and says what to do."""

from __future__ import annotations

import logging

from potstill.errors import PotstillError
from potstill.policy import Policy
from potstill.problem import InvalidProblem, Problem, difference
from potstill.registry import UnknownVersion
from potstill.workspace import ProblemSource, Workspace, change_notice, read_source

_logger = logging.getLogger(__name__)


class ProblemWatcher:
    """Compares `problem.toml` with the problem of a running service. `reload` reads a file: run it in a thread.

    Attributes:
        notice: What has changed and what to do; None if nothing has.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.notice: str | None = None
        self._workspace = workspace
        self._text: ProblemSource | None = None
        self._entry = 0  # number of the last entry of the registry that the notice is about

    def reload(self, policy: Policy | None) -> None:
        """Read the file again; while it cannot be read, the last notice stays.

        Args:
            policy: The policy that serves, if any.
        """
        try:
            text = read_source(self._workspace.storage)
            if text == self._text and not self._has_new_entry():
                return
            found = self._compared(text, policy)
        except (OSError, PotstillError):
            return
        self._text, before, self.notice = text, self.notice, found
        if self.notice is not None and self.notice != before:
            _logger.warning("%s: %s", self._workspace.problem.name, self.notice)

    def _has_new_entry(self) -> bool:
        """Whether the registry has changed since a notice was made; not looked at while there is none."""
        return self.notice is not None and self._workspace.registry.changed_since(self._entry) is not None

    def _compared(self, text: ProblemSource, policy: Policy | None) -> str | None:
        try:
            found = text.problem(self._workspace.url)
        except InvalidProblem as error:
            return f"{error}; the problem that the service was started with stays in force"
        if found == self._workspace.problem:
            return None
        if (version := self._published_for(found)) is not None:
            changed = difference(self._workspace.problem, found).in_words
            return (
                f"problem.toml has changed: {changed}; version {version}, which fits it, is published: restart "
                "potstill serve to follow. Until then the problem of the start is decided"
            )
        if policy is None:
            return "problem.toml has changed; restart potstill serve to follow"
        return (
            f"{change_notice(policy, self._workspace.problem, found)}. Until then the problem of the start is decided"
        )

    def _published_for(self, found: Problem) -> int | None:
        """The version that serves after a restart, if it is for the changed problem already; None if it is not."""
        registry = self._workspace.registry
        head = registry.standing()
        self._entry = head.number if head else 0
        if head is None or found.hash == self._workspace.problem.hash:
            return None
        try:
            return head.serving if registry.serving_problem(head) == found.hash else None
        except UnknownVersion:  # its entry is damaged, which the snapshot's fault says
            return None
