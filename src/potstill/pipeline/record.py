"""What an update leaves for views: its record, and summaries of what it joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from potstill.errors import PotstillError
from potstill.events import now as clock
from potstill.storage import Storage
from potstill.summaries import UpdateRun, record_update

if TYPE_CHECKING:
    from potstill.pipeline.update import UpdateReport
    from potstill.workspace import Workspace

#: Fields of a join's report that the record repeats, by their names there; those of rewards are one level down.
_JOINED = {"joined": "decisions", "pending": "pending", "unfit": "unfit", "ambiguous": "ambiguous"}
_REWARDS = ("late", "too_late", "orphans")


@contextmanager
def recorded(storage: Storage, every: float | None) -> Iterator[Callable[[UpdateReport], UpdateReport]]:
    """Record that an update runs, and its outcome or error. What cannot be recorded does not stop an update."""
    run = UpdateRun(began=clock(), every=every)
    _store(storage, run)

    def record(report: UpdateReport) -> UpdateReport:
        _store(storage, _ended(run, report))
        return report

    try:
        yield record
    except BaseException as error:
        why = str(error) if isinstance(error, PotstillError) else f"{type(error).__name__}: {error}"
        _store(storage, msgspec.structs.replace(run, ended=clock(), outcome="failed", why=why))
        raise


def summarise(workspace: Workspace, now: int) -> list[str]:
    """Bring the summaries up to date; returns why that was not possible, in words."""
    from potstill.summaries.build import refresh_summaries

    try:
        refresh_summaries(workspace, now)
    except (OSError, PotstillError) as error:
        return [f"the summaries that pages and metrics show could not be brought up to date: {error}"]
    return []


def _ended(run: UpdateRun, report: UpdateReport) -> UpdateRun:
    joined = report.joined
    counts: dict[str, Any] = {}
    if joined is not None:
        counts = {name: getattr(joined, there) for name, there in _JOINED.items()}
        counts |= {name: getattr(joined.rewards, name) for name in _REWARDS}
    outcome = "waiting" if report.outcome == "due" else report.outcome  # "due" is of previews alone
    return msgspec.structs.replace(
        run,
        ended=clock(),
        outcome=outcome,
        why=report.why,
        version=report.version,
        serving=report.serving,
        observations=report.observations,
        cut=report.cut,
        steps=report.seconds,
        **counts,
    )


def _store(storage: Storage, run: UpdateRun) -> None:
    with suppress(OSError):
        record_update(storage, run)
