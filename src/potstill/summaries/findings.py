"""Findings: what is likely wrong with a learning service, why, and what to do; the most fixable cause first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from potstill.events import in_words as lasting
from potstill.summaries.cells import ONLINE
from potstill.summaries.change import Change
from potstill.summaries.points import Point
from potstill.summaries.series import DAY, DecisionSummary, ObservationSummary
from potstill.summaries.updates import UpdateRun

Tone = Literal["good", "warn", "bad"]
#: Seconds that the log may be behind, and a fraction of decisions that may be fallbacks, before it is worth a word.
LAG, FALLBACKS = 120.0, 0.01
#: Share of rewards that may be unused, and the number of rewards from which it counts.
UNUSED, FEWEST_REWARDS = 0.1, 50
#: Decisions after which it is worth a word that no reward has arrived.
FEWEST_DECISIONS = 100
#: Microseconds without a decision that are worth a word.
QUIET = 3600 * 1_000_000


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One finding.

    Attributes:
        tone: How bad it is.
        what: What was found, with its likely cause.
        then: What to do.
    """

    tone: Tone
    what: str
    then: str = ""


class Facts(NamedTuple):
    """What findings are derived from.

    Attributes:
        problem: Name of the problem.
        now: Microseconds since 1970, UTC.
        has_policy: Whether a usable policy is loaded.
        mode: Mode of the service.
        log_fault: Why the last write to the log failed; None if it succeeded.
        mode_fault: Why the mode that was set last is not used.
        lag_seconds: Age of this machine's oldest event that is not in the lake.
        pinned: Who pinned the serving version and why; None if it is not pinned.
        paused: Likewise of a pause.
        window_seconds: Time after a decision in which a reward counts.
        runs: The last updates, oldest first.
        decisions: Decisions.
        observations: Joined decisions.
        recent: Points of the last hours, oldest first.
        change: The most likely change of the mean reward.
        notices: What else the service says about its files.
    """

    problem: str
    now: int
    has_policy: bool
    mode: str
    log_fault: str | None
    mode_fault: str | None
    lag_seconds: float
    pinned: str | None
    paused: str | None
    window_seconds: int
    runs: Sequence[UpdateRun]
    decisions: DecisionSummary
    observations: ObservationSummary
    recent: list[Point]
    change: Change | None
    notices: list[str]


def findings(facts: Facts) -> list[Finding]:
    """All findings, the worst first; one that everything is well if there are none."""
    found = [finding for check in _CHECKS for finding in check(facts)]
    found.sort(key=lambda one: ("bad", "warn", "good").index(one.tone))
    return found or [Finding(tone="good", what="Healthy: decisions, rewards and updates arrive as they should.")]


def _service(facts: Facts) -> Iterator[Finding]:
    if not facts.has_policy:
        yield Finding(
            tone="bad",
            what="No usable policy is loaded: requests get the fallback action, or a 503.",
            then="Run potstill versions, and roll back to a usable version.",
        )
    if facts.log_fault is not None:
        yield Finding(
            tone="bad",
            what=f"The event log cannot be written: {facts.log_fault}.",
            then="Free space on the disk of the log; nothing is recorded until it can be written.",
        )
    if facts.mode_fault is not None:
        yield Finding(tone="bad", what=facts.mode_fault)
    if facts.lag_seconds > LAG:
        yield Finding(
            tone="warn",
            what=f"Events have waited {lasting(round(facts.lag_seconds * 1e6))} in this machine's log for the lake.",
            then="Look at the service's log for the error of the flusher; potstill events DIR shows it too.",
        )
    yield from (Finding(tone="warn", what=f"{notice[:1].upper()}{notice[1:]}") for notice in facts.notices)


def _traffic(facts: Facts) -> Iterator[Finding]:
    modes: dict[str, int] = {}
    for point in facts.recent:
        for mode, number in point.modes.items():
            modes[mode] = modes.get(mode, 0) + number
    total, fallbacks = sum(modes.values()), modes.get("fallback", 0)
    if not facts.decisions.total.decisions:
        yield Finding(
            tone="warn",
            what="No decision has been logged yet.",
            then=f"Send one: POST /v1/{facts.problem}/decide; /docs has a form.",
        )
    elif facts.now - facts.decisions.newest > QUIET:
        yield Finding(
            tone="warn",
            what=f"No decision has been logged for {lasting(facts.now - facts.decisions.newest)}.",
            then="Check that your product still calls the service.",
        )
    if total and fallbacks > FALLBACKS * total:
        yield Finding(
            tone="bad",
            what=f"{fallbacks / total:.1%} of recent decisions are fallbacks, which nothing is learnt from.",
            then="Look at the service's log: the policy could not decide, or the event log was unavailable.",
        )


