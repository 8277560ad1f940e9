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
from potstill.registry.entries import WAY_OUT, Entry, Files, Version, versions_in
from potstill.registry.errors import (
    Conflict,
    CorruptVersion,
    InvalidPublication,
    NoState,
    OtherProblem,
    UnknownVersion,
)
from potstill.registry.journal import ENTRIES, Journal, conflict, old_states, read_all
from potstill.registry.sweep import sweep_versions
from potstill.storage import Storage, child

#: Number of latest entries whose versions are swept after each update.
RECENT = 10


class Registry:
    """Versions of one workspace. Stateless: processes and threads can share a registry.

    Args:
        storage: Storage of the registry.
        problem: The problem; only policies for it are published and served.
    """

    def __init__(self, storage: Storage, problem: Problem) -> None:
        self.storage = storage
        self.problem = problem
        self._journal = Journal(storage)

    def head(self) -> Entry | None:
        """The last entry, which holds the present state; None before the first version."""
        number = self._journal.last_number()
        return self._journal.read(number) if number else None

    def standing(self) -> Entry | None:
        """The last readable entry: the head, unless it is damaged."""
        return self._journal.standing()[1]

    def changed_since(self, number: int) -> Entry | None:
        """The last entry, if it is after a number. For polling: one small read while nothing changes.

        Args:
            number: Number of the last entry that the caller knows; 0 for none.
        """
        if not self._journal.has(number + 1):
            return None
        return self._journal.read(self._journal.last_number(hint=number + 1))

    def entries(self, after: int = 0) -> list[Entry]:
        """All changes after an entry's number, in order."""
        return read_all(self._journal.read, self._journal.numbers(after))

    def versions(self, after: int = -1) -> list[Version]:
        """Versions after a number, in order, except those with unreadable entries; see `damage`."""
        # Each version has an entry of its own, so that the entry's number is never below the version's.
        found = read_all(self._journal.sound, self._journal.numbers(max(after, 0)))
        return versions_in([entry for entry in found if entry], after)

    def damage(self, after: int = 0) -> list[str]:
        """Reasons why entries after a number cannot be read; empty if all can."""
        return [fault for fault in read_all(self._journal.fault, self._journal.numbers(after)) if fault]

    def next_version(self) -> int:
        """Number of the next version to publish, from 1; never reused. 0 is the initial policy."""
        head = self.head()
        return head.latest + 1 if head else 1

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
    ) -> Entry:
        """Publish a new version, and serve it unless it is refused.

        Args:
            policy: Policy for this problem, with the number that `next_version` gives; the first may have 0.
            teacher: The state of the teacher that it was distilled from, if it is to be kept.
            report: Report of its update.
            reasons: Why it must not serve; with any it is kept, but not served.
            serve: False to stage it, so that it can be made to serve later.
            expected: The number of the last entry when the work on this version began; 0 if there was none.
            note: Kept with the change.

        Raises:
            Conflict: Somebody changed the registry in the meantime.
        """
        head = self.head()
        if expected != (head.number if head else 0):
            raise conflict(expected, head.number if head else 0)
        self._refuse_unfit(policy, head.latest + 1 if head else min(policy.version, 1))
        data, serves = policy.to_bytes(), serve and not reasons
        if serves:
            Policy.from_bytes(data)  # the serving entry must be readable, or nothing is written
        files = Files(
            policy=write_blob(self.storage, policy.version, "policy", data),
            teacher=None if teacher is None else write_blob(self.storage, policy.version, "teacher", teacher),
            report=write_blob(self.storage, policy.version, "report", report),
        )
        with self._sweeping_if_lost(expected):
            return self._journal.append(
                expected,
                event="published",
                latest=policy.version,
                note=note,
                **_described(policy, tuple(reasons), files),
                **(_forward(head, policy.version) if serves else _unmoved(head)),
            )

    def serve(self, version: int, note: str = "") -> Entry:
        """Promote any version, even a refused one, after verifying it."""
        number, state = self._journal.standing()
        if state and state.number == number and state.serving == version:
            return state
        return self._serve(version, number, state, note, _forward(state, version))

    def rollback(self, to: int | None = None, note: str = "") -> Entry:
        """Roll back to a version that served before, after verifying it.

        Args:
            to: The version; the one that served before the present one if left out. Rolling back again goes further
                back, and never to what was rolled back from.
            note: Kept with the change.
        """
        number, state = self._journal.standing()
        if state is None or state.serving is None:
            raise UnknownVersion(f"{self.storage.url}: no version serves yet, so there is nothing to roll back from")
        for earlier in self._served_before(number, state):
            if earlier.serving is not None and to in (None, earlier.serving):
                move = {"serving": earlier.serving, "back": earlier.back}
                return self._serve(earlier.serving, number, state, note, move)
        if to is None:
            raise UnknownVersion(
                f"no version served before version {state.serving}, so there is none to roll back to; "
                "potstill promote serves any that potstill versions lists"
            )
        return self.serve(to, note)

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

    def sweep(self, recent: int | None = RECENT) -> list[str]:
        """Delete what publications left that lost a race or were killed; see `potstill.registry.sweep`.

        Args:
            recent: Number of latest entries whose versions are swept; None for all.

        Returns:
            Names of the deleted files, without temporary ones.
        """
        for folder in ("", ENTRIES):
            self.storage.sweep(folder)
        return sweep_versions(self.storage, islice(self._journal.backwards(self._journal.last_number()), recent))

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

    def _serve(self, version: int, number: int, state: Entry | None, note: str, move: dict[str, Any]) -> Entry:
        published = self._published(version)
        self._refuse_other(published)
        self._policy(published)
        unread = number - (state.number if state else 0)  # each of them may have published a version
        return self._journal.append(
            number,
            event="served",
            latest=(state.latest if state else 0) + unread,
            note=note,
            **{field: getattr(published, field) for field in OF_A_VERSION},
            **move,
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
        self._refuse_other(entry)
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
        if policy.problem.hash != self.problem.hash:
            raise OtherProblem(
                f"a policy for problem {policy.problem.name!r} ({policy.problem.hash}) cannot be published here: "
                f"this registry is for {self.problem.name!r} ({self.problem.hash})"
            )
        if policy.version != version:
            raise InvalidPublication(f"the next version is {version}, but the policy to publish says {policy.version}")

    def _refuse_other(self, entry: Entry) -> None:
        if entry.problem != self.problem.hash:
            raise OtherProblem(
                f"version {entry.version} cannot serve: it decides an earlier problem ({entry.problem}), and "
                f"problem.toml now says {self.problem.name!r} ({self.problem.hash}); put the old problem.toml back, "
                "or make a version for the new one with potstill update"
            )


#: Fields of an entry that describe its version and never change.
OF_A_VERSION = ("version", "parent", "problem", "observations", "kl", "reasons", "files")


def _described(policy: Policy, reasons: tuple[str, ...], files: Files) -> dict[str, Any]:
    metadata = policy.metadata
    return {
        "version": policy.version,
        "parent": metadata.parent,
        "problem": metadata.problem_hash,
        "observations": metadata.lineage.observations,
        "kl": (metadata.fidelity or {}).get("kl_mean"),
        "reasons": reasons,
        "files": files,
    }


def _forward(state: Entry | None, version: int) -> dict[str, Any]:
    """Switch the serving version; a rollback returns to the present one."""
    return {"serving": version, "back": state.number if state and state.serving is not None else None}


def _unmoved(state: Entry | None) -> dict[str, Any]:
    return {"serving": state.serving if state else None, "back": state.back if state else None}
