"""The record of updates: when one ran, what came out, how long it took, and when the next one is due."""

from __future__ import annotations

import contextlib
from typing import Any, Literal

import msgspec

from potstill.storage import Storage
from potstill.summaries.store import FOLDER

FILE = "updates.json"
#: Runs that are kept.
KEPT = 200
#: Length of a reason.
LONGEST = 2000
RunOutcome = Literal["running", "published", "staged", "refused", "waiting", "paused", "failed"]
#: Outcomes that say nothing new when they are repeated: the runs are counted as one.
_QUIET = ("waiting", "paused")


class UpdateRun(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of an update, or several in a row that found nothing to do.

    Times are microseconds since 1970, UTC.

    Attributes:
        began: When it began.
        ended: When it ended; None while it runs, or if it was killed.
        outcome: What came out; ``running`` while it runs, or if it was killed.
        why: The outcome in words; the error if it failed.
        version: The version that it made.
        serving: The version that served afterwards.
        observations: Number of observations since the serving version.
        cut: Cut up to which the observations go.
        steps: Seconds of each step.
        every: Seconds between two updates; None if it was started by hand.
        runs: Number of runs that this stands for.
        joined: Number of decisions that the join made observations of.
        pending: Number of decisions in the lake that are not final yet.
        matched: Number of rewards that the join used.
        late: Number of rewards after their window.
        too_late: Number of rewards that arrived after their decision was joined.
        orphans: Number of rewards of no known decision.
        unfit: Number of decisions that do not fit the problem.
        ambiguous: Number of decisions of which it is not known what was answered.
    """

    began: int
    ended: int | None = None
    outcome: RunOutcome = "running"
    why: str = ""
    version: int | None = None
    serving: int | None = None
    observations: int = 0
    cut: int = 0
    steps: dict[str, float] = {}
    every: float | None = None
    runs: int = 1
    joined: int = 0
    pending: int = 0
    matched: int = 0
    late: int = 0
    too_late: int = 0
    orphans: int = 0
    unfit: int = 0
    ambiguous: int = 0

    @property
    def seconds(self) -> float | None:
        """How long it took; None if it has not ended."""
        return None if self.ended is None else (self.ended - self.began) / 1e6

    @property
    def due(self) -> int | None:
        """When the next one is due; None if it was started by hand, or has not ended."""
        return None if self.every is None or self.ended is None else self.ended + int(self.every * 1e6)


class UpdateHistory(msgspec.Struct, frozen=True):
    """The last runs, oldest first."""

    runs: tuple[UpdateRun, ...] = ()

    @property
    def last(self) -> UpdateRun | None:
        """The last run; None if there was none."""
        return self.runs[-1] if self.runs else None


def read_updates(storage: Storage) -> UpdateHistory:
    """The last updates of a workspace; none if there is no record, or it is damaged."""
    with contextlib.suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(storage.within(FOLDER).read(FILE), type=UpdateHistory)
    return UpdateHistory()


def record_update(storage: Storage, run: UpdateRun) -> None:
    """Store a run; one that began at the same time is replaced, and repeats of a quiet outcome are counted."""
    run = msgspec.structs.replace(run, why=run.why[:LONGEST])
    runs: list[UpdateRun] = [one for one in read_updates(storage).runs if one.began != run.began]
    if runs and run.outcome in _QUIET and _same(runs[-1], run):
        before: Any = runs.pop()
        counts = {name: getattr(before, name) + getattr(run, name) for name in _ADDED}
        run = msgspec.structs.replace(run, runs=before.runs + run.runs, **counts)
    history = UpdateHistory(tuple([*runs, run][-KEPT:]))
    storage.within(FOLDER).replace(FILE, msgspec.json.encode(history))


_ADDED = ("joined", "matched", "late", "too_late", "orphans", "unfit", "ambiguous")


def _same(before: UpdateRun, run: UpdateRun) -> bool:
    return before.outcome == run.outcome and before.every == run.every
