"""A workspace: one problem, its events and its policies, in a folder or under a prefix of an object store."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from potstill.errors import PotstillError
from potstill.events import EventLog, Horizon, LogWatermark, Watermarks
from potstill.events.wal import Spool
from potstill.policy import Policy
from potstill.problem import Problem, difference
from potstill.registry import Conflict, Hold, OtherProblem, Registry, UnknownVersion
from potstill.storage import AlreadyThere, LocalStorage, Storage, child, open_storage
from potstill.workspace.adapt import Adaptation, adapt, can_adapt, in_words, is_uniform
from potstill.workspace.config import Config, InvalidConfig, read_config
from potstill.workspace.problem_source import ITEMS, PROBLEM, ProblemSource, read_problem
from potstill.workspace.teacher_code import states_prior

if TYPE_CHECKING:
    from potstill.events.lake import Flusher, Lake

CONFIG = "potstill.toml"


class NoWorkspace(PotstillError, FileNotFoundError):
    """There is no workspace at this place."""


class WorkspaceExists(PotstillError, FileExistsError):
    """There is a workspace at this place already."""


class NoFirstPolicy(PotstillError, LookupError):
    """Nothing is published yet, and the first policy is to be distilled from the teacher's prior."""


class Change(NamedTuple):
    """A change of the actions.

    Attributes:
        reason: Why, for the registry's history.
        by: Who asks for it.
        share: Share of decisions that are drawn uniformly until the next update; that of `potstill.toml` if left out.
        like: Added actions that begin as another one at the next update, and that one.
    """

    reason: str = ""
    by: str = ""
    share: float | None = None
    like: Mapping[str, str] = MappingProxyType({})


