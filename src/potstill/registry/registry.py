"""The registry: every version of a problem's policy, and which one serves.

It needs no server and no lock. The files of a version are written first, under names that say what they hold; then one
entry, which exists whole or not at all and of which each number can be created once. So a reader sees the registry
before a change or after it, and of several that change it at once exactly one succeeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from potstill.policy import InvalidPolicy, Policy
from potstill.problem import Problem
from potstill.registry.blobs import keep, read_kept, states
from potstill.registry.entries import WAY_OUT, Entry, Files, Version, versions_in
from potstill.registry.errors import CorruptVersion, InvalidPublication, NoState, OtherProblem, UnknownVersion
from potstill.registry.journal import Journal, conflict, old_states, read_all
from potstill.storage import Storage, child


class Registry:
    """The versions of one workspace. It remembers nothing, so that any number may share a place, also as threads.

    Args:
        storage: Storage of the registry.
        problem: The problem; only policies for it are published and served.
    """

    def __init__(self, storage: Storage, problem: Problem) -> None:
        self.storage = storage
        self.problem = problem
        self._journal = Journal(storage)

    def head(self) -> Entry | None:
        """The last entry: how things stand now. None before the first version."""
        number = self._journal.last_number()
        return self._journal.read(number) if number else None

    def standing(self) -> Entry | None:
        """The last entry that can be read: the head, unless it is damaged."""
        return self._journal.standing()[1]

    def changed_since(self, number: int) -> Entry | None:
        """The last entry, if there is one after that number. Meant for polling: one small read while nothing changes.

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
        """The versions after a version number, in order, save those whose entries cannot be read; see `damage`."""
        # Each version took an entry of its own, so that its entry's number is never below its own.
        found = read_all(self._journal.sound, self._journal.numbers(max(after, 0)))
        return versions_in([entry for entry in found if entry], after)

    def damage(self, after: int = 0) -> list[str]:
        """What is wrong with entries after a number; nothing if all can be read."""
        return [fault for fault in read_all(self._journal.fault, self._journal.numbers(after)) if fault]

    def next_version(self) -> int:
        """The number of the next version to publish, from 1; 0 is for a policy to start from. None is used twice."""
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
        return read_kept(self.storage, file)

    def report(self, version: int) -> bytes:
        """A version's report, verified."""
        return read_kept(self.storage, self._published(version).files.report)

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
        """Keep a new version, and serve it unless something is against it.

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
            Policy.from_bytes(data)  # what serves must be fit to be read, or nothing is written
        files = Files(
            policy=keep(self.storage, policy.version, "policy", data),
            teacher=None if teacher is None else keep(self.storage, policy.version, "teacher", teacher),
            report=keep(self.storage, policy.version, "report", report),
        )
        return self._journal.append(
            expected,
            event="published",
            latest=policy.version,
            note=note,
            **_described(policy, tuple(reasons), files),
            **(_forward(head, policy.version) if serves else _unmoved(head)),
        )

    def serve(self, version: int, note: str = "") -> Entry:
        """Make any version serve, also one that was refused. It is verified first."""
        number, state = self._journal.standing()
        if state and state.number == number and state.serving == version:
            return state
        return self._serve(version, number, state, note, _forward(state, version))

    def rollback(self, to: int | None = None, note: str = "") -> Entry:
        """Return to a version that served before. It is verified first.

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
        """Delete teachers' states, save those of the latest versions and of the serving one.

        Args:
            keep: Number of newest versions that keep their state.

        Returns:
            The versions whose states were deleted.
        """
        if keep < 1:
            raise InvalidPublication(f"keep must be at least 1 version, got {keep}")
        head = self.head()
        old = old_states(self.storage, self._journal, head, head.latest - keep) if head else {}
        # The oldest first, so that what an interrupted run leaves is where the next one looks.
        for version in sorted(old):
            for name in old[version]:
                self.storage.delete(name)
        return sorted(old)

    def _served_before(self, number: int, state: Entry) -> Iterator[Entry]:
        """The entries to roll back to, the nearest first."""
        if number > state.number:  # what came after it cannot be read
            yield state
        back = state.back
        while back is not None and (entry := self._journal.sound(back)):
            yield entry
            back = entry.back

    def _serve(self, version: int, number: int, state: Entry | None, note: str, move: dict[str, Any]) -> Entry:
        published = self._published(version)
        self._refuse_other(published)
        self._policy(published)
        unread = number - (state.number if state else 0)  # each of them may have given out a version
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
        """An entry about a version: the one of its number, or as many later as there were changes without a version."""
        for entry in self._journal.onwards(max(version, 1)):
            if entry.version == version:
                return entry
        raise UnknownVersion(f"{self.storage.url} has no version {version}; potstill versions lists those it has")

    def _policy(self, entry: Entry) -> Policy:
        file = entry.files.policy
        try:
            return Policy.from_bytes(read_kept(self.storage, file))
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


#: What an entry says of its version, whatever happens to it.
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
    """Another version serves; what served until now is what a rollback returns to."""
    return {"serving": version, "back": state.number if state and state.serving is not None else None}


def _unmoved(state: Entry | None) -> dict[str, Any]:
    return {"serving": state.serving if state else None, "back": state.back if state else None}
