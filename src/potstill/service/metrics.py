"""What the service counts and measures, as Prometheus text.

Workers count in files that they share, so that whichever is asked answers for all of them. What can be looked up when
somebody asks, such as the version that serves, is not counted.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest, values
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.samples import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
#: In seconds: from a decision that waits for no disk to one that waits for a bad one.
BUCKETS = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
#: Of how many policy versions decisions are shown apart; a service that learns every ten minutes has many in a year.
VERSIONS = 50
_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
_Labelled = Callable[..., Counter]


class Counting(Protocol):
    """Is told of what happens; see `metrics.ProblemMetrics`."""

    def decided(self, mode: str, policy: int, count: int = 1) -> None:
        """Decisions were taken."""

    def assigned(self, arm: str, count: int = 1) -> None:
        """Decisions were taken in an experiment: ``control``, ``treatment``, or ``none`` for want of a unit."""

    def rewarded(self, count: float) -> None:
        """Rewards were taken up."""

    def observed(self, count: float) -> None:
        """Decisions of devices were taken up."""

    def took(self, seconds: float) -> None:
        """A request to decide was answered."""

    def refused(self, reason: str) -> None:
        """A request was refused."""

    def reloaded(self, outcome: str) -> None:
        """Another policy, mode or experiment was found."""


class Uncounted:
    """Counts nothing."""

    def _pass(self, *_: object) -> None:
        return

    decided = assigned = rewarded = observed = took = refused = reloaded = _pass


class Standing(NamedTuple):
    """How a problem stands when somebody asks.

    Attributes:
        problem: its name.
        version: of the policy that serves; None if there is none.
        lag_seconds: the age of the oldest event of this machine that is not in the lake; 0 if all are.
    """

    problem: str
    version: int | None
    lag_seconds: float


def share(folder: Path, worker: int) -> None:
    """Count together with the other workers from here on; to be called before the first `Metrics` is made.

    Args:
        folder: of this service, empty when it starts.
        worker: the number of this worker. One that takes the place of a dead one counts on from where that was.
    """
    os.environ[_FOLDER] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: worker)  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of a service. `of(problem)` counts; `exposition` tells.

    Args:
        standings: looks up how each problem stands; it may read files.
    """

    def __init__(self, standings: Callable[[], Iterable[Standing]] = tuple) -> None:
        self._standings = standings
        self._registry = CollectorRegistry()
        self._decisions = self._counter("decisions", "Decisions taken.", "mode", "policy")
        self._arms = self._counter(
            "experiment", "Decisions taken in an experiment; none: the request names no unit.", "arm"
        )
        self._rewards = self._counter("rewards", "Rewards taken up.")
        self._observations = self._counter("observations", "Decisions of devices taken up.")
        self._refusals = self._counter("refused", "Requests refused.", "reason")
        self._reloads = self._counter("reloads", "Attempts to take up another policy, mode or experiment.", "outcome")
        self._seconds = Histogram(
            "potstill_decide_seconds",
            "From a request to decide to its reply, the disk included.",
            ["problem"],
            buckets=BUCKETS,
            registry=self._registry,
        )

    def of(self, problem: str) -> ProblemMetrics:
        """The counters of a problem; of ``""``, refusals of requests that belong to none are shown."""
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
        """The text for Prometheus, of these problems only. Reads files: give it a thread."""
        standings = [standing for standing in self._standings() if standing.problem in problems]
        return generate_latest(_Shown([*self._collected(), *_gauges(standings)], problems, standings))

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(f"potstill_{name}", documentation, ["problem", *labels], registry=self._registry)

    def _collected(self) -> Iterable[Metric]:
        if _FOLDER not in os.environ:
            return self._registry.collect()
        collector = MultiProcessCollector(None)  # type: ignore[no-untyped-call]
        try:
            return collector.collect()  # type: ignore[no-any-return,no-untyped-call]
        except struct.error:  # a worker has just made its file, and not got to its first bytes
            time.sleep(0.01)
            return collector.collect()  # type: ignore[no-any-return,no-untyped-call]


class ProblemMetrics:
    """The counters of one problem. Cheap enough for every request: series are looked up once."""

    def __init__(
        self,
        decisions: _Labelled,
        arms: _Labelled,
        rewards: Counter,
        observations: Counter,
        refusals: _Labelled,
        reloads: _Labelled,
        seconds: Histogram,
    ) -> None:
        self._decisions, self._arms, self._refusals, self._reloads = decisions, arms, refusals, reloads
        #: `rewarded(n)`: rewards were taken up.
        self.rewarded: Callable[[float], None] = rewards.inc
        #: `observed(n)`: decisions of devices were taken up.
        self.observed: Callable[[float], None] = observations.inc
        #: `took(seconds)`: a request to decide, single or batch, was answered.
        self.took: Callable[[float], None] = seconds.observe

    def decided(self, mode: str, policy: int, count: int = 1) -> None:
        """Decisions were taken by a version of the policy."""
        self._decisions(mode, policy).inc(count)

    def assigned(self, arm: str, count: int = 1) -> None:
        """Decisions were taken in an experiment: ``control``, ``treatment``, or ``none`` for want of a unit."""
        self._arms(arm).inc(count)

    def refused(self, reason: str) -> None:
        """A request was refused; reasons are few and fixed, such as ``unfit`` or ``token``."""
        self._refusals(reason).inc()

    def reloaded(self, outcome: str) -> None:
        """Something else was taken up (``swapped``), or had to be left (``refused``, ``unavailable``)."""
        self._reloads(outcome).inc()


def _labelled(counter: Counter, problem: str) -> _Labelled:
    """A counter's series by its other labels: a look-up in a dictionary where `Counter.labels` takes a lock."""
    known: dict[tuple[object, ...], Counter] = {}

    def series(*labels: object) -> Counter:
        try:
            return known[labels]
        except KeyError:
            return known.setdefault(labels, counter.labels(problem, *labels))

    return series


class _Shown:
    """Of what was collected, that which is to be seen."""

    def __init__(self, metrics: Sequence[Metric], problems: Collection[str], standings: Sequence[Standing]) -> None:
        self._metrics, self._problems = metrics, problems
        versions = {int(version) for metric in metrics for version in _labels(metric, "policy")}
        shown = {*sorted(versions)[-VERSIONS:], *(standing.version for standing in standings)}
        self._policies = {None, *map(str, shown)}

    def collect(self) -> Iterator[Metric]:
        """The metrics, without times of creation, which only some collectors know."""
        for metric in sorted(self._metrics, key=lambda metric: metric.name):
            metric.samples = [sample for sample in metric.samples if self._shows(sample)]
            yield metric

    def _shows(self, sample: Sample) -> bool:
        problem, policy = sample.labels["problem"], sample.labels.get("policy")
        seen = problem in self._problems or (problem == "" and sample.name == "potstill_refused_total")
        return seen and policy in self._policies and not sample.name.endswith("_created")


def _labels(metric: Metric, label: str) -> set[str]:
    return {sample.labels[label] for sample in metric.samples if label in sample.labels}


def _gauges(standings: Iterable[Standing]) -> Iterator[Metric]:
    version = GaugeMetricFamily("potstill_policy_version", "The version that serves.", labels=["problem"])
    lag = GaugeMetricFamily(
        "potstill_log_lag_seconds",
        "The age of the oldest event of this machine that is not in the lake.",
        labels=["problem"],
    )
    for standing in standings:
        lag.add_metric([standing.problem], standing.lag_seconds)
        if standing.version is not None:
            version.add_metric([standing.problem], standing.version)
    yield version
    yield lag
