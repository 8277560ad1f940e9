"""The files of a new workspace: an example problem, and a configuration with every option explained."""

from __future__ import annotations

import math

import numpy as np

from potstill.events import Event, LoggedDecision, LoggedReward, now
from potstill.policy import Policy
from potstill.workspace.workspace import Workspace

PROBLEM = """\
# The problem: features of a context, actions, and reward.
# This is an example: replace it before the first decision is logged. potstill actions adds, retires and removes actions
# later, while a service runs. After a change of the features run potstill update, which learns again from the
# observations that still fit, and restart the service. The reward may be changed at any time.

name = "video-upload"

# Features, known when a decision is made. A request without a value is refused, unless the feature states what a
# missing value means. A missing category counts as one that is not listed.
[[context]]
name = "bandwidth_kbps"
type = "numeric"  # scaled from low..high to 0..1 and clipped; scale = "log" for values over orders of magnitude
low = 50
high = 100_000
scale = "log"
# missing = "flag"  # may be missing: a column of its own says so; or a number to use instead, such as missing = 1_000

[[context]]
name = "connection"
type = "categorical"  # one-hot: a column for each value, and one for values that are not listed
values = ["2g", "3g", "4g", "wifi"]
# missing = "error"  # refuse a request without it

[[context]]
name = "hd_screen"
type = "boolean"
# missing = "flag"  # as above; or true or false to use instead

# Actions to choose from.
[actions]
type = "discrete"
names = ["360p", "480p", "720p", "1080p"]
# A number, such as a price, instead of a list (docs/numbers.md): replace the two lines above by
# type = "continuous"
# name = "price"
# low = 0.5
# high = 20
# scale = "log"  # for prices over orders of magnitude; "linear" by default

# Reward to maximise.
[reward]
window = "1h"  # how long after a decision a reward counts
default = 0.0  # reward of a decision without rewards in the window
low = 0.0  # rewards outside low..high are refused; leave both out for no bounds
high = 1.0
# kind = "yes/no"  # rewards are 0 and 1 and others are refused; also "count" (0, 1, 2, ...) and "number"
"""

