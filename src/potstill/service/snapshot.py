"""What serves now: one immutable snapshot, exchanged whole, so that a request or a batch sees one policy and mode."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

import msgspec

from potstill.policy import InvalidPolicy, Policy
from potstill.registry import Conflict, CorruptVersion, Entry, OtherProblem, UnknownVersion
from potstill.storage import Storage, child
from potstill.workspace import Workspace
from potstill.workspace.config import InvalidConfig, ServeConfig, ServeMode

FILE = "mode.json"


_logger = logging.getLogger(__name__)
#: What makes a version unfit to serve; the one before serves on.
_UNFIT = (CorruptVersion, InvalidPolicy, OtherProblem, UnknownVersion, InvalidConfig)
_AWAY = (OSError, Conflict)


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: ServeMode


def read_mode(storage: Storage, stated: ServeConfig) -> ServeMode:
    """The mode that was asked for last; the one that `potstill.toml` states if none was."""
    try:
        mode = msgspec.json.decode(storage.read(FILE), type=_Kept).mode
    except FileNotFoundError:
        mode = stated.mode
    except msgspec.DecodeError as error:
        where = child(storage.url, FILE)
        raise InvalidConfig(f"{where}: {error}; delete it, and potstill.toml states the mode") from error
    check_mode(mode, stated)
    return mode


def write_mode(storage: Storage, stated: ServeConfig, mode: ServeMode) -> None:
    """Ask for a mode."""
    check_mode(mode, stated)
    storage.replace(FILE, msgspec.json.encode(_Kept(mode)))


def check_mode(mode: ServeMode, stated: ServeConfig) -> None:
    """Refuse a mode that the configuration does not allow."""
    if mode == "log-only" and stated.fallback is None:
        raise InvalidConfig("mode log-only needs an action to answer with: state serve.fallback in potstill.toml")


@dataclass(frozen=True)
class Snapshot:
    """What answers a request.

    Attributes:
        policy: None if no sound one could be had so far.
        number: of the registry's last entry that was taken up; 0 for none.
        mode: how requests are answered.
        since: when this policy began to serve here.
    """

    policy: Policy | None
    number: int
    mode: ServeMode
    since: datetime

    @cached_property
    def artifact(self) -> bytes:
        """The bytes of the policy's file; empty if there is none."""
        return b"" if self.policy is None else self.policy.to_bytes()

    @cached_property
    def etag(self) -> str:
        """Names those bytes."""
        return f'"{hashlib.sha256(self.artifact).hexdigest()}"'


class Serving:
    """The present snapshot of a workspace, and how the next one is taken up.

    `now` may be read from any thread. `start` and `reload` read files, and are for one thread at a time.

    Args:
        workspace: whose registry and mode are followed.
        on_reload: told ``swapped``, ``refused`` or ``unavailable`` whenever something else was found.
    """

    def __init__(self, workspace: Workspace, on_reload: Callable[[str], None] = lambda _: None) -> None:
        self._workspace, self._on_reload = workspace, on_reload
        self._fault: str | None = None
        self.now = Snapshot(None, 0, workspace.config.serve.mode, datetime.now(UTC))

    def start(self) -> None:
        """Take up what serves. Where nothing was published yet, a uniform policy is."""
        try:
            self._workspace.start()
        except (*_UNFIT, *_AWAY) as error:
            self._keep(error)
        self.reload()

    def reload(self) -> None:
        """Take up another version or mode, if there is one and it is sound."""
        try:
            found = self._found()
        except (*_UNFIT, *_AWAY) as error:
            self._keep(error)
            return
        self._fault = None
        if found != self.now:
            self._swap(found)

    def _found(self) -> Snapshot:
        mode = read_mode(self._workspace.storage, self._workspace.config.serve)
        entry = self._workspace.registry.changed_since(self.now.number)
        if entry is None:
            return self.now if mode == self.now.mode else replace(self.now, mode=mode)
        if self.now.policy is not None and self.now.policy.version == entry.serving:
            return replace(self.now, number=entry.number, mode=mode)
        return Snapshot(self._verified(entry), entry.number, mode, datetime.now(UTC))

    def _verified(self, entry: Entry) -> Policy:
        """The policy that an entry makes serve: whole, for this problem, and able to decide."""
        problem = self._workspace.problem
        if entry.serving is None:
            raise UnknownVersion("no version serves yet; potstill update makes the first")
        policy = self._workspace.registry.policy(entry.serving)
        if policy.problem.hash != problem.hash:
            raise OtherProblem(
                f"version {entry.serving} decides an earlier problem ({policy.problem.hash}), and problem.toml now "
                f"says {problem.name!r} ({problem.hash}); make a version for it with potstill update"
            )
        policy.decide({feature.name: feature.example for feature in problem.context})
        return policy

    def _swap(self, found: Snapshot) -> None:
        _ = found.etag  # made here, in the thread that reloads, rather than for the first who asks
        before, self.now = self.now, found
        if found.policy is not before.policy or found.mode != before.mode:
            version = "no version" if found.policy is None else f"version {found.policy.version}"
            _logger.info("%s: %s serves, mode %s", self._workspace.problem.name, version, found.mode)
            self._on_reload("swapped")

    def _keep(self, error: Exception) -> None:
        """Serve on as before. The same fault is told once, however often it is met."""
        if str(error) != self._fault:
            self._fault = str(error)
            _logger.warning("%s: what served before serves on: %s", self._workspace.problem.name, error)
            self._on_reload("refused" if isinstance(error, _UNFIT) else "unavailable")
