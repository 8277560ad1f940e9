"""What an update leaves for views: its record, summaries of what it joined, and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import msgspec

from potstill.errors import PotstillError
from potstill.events import now as clock
from potstill.storage import Storage
from potstill.summaries import HealthReport, Report, UpdateRun, read_report, read_summary, record_update, write_report

if TYPE_CHECKING:
    from potstill.pipeline.update import UpdateReport
    from potstill.policy import Policy
    from potstill.workspace import Workspace

#: Fields of a join's report that the record repeats, by their names there; those of rewards are one level down.
_JOINED = {"joined": "decisions", "pending": "pending", "unfit": "unfit", "ambiguous": "ambiguous"}
_REWARDS = ("matched", "late", "too_late", "orphans")


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


def write_reports(workspace: Workspace, policy: Policy, now: int) -> list[str]:
    """Make the reports that views show; returns why one could not be made, in words.

    Args:
        workspace: The workspace.
        policy: The policy that serves after the update, or that it made.
        now: Microseconds since 1970, UTC.
    """
    from potstill.pipeline.apprentice import read_apprentice
    from potstill.pipeline.feature_report import read_features
    from potstill.pipeline.health_report import read_health

    makers: dict[str, Callable[[], Report]] = {
        "apprentice": lambda: read_apprentice(workspace, now, policy),
        "features": lambda: read_features(workspace, policy, now),
        "health": lambda: read_health(workspace, now),
    }
    return [words for name, make in makers.items() if (words := _made(workspace, name, make))]


def lacks_reports(workspace: Workspace) -> bool:
    """Whether there are observations that no report is about, such as those of an update that was killed."""
    observed = read_summary(workspace.storage, "observations").total.joined.n
    return bool(observed) and read_report(workspace.storage, HealthReport) is None


def _made(workspace: Workspace, name: str, make: Callable[[], Report]) -> str | None:
    try:
        write_report(workspace.storage, make())
    except Exception as error:  # a report must never keep a policy from being published
        return f"the report {name!r} could not be made: {type(error).__name__}: {error}"
    return None


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
