"""Notices a changed `problem.toml`: a service keeps the problem that it was started with, and says what to do."""

from __future__ import annotations

import logging

from potstill.policy import Policy
from potstill.problem import InvalidProblem, Problem
from potstill.storage import child
from potstill.workspace import PROBLEM, Workspace, change_notice

_logger = logging.getLogger(__name__)


class ProblemWatcher:
    """Compares `problem.toml` with the problem of a running service. `reload` reads a file: run it in a thread.

    Attributes:
        notice: What has changed and what to do; None if nothing has.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.notice: str | None = None
        self._workspace = workspace
        self._text = b""

    def reload(self, policy: Policy | None) -> None:
        """Read the file again; while it cannot be read, the last notice stays.

        Args:
            policy: The policy that serves, if any.
        """
        try:
            text = self._workspace.storage.read(PROBLEM)
        except OSError:
            return
        if text != self._text:
            self._text, before, self.notice = text, self.notice, self._compared(text, policy)
            if self.notice is not None and self.notice != before:
                _logger.warning("%s: %s", self._workspace.problem.name, self.notice)

    def _compared(self, text: bytes, policy: Policy | None) -> str | None:
        try:
            found = Problem.from_toml(text, child(self._workspace.url, PROBLEM))
        except InvalidProblem as error:
            return f"{error}; the problem that the service was started with stays in force"
        if found == self._workspace.problem:
            return None
        if policy is None:
            return "problem.toml has changed; restart potstill serve to follow"
        return (
            f"{change_notice(policy, self._workspace.problem, found)}. Until then the problem of the start is decided"
        )
