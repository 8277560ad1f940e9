"""The serving snapshot: policy and mode, immutable and swapped as a whole, so that a batch sees one of each."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import NamedTuple

import msgspec

from potstill.errors import PotstillError
from potstill.policy import InvalidPolicy, Policy
from potstill.problem import InvalidProblem, Problem, difference, only_actions_differ
from potstill.registry import Conflict, CorruptVersion, Entry, Hold, OtherProblem, UnknownVersion
from potstill.storage import Storage, child
from potstill.workspace import InvalidConfig, NoFirstPolicy, ServeConfig, ServeMode, Workspace, check_mode

FILE = "mode.json"
#: Number of reloads after which the registry must still hold the entry that serves; reading it costs a request.
CONFIRM = 10
_logger = logging.getLogger(__name__)
#: Errors of an unusable version or mode; the current one keeps serving.
_UNUSABLE = (CorruptVersion, InvalidPolicy, InvalidProblem, OtherProblem, UnknownVersion, InvalidConfig, NoFirstPolicy)

#: Errors of unavailable storage.
_UNAVAILABLE = (OSError, Conflict)


class _ActionsChanged(PotstillError):
    """The serving version is for the present `problem.toml`, which differs in its actions alone.

    Attributes:
        problem: That problem; None while `problem.toml` is ahead of the serving version.
    """

    def __init__(self, problem: Problem | None) -> None:
        super().__init__()
        self.problem = problem


class _ModeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: ServeMode


class StoredMode(NamedTuple):
    """The mode that was set last.

    Attributes:
        mode: The mode; that of ``potstill.toml`` if none was set, or the file is unusable.
        fault: Why the file is unusable; None if it is not.
    """

    mode: ServeMode
    fault: str | None = None


def read_mode(storage: Storage, stated: ServeConfig) -> StoredMode:
    """The mode that was set last. An unusable file must not keep a sound policy from serving.

    Raises:
        InvalidConfig: The mode of ``potstill.toml`` is unusable too.
    """
    try:
        mode = msgspec.json.decode(storage.read(FILE), type=_ModeFile).mode
        check_mode(mode, stated)
        return StoredMode(mode)
    except FileNotFoundError:
        fault = None
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidConfig) as error:
        fault = (
            f"{child(storage.url, FILE)} is unusable, so that mode {stated.mode} of potstill.toml holds: {error}; "
            "set the mode again with POST admin/mode, or delete the file"
        )
    check_mode(stated.mode, stated)
    return StoredMode(stated.mode, fault)


def write_mode(storage: Storage, stated: ServeConfig, mode: ServeMode) -> None:
    """Set the mode."""
    check_mode(mode, stated)
    storage.replace(FILE, msgspec.json.encode(_ModeFile(mode)))


@dataclass(frozen=True)
class Snapshot:
    """What answers a request.

    Attributes:
        policy: The policy; None if no usable one could be loaded so far.
        number: Number of the last registry entry that was loaded; 0 for none.
        mode: How requests are answered.
        since: When this process began to serve the policy.
        mode_fault: Why the stored mode is not used; None if it is.
        pinned: Who pinned the policy; None if it is not pinned.
        paused: Who paused updates; None if they are not paused.
    """

    policy: Policy | None
    number: int
    mode: ServeMode
    since: datetime
    mode_fault: str | None = None
    pinned: Hold | None = None
    paused: Hold | None = None

    @cached_property
    def artifact(self) -> bytes:
        """Bytes of the policy file; empty if there is no policy."""
        return b"" if self.policy is None else self.policy.to_bytes()

    @cached_property
    def etag(self) -> str:
        """Entity tag of those bytes: their SHA-256 in quotes."""
        return f'"{hashlib.sha256(self.artifact).hexdigest()}"'


class SnapshotWatcher:
    """The current snapshot of a workspace, and its replacement when the registry or the mode changes.

    `current` may be read from any thread. `start` and `reload` read files, and are for one thread at a time.

    Args:
        workspace: Workspace whose registry and mode to follow.
        on_reload: Called with ``swapped``, ``refused`` or ``unavailable`` when a reload finds a change.
    """

    def __init__(self, workspace: Workspace, on_reload: Callable[[str], None] = lambda _: None) -> None:
        self._workspace, self._on_reload = workspace, on_reload
        self._fault: str | None = None
        self._known: Entry | None = None  # the last entry that was loaded
        self._reloads = 0
        #: The problem of the serving version, if it is for other actions than this one: `App` follows it by another
        #: `ProblemService`.
        self.following: Problem | None = None
        self.current = Snapshot(None, 0, workspace.config.serve.mode, datetime.now(UTC))

    @property
    def fault(self) -> str | None:
        """Why the last version or mode that was found is not used; None if it is."""
        return self._fault

    def start(self) -> None:
        """Load the serving version.

        Where nothing is published yet, a uniform policy is published first; where the actions of the problem have
        changed, the last policy, adapted to them.
        """
        policy: Policy | None = None
        try:
            self._workspace.storage.sweep()
            policy = self._workspace.start()
        except (*_UNUSABLE, *_UNAVAILABLE) as error:
            self._report(error)
        self.reload()
        if self.current.policy is None and policy is not None:
            # A worker that was restarted after the problem had changed decides what the others decide.
            self._swap(replace(self.current, policy=policy))

    def reload(self) -> None:
        """Load a new version or mode, if there is one and it is usable."""
        try:
            found = self._load()
        except _ActionsChanged as changed:
            self.following = changed.problem
            return
        except (*_UNUSABLE, *_UNAVAILABLE) as error:
            self._report(error)
            return
        self._fault, self.following = None, None
        if found != self.current:
            self._swap(found)

    def _load(self) -> Snapshot:
        mode, fault = self._mode()
        entry = self._changed()
        if entry is None:
            return replace(self.current, mode=mode, mode_fault=fault)
        found = replace(
            self.current,
            number=entry.number,
            mode=mode,
            mode_fault=fault,
            pinned=entry.pinned,
            paused=entry.paused,
        )
        if self.current.policy is None or self.current.policy.version != entry.serving:
            found = replace(found, policy=self._load_policy(entry), since=datetime.now(UTC))
        self._known = entry
        return found

    def _changed(self) -> Entry | None:
        """The last entry of the registry, if it is another one than was loaded.

        Raises:
            LostEntries: The loaded entry is no longer in the registry: what serves here keeps serving.
        """
        registry, known = self._workspace.registry, self._known
        entry = registry.changed_since(self.current.number)
        self._reloads += 1
        due = entry is not None or self._fault is not None or self._reloads % CONFIRM == 0
        return registry.head() if due and known is not None and registry.confirm(known) else entry

    def _mode(self) -> StoredMode:
        """The stored mode; the current one while the file cannot be read."""
        try:
            return read_mode(self._workspace.storage, self._workspace.config.serve)
        except OSError as error:
            return StoredMode(self.current.mode, f"mode {self.current.mode} stays, since {FILE} is unreadable: {error}")

    def _load_policy(self, entry: Entry) -> Policy:
        """The serving policy of an entry, verified: complete, for this problem, and able to decide."""
        problem = self._workspace.problem
        if entry.serving is None:
            raise UnknownVersion("no version serves yet; potstill update makes the first")
        policy = self._workspace.registry.policy(entry.serving)
        if policy.problem.hash != problem.hash:
            now = Workspace(self._workspace.url).problem
            if now.hash != problem.hash and all(only_actions_differ(problem, one) for one in (now, policy.problem)):
                # Where they differ from each other too, a change is under way, and its version comes next.
                raise _ActionsChanged(now if now.hash == policy.problem.hash else None)
            raise OtherProblem(self._other_problem(policy, now))
        policy.decide({feature.name: feature.example for feature in problem.context})
        return policy

    def _other_problem(self, policy: Policy, now: Problem) -> str:
        """What to do about a version for another problem than the one that this service was started with."""
        changed = difference(self._workspace.problem, policy.problem).in_words
        if now.hash == policy.problem.hash:
            return f"version {policy.version} is for the changed problem ({changed}): restart potstill serve to follow"
        return (
            f"version {policy.version} is for another problem than problem.toml ({changed}): run potstill update and "
            "restart potstill serve, or restart it with --fresh to start from a uniform policy"
        )

    def cannot_follow(self, error: Exception) -> None:
        """Say why the present actions of `problem.toml` are not followed; what serves here keeps serving."""
        self._report(error)

    def _swap(self, found: Snapshot) -> None:
        _ = found.etag  # computed in the reloading thread rather than for the first request
        before, self.current = self.current, found
        if found.policy is not before.policy or found.mode != before.mode:
            version = "no version" if found.policy is None else f"version {found.policy.version}"
            _logger.info("%s: %s serves, mode %s", self._workspace.problem.name, version, found.mode)
            self._on_reload("swapped")
        if found.mode_fault not in (None, before.mode_fault):
            _logger.warning("%s: %s", self._workspace.problem.name, found.mode_fault)
            self._on_reload("refused")

    def _report(self, error: Exception) -> None:
        """Keep the current snapshot, and log the fault once for as long as it stays the same."""
        if str(error) != self._fault:
            self._fault = str(error)
            _logger.warning("%s: the current version keeps serving: %s", self._workspace.problem.name, error)
            self._on_reload("refused" if isinstance(error, _UNUSABLE) else "unavailable")
