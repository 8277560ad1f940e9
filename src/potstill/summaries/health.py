"""Health of a log: propensities, sample ratios, entropy of the actions and changes of the reward."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import msgspec

from potstill.summaries.change import Change, find_change
from potstill.summaries.findings import Finding
from potstill.summaries.overview import Inputs
from potstill.summaries.points import Point, Span, points
from potstill.summaries.reports import HealthReport
from potstill.summaries.sums import Sums

#: Actions taken less often than this share count as hardly explored.
RARE = 0.001
#: Decisions that a statement about shares needs.
FEWEST = 1000


class EntropyPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Entropy of the shares of actions: 0 if one action is always taken, 1 if all are taken equally often."""

    time: int
    entropy: float
    decisions: int


class ActionHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One action.

    Attributes:
        action: Its label.
        share: Its share of the decisions.
        entropy: Its part of the entropy of the shares; these add up to it.
        trend: Change of its share from the first to the second half of the time; None if too little is known.
        entropy_trend: Likewise of its part of the entropy.
    """

    action: str
    share: float
    entropy: float
    trend: float | None
    entropy_trend: float | None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Health of a problem's log. Times are microseconds since 1970, UTC.

    Attributes:
        findings: What is well and what is not, the worst first.
        report: Propensity audit and sample ratios of the latest decisions; None before the first update.
        entropy: Entropy of the shares of actions over time.
        trend: Change of that entropy from the first to the second half of the time; None if too little is known.
        shares: Shares of the actions.
        actions: The same by action with entropy and trend, most frequent first.
        points: The series behind it.
        reward_change: The most likely change of the mean reward.
        per_action: Likewise for each action, of those with an alarm.
    """

    findings: list[Finding]
    report: HealthReport | None
    entropy: list[EntropyPoint]
    trend: float | None
    shares: Mapping[str, float]
    actions: list[ActionHealth]
    points: list[Point]
    reward_change: Change | None
    per_action: Mapping[str, Change]


def health(inputs: Inputs, report: HealthReport | None, now: int, hours: float | None) -> Health:
    """Health from summaries and the last report."""
    span = Span.of(now, hours, inputs.decisions, inputs.finest)
    shown = points(span, inputs.decisions, inputs.rewards, inputs.observations)
    cells = [(start, cell) for start, _, cell in inputs.observations.series(span.start)]
    change = find_change([(start, cell.joined) for start, cell in cells])
    actions = {action for _, cell in cells for action in cell.actions}
    each: dict[str, Change] = {
        action: one
        for action in sorted(actions)
        if (one := find_change([(start, cell.actions.get(action, Sums())) for start, cell in cells])) and one.alarm
    }
    counts = _counts(shown)
    shares = {action: number / sum(counts.values()) for action, number in counts.items()} if counts else {}
    entropy = [
        EntropyPoint(time=one.time, entropy=found, decisions=sum(one.actions.values()))
        for one in shown
        if (found := relative_entropy(one.actions.values(), len(counts))) is not None
    ]
    halves = _halves(shown)
    trend = _trend(halves, len(counts))
    return Health(
        findings=_findings(report, shares, sum(counts.values()), trend, change),
        report=report,
        entropy=entropy,
        trend=trend,
        shares=shares,
        actions=_by_action(shares, halves),
        points=shown,
        reward_change=change,
        per_action=each,
    )


def relative_entropy(counts: Iterable[int], actions: int) -> float | None:
    """Entropy of counts relative to that of equal ones; None without counts or with one action."""
    found = [count for count in counts if count]
    total = sum(found)
    if not total or actions < 2:
        return None
    return -sum(count / total * math.log(count / total) for count in found) / math.log(actions) + 0.0


