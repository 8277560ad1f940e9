"""A grey-box model of video upload: known physics as a formula, unknown constants as parameters to learn.

Known: the bitrate of each action, the bandwidth and duration of a request, and the reward of a successful upload.
Unknown: how long people wait, and how sharply they give up.

    teacher = ProgramTS(upload)
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist

from potstill.lab.problems import BITRATES, VideoUpload
from potstill.problem import Numeric

_PROBLEM = VideoUpload().problem
_KBPS = np.array(list(BITRATES.values()), np.float32)
#: Features that may change how long people wait, besides the video itself.
_MOODS = np.array([_PROBLEM.labels.index(name) for name in ("loss", "battery", "charging", "retries", "foreground")])


def upload(contexts: Any, actions: Any, rewards: Any = None) -> Any:
    """Success is a logistic curve in ln(patience / transfer time); a successful upload earns its quality.

    Transfer time is bitrate · duration / bandwidth; patience is a power of the duration times a factor of the features.

    Args:
        contexts: Contexts encoded by the problem of `VideoUpload`, float32[N, 38].
        actions: Positions in its action list, int32[N].
        rewards: Rewards, float32[N]; 0 for a failed upload.
    """
    steepness = numpyro.sample("steepness", dist.LogNormal(0.7, 0.5))
    patience = numpyro.sample("patience", dist.Normal(3.0, 1.5))  # ln seconds, for a video of one second
    growth = numpyro.sample("growth", dist.Normal(0.5, 0.3))  # exponent of duration in patience
    moods = numpyro.sample("moods", dist.Normal(0.0, 0.5).expand([len(_MOODS)]))
    reliability = numpyro.sample("reliability", dist.Beta(20.0, 1.0))  # success rate if nobody gives up

    duration = _log(contexts, "duration_s")
    transfer = jnp.log(_KBPS)[actions] + duration - _log(contexts, "up_kbps")
    waits = patience + growth * duration + contexts[:, _MOODS] @ moods
    success = reliability * jax.nn.sigmoid(steepness * (waits - transfer))
    arrived = None if rewards is None else rewards > 0
    numpyro.sample("arrived", dist.Bernoulli(success), obs=arrived)
    return success * quality(contexts, actions)


def quality(contexts: Any, actions: Any) -> Any:
    """Reward of an upload if it succeeds, [N]; bits beyond the filmed bitrate add nothing."""
    kbps = jnp.minimum(jnp.asarray(_KBPS)[actions], jnp.exp(_log(contexts, "raw_kbps")))
    return jnp.log1p(kbps / 300) / jnp.log1p(_KBPS[-1] / 300)


def _log(contexts: Any, name: str) -> Any:
    """The logarithm of a feature on a log scale, from its encoded column."""
    (feature,) = (f for f in _PROBLEM.context if f.name == name)
    assert isinstance(feature, Numeric)
    assert feature.scale == "log"
    origin, span = feature.unit
    return origin + span * contexts[:, _PROBLEM.labels.index(name)]
