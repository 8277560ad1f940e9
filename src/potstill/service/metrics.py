"""Metrics of the service, in Prometheus' text format.

Workers share the files in which they count, so that any worker answers for all of them. Gauges, such as the serving
version, are looked up when Prometheus scrapes.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, values
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Seconds: from a decision without a disk to one on a bad disk.
BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
#: Number of latest policy versions whose decisions are exposed; updates every ten minutes make 50,000 in a year.
VERSIONS = 50
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_Series = Callable[..., Counter]


class Recorder(Protocol):
    """Records what happens in a problem; see `ProblemMetrics`."""

    def count_decisions(self, mode: str, policy: int, count: int = 1) -> None:
        """Count decisions by mode and policy version."""

    def count_arm(self, arm: str, count: int = 1) -> None:
        """Count decisions of an experiment: ``control``, ``treatment``, or ``none`` for requests without a unit."""

    def count_rewards(self, count: float) -> None:
        """Count rewards."""

    def count_observations(self, count: float) -> None:
        """Count decisions of devices."""

    def time_decide(self, seconds: float) -> None:
        """Record the latency of a request to decide, single or batch."""

    def count_refusal(self, reason: str) -> None:
        """Count a refused request; reasons are few and fixed, such as ``unfit`` or ``token``."""

    def count_reload(self, outcome: str) -> None:
        """Count a reload of policy, mode or experiment: ``swapped``, ``refused`` or ``unavailable``."""


class NullRecorder:
    """Records nothing."""

    def _pass(self, *_: object) -> None:
        return

    count_decisions = count_arm = count_rewards = count_observations = _pass
    time_decide = count_refusal = count_reload = _pass


class ProblemGauges(NamedTuple):
    """Values of a problem that are looked up at a scrape.

    Attributes:
        problem: Name of the problem.
        version: Version of the serving policy; None if there is none.
        lag_seconds: Age of this machine's oldest event that is not in the lake; 0 if all are.
        pinned: Whether the serving version is pinned.
        paused: Whether updates are paused.
        unused: Numbers of rewards that joins could not use, by reason: ``late``, ``too_late``, ``orphan``.
    """

    problem: str
    version: int | None
    lag_seconds: float
    pinned: bool = False
    paused: bool = False
    unused: Mapping[str, int] = {}


def share(folder: Path, worker: int) -> None:
    """Share the counts of all workers; call it before the first `Metrics` is made.

    Args:
        folder: Folder of this service, empty when it starts.
        worker: Number of this worker. A replacement continues the counts of the worker it replaces.
    """
    os.environ[_FOLDER] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: worker)  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of a service: `of(problem)` records, `exposition` exposes.

    Args:
        gauges: Looks up the gauges of each problem; it may read files.
    """

    def __init__(self, gauges: Callable[[], Iterable[ProblemGauges]] = tuple) -> None:
        self._gauges = gauges
        self._registry = CollectorRegistry()
        self._decisions = self._counter("decisions", "Decisions taken.", "mode", "policy")
        self._arms = self._counter(
            "experiment", "Decisions in an experiment by arm; none: the request has no unit.", "arm"
        )
        self._rewards = self._counter("rewards", "Rewards logged.")
        self._observations = self._counter("observations", "Decisions of devices logged.")
        self._refusals = self._counter("refused", "Requests refused.", "reason")
        self._reloads = self._counter("reloads", "Reloads of policy, mode or experiment.", "outcome")
        self._seconds = Histogram(
            "potstill_decide_seconds",
            "Latency of requests to decide, the disk included.",
            ["problem"],
            buckets=BUCKETS,
            registry=self._registry,
        )

    def of(self, problem: str) -> ProblemMetrics:
        """The recorder of a problem; ``""`` is for refusals of requests to no problem."""
        return ProblemMetrics(
            _labelled(self._decisions, problem),
            _labelled(self._arms, problem),
            self._rewards.labels(problem),
            self._observations.labels(problem),
            _labelled(self._refusals, problem),
            _labelled(self._reloads, problem),
            self._seconds.labels(problem),
        )

    def exposition(self, problems: Collection[str]) -> bytes:
        """The text for Prometheus, of these problems only. It reads files, so run it in a thread."""
        gauges = [one for one in self._gauges() if one.problem in problems]
        return generate_latest(_Filtered([*self._collected(), *_gauge_metrics(gauges)], problems, gauges))

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"potstill_{name}", documentation, ["problem", *labels], registry=self._registry)

    def _collected(self) -> Iterable[Metric]:
        if _FOLDER not in os.environ:
            return self._registry.collect()
        collector = MultiProcessCollector(None)  # type: ignore[no-untyped-call]
        try:
            return collector.collect()  # type: ignore[no-any-return,no-untyped-call]
        except struct.error:  # a worker has just created its file, which is still empty
            time.sleep(0.01)
            return collector.collect()  # type: ignore[no-any-return,no-untyped-call]