CONFIG = """\
# Configuration of the workspace. Every option may be left out.
# A line that begins with # and no space is an option with its default: remove the # to change it.
# A line with # and a space is a comment, or an example of an option that is not set.

# The teacher: the posterior over rewards that policies imitate.
[teacher]
# auto-ts weighs linear, neural and tree models by how well each predicts; linear-ts is the fastest, and keeps only
# sums of the observations. If the action is a number, the default is continuous-linear-ts.
#type = "auto-ts"
# Learn only from the latest observations, for rewards that drift.
# window = 50_000
# Your own model (docs/teachers.md): type "program" with model "models.py:uploads", a NumPyro program in a file beside
# this one; or type "yourpackage:YourTeacher", a class of an installed package.
# What is known before the first observation (docs/teachers.md): the mean of a coefficient, and how many observations
# that is worth. The first policy then imitates this prior instead of being uniform. It needs type = "linear-ts".
# prior.360p.intercept = { mean = 0.4, precision = 20 }

# The student: the network that imitates the teacher. It sets the size and speed of the policy.
[student]
# Units of each hidden layer; [] is a linear softmax, the smallest and fastest.
# hidden = [100, 100]
# Choose layers and steps by held-out divergence from the teacher, in this time: the smallest that is good enough.
# auto = "30s"
# For requests with eligible: the network also takes which actions are not eligible, and is trained on random sets.
# masked = true

[policy]
# Seed of everything random; equal seeds on equal events make equal policies.
#seed = 0
# Smallest propensity of an action. Set one, such as 0.01, to evaluate other policies on the log later.
#floor = 0.0
# After an action was added to problem.toml, the last policy keeps serving, and this share of decisions is spread evenly
# over all actions until the next update.
#new_action_share = 0.1

[join]
# How several rewards of one decision are combined: first, last, sum, max or mean.
#aggregate = "last"
# How long to wait after a decision's window for rewards that are still in the log.
#settle = "1m"

[update]
# Table of further contexts to imitate on: CSV, Parquet or Delta Lake. They need no rewards.
# contexts = "contexts.parquet"
# The most contexts to sample from it.
#contexts_at_most = 100000
# Larger samples are streamed: labelled in shards on disk, in bounded memory (docs/scale.md).
#contexts_in_memory = 500000
# Number of latest versions whose labels are kept.
#labels_kept = 0
# An update with fewer new observations does nothing.
#min_observations = 100
# A policy with a larger held-out divergence from its teacher, in nats, does not serve.
#max_kl = 0.5
# A policy that is significantly worse than the serving one, by off-policy evaluation, does not serve. This is stricter:
# the lower end of the 95 % interval of the difference per decision must not be below minus this.
# max_loss = 0.02
# Number of latest versions whose teacher state is kept, so that updates resume from it. States are large.
#states_kept = 3

[log]
# Local folder for events that are not in the lake yet; events/log if the workspace is a folder.
# spool = "/var/lib/potstill/video-upload"
# A segment of the log is closed, and moved into the lake, at this size in bytes ...
#rotate_bytes = 33554432
# ... or at this age in seconds, whichever comes first.
#rotate_seconds = 10.0
# Updates wait for the events of all machines. A machine whose log does not report for this long is no longer waited
# for; "0s" waits until it is declared gone (potstill events logs).
#lease = "1d"

[serve]
# "online": the policy decides. "apprentice": the caller decides, the policy's propensity is logged. "log-only": always
# the fallback action.
#mode = "online"
# Action to answer with on a failure; without one, a failure is an error.
# fallback = "360p"
# Seconds between two looks for a new version.
#reload_seconds = 1.0
# How long the machine keeps its decisions on disk after they are in the lake, so that a repeated request gets the first
# answer also from another worker and after a restart.
#remember = "10m"

# A randomised experiment: is the policy better than control? Remove the # to start it, and the section to end it:
# the service follows within seconds. potstill experiment reports it.
# [experiment]
# Lower-case letters, digits and -. The name salts the assignment: another name assigns all units again.
# name = "hd-first"
# What the policy is compared with: a fixed action; { rules = "rules.toml" }, a file beside this one; or
# { policy = 3 }, a version that served before.
# control = { action = "360p" }
# Share of units that get the policy; the others get control. A larger share only moves units out of control.
# share = 0.5
# What is randomised: "unit", the field of requests, or the name of a feature.
# unit = "unit"
# Start of the experiment; at once if left out.
# start = 2026-11-16T00:00:00Z
# false: the teacher does not learn from control's decisions.
# train_on_control = true
# Metrics to report besides the reward; all if left out. Send them with rewards:
# {"reward": 1, "metrics": {"watched": 3.2}}.
# metrics = ["watched"]
"""

_TEACHER = '#type = "auto-ts"\n'


def config_text(teacher: str | None = None) -> str:
    """The configuration, with the name of a teacher if it is not to be the default one."""
    return CONFIG if teacher is None else CONFIG.replace(_TEACHER, f'type = "{teacher}"\n', 1)


UPLOADS = 2_000
DAY = 86_400
#: Reward of each quality, and the bandwidth in kbps at which half of the uploads succeed.
QUALITIES = {"360p": (0.4, 300), "480p": (0.6, 1_000), "720p": (0.8, 4_000), "1080p": (1.0, 12_000)}
#: Typical bandwidth of each connection, in kbps.
CONNECTIONS = {"2g": 150, "3g": 1_500, "4g": 9_000, "wifi": 30_000}
#: Share of uploads without a reward.
SILENT = 0.05


def log_example(workspace: Workspace, uploads: int = UPLOADS, seed: int = 0) -> int:
    """Log a simulated day of uploads whose rewards are all final; returns the number of events."""
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
