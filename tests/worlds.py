"""A small simulated problem to log from: high quality is best for fast uploads, low quality for slow ones."""

import numpy as np

import potstill as ps
from potstill.events import LoggedDecision, LoggedReward
from potstill.keys import Key
from potstill.workspace import Workspace

HOUR = 3_600_000_000
#: Noon of some day, in microseconds since 1970.
NOON = 20_000 * 24 * HOUR + 12 * HOUR
#: A time at which every decision of `log` is final.
LATER = NOON + 3 * HOUR

#: Settings without a teacher, to which tests add one.
SETTINGS = b"""
[student]
hidden = [16]
steps = 200
[update]
min_observations = 50
"""
#: The fastest teacher, for tests that are not about it.
CONFIG = b'[teacher]\ntype = "linear-ts"\n' + SETTINGS

PROBLEM = b"""
name = "video-upload"
[[context]]
type = "numeric"
name = "bandwidth_kbps"
low = 0
high = 100_000
[[context]]
type = "categorical"
name = "connection"
values = ["2g", "4g", "wifi"]
[actions]
type = "discrete"
names = ["360p", "720p", "1080p"]
[reward]
default = 0.0
window = "1h"
"""


def made(place: str, config: bytes = CONFIG, problem: bytes = PROBLEM) -> Workspace:
    return Workspace.create(place, problem, config)


def contexts(n: int, seed: int = 0) -> list[dict[str, object]]:
    rng = Key(seed).generator()
    speeds, kinds = rng.random(n) * 100_000, rng.choice(["2g", "4g", "wifi", "satellite"], n)
    return [{"bandwidth_kbps": float(s), "connection": str(k)} for s, k in zip(speeds, kinds, strict=True)]


def reward(context: dict[str, object], action: str) -> float:
    wanted = int(context["bandwidth_kbps"] // 33_334)  # type: ignore[operator]
    return 1.0 - 0.5 * abs(("360p", "720p", "1080p", "4k").index(action) - wanted)


def log(
    workspace: Workspace,
    policy: ps.Policy,
    n: int,
    *,
    seed: int = 0,
    at: int = NOON,
    rewarded: float = 0.8,
    yes_no: bool = False,
) -> None:
    """Decide n times with a policy, and log decisions and most rewards; with `yes_no` they are 0 or 1."""
    rng = Key(seed).child("rewarded").generator()
    events = []
    for i, context in enumerate(contexts(n, seed)):
        decision = policy.decide(context, id=f"upload-{seed}-{i}")
        events.append(LoggedDecision.of(decision, context, time=at + i * 1000))
        if rng.random() < rewarded:
            mean = reward(context, decision.action)
            value = float(rng.random() < mean) if yes_no else mean + 0.1 * float(rng.standard_normal())
            events.append(LoggedReward(id=decision.id, reward=value, time=at + i * 1000 + 60_000_000))
    with workspace.event_log() as opened:
        opened.append(*events)


def rate(policy: ps.Policy, n: int = 500) -> float:
    """The mean reward of a policy."""
    rows = contexts(n, seed=99)
    p = policy.probabilities_many(rows)
    rewards = np.array([[reward(row, action) for action in policy.problem.actions.names] for row in rows])
    return float((p * rewards).sum(axis=1).mean())
