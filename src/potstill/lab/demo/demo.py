"""The demo: the whole loop on a simulated upload service, with baselines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.distill import Report, Still
from potstill.errors import LabError
from potstill.keys import Key
from potstill.lab.problems import Columns, Float64, VideoUpload, regrets
from potstill.policy import Policy
from potstill.problem import Observations
from potstill.teachers import AnyFiniteTeacher, LinearTS

Actions = NDArray[np.int64]
Float32 = NDArray[np.float32]

#: Compared algorithms, in display order. All get the same requests and reward noise.
ALGORITHMS = {
    "potstill": "Potstill",
    "thompson": "Thompson sampling",
    "uniform": "uniform",
    "best": "best possible",
}

#: Example upload; features that it lacks are missing values.
EXAMPLE: dict[str, Any] = {
    "up_kbps": 900,
    "connection": "3g",
    "country": "BR",
    "os": "android",
    "raw_kbps": 12000,
    "resolution": "1080p",
    "duration_s": 45,
    "file_mb": 68,
}


class Outcome(msgspec.Struct, frozen=True):
    """Outcome of one algorithm in one batch of N decisions.

    Attributes:
        actions: Positions of the chosen actions, int64[N].
        rewards: Observed rewards, float64[N].
        regrets: Expected reward lost against the best action, float64[N].
    """

    actions: Actions
    rewards: Float64
    regrets: Float64


class Timing(msgspec.Struct, frozen=True):
    """Timings, the only part of a batch that differs between runs with one seed.

    Attributes:
        decide_us: Median microseconds of ``policy.decide`` on one context.
        sample_us: Median microseconds of one decision by sampling from the posterior.
        update_s: Seconds to learn and distil the next policy.
    """

    decide_us: float
    sample_us: float
    update_s: float


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of the loop.

    Attributes:
        number: Number of the batch, from 1.
        decisions: Number of decisions up to the end of this batch.
        contexts: Contexts of the batch's requests.
        decided_by: Policy that took this batch's decisions.
        outcomes: Outcomes by algorithm, as named in `ALGORITHMS`.
        policy: Policy distilled after this batch.
        report: Fidelity report of that policy.
        timing: Timing of that policy.
    """

    number: int
    decisions: int
    contexts: Columns
    decided_by: Policy
    outcomes: dict[str, Outcome]
    policy: Policy
    report: Report
    timing: Timing