class Workspace:
    """One problem, its events and its policies.

    >>> workspace = Workspace("video")        # or "s3://bucket/video"
    >>> with workspace.event_log() as log:
    ...     log.append(LoggedReward(id="upload-123", reward=1.0))

    Args:
        place: A folder, or an address such as ``s3://bucket/prefix``.
        problem: The problem to decide, for processes of a service that was started before `problem.toml` changed; that
            of the file if left out.
        config: The configuration of that start, likewise.
    """

    def __init__(self, place: str | Path, problem: Problem | None = None, config: Config | None = None) -> None:
        self.storage: Storage = open_storage(place)
        self.url = self.storage.url
        self.problem: Problem = self._read_problem() if problem is None else problem
        stated = self._read_config() if config is None else config
        self.config: Config = stated.with_teacher(self.problem.actions)
        self.config.join.check(self.problem.reward)
        self.registry = Registry(self.storage.within("registry"), self.problem)

    def current(self) -> Workspace:
        """This workspace with the present problem; itself while that is the same, or cannot be read."""
        try:
            problem = self._read_problem()
        except (PotstillError, OSError):
            return self
        return self if problem == self.problem else Workspace(self.url, problem, self.config)

    @classmethod
    def create(cls, place: str | Path, problem: bytes, config: bytes, items: bytes | None = None) -> Workspace:
        """A new workspace from the text of its files. An existing ``potstill.toml`` is kept.

        Args:
            place: A folder or an address.
            problem: The text of `problem.toml`.
            config: The text of `potstill.toml`.
            items: The text of `items.json`, if the actions are a catalogue.
        """
        storage = open_storage(place)
        read_config(config).join.check(ProblemSource(problem, items).problem("").reward)
        if items is not None:  # before the problem, which makes it a workspace; it replaces what a kill has left
            storage.replace(ITEMS, items)
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

    @cached_property
    def watermarks(self) -> Watermarks:
        """Watermarks of all logs."""
        return Watermarks(self.storage.within("events/watermarks"))

    @cached_property
    def log_watermark(self) -> LogWatermark:
        """Watermark of this machine's log."""
        return LogWatermark(self.spool, self.watermarks.storage)

    def flusher(self) -> Flusher:
        """Flushes this machine's log into the lake, and publishes its watermark."""
        from potstill.events.lake import Flusher

        return Flusher(self.segments, self.lake, self.log_watermark)

    def horizon(self, now: int) -> Horizon:
        """How far a cut may reach now (microseconds since 1970): what all live logs have passed."""
        return self.watermarks.horizon(now, self.config.log.lease_seconds)

    def check_clocks(self) -> None:
        """Raise `ImplausibleClock` if a clock is wrong: this machine's, or that of a log."""
        self.log_watermark.check_clock()
        self.watermarks.check_clocks()

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
        """The serving policy.

        If there is none yet, a uniform one. If `problem.toml` has changed since it was published: the same policy
        adapted to the changed actions; where the features have changed, the last one that served this problem, or a
        uniform one. `start` publishes what is not published.
        """
        return self._following(Change())

    def _following(self, change: Change) -> Policy:
        try:
            return self.registry.policy()
        except UnknownVersion:
            return self._uniform()
        except OtherProblem:
            return self._fitting(self.before(), change)

    def before(self) -> Policy:
        """The serving policy, also if it is for an earlier problem."""
        head = self.registry.head()
        return self.registry.policy(None if head is None else head.serving)

    def start(self, *, fresh: bool = False, change: Change | None = None) -> Policy:
        """The serving policy; if none is published for this problem, what `serving` gives is published first.

        A process that keeps an earlier problem than that of `problem.toml` changes nothing: it gets the last version
        that served its problem.

        Args:
            fresh: Start from a uniform policy where the problem has changed so that none fits. It releases a pin: a
                pinned uniform policy would serve until somebody noticed.
            change: Who changed the actions, why, and how new ones begin.

        Raises:
            NoFirstPolicy: Nothing is published, the configuration states a prior, and `fresh` is false.
            OtherProblem: The problem has changed so that no version fits, and `fresh` is false.
        """
        stated = change or Change()
        head, policy = self.registry.head(), self._following(stated)
        if head is None and not fresh and states_prior(self.config.teacher):
            raise NoFirstPolicy(
                f"{self.url}: no policy is published yet, and the teacher of potstill.toml has a prior that the first "
                "one imitates. Run potstill update, which distils it and needs potstill[learn]; or start from a "
                "uniform policy with potstill serve --fresh"
            )
        if head is not None and policy.version == head.serving:
            return policy
        if head is not None and self._read_problem().hash != self.problem.hash:
            return self._served_before() or self.registry.policy()
        expected = head.number if head else 0
        try:
            if head is not None and policy.version <= head.latest:
                self._serve_again(policy.version, head.pinned, stated)
            else:
                note, forgets = self._check_start(policy, fresh=fresh)
                self.registry.publish(
                    policy,
                    teacher=None,
                    report=b"{}",
                    expected=expected,
                    note=f"{note}: {stated.reason}" if stated.reason else note,
                    by=stated.by,
                    replaces=True,
                    release=forgets,
                )
        except Conflict:
            return self.registry.policy()  # another process published first
        return policy

    def _serve_again(self, version: int, pinned: Hold | None, change: Change) -> None:
        """Serve a version of a problem that `problem.toml` has again; a pin stays."""
        note = "problem.toml is again that of this version"
        if pinned is not None:
            self.registry.pin(version, pinned.reason, pinned.by)
        else:
            self.registry.serve(version, f"{note}: {change.reason}" if change.reason else note, change.by)

    def _fitting(self, before: Policy, change: Change) -> Policy:
        """A policy for this problem in place of one for an earlier problem."""
        stated, version = self.config.policy, self.registry.next_version()
        if can_adapt(before, self.problem) and not is_uniform(before):
            return adapt(
                before,
                self.problem,
                version=version,
                seed=stated.seed,
                floor=stated.floor,
                share=self._share(before, change),
                like=change.like,
            )
        return self._served_before() or self._uniform()

    def _share(self, before: Policy, change: Change) -> float:
        """Share of decisions that are drawn uniformly: as stated, as for earlier new actions, or as configured."""
        if change.share is not None:
            return change.share
        adaptation = Adaptation.of(before)
        return adaptation.share if adaptation and adaptation.untrained else self.config.policy.new_action_share

    def _served_before(self) -> Policy | None:
        """The last version that served this problem; None if there is none."""
        served = [one for one in self.registry.versions() if one.problem == self.problem.hash]
        fits = [one.version for one in served if one.state == "served before"]
        return self.registry.policy(fits[-1]) if fits else None

    def _staged(self) -> int | None:
        """The last staged version for this problem; None if there is none."""
        versions = self.registry.versions()
        fits = [one.version for one in versions if one.problem == self.problem.hash and one.state == "staged"]
        return fits[-1] if fits else None

    def _uniform(self) -> Policy:
        stated = self.config.policy
        version = self.registry.next_version() if self.registry.head() else 0
        return Policy.uniform(self.problem, version=version, seed=stated.seed, floor=stated.floor)

    def _check_start(self, policy: Policy, *, fresh: bool) -> tuple[str, bool]:
        """Note of the version to publish, and whether it forgets what was learnt; `OtherProblem` if it does unasked."""
        head = self.registry.head()
        if head is None or head.serving is None:
            return "", False
        before = self.before()
        changed = difference(before.problem, self.problem).in_words
        forgets = is_uniform(policy) and not is_uniform(before)
        if forgets and not fresh:
            staged = self._staged()
            way_out = (
                "Run potstill update, which learns from the observations that fit"
                if staged is None
                else f"Version {staged} fits and is staged: serve it with potstill promote"
            )
            raise OtherProblem(
                f"{self.url}: version {before.version} cannot serve: it decides an earlier problem, and problem.toml "
                f"has changed since: {changed}. {way_out}; or start from a uniform policy with potstill serve --fresh; "
                "or put the old problem.toml back"
            )
        note = f"{changed}; {in_words(policy)}"
        if forgets and head.pinned is not None:
            pin = f"the pin of version {before.version} {head.pinned.in_words}"
            note += f"; {pin} is released: that version cannot serve any more"
        return note, forgets

    @property
    def segments(self) -> Spool:
        """The segments of this machine's logs, kept for as long as the configuration states."""
        return Spool(self.spool, remember=self.config.serve.remember_seconds)

    def event_log(self) -> EventLog:
        """An event log for this process; close it, or use it in a ``with``.

        The machine's log is registered beside the lake first, so that cuts wait for its events.
        """
        stated = self.config.log
        return self.log_watermark.register(
            lambda: EventLog(
                self.spool, self.problem, rotate_bytes=stated.rotate_bytes, rotate_seconds=stated.rotate_seconds
            )
        )

    def _read_problem(self) -> Problem:
        try:
            return read_problem(self.storage)
        except FileNotFoundError:
            raise no_workspace(self.url) from None

    def _read_config(self) -> Config:
        try:
            return read_config(self.storage.read(CONFIG), child(self.url, CONFIG))
        except FileNotFoundError:
            return Config()


def no_workspace(url: str) -> NoWorkspace:
    """The error of a place without a problem."""
    return NoWorkspace(f"{url} is not a workspace: it has no {PROBLEM}; create one with potstill init")


def _absolute(stated: str, where: str) -> Path:
    """An absolute path: a relative one would depend on where a process was started."""
    path = Path(stated).expanduser()
    if not path.is_absolute():
        raise InvalidConfig(f"{where}: log.spool must be absolute for a workspace in an object store, got {stated!r}")
    return path
