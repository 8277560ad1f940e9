"""Metrics of what is learnt: rewards and actions by version, updates, and agreement; from the summaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from potstill.storage import Storage
from potstill.summaries import (
    ApprenticeReport,
    DecisionSummary,
    Sums,
    UpdateRun,
    read_report,
    read_summary,
    read_updates,
)

#: Latest versions with metrics of their own.
VERSIONS = 20
OUTCOMES = ("running", "published", "staged", "refused", "waiting", "paused", "failed")


class SummaryGauges(NamedTuple):
    """Values of a problem that summaries give.

    Attributes:
        decisions: Decisions in the lake.
        rewards: Rewards in the lake.
        joined: Rewards of joined decisions, by version that decided, of the latest.
        actions: Decisions by version and action.
        run: The last update; None if there was none.
        ended: When the last update that did not fail ended, in microseconds since 1970; None if there was none.
        pending: Decisions that are not final yet, as of the last update.
        agreement: Share of the last decisions of mode apprentice in which the policy agrees; None without any.
    """

    decisions: int = 0
    rewards: int = 0
    joined: Mapping[int, Sums] = {}
    actions: Mapping[int, Mapping[str, int]] = {}
    run: UpdateRun | None = None
    ended: int | None = None
    pending: int = 0
    agreement: float | None = None


def read_gauges(storage: Storage) -> SummaryGauges | None:
    """The gauges of a workspace; None while its storage is unavailable."""
    try:
        decisions, observations = read_summary(storage, "decisions"), read_summary(storage, "observations")
        rewards, updates = read_summary(storage, "rewards"), read_updates(storage)
        apprentice = read_report(storage, ApprenticeReport)
    except OSError:
        return None
    finished = [run for run in updates.runs if run.ended is not None]
    well = [run.ended for run in finished if run.outcome != "failed"]
    return SummaryGauges(
        decisions=decisions.total.decisions,
        rewards=rewards.total.rewards.n,
        joined={version: total.rewards for version, total in list(observations.versions.items())[-VERSIONS:]},
        actions=_actions(decisions),
        run=updates.last,
        ended=well[-1] if well else None,
        pending=finished[-1].pending if finished else 0,
        agreement=None if apprentice is None else apprentice.agreement.value,
    )


def _actions(decisions: DecisionSummary) -> dict[int, dict[str, int]]:
    return {version: total.actions for version, total in list(decisions.versions.items())[-VERSIONS:]}


def metrics_of(gauges: Sequence[tuple[str, SummaryGauges]], now: int) -> Iterator[Metric]:
    """Metrics of some problems.

    Args:
        gauges: Names of problems, with what their summaries give.
        now: Microseconds since 1970, UTC.
    """
    yield from _by_problem(gauges)
    yield from _by_version(gauges)
    yield from _updates(gauges, now)


def _by_problem(gauges: Iterable[tuple[str, SummaryGauges]]) -> Iterator[Metric]:
    decisions = CounterMetricFamily("potstill_lake_decisions", "Decisions in the lake.", labels=["problem"])
    rewards = CounterMetricFamily("potstill_lake_rewards", "Rewards in the lake.", labels=["problem"])
    pending = GaugeMetricFamily(
        "potstill_pending_decisions", "Decisions that are not final yet, as of the last update.", labels=["problem"]
    )
    agreement = GaugeMetricFamily(
        "potstill_apprentice_agreement",
        "Share of the last decisions of mode apprentice in which the policy agrees.",
        labels=["problem"],
    )
    for name, one in gauges:
        decisions.add_metric([name], one.decisions)
        rewards.add_metric([name], one.rewards)
        pending.add_metric([name], one.pending)
        if one.agreement is not None:
            agreement.add_metric([name], one.agreement)
    yield from (decisions, rewards, pending, agreement)


def _by_version(gauges: Iterable[tuple[str, SummaryGauges]]) -> Iterator[Metric]:
    joined = CounterMetricFamily(
        "potstill_joined_decisions",
        "Decisions of the policy that are joined with their rewards, by version.",
        labels=["problem", "policy"],
    )
    # A gauge: rewards may be negative, and a counter must not fall.
    total = GaugeMetricFamily(
        "potstill_joined_reward_sum", "Sum of their rewards, by version.", labels=["problem", "policy"]
    )
    actions = CounterMetricFamily(
        "potstill_actions",
        "Decisions of the policy by version and action.",
        labels=["problem", "policy", "action"],
    )
    shares = GaugeMetricFamily(
        "potstill_action_share",
        "Share of the decisions of a version with an action.",
        labels=["problem", "policy", "action"],
    )
    for name, one in gauges:
        for version, sums in one.joined.items():
            joined.add_metric([name, str(version)], sums.n)
            total.add_metric([name, str(version)], sums.total)
        for version, counts in one.actions.items():
            whole = sum(counts.values())
            for action, number in counts.items():
                actions.add_metric([name, str(version), action], number)
                shares.add_metric([name, str(version), action], number / whole)
    yield from (joined, total, actions, shares)


def _updates(gauges: Iterable[tuple[str, SummaryGauges]], now: int) -> Iterator[Metric]:
    age = GaugeMetricFamily(
        "potstill_update_age_seconds", "Time since an update ended that did not fail.", labels=["problem"]
    )
    every = GaugeMetricFamily(
        "potstill_update_interval_seconds", "Time between two updates, where they are scheduled.", labels=["problem"]
    )
    took = GaugeMetricFamily("potstill_update_seconds", "Duration of the last update that ended.", labels=["problem"])
    outcome = GaugeMetricFamily(
        "potstill_update_outcome", "1 for the outcome of the last update.", labels=["problem", "outcome"]
    )
    for name, one in gauges:
        if one.ended is not None:
            age.add_metric([name], max(now - one.ended, 0) / 1e6)
        if one.run is None:
            continue
        if one.run.every is not None:
            every.add_metric([name], one.run.every)
        if one.run.seconds is not None:
            took.add_metric([name], one.run.seconds)
        for each in OUTCOMES:
            outcome.add_metric([name, each], each == one.run.outcome)
    yield from (age, every, took, outcome)
