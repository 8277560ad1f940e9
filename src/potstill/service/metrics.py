"""Metrics of the service, in Prometheus' text format.

Workers count in shared memory, so that any worker answers for all of them. Gauges, such as the serving version, are
looked up when Prometheus scrapes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, Protocol

import msgspec
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from potstill.events import now
from potstill.service.counts import Count, Counts
from potstill.service.summary_metrics import SummaryGauges, metrics_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: Seconds: from a decision without a disk to one on a bad disk.
BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
#: Number of latest policy versions whose decisions are exposed; updates every ten minutes make 50,000 in a year.
VERSIONS = 50
_BOUNDS = [*map(floatToGoString, BUCKETS), "+Inf"]
_SECONDS, _SUM = "decide_seconds", "decide_seconds_sum"


class Counter(NamedTuple):
    """A counter: its meaning, and its labels besides the problem."""

    about: str
    labels: tuple[str, ...] = ()


COUNTERS = {
    "decisions": Counter("Decisions taken.", ("mode", "policy")),
    "experiment": Counter("Decisions in an experiment by arm; none: the request has no unit.", ("arm",)),
    "rewards": Counter("Rewards logged."),
    "observations": Counter("Decisions of devices logged."),
    "refused": Counter("Requests refused.", ("reason",)),
    "reloads": Counter("Reloads of policy, mode or experiment.", ("outcome",)),
}


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
        mode_fault: Whether the mode that was set last is unusable.
        pinned: Whether the serving version is pinned.
        paused: Whether updates are paused.
        unused: Numbers of rewards that joins could not use, by reason: ``late``, ``too_late``, ``orphan``.
        watermarks: How far each open log is behind, in seconds, by the id of the log and the name of its machine.
        clock_step: Seconds that this machine's clock was set ahead since its log was opened.
        damaged_files: Files of the lake that the scrub found damaged.
        summaries: What the summaries say; None if they cannot be read.
    """

    problem: str
    version: int | None
    lag_seconds: float
    mode_fault: bool = False
    pinned: bool = False
    paused: bool = False
    unused: Mapping[str, int] = {}
    watermarks: Mapping[tuple[str, str], float] = {}
    clock_step: float = 0.0
    damaged_files: int = 0
    summaries: SummaryGauges | None = None


class Series(NamedTuple):
    """What a count counts: a metric of a problem, with the values of its other labels."""

    metric: str
    problem: str
    labels: tuple[str, ...] = ()


class Metrics:
    """The metrics of a service: `of(problem)` records, `exposition` exposes.

    Args:
        gauges: Looks up the gauges of each problem; it may read files.
        counts: Where to count; in this process alone if left out.
    """

    def __init__(self, gauges: Callable[[], Iterable[ProblemGauges]] = tuple, counts: Counts | None = None) -> None:
        self._gauges, self._counts = gauges, counts or Counts()

    def of(self, problem: str) -> ProblemMetrics:
        """The recorder of a problem; ``""`` is for refusals of requests to no problem."""
        return ProblemMetrics(self._counts, problem)

    def exposition(self, problems: Collection[str]) -> bytes:
        """The text for Prometheus, of these problems only. It reads files, so run it in a thread."""
        gauges = [one for one in self._gauges() if one.problem in problems]
        totals = {_decode(key): value for key, value in self._counts.totals().items()}
        shown = _visible(totals, problems, {one.version for one in gauges})
        summaries = [(one.problem, one.summaries) for one in gauges if one.summaries is not None]
        metrics = [*_counter_metrics(shown), _histogram(shown), *_gauge_metrics(gauges), *metrics_of(summaries, now())]
        return generate_latest(_Collected(sorted(metrics, key=lambda metric: metric.name)))


class ProblemMetrics:
    """The recorder of one problem. Counts are looked up once, which makes it cheap enough for every request."""

    def __init__(self, counts: Counts, problem: str) -> None:
        self._counts, self._problem = counts, problem
        self._known: dict[tuple[object, ...], Count] = {}
        self.count_rewards: Callable[[float], None] = self._count("rewards").add
        self.count_observations: Callable[[float], None] = self._count("observations").add
        self._buckets = [self._count(_SECONDS, bound) for bound in _BOUNDS]
        self._sum = self._count(_SUM)

    def count_decisions(self, mode: str, policy: int, count: int = 1) -> None:
        """Count decisions by mode and policy version."""
        self._count("decisions", mode, policy).add(count)

    def count_arm(self, arm: str, count: int = 1) -> None:
        """Count decisions of an experiment by arm."""
        self._count("experiment", arm).add(count)

    def time_decide(self, seconds: float) -> None:
        """Record the latency of a request to decide."""
        self._buckets[bisect_left(BUCKETS, seconds)].add()
        self._sum.add(seconds)

    def count_refusal(self, reason: str) -> None:
        """Count a refused request."""
        self._count("refused", reason).add()

    def count_reload(self, outcome: str) -> None:
        """Count a reload."""
        self._count("reloads", outcome).add()

    def _count(self, metric: str, *labels: object) -> Count:
        try:
            return self._known[metric, *labels]
        except KeyError:
            key = msgspec.json.encode(Series(metric, self._problem, tuple(map(str, labels)))).decode()
            return self._known.setdefault((metric, *labels), self._counts.count(key))