class Demo(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a run. Equal settings give equal results, apart from timings.

    Args:
        decisions: Total number of decisions.
        batch: Decisions between two updates.
        seed: Seed of all randomness.
    """

    decisions: int = 20_000
    batch: int = 1_000
    seed: int = 0

    def __post_init__(self) -> None:
        for field in ("decisions", "batch"):
            if getattr(self, field) < 1:
                raise LabError(f"{field} must be at least 1, got {getattr(self, field)}")
        if self.seed < 0:
            raise LabError(f"seed must be 0 or more, got {self.seed}")

    @property
    def sizes(self) -> list[int]:
        """Number of decisions in each batch; the last takes the remainder."""
        whole, rest = divmod(self.decisions, self.batch)
        return [self.batch] * whole + [rest] * (rest > 0)

    def run(self) -> Iterator[Batch]:
        """Play the batches, one after another."""
        teacher = LinearTS()
        still = Still(_WORLD.problem, teacher=teacher, seed=self.seed)
        rival = _Undistilled(teacher)
        first = 0
        for number, size in enumerate(self.sizes, start=1):
            requests = _Requests.draw(first, size, Key(self.seed).child("demo", number))
            yield _play(number, requests, still, rival)
            first += size


_WORLD = VideoUpload()
#: Contexts that each policy is distilled on. A constant is also faster: imitation is compiled for the size.
_POOL = 21_000


class _Requests(NamedTuple):
    """The requests of one batch, and the randomness that belongs to them."""

    first: int
    contexts: Columns
    encoded: Float32
    means: Float64
    key: Key

    @classmethod
    def draw(cls, first: int, size: int, key: Key) -> _Requests:
        contexts = _WORLD.contexts(size, key.child("contexts").generator())
        return cls(first, contexts, _WORLD.problem.encode_many(contexts), _WORLD.means(contexts), key)

    @property
    def ids(self) -> list[str]:
        return [f"upload-{self.first + i:06}" for i in range(len(self.encoded))]

    def outcome(self, actions: Actions) -> Outcome:
        """Outcome of actions; every call uses the same noise, so that only the actions differ."""
        rewards = _WORLD.rewards(self.contexts, actions, self.key.child("rewards").generator())
        return Outcome(actions, rewards, regrets(self.means, actions))

    def observed(self, outcome: Outcome, propensities: Float32) -> Observations:
        actions = outcome.actions.astype(np.int32)
        return Observations(_WORLD.problem, self.encoded, actions, outcome.rewards, propensities)


class _Undistilled:
    """Undistilled Thompson sampling: its own posterior, sampled for each decision."""

    def __init__(self, teacher: AnyFiniteTeacher) -> None:
        self.teacher = teacher
        self.state = teacher.init(_WORLD.problem)

    def choose(self, encoded: Float32, key: Key) -> Actions:
        actions: Actions = self.teacher.sample_actions(self.state, encoded, 1, key)[:, 0]
        return actions

    def learn(self, requests: _Requests, outcome: Outcome) -> None:
        key = requests.key.child("undistilled")
        p = self.teacher.propensities(self.state, requests.encoded, key)
        taken = p[np.arange(len(p)), outcome.actions]
        # A drawn action was possible, even if its probability is 0 in float32.
        propensities = np.maximum(taken, np.finfo(np.float32).tiny)
        self.state = self.teacher.update(self.state, requests.observed(outcome, propensities), key)


def _play(number: int, requests: _Requests, still: Still, rival: _Undistilled) -> Batch:
    decided_by = still.policy
    actions, propensities = decided_by.decide_many(requests.encoded, requests.ids)
    outcomes = {
        "potstill": requests.outcome(actions),
        "thompson": requests.outcome(rival.choose(requests.encoded, requests.key.child("sample"))),
        "uniform": requests.outcome(_at_random(requests)),
        "best": requests.outcome(requests.means.argmax(axis=1)),
    }
    rival.learn(requests, outcomes["thompson"])
    started = time.perf_counter()
    report = still.update(requests.observed(outcomes["potstill"], propensities), contexts=_unlabelled(requests))
    update_s = time.perf_counter() - started
    return Batch(
        number=number,
        decisions=requests.first + len(actions),
        contexts=requests.contexts,
        decided_by=decided_by,
        outcomes=outcomes,
        policy=still.policy,
        report=report,
        timing=_timing(requests, still.policy, rival, update_s),
    )


def _at_random(requests: _Requests) -> Actions:
    count, actions = requests.means.shape
    chosen: Actions = requests.key.child("uniform").generator().integers(actions, size=(count,))
    return chosen


def _unlabelled(requests: _Requests) -> Columns:
    """Contexts without rewards, which still show where decisions will be needed.

    They fill up the early batches, so that every policy is distilled on the same number of contexts.
    """
    size = len(requests.encoded)
    count = max(size, _POOL - (requests.first + size))
    return _WORLD.contexts(count, requests.key.child("unlabelled").generator())


def _timing(requests: _Requests, policy: Policy, rival: _Undistilled, update_s: float) -> Timing:
    """Time single decisions from a dict of raw values, as a server would take them."""
    count = min(len(requests.encoded), 200)
    rows = [{name: column[i].item() for name, column in requests.contexts.items()} for i in range(count)]
    key = requests.key.child("timing")
    return Timing(
        decide_us=_median_us(lambda row: policy.decide(row, id="timing"), rows),
        sample_us=_median_us(lambda row: rival.choose(_WORLD.problem.encode(row)[None], key), rows[:50]),
        update_s=update_s,
    )


def _median_us(call: Callable[[dict[str, Any]], object], rows: Sequence[dict[str, Any]]) -> float:
    nanoseconds = []
    for row in rows:
        started = time.perf_counter_ns()
        call(row)
        nanoseconds.append(time.perf_counter_ns() - started)
    return float(np.median(nanoseconds)) / 1000


def usage(policy: Path) -> str:
    """Three lines of Python that take a decision with a saved policy."""
    return (
        "import potstill as ps\n"
        f"policy = ps.Policy.load({str(policy)!r})\n"
        f"print(policy.decide({EXAMPLE!r}, id='upload-123'))"
    )