def _counts(shown: Iterable[Point]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for point in shown:
        for action, number in point.actions.items():
            counts[action] = counts.get(action, 0) + number
    return counts


def _halves(shown: list[Point]) -> list[dict[str, int]]:
    """Counts by action in the first and the second half of the time; nothing if they are too few to compare."""
    middle = len(shown) // 2
    halves = [_counts(part) for part in (shown[:middle], shown[middle:])]
    return [] if any(sum(half.values()) < FEWEST for half in halves) else halves


def _trend(halves: list[dict[str, int]], actions: int) -> float | None:
    if not halves:
        return None
    first, second = (relative_entropy(half.values(), actions) for half in halves)
    return None if first is None or second is None else second - first


def _by_action(shares: Mapping[str, float], halves: list[dict[str, int]]) -> list[ActionHealth]:
    def entropy(share: float) -> float:
        return -share * math.log(share) / math.log(len(shares)) + 0.0 if share > 0 and len(shares) > 1 else 0.0

    def change(action: str, of: Callable[[float], float]) -> float | None:
        if not halves:
            return None
        first, second = (of(half.get(action, 0) / sum(half.values())) for half in halves)
        return second - first

    return [
        ActionHealth(
            action=action,
            share=share,
            entropy=entropy(share),
            trend=change(action, float),
            entropy_trend=change(action, entropy),
        )
        for action, share in sorted(shares.items(), key=lambda one: (-one[1], one[0]))
    ]


def _findings(
    report: HealthReport | None,
    shares: Mapping[str, float],
    decisions: int,
    trend: float | None,
    change: Change | None,
) -> list[Finding]:
    found = [*_audit(report), *_actions(shares, decisions, trend), *_changes(change)]
    found.sort(key=lambda one: ("bad", "warn", "good").index(one.tone))
    return found


def _audit(report: HealthReport | None) -> Iterable[Finding]:
    if report is None:
        yield Finding(
            tone="warn",
            what="No update has audited the log yet.",
            then="Run potstill update DIR, or potstill audit DIR for all decisions.",
        )
        return
    if report.clean and report.checked:
        yield Finding(
            tone="good",
            what=f"The propensities and actions of the last {report.checked:,} decisions are those of their policies.",
        )
    elif not report.clean:
        wrong = report.propensities + report.actions + report.missing + report.unfit
        yield Finding(
            tone="bad",
            what=f"{wrong:,} of the last {report.decisions:,} decisions do not agree with their policy.",
            then="Run potstill audit DIR, which names them.",
        )
    if report.renormalised_words is not None:
        yield Finding(tone="warn", what=f"{report.renormalised_words}.", then=report.way_out)
    for version in report.versions:
        if version.broken:
            yield Finding(
                tone="bad",
                what=f"Version {version.version} took actions in another ratio than its propensities say: "
                "decisions are lost or repeated depending on the action.",
                then="Look for callers that retry with another id, or drop decisions before they are carried out.",
            )


def _actions(shares: Mapping[str, float], decisions: int, trend: float | None) -> Iterable[Finding]:
    if decisions < FEWEST:
        return
    if len(shares) == 1:
        yield Finding(
            tone="warn",
            what=f"All decisions took {next(iter(shares))}: nothing is learnt about other actions.",
            then="A floor (policy.floor) keeps every action explored.",
        )
    elif trend is not None and trend < -0.1:
        yield Finding(tone="good", what=f"Actions concentrate: their entropy fell by {-trend:.2f}, as a policy learns.")
    if rare := [action for action, share in shares.items() if share < RARE]:
        yield Finding(
            tone="warn",
            what=f"Hardly taken any more, in fewer than {RARE:.1%} of decisions: {', '.join(rare[:5])}.",
            then="That is right if they are worse; a floor keeps the log able to tell if that changes.",
        )


def _changes(change: Change | None) -> Iterable[Finding]:
    if change is not None and change.alarm:
        rose = change.after > change.before
        yield Finding(
            tone="good" if rose else "warn",
            what=f"The mean reward {'rose' if rose else 'fell'} from {change.before:.3g} to {change.after:.3g}.",
            then="" if rose else "See which version served, and whether the product or its users changed.",
        )