def _decode(key: str) -> Series:
    return msgspec.json.decode(key, type=Series)


def _visible(
    totals: dict[Series, float], problems: Collection[str], serving: Collection[int | None]
) -> dict[Series, float]:
    """The counts of some problems, without decisions of versions of long ago."""
    versions = {int(series.labels[1]) for series in totals if series.metric == "decisions"}
    policies = {*map(str, sorted(versions)[-VERSIONS:]), *map(str, serving)}

    def shows(series: Series) -> bool:
        seen = series.problem in problems or (series.problem == "" and series.metric == "refused")
        return seen and (series.metric != "decisions" or series.labels[1] in policies)

    return {series: value for series, value in totals.items() if shows(series)}


def _counter_metrics(totals: dict[Series, float]) -> Iterator[Metric]:
    for name, counter in COUNTERS.items():
        family = CounterMetricFamily(f"potstill_{name}", counter.about, labels=["problem", *counter.labels])
        for series, value in totals.items():
            if series.metric == name:
                family.add_metric([series.problem, *series.labels], value)
        yield family


def _histogram(totals: dict[Series, float]) -> Metric:
    about = "Latency of requests to decide, the disk included."
    family = HistogramMetricFamily("potstill_decide_seconds", about, labels=["problem"])
    for problem in {series.problem: None for series in totals if series.metric == _SUM}:
        counts = [totals.get(Series(_SECONDS, problem, (bound,)), 0.0) for bound in _BOUNDS]
        buckets = list(zip(_BOUNDS, accumulate(counts), strict=True))
        family.add_metric([problem], buckets, totals[Series(_SUM, problem)])
    return family


class _Collected:
    """Metrics as a registry has them."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        """The metrics."""
        return self._metrics


def _gauge_metrics(gauges: Iterable[ProblemGauges]) -> Iterator[Metric]:
    version = GaugeMetricFamily("potstill_policy_version", "Version of the serving policy.", labels=["problem"])
    lag = GaugeMetricFamily(
        "potstill_log_lag_seconds",
        "Age of this machine's oldest event that is not in the lake.",
        labels=["problem"],
    )
    fault = GaugeMetricFamily("potstill_mode_fault", "1 while mode.json is unusable.", labels=["problem"])
    pinned = GaugeMetricFamily("potstill_pinned", "1 if the serving version is pinned.", labels=["problem"])
    paused = GaugeMetricFamily("potstill_paused", "1 if updates are paused.", labels=["problem"])
    unused = CounterMetricFamily(
        "potstill_rewards_unused",
        "Rewards that joins could not use: late (after their window), too_late (after their decision was joined), "
        "orphan (of no known decision).",
        labels=["problem", "reason"],
    )
    behind = GaugeMetricFamily(
        "potstill_watermark_lag_seconds",
        "How far an open log is behind: updates join only what all open logs have passed.",
        labels=["problem", "log", "host"],
    )
    step = GaugeMetricFamily(
        "potstill_clock_step_seconds",
        "Seconds that this machine's clock was set ahead since its log was opened; events do not follow it.",
        labels=["problem"],
    )
    damaged = GaugeMetricFamily(
        "potstill_lake_damaged_files", "Files of the lake that the background scrub found damaged.", labels=["problem"]
    )
    for one in gauges:
        damaged.add_metric([one.problem], one.damaged_files)
        for reason, count in one.unused.items():
            unused.add_metric([one.problem, reason], count)
        for log, seconds in one.watermarks.items():
            behind.add_metric([one.problem, *log], seconds)
        step.add_metric([one.problem], one.clock_step)
        lag.add_metric([one.problem], one.lag_seconds)
        fault.add_metric([one.problem], one.mode_fault)
        pinned.add_metric([one.problem], one.pinned)
        paused.add_metric([one.problem], one.paused)
        if one.version is not None:
            version.add_metric([one.problem], one.version)
    yield from (version, lag, fault, pinned, paused, unused, behind, step, damaged)