def _rewards(facts: Facts) -> Iterator[Finding]:
    joined = facts.observations.total
    if joined.joined.n >= FEWEST_DECISIONS and not joined.rewarded:
        yield Finding(
            tone="bad",
            what=f"None of {joined.joined.n:,} joined decisions has a reward: every one got the default.",
            then="Send rewards under the id of the reply of decide, within the window of problem.toml.",
        )
    recent = [run for run in facts.runs if run.ended is not None and facts.now - run.ended < DAY]
    matched, late, orphans = (
        sum(run.matched for run in recent),
        sum(run.late + run.too_late for run in recent),
        sum(run.orphans for run in recent),
    )
    known = matched + late + orphans
    if known < FEWEST_REWARDS:
        return
    if orphans > UNUSED * known:
        yield Finding(
            tone="bad",
            what=f"{orphans / known:.0%} of today's rewards are of no known decision: their ids do not match.",
            then="Send a reward under the id of the reply of decide, or under the id that the request stated.",
        )
    if late > UNUSED * known:
        window = lasting(facts.window_seconds * 1_000_000)
        yield Finding(
            tone="warn",
            what=f"{late / known:.0%} of today's rewards come after the window of {window}.",
            then="Make reward.window in problem.toml longer, or send rewards earlier.",
        )


def _updates(facts: Facts) -> Iterator[Finding]:
    last = facts.runs[-1] if facts.runs else None
    if facts.paused is not None:
        yield Finding(tone="warn", what=f"Updates are paused {facts.paused}.", then="potstill resume ends the pause.")
    elif last is None:
        if facts.decisions.total.decisions:
            yield Finding(
                tone="warn",
                what="No update has run yet, so that nothing is learnt.",
                then="Start the service with --update-every 10m, or run potstill update DIR.",
            )
    elif last.outcome == "failed":
        yield Finding(tone="bad", what=f"The last update failed: {last.why}", then="Run potstill update DIR to see it.")
    elif last.outcome == "refused":
        yield Finding(
            tone="warn",
            what=f"The last update made version {last.version}, which the gates refused.",
            then="The view Versions has the reasons; potstill promote overrides them.",
        )
    elif _is_overdue(last, facts.now):
        yield Finding(
            tone="bad",
            what="The next update is overdue: the updater is not running, or is stuck.",
            then="Look at the service's log; potstill update DIR runs one by hand.",
        )
    if facts.pinned is not None:
        yield Finding(
            tone="warn",
            what=f"The serving version is pinned {facts.pinned}: updates stage their versions.",
            then="potstill unpin lets the next one serve.",
        )


def _is_overdue(last: UpdateRun, now: int) -> bool:
    if last.every is None:
        return False
    begun = last.due if last.due is not None else last.began + int(last.every * 1e6)
    return now - begun > max(3 * last.every, 600) * 1e6


def _reward_change(facts: Facts) -> Iterator[Finding]:
    change = facts.change
    if change is not None and change.alarm and change.after < change.before:
        yield Finding(
            tone="warn",
            what=f"The mean reward fell from {change.before:.3g} to {change.after:.3g}, more than chance explains.",
            then="The charts show when, and which version served; a rollback is in the view Versions.",
        )


def _apprentice(facts: Facts) -> Iterator[Finding]:
    if facts.mode == "apprentice":
        yield Finding(
            tone="good",
            what="Mode apprentice: your own choices are carried out, and the policy learns from them.",
            then="The view Apprentice says whether it is ready to go live.",
        )
    elif facts.mode != ONLINE:
        yield Finding(
            tone="warn", what=f"Mode {facts.mode}: the policy does not decide.", then="Change the mode to online."
        )


_CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _service,
    _traffic,
    _rewards,
    _updates,
    _reward_change,
    _apprentice,
)