class ProblemMetrics:
    """The recorder of one problem. Series are looked up once, which makes it cheap enough for every request."""

    def __init__(
        self,
        decisions: _Series,
        arms: _Series,
        rewards: Counter,
        observations: Counter,
        refusals: _Series,
        reloads: _Series,
        seconds: Histogram,
    ) -> None:
        self._decisions, self._arms, self._refusals, self._reloads = decisions, arms, refusals, reloads
        # The libraries' own methods, without a call in between.
        self.count_rewards: Callable[[float], None] = rewards.inc
        self.count_observations: Callable[[float], None] = observations.inc
        self.time_decide: Callable[[float], None] = seconds.observe

    def count_decisions(self, mode: str, policy: int, count: int = 1) -> None:
        """Count decisions by mode and policy version."""
        self._decisions(mode, policy).inc(count)

    def count_arm(self, arm: str, count: int = 1) -> None:
        """Count decisions of an experiment by arm."""
        self._arms(arm).inc(count)

    def count_refusal(self, reason: str) -> None:
        """Count a refused request."""
        self._refusals(reason).inc()

    def count_reload(self, outcome: str) -> None:
        """Count a reload."""
        self._reloads(outcome).inc()


def _labelled(counter: Counter, problem: str) -> _Series:
    """A counter's series by its other labels: a dictionary lookup, where `Counter.labels` takes a lock."""
    known: dict[tuple[object, ...], Counter] = {}

    def series(*labels: object) -> Counter:
        try:
            return known[labels]
        except KeyError:
            return known.setdefault(labels, counter.labels(problem, *labels))

    return series


class _Filtered:
    """The collected metrics of the visible problems and the latest versions."""

    def __init__(self, metrics: Sequence[Metric], problems: Collection[str], gauges: Sequence[ProblemGauges]) -> None:
        self._metrics, self._problems = metrics, problems
        versions = {int(version) for metric in metrics for version in _labels(metric, "policy")}
        shown = {*sorted(versions)[-VERSIONS:], *(one.version for one in gauges)}
        self._policies = {None, *map(str, shown)}

    def collect(self) -> Iterator[Metric]:
        """The metrics, without creation times, which only some collectors have."""
        for metric in sorted(self._metrics, key=lambda metric: metric.name):
            metric.samples = [sample for sample in metric.samples if self._shows(sample)]
            yield metric

    def _shows(self, sample: Sample) -> bool:
        problem, policy = sample.labels["problem"], sample.labels.get("policy")
        seen = problem in self._problems or (problem == "" and sample.name == "potstill_refused_total")
        return seen and policy in self._policies and not sample.name.endswith("_created")


def _labels(metric: Metric, label: str) -> set[str]:
    return {sample.labels[label] for sample in metric.samples if label in sample.labels}


def _gauge_metrics(gauges: Iterable[ProblemGauges]) -> Iterator[Metric]:
    version = GaugeMetricFamily("potstill_policy_version", "Version of the serving policy.", labels=["problem"])
    lag = GaugeMetricFamily(
        "potstill_log_lag_seconds",
        "Age of this machine's oldest event that is not in the lake.",
        labels=["problem"],
    )
    pinned = GaugeMetricFamily("potstill_pinned", "1 if the serving version is pinned.", labels=["problem"])
    paused = GaugeMetricFamily("potstill_paused", "1 if updates are paused.", labels=["problem"])
    unused = CounterMetricFamily(
        "potstill_rewards_unused",
        "Rewards that joins could not use: late (after their window), too_late (after their decision was joined), "
        "orphan (of no known decision).",
        labels=["problem", "reason"],
    )
    for one in gauges:
        for reason, count in one.unused.items():
            unused.add_metric([one.problem, reason], count)
        lag.add_metric([one.problem], one.lag_seconds)
        pinned.add_metric([one.problem], float(one.pinned))
        paused.add_metric([one.problem], float(one.paused))
        if one.version is not None:
            version.add_metric([one.problem], one.version)
    yield from (version, lag, pinned, paused, unused)
