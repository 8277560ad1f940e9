"""The two files of a new workspace: an example problem, and a configuration in which every line is explained."""

from __future__ import annotations

import math

import numpy as np

from potstill.events import Event, LoggedDecision, LoggedReward, now
from potstill.policy import Policy
from potstill.workspace.workspace import Workspace

PROBLEM = """\
# What is decided: the features of a context, the actions, and the reward.
# This is an example. Make it yours before the first decision is logged: later changes to features or actions make a new
# problem, for which learning starts afresh. Rewards may be changed at any time.

name = "video-upload"

# What is known when a decision is made, in this order. A feature that may be absent says so with missing = "flag".
[[context]]
name = "bandwidth_kbps"
type = "numeric"  # scaled from low..high to 0..1, and clipped; scale = "log" for what spans orders of magnitude
low = 50
high = 100_000
scale = "log"

[[context]]
name = "connection"
type = "categorical"  # one column for each value, and one for values that are not listed
values = ["2g", "3g", "4g", "wifi"]

[[context]]
name = "hd_screen"
type = "boolean"

# What can be done.
[actions]
type = "discrete"
names = ["360p", "480p", "720p", "1080p"]

# What is wanted: as much of it as possible.
[reward]
window = "1h"  # how long after a decision a reward still counts
default = 0.0  # the reward of a decision for which none came in time
low = 0.0  # rewards outside low..high are refused as mistakes; leave both out if there are no bounds
high = 1.0
"""

CONFIG = """\
# How this workspace learns. Every line may be left out.
# A line that begins with # and no space is an option at its default: take the # away to change it.
# A line with # and a space is a remark, or an example of an option that is not set.

# The posterior over rewards that policies imitate.
[teacher]
# linear-ts is exact and fast; neural-linear-ts learns features of its own; adaptive-ts learns its own prior.
type = "linear-ts"
# The weight of everything learnt before, at each update; below 1 forgets, for worlds that drift.
# discount = 0.99

# The network that imitates it, and so the size and speed of the policy.
[student]
# Units of each hidden layer; [] is a linear softmax, the smallest and fastest.
# hidden = [100, 100]

[policy]
# Of everything random; equal seeds on equal events make equal policies.
#seed = 0
# The smallest propensity of an action. Set one, such as 0.01, to evaluate other policies on the log later.
#floor = 0.0

[join]
# What several rewards of one decision come to: first, last, sum, max or mean.
#aggregate = "last"
# How long after a decision's window to wait for rewards that are still on their way to the lake.
#settle = "1m"

[update]
# A table of further contexts to imitate on: CSV, Parquet or Delta Lake. They need no rewards, so they are cheap.
# contexts = "contexts.parquet"
# How many of them to draw.
#contexts_at_most = 100000
# More than these are streamed: labelled in shards on disk, in bounded memory (docs/scale.md).
#contexts_in_memory = 500000
# Of how many of the latest versions to keep those labels.
#labels_kept = 0
# Fewer new observations than this, and an update leaves things as they are.
#min_observations = 100
# A policy further than this from its teacher is not served: held-out divergence in nats.
#max_kl = 0.5
# A policy that earns less than the serving one, by what was logged, is not served. This asks for more: the lower end of
# the 95 % interval of the difference, per decision, must not be below minus this.
# max_loss = 0.02
# Teachers' states are large; those of this many of the latest versions are kept, so that updates go on from them.
#states_kept = 3

[log]
# The local folder for events that are not in the lake yet; events/log if the workspace is a folder.
# spool = "/var/lib/potstill/video-upload"
# A segment of the log is closed, and can go into the lake, at this size in bytes...
#rotate_bytes = 33554432
# ... or at this age in seconds, whichever comes first.
#rotate_seconds = 10.0

[serve]
# Who decides: "online", the policy; "apprentice", the caller, and the policy is only asked; "log-only", nobody.
#mode = "online"
# The action to answer with when something is wrong, so that your product always gets an answer; without one, an error.
# fallback = "360p"
# How often to look for a new version, in seconds.
#reload_seconds = 1.0

# A randomised experiment: is the policy better than what you would do without it? Take the # away, and the service
# follows within seconds, and so it does when you take the section out again. Look with potstill experiment.
# [experiment]
# Part of what decides who is in which arm: small letters, digits and -. Another name deals all units anew.
# name = "hd-first"
# What the policy is compared with: one action; { rules = "rules.toml" }, a file beside this one; or
# { policy = 3 }, a version that served before.
# control = { action = "360p" }
# Of the units, those that get the policy; the others get control. A larger share only moves units out of control.
# share = 0.5
# Who stays in one arm: "unit", what requests state under that name; or the name of a feature.
# unit = "unit"
# Before this moment there is no experiment.
# start = 2026-11-16T00:00:00Z
# false keeps what control did out of what the teacher learns.
# train_on_control = true
# Outcomes to report besides the reward; all if left out. Send them with rewards:
# {"reward": 1, "metrics": {"watched": 3.2}}.
# metrics = ["watched"]
"""


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
