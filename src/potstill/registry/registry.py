"""The registry: all versions of a policy, and which one serves.

It needs no server and no lock. The files of a version are written first, under names that say what they hold; then one
entry, which exists whole or not at all and of which each number can be created once. So a reader sees the registry
before a change or after it, and of several that change it at once exactly one succeeds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

from potstill.policy import InvalidPolicy, Policy
from potstill.problem import Problem
from potstill.registry.blobs import read_blob, states, write_blob
from potstill.registry.chain import mark_name, read_head
from potstill.registry.changes import described, forward, hold, holds, same_version, unmoved
from potstill.registry.entries import WAY_OUT, Entry, Event, Files, Version, versions_in
from potstill.registry.errors import (
    Conflict,
    CorruptVersion,
    InvalidPublication,
    LostEntries,
    NoState,
    OtherProblem,
    UnknownVersion,
)
from potstill.registry.journal import ENTRIES, Journal, conflict, old_states, read_all
from potstill.registry.sweep import stray_files, sweep_versions
from potstill.storage import Storage, child

#: Number of latest entries whose versions are swept after each update.
RECENT = 10


class Registry:
    """Versions of one workspace. Stateless: processes and threads can share a registry.

    Args:
        storage: Storage of the registry.
        problem: The problem; only policies for it are published and served. None if it is not known: nothing can be
            published then, and versions must be for the same problem as the serving one.
    """

    def __init__(self, storage: Storage, problem: Problem | None) -> None:
        self.storage = storage
        self.problem = problem
        self._journal = Journal(storage)

    def head(self) -> Entry | None:
        """The last entry, which holds the present state; None before the first version."""
        number = self._journal.last_number()
        return self._journal.read(number) if number else None

    def standing(self) -> Entry | None:
        """The last readable entry: the head, unless it is damaged or lost."""
        numbers = self._journal.numbers()
        return next(self._journal.backwards(numbers[-1]), None) if numbers else None

    def changed_since(self, number: int) -> Entry | None:
        """The last entry, if it is after a number. For polling: one small read while nothing changes.

        Args:
            number: Number of the last entry that the caller knows; 0 for none.
        """
        if not self._journal.has(number + 1):
            return None
        # Who knows no entry cannot confirm one: a loss shows in the recorded head alone.
        last = self._journal.last_number(hint=number + 1 if number else None)
        self._journal.record(last)
        return self._journal.read(last)

    def confirm(self, known: Entry) -> bool:
        """Whether the journal was repaired since an entry that the caller has read, and does not hold it any more.

        Raises:
            LostEntries: The entry was deleted or replaced, and nobody has accepted the loss.
        """
        return self._journal.confirm(known)

    def entries(self, after: int = 0) -> list[Entry]:
        """All changes after an entry's number, in order."""
        return read_all(self._journal.read, self._journal.numbers(after))

    def versions(self, after: int = -1) -> list[Version]:
        """Versions after a number, in order, except those with unreadable entries; see `damage`."""
        # Each version has an entry of its own, so that the entry's number is never below the version's.
        found = read_all(self._journal.sound, self._journal.numbers(max(after, 0)))
        return versions_in([entry for entry in found if entry], after)

    def damage(self, after: int = 0) -> list[str]:
        """Reasons why entries after a number cannot be read, and what is known to be lost; empty if all is well."""
        faults = [*read_all(self._journal.fault, self._journal.numbers(after)), self._journal.loss()]
        return [fault for fault in faults if fault]

    def broken_links(self) -> list[str]:
        """Entries that are missing or were replaced before the last one, by the hashes in those after them."""
        return self._journal.broken_links()

    def serving_problem(self, state: Entry) -> str | None:
        """Hash of the problem of the version that serves after an entry; None if none does."""
        return None if state.serving is None else self._published(state.serving).problem

    def next_version(self) -> int:
        """Number of the next version to publish, from 1; never reused. 0 is the initial policy."""
        head = self.head()
        version = head.latest + 1 if head else 1
        self._journal.check_version(version)
        return version

    def policy(self, version: int | None = None) -> Policy:
        """A version's policy, verified.

        Args:
            version: The one that serves if left out, which must then be for this problem. One that is asked for by
                its number may be for an earlier problem of this workspace.
        """
        return self._policy(self._serving() if version is None else self._published(version))

    def teacher(self, version: int) -> bytes:
        """The teacher's state after a version's update, verified; `NoState` if there is none."""
        file = self._published(version).files.teacher
        if file is None:
            raise NoState(f"version {version} was published without a teacher's state")
        if file.name not in states(self.storage, version):
            raise NoState(
                f"the teacher's state of version {version} was forgotten: only the latest versions keep theirs, "
                "as many as states_kept in potstill.toml says"
            )
        return read_blob(self.storage, file)

    def report(self, version: int) -> bytes:
        """A version's report, verified."""
        return read_blob(self.storage, self._published(version).files.report)

    def publish(
        self,
        policy: Policy,
        *,
        teacher: bytes | None,
        report: bytes,
        reasons: tuple[str, ...] = (),
        serve: bool = True,
        expected: int,
        note: str = "",
        by: str = "",
        replaces: bool = False,
        release: bool = False,
    ) -> Entry:
        """Publish a new version, and serve it unless it is refused.

        Args:
            policy: Policy for this problem, with the number that `next_version` gives; the first may have 0.
            teacher: The state of the teacher that it was distilled from, if it is to be kept.
            report: Report of its update.
            reasons: Why it must not serve; with any it is kept, but not served.
            serve: False to stage it, so that it can be made to serve later. While the serving version is pinned, a new
                one is staged in any case.
            expected: The number of the last entry when the work on this version began; 0 if there was none.
            note: Kept with the change.
            by: Who asks for it; empty for an update.
            replaces: Serve it also in place of a pinned version, which it is then pinned for: that one cannot serve
                any more, because the problem has changed.
            release: Release the pin, so that the next version serves.

        Raises:
            Conflict: Somebody changed the registry in the meantime.
        """
        head = self.head()
        if expected != (head.number if head else 0):
            raise conflict(expected, head.number if head else 0)
        self._refuse_unfit(policy, head.latest + 1 if head else min(policy.version, 1))
        self._journal.check_version(policy.version)
        data, serves = policy.to_bytes(), serve and not reasons and (replaces or not (head and head.pinned))
        if serves:
            Policy.from_bytes(data)  # the serving entry must be readable, or nothing is written
        files = Files(
            policy=write_blob(self.storage, policy.version, "policy", data),
            teacher=None if teacher is None else write_blob(self.storage, policy.version, "teacher", teacher),
            report=write_blob(self.storage, policy.version, "report", report),
        )
        released: dict[str, Any] = {"pinned": None} if release else {}
        with self._sweeping_if_lost(expected):
            return self._journal.append(
                expected,
                event="published",
                latest=policy.version,
                by=by,
                note=note,
                **described(policy, tuple(reasons), files),
                **(holds(head) | (forward(head, policy.version) if serves else unmoved(head)) | released),
            )

    def serve(self, version: int, note: str = "", by: str = "") -> Entry:
        """Promote any version, even a refused one, after verifying it. It is not pinned; a pin is released."""
        number, state = self._journal.standing()
        if state and state.number == number and state.serving == version:
            return self.unpin(note, by)
        return self._serve(version, number, state, note, by, {**forward(state, version), "pinned": None})

    def rollback(self, to: int | None = None, note: str = "", by: str = "") -> Entry:
        """Roll back to a version that served before, after verifying it, and pin it.

        Args:
            to: The version; the one that served before the present one if left out. Rolling back again goes further
                back, and never to what was rolled back from.
            note: Reason, kept with the change.
            by: Who asks for it.
        """
        number, state = self._journal.standing()
        if state is None or state.serving is None:
            raise UnknownVersion(f"{self.storage.url}: no version serves yet, so there is nothing to roll back from")
        for earlier in self._served_before(number, state):
            if earlier.serving is not None and to in (None, earlier.serving):
                move = {"serving": earlier.serving, "back": earlier.back, "pinned": hold(note, by)}
                return self._serve(earlier.serving, number, state, note, by, move)
        if to is None:
            raise UnknownVersion(
                f"no version served before version {state.serving}, so there is none to roll back to; "
                "potstill promote serves any that potstill versions lists"
            )
        return self.pin(to, note, by)

    def pin(self, version: int | None = None, note: str = "", by: str = "") -> Entry:
        """Pin the serving version, or serve and pin another: updates stage their versions until `unpin` or `serve`.

        Args:
            version: The version; the serving one if left out.
            note: Reason, kept with the change.
            by: Who asks for it.
        """
        number, state = self._journal.standing()
        pinned = hold(note, by)
        if version is not None and (state is None or version != state.serving):
            return self._serve(version, number, state, note, by, {**forward(state, version), "pinned": pinned})
        return self._change("pinned", number, state, note, by, pinned=pinned)

    def unpin(self, note: str = "", by: str = "") -> Entry:
        """Release the pin: the next version that is published serves. No change if there is no pin."""
        number, state = self._journal.standing()
        if state and state.pinned is None:
            return state
        return self._change("unpinned", number, state, note, by, pinned=None)

    def pause(self, note: str = "", by: str = "") -> Entry:
        """Pause updates: none is made until `resume`."""
        number, state = self._journal.standing()
        return self._change("paused", number, state, note, by, paused=hold(note, by))

    def resume(self, note: str = "", by: str = "") -> Entry:
        """End a pause of updates. No change if there is none."""
        number, state = self._journal.standing()
        if state and state.paused is None:
            return state
        return self._change("resumed", number, state, note, by, paused=None)

    def record_mode(self, mode: str, note: str = "", by: str = "") -> Entry:
        """Record that the mode of the services is being changed; the mode itself is not stored here."""
        number, state = self._journal.standing()
        return self._change("mode", number, state, f"{mode}: {note}" if note else mode, by)

    def restore_lost(self) -> list[int]:
        """Restore lost entries at the end of the journal that published versions; returns their numbers."""
        return self._journal.restore()

    def accept_loss(self, latest: int = 0, note: str = "", by: str = "") -> Entry | None:
        """Record that entries are lost for good: the last version that is left serves, and no number is used again.

        Args:
            latest: A version number that is known to have been given out; that of the registry if it is lower.
            note: Reason, kept with the change.
            by: Who asks for it.

        Returns:
            The new entry; None if nothing is lost.
        """
        state, numbers = self.standing(), self._journal.numbers()
        if state is None or state.serving is None:
            raise LostEntries(f"{self.storage.url}: no entry is left to go on from; restore the registry from a backup")
        last, recorded = numbers[-1], read_head(self.storage)
        mark = read_head(self.storage, mark_name(state.latest + 1))
        given = max(state.latest + last - state.number, recorded.latest, mark.latest, latest)
        if given == state.latest and last >= mark.number and self._journal.loss() is None:
            return None
        # The number of an entry is never below that of its version: `_published` looks from there.
        number = max(last, recorded.number, mark.number, given)
        return self._journal.append(
            last,
            number=number + 1,
            event="served",
            latest=given,
            lost=max(number - last, 1),
            by=by,
            note=note,
            **same_version(self._published(state.serving)),
            **(holds(state) | unmoved(state)),
        )

    def forget_states(self, keep: int) -> list[int]:
        """Delete teacher states, except those of the newest versions and of the serving one.

        Args:
            keep: Number of newest versions that keep their state.

        Returns:
            The versions whose states were deleted.
        """
        if keep < 1:
            raise InvalidPublication(f"keep must be at least 1 version, got {keep}")
        head = self.head()
        old = old_states(self.storage, self._journal, head, head.latest - keep) if head else {}
        # Oldest first, so that the next run finds what an interrupted one left.
        for version in sorted(old):
            for name in old[version]:
                self.storage.delete(name)
        return sorted(old)

    def sweep(self, recent: int | None = RECENT, *, dry_run: bool = False) -> list[str]:
        """Delete what publications left that lost a race or were killed; see `potstill.registry.sweep`.

        Args:
            recent: Number of latest entries whose versions are swept; None for all.
            dry_run: Delete nothing; only say what would be deleted.

        Returns:
            Names of the deleted files, without temporary ones.
        """
        entries = islice(self._journal.backwards(self._journal.last_number()), recent)
        if dry_run:
            return stray_files(self.storage, entries)
        for folder in ("", ENTRIES):
            self.storage.sweep(folder)
        return sweep_versions(self.storage, entries)

    @contextlib.contextmanager
    def _sweeping_if_lost(self, expected: int) -> Iterator[None]:
        """Delete the files of a publication if another one was first."""
        try:
            yield
        except Conflict:
            with contextlib.suppress(OSError):  # the next sweep finds them
                sweep_versions(self.storage, self._journal.onwards(expected + 1))
            raise

    def _served_before(self, number: int, state: Entry) -> Iterator[Entry]:
        """Entries to roll back to, nearest first."""
        if number > state.number:  # later entries cannot be read
            yield state
        back = state.back
        while back is not None and (entry := self._journal.sound(back)):
            yield entry
            back = entry.back

    def _serve(self, version: int, number: int, state: Entry | None, note: str, by: str, move: dict[str, Any]) -> Entry:
        published = self._published(version)
        self._refuse_other(published, state)
        self._policy(published)
        return self._append("served", published, number, state, note, by, move)

    def _change(self, event: Event, number: int, state: Entry | None, note: str, by: str, **change: Any) -> Entry:
        """Change a pin or a pause; the serving version stays."""
        if state is None or state.serving is None:
            raise UnknownVersion(
                f"{self.storage.url}: no version serves yet; potstill update or potstill serve makes the first"
            )
        return self._append(event, self._published(state.serving), number, state, note, by, unmoved(state) | change)

    def _append(
        self,
        event: Event,
        published: Entry,
        number: int,
        state: Entry | None,
        note: str,
        by: str,
        change: dict[str, Any],
    ) -> Entry:
        unread = number - (state.number if state else 0)  # each of them may have published a version
        return self._journal.append(
            number,
            event=event,
            latest=(state.latest if state else 0) + unread,
            by=by,
            note=note,
            **same_version(published),
            **(holds(state) | change),
        )

    def _serving(self) -> Entry:
        head = self.head()
        if head is None or head.serving is None:
            raise UnknownVersion(f"{self.storage.url}: no version serves yet; potstill update makes the first")
        try:
            entry = head if head.version == head.serving else self._published(head.serving)
        except UnknownVersion:
            raise CorruptVersion(
                f"{self.storage.url}: the entry of version {head.serving}, which serves, cannot be read; {WAY_OUT}"
            ) from None
        self._refuse_other(entry, head)
        return entry

    def _published(self, version: int) -> Entry:
        """The entry of a version: at its number, or later by the number of changes without a version."""
        for entry in self._journal.onwards(max(version, 1)):
            if entry.version == version:
                return entry
        raise UnknownVersion(f"{self.storage.url} has no version {version}; potstill versions lists those it has")

    def _policy(self, entry: Entry) -> Policy:
        file = entry.files.policy
        try:
            return Policy.from_bytes(read_blob(self.storage, file))
        except InvalidPolicy as error:
            raise CorruptVersion(f"{child(self.storage.url, file.name)}: {error}; {WAY_OUT}") from error

    def _refuse_unfit(self, policy: Policy, version: int) -> None:
        if self.problem is None:
            raise InvalidPublication("nothing can be published while the problem is not known; correct problem.toml")
        if policy.problem.hash != self.problem.hash:
            raise OtherProblem(
                f"a policy for problem {policy.problem.name!r} ({policy.problem.hash}) cannot be published here: "
                f"this registry is for {self.problem.name!r} ({self.problem.hash})"
            )
        if policy.version != version:
            raise InvalidPublication(f"the next version is {version}, but the policy to publish says {policy.version}")

    def _refuse_other(self, entry: Entry, state: Entry | None) -> None:
        if self.problem is None:
            if state is not None and self.serving_problem(state) not in (None, entry.problem):
                raise OtherProblem(
                    f"version {entry.version} cannot serve: it decides another problem than version {state.serving}, "
                    "which serves, and problem.toml cannot be read; correct it, or choose another version"
                )
        elif entry.problem != self.problem.hash:
            raise OtherProblem(
                f"version {entry.version} cannot serve: it decides an earlier problem ({entry.problem}), and "
                f"problem.toml now says {self.problem.name!r} ({self.problem.hash}); put the old problem.toml back, "
                "make a version for the new one with potstill update, or serve one that potstill versions does not "
                "mark as of another problem"
            )
