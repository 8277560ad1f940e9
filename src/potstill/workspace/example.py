"""A made-up day of uploads for the example problem, so that a newcomer has something to update on."""

from __future__ import annotations

import math

import numpy as np

from potstill.events import Event, LoggedDecision, LoggedReward, now
from potstill.policy import Policy
from potstill.workspace.workspace import Workspace

UPLOADS = 2_000
DAY = 86_400
#: What each quality is worth, and the bandwidth in kbps at which half of the uploads succeed.
QUALITIES = {"360p": (0.4, 300), "480p": (0.6, 1_000), "720p": (0.8, 4_000), "1080p": (1.0, 12_000)}
#: Typical bandwidth of each connection, in kbps.
CONNECTIONS = {"2g": 150, "3g": 1_500, "4g": 9_000, "wifi": 30_000}
#: Of the uploads, those of which nothing is heard again.
SILENT = 0.05


def log_example(workspace: Workspace, uploads: int = UPLOADS, seed: int = 0) -> int:
    """Log uploads of a day whose last rewards have just become final; how many events that makes."""
    policy, rng = workspace.start(), np.random.default_rng(seed)
    window = workspace.problem.reward.window_seconds
    end = now() - 1_000_000 * (window + workspace.config.join.settle_seconds + 1)
    times = end - np.sort(rng.integers(DAY * 1_000_000, size=uploads))[::-1]
    events = [event for i, time in enumerate(times.tolist()) for event in _upload(policy, i, time, rng)]
    with workspace.event_log() as log:
        log.append(*events)
    return len(events)


def _upload(policy: Policy, i: int, time: int, rng: np.random.Generator) -> list[Event]:
    connection = str(rng.choice(list(CONNECTIONS)))
    bandwidth, hd = round(CONNECTIONS[connection] * math.exp(rng.normal())), bool(rng.random() < 0.5)
    context = {"bandwidth_kbps": bandwidth, "connection": connection, "hd_screen": hd}
    decision = policy.decide(context, id=f"example-{i}")
    events: list[Event] = [LoggedDecision.of(decision, context, time)]
    if rng.random() >= SILENT:
        worth, needed = QUALITIES[decision.action]
        seen = worth if hd else min(worth, 0.8)
        reward = seen if rng.random() < bandwidth / (bandwidth + needed) else 0.0
        events.append(LoggedReward(id=decision.id, reward=reward, time=time + int(rng.integers(600_000_000))))
    return events
