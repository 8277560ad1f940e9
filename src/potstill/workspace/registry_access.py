"""The registry of a workspace without its other files.

An operator must be able to pause updates and to roll back while `problem.toml` or `potstill.toml` is broken: that may
be the very reason.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from potstill.problem import InvalidProblem
from potstill.registry import Registry
from potstill.storage import Storage, open_storage
from potstill.workspace.problem_source import PROBLEM, read_problem
from potstill.workspace.workspace import no_workspace


class RegistryAccess(NamedTuple):
    """A registry, and whether the problem is known.

    Attributes:
        registry: The registry; without a problem, where `problem.toml` cannot be read.
        notice: What is wrong with `problem.toml`, and what holds instead; None if nothing is.
    """

    registry: Registry
    notice: str | None

    @property
    def problem_hash(self) -> str | None:
        """Hash of the problem that versions must be for; None if no version serves and the problem is not known."""
        if self.registry.problem is not None:
            return self.registry.problem.hash
        state = self.registry.standing()
        return None if state is None else self.registry.serving_problem(state)


def open_registry(place: str | Path) -> RegistryAccess:
    """The registry of a workspace, also while `problem.toml` is broken: the serving version's problem then holds.

    Raises:
        NoWorkspace: There is neither a problem nor a registry.
        InvalidProblem: The problem is broken, and there is no registry yet.
    """
    storage = open_storage(place)
    try:
        problem = read_problem(storage)
    except FileNotFoundError:
        return _without_problem(storage, no_workspace(storage.url), f"{storage.url} has no {PROBLEM}")
    except InvalidProblem as error:
        return _without_problem(storage, error, str(error))
    return RegistryAccess(Registry(storage.within("registry"), problem), None)


def _without_problem(storage: Storage, error: Exception, fault: str) -> RegistryAccess:
    registry = Registry(storage.within("registry"), None)
    if registry.standing() is None:  # nothing was published, so there is nothing to operate
        raise error
    return RegistryAccess(registry, f"{fault}; until that is corrected, the serving version's problem holds here")
