"""The folder of a device: its lock, and its policy file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from potstill.client.calls import etag_of
from potstill.client.errors import FolderInUse
from potstill.files import OPEN, PRIVATE, lock, make_folder, remove_stale, write_atomically
from potstill.policy import InvalidPolicy, Policy
from potstill.problem import Problem

log = logging.getLogger("potstill.client")


class FolderLock:
    """Locks a folder for one client; the lock ends with the process."""

    def __init__(self, folder: Path) -> None:
        make_folder(folder)
        self._descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | OPEN, PRIVATE)
        try:
            lock(self._descriptor, wait=False)
        except BlockingIOError:
            os.close(self._descriptor)
            raise FolderInUse(f"{folder} is in use by another client; give each process a folder of its own") from None

    def release(self) -> None:
        """Release the lock."""
        os.close(self._descriptor)


class PolicyStore:
    """The policy of a device, in memory and as a file that is valid or missing.

    Args:
        path: The file.
        name: Name of the problem, as in the service's address.
        problem: If given, the policy must be for exactly this problem.
    """

    def __init__(self, path: Path, name: str, problem: Problem | None) -> None:
        self._path = path
        self._name = name
        self._problem = problem
        self.current: Policy | None = None
        self.etag: str | None = None
        self.reason = f"{path} is missing"
        self._start()

    def replace(self, data: bytes) -> Policy:
        """Store and use a downloaded policy; `InvalidPolicy` if it is invalid or for another problem."""
        policy = self._checked(data)
        write_atomically(self._path, data)
        self.current, self.etag = policy, etag_of(data)
        return policy

    def _start(self) -> None:
        remove_stale(self._path.parent)
        try:
            data = self._path.read_bytes()
            self.current, self.etag = self._checked(data), etag_of(data)
        except FileNotFoundError:
            return
        except (InvalidPolicy, OSError) as error:
            self.reason = f"{self._path}: {error}"
            log.error("the stored policy is not used: %s", self.reason)

    def _checked(self, data: bytes) -> Policy:
        policy = Policy.from_bytes(data)
        found, wanted = policy.problem, self._wanted()
        if found.name != self._name:
            raise InvalidPolicy(f"a policy for problem {found.name!r}, not for {self._name!r}")
        if wanted is not None and found.hash != wanted.hash:
            raise InvalidPolicy(
                f"a policy for problem {found.name!r} as it is now ({found.hash}), not as this device knows it "
                f"({wanted.hash}); to use it, start with problem= as it is now"
            )
        return policy

    def _wanted(self) -> Problem | None:
        if self._problem is not None or self.current is None:
            return self._problem
        return self.current.problem
