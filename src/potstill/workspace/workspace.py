"""A workspace: one problem, its events and its policies, in a folder or under a prefix of an object store."""

from __future__ import annotations

import contextlib
import hashlib
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from potstill.errors import PotstillError
from potstill.events import EventLog
from potstill.policy import Policy
from potstill.problem import Problem
from potstill.registry import Conflict, OtherProblem, Registry, UnknownVersion
from potstill.storage import AlreadyThere, LocalStorage, Storage, child, open_storage
from potstill.workspace.config import Config, InvalidConfig, read_config

if TYPE_CHECKING:
    from potstill.events.lake import Lake

PROBLEM, CONFIG = "problem.toml", "potstill.toml"


class NoWorkspace(PotstillError, FileNotFoundError):
    """There is no workspace at this place."""


class WorkspaceExists(PotstillError, FileExistsError):
    """There is a workspace at this place already."""


class Workspace:
    """One problem, its events and its policies.

    >>> workspace = Workspace("video")        # or "s3://bucket/video"
    >>> with workspace.event_log() as log:
    ...     log.append(LoggedReward(id="upload-123", reward=1.0))

    Args:
        place: A folder, or an address such as ``s3://bucket/prefix``.
    """

    def __init__(self, place: str | Path) -> None:
        self.storage: Storage = open_storage(place)
        self.url = self.storage.url
        try:
            self.problem: Problem = Problem.from_toml(self.storage.read(PROBLEM), child(self.url, PROBLEM))
        except FileNotFoundError:
            raise NoWorkspace(
                f"{self.url} is not a workspace: it has no {PROBLEM}; create one with potstill init"
            ) from None
        self.config: Config = self._read_config()
        self.registry = Registry(self.storage.within("registry"), self.problem)

    @classmethod
    def create(cls, place: str | Path, problem: bytes, config: bytes) -> Workspace:
        """A new workspace from the text of its two files. An existing ``potstill.toml`` is kept."""
        storage = open_storage(place)
        Problem.from_toml(problem, PROBLEM)
        read_config(config)
        try:
            storage.create(PROBLEM, problem)
        except AlreadyThere:
            raise WorkspaceExists(f"{storage.url} is a workspace already: it has a {PROBLEM}") from None
        with contextlib.suppress(AlreadyThere):
            storage.create(CONFIG, config)
        return cls(place)

    @cached_property
    def lake(self) -> Lake:
        """The lake: tables of events."""
        from potstill.events.lake import Lake

        return Lake(child(self.url, "events"), self.problem)

    @cached_property
    def cuts(self) -> Storage:
        """Storage of the join's cuts."""
        return self.storage.within("events/cuts")

    @property
    def spool(self) -> Path:
        """The local folder for events that are not in the lake yet, and for locks."""
        stated = self.config.log.spool
        if isinstance(self.storage, LocalStorage):
            return self.storage.folder / Path(stated or "events/log").expanduser()
        if stated is not None:
            return _absolute(stated, child(self.url, CONFIG))
        home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
        return home / "potstill" / hashlib.sha256(self.url.encode()).hexdigest()[:16]

    def serving(self) -> Policy:
        """The serving policy; a uniform one if there is none for this problem yet."""
        try:
            return self.registry.policy()
        except (UnknownVersion, OtherProblem):  # nothing is published yet, or the problem has changed since
            stated = self.config.policy
            version = self.registry.next_version() if self.registry.head() else 0
            return Policy.uniform(self.problem, version=version, seed=stated.seed, floor=stated.floor)

    def start(self) -> Policy:
        """The serving policy; if there is none for this problem, a uniform one is published first."""
        head = self.registry.head()
        policy = self.serving()
        if head is None or policy.version > head.latest:
            try:
                self.registry.publish(policy, teacher=None, report=b"{}", expected=head.number if head else 0)
            except Conflict:
                return self.registry.policy()  # another process published first
        return policy

    def event_log(self) -> EventLog:
        """An event log for this process; close it, or use it in a ``with``."""
        stated = self.config.log
        return EventLog(
            self.spool, self.problem, rotate_bytes=stated.rotate_bytes, rotate_seconds=stated.rotate_seconds
        )

    def _read_config(self) -> Config:
        try:
            return read_config(self.storage.read(CONFIG), child(self.url, CONFIG))
        except FileNotFoundError:
            return Config()


def _absolute(stated: str, where: str) -> Path:
    """An absolute path: a relative one would depend on where a process was started."""
    path = Path(stated).expanduser()
    if not path.is_absolute():
        raise InvalidConfig(f"{where}: log.spool must be absolute for a workspace in an object store, got {stated!r}")
    return path
