"""Video upload: at which quality a phone should transcode a video before sending it (the paper's main example)."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.lab.problems.environment import Columns, Float32, Float64
from potstill.problem import Boolean, Categorical, Discrete, Numeric, Problem, Reward

#: Bitrate of each action, in ascending order of quality.
BITRATES = {
    "240p@400k": 400,
    "360p@700k": 700,
    "480p@1200k": 1200,
    "540p@2000k": 2000,
    "720p@3200k": 3200,
    "1080p@5000k": 5000,
    "1080p@8000k": 8000,
}
_KBPS = np.array(list(BITRATES.values()), np.float64)


class _Country(NamedTuple):
    share: float
    speed: float  # bandwidth relative to the connection's median
    memory: float  # median memory of a phone, GB
    connections: tuple[float, ...]  # shares of 2g, 3g, 4g, 5g, wifi, and connections the problem does not list


class _Connection(NamedTuple):
    up_kbps: float  # median
    spread: float  # standard deviation of its logarithm
    rtt_ms: float  # median
    loss: float  # mean share of packets


class _Resolution(NamedTuple):
    share: float
    kbps: float  # median bitrate at 30 frames per second


_COUNTRIES = {
    "BR": _Country(0.16, 0.8, 4, (0.02, 0.12, 0.38, 0.08, 0.39, 0.01)),
    "DE": _Country(0.09, 1.3, 6, (0.01, 0.03, 0.24, 0.18, 0.52, 0.02)),
    "ID": _Country(0.15, 0.6, 3, (0.05, 0.18, 0.49, 0.03, 0.24, 0.01)),
    "IN": _Country(0.24, 0.5, 3, (0.09, 0.19, 0.45, 0.06, 0.20, 0.01)),
    "JP": _Country(0.08, 1.6, 8, (0.00, 0.02, 0.23, 0.21, 0.52, 0.02)),
    "NG": _Country(0.09, 0.35, 2, (0.22, 0.36, 0.28, 0.01, 0.12, 0.01)),
    "US": _Country(0.14, 1.2, 6, (0.00, 0.03, 0.25, 0.23, 0.46, 0.03)),
    "FR": _Country(0.02, 1.2, 6, (0.01, 0.03, 0.27, 0.17, 0.50, 0.02)),
    "KE": _Country(0.02, 0.4, 3, (0.16, 0.33, 0.33, 0.02, 0.15, 0.01)),
    "MX": _Country(0.01, 0.7, 4, (0.03, 0.13, 0.40, 0.06, 0.37, 0.01)),
}
_CONNECTIONS = {
    "2g": _Connection(130, 0.45, 480, 0.030),
    "3g": _Connection(1100, 0.60, 160, 0.015),
    "4g": _Connection(6000, 0.75, 55, 0.007),
    "5g": _Connection(26000, 0.75, 25, 0.004),
    "wifi": _Connection(13000, 0.95, 20, 0.005),
    "ethernet": _Connection(45000, 0.70, 8, 0.001),
}
_RESOLUTIONS = {
    "360p": _Resolution(0.06, 900),
    "480p": _Resolution(0.12, 1900),
    "720p": _Resolution(0.30, 5500),
    "1080p": _Resolution(0.44, 13000),
    "2160p": _Resolution(0.07, 38000),
    "4320p": _Resolution(0.01, 80000),
}
_OS = {"android": 0.71, "ios": 0.28, "other": 0.01}

# A live service gets values that its problem does not list; their column has to be learnt like any other.
_UNLISTED = {"FR", "KE", "MX", "ethernet", "4320p", "other"}


def _listed(table: dict[str, Any]) -> tuple[str, ...]:
    return tuple(name for name in table if name not in _UNLISTED)


_PROBLEM = Problem(
    name="video-upload",
    context=(
        Numeric("raw_kbps", low=300, high=100_000, scale="log"),
        Categorical("resolution", _listed(_RESOLUTIONS)),
        Numeric("duration_s", low=2, high=900, scale="log"),
        Numeric("file_mb", low=0.2, high=4_000, scale="log", missing=40),
        Numeric("fps", low=15, high=60, missing=30),
        Categorical("connection", _listed(_CONNECTIONS)),
        Numeric("up_kbps", low=30, high=150_000, scale="log"),
        Numeric("down_kbps", low=100, high=600_000, scale="log", missing=20_000),
        Numeric("rtt_ms", low=3, high=1_500, scale="log", missing=50),
        Numeric("loss", low=0, high=0.1, missing=0.005),
        Boolean("metered", missing=False),
        Categorical("country", _listed(_COUNTRIES)),
        Categorical("os", _listed(_OS)),
        Numeric("memory_gb", low=1, high=16, scale="log", missing=4),
        Numeric("battery", low=0, high=1, missing=0.6),
        Boolean("charging", missing=False),
        Numeric("hour", low=0, high=24, missing=14),
        Numeric("retries", low=0, high=4, missing=0),
        Boolean("foreground", missing=True),
    ),
    actions=Discrete(tuple(BITRATES)),
    reward=Reward(default=0.0, window="1h", low=0.0, high=1.0),
)


class VideoUpload(msgspec.Struct, frozen=True):
    """A simulated upload service: 38 encoded columns that describe video, network and device; seven qualities.

    Contexts. Country and hour are drawn first. The country sets the shares of the connection types, a factor on
    bandwidth, and the memory of phones. The connection sets the medians of upload bandwidth, round trip and packet
    loss. A phone with more memory films at a higher resolution; resolution and frame rate set the filmed bitrate.
    Bandwidths, bitrates, sizes and durations are log-normal around those medians.

    Rewards. The video is sent at the action's bitrate, which takes

        transfer time = bitrate · duration / effective bandwidth,

    where the effective bandwidth is `up_kbps` reduced by packet loss and by evening congestion. The sender waits about
    12 s · duration^0.6, longer when charging, less when the battery is low, the app is in the background or earlier
    tries failed. The upload succeeds with probability

        0.98 · σ(2.5 · ln(patience / transfer time)),

    and then earns ln(1 + b/300) / ln(1 + 8000/300), where b is the smaller of the action's and the filmed bitrate: bits
    beyond the filmed bitrate cost time and add no quality. A failed upload earns 0. The best action therefore rises
    with bandwidth, falls with duration, and is never much above the filmed bitrate.
    """

    @property
    def problem(self) -> Problem:
        """Nineteen features in 38 columns, seven actions."""
        return _PROBLEM

    def contexts(self, n: int, rng: np.random.Generator) -> Columns:
        """Contexts of n upload requests, as columns of raw values."""
        place = _places(n, rng)
        network = _networks(place, rng)
        phone = _phones(place, rng)
        return {**_videos(phone["memory_gb"], rng), **network, **place, **phone}

    def encode(self, contexts: Columns) -> Float32:
        """Contexts as the problem encodes them, float32[N, 38]."""
        return _PROBLEM.encode_many(contexts)

    def means(self, contexts: Columns) -> Float64:
        """The expected reward of each action, float64[N, 7]."""
        return self.success(contexts) * _quality(contexts)

    def rewards(self, contexts: Columns, actions: NDArray[np.integer[Any]], rng: np.random.Generator) -> Float64:
        """The quality of each upload that succeeds, 0 for those that fail, float64[N]."""
        rows = np.arange(len(actions))
        arrived = rng.random(len(actions)) < self.success(contexts)[rows, actions]
        return np.where(arrived, _quality(contexts)[rows, actions], 0.0)

    def success(self, contexts: Columns) -> Float64:
        """Probability that an upload at each quality succeeds, float64[N, 7]."""
        transfer = _KBPS * (contexts["duration_s"] / _effective_kbps(contexts))[:, None]
        ratio = _patience_s(contexts)[:, None] / transfer
        success: Float64 = 0.98 / (1 + ratio**-2.5)
        return success


def _quality(contexts: Columns) -> Float64:
    kbps = np.minimum(_KBPS, contexts["raw_kbps"][:, None])
    quality: Float64 = np.log1p(kbps / 300) / np.log1p(_KBPS[-1] / 300)
    return quality


def _effective_kbps(contexts: Columns) -> Float64:
    crowd = 0.25 * np.exp(-(((contexts["hour"] - 20) / 3) ** 2))
    kbps: Float64 = contexts["up_kbps"] * (1 - 5 * contexts["loss"]) * (1 - crowd)
    return kbps


def _patience_s(contexts: Columns) -> Float64:
    battery = np.where(contexts["charging"], 1.15, np.where(contexts["battery"] < 0.2, 0.8, 1.0))
    attention = np.where(contexts["foreground"], 1.0, 0.7) * 0.85 ** contexts["retries"]
    patience: Float64 = 12 * contexts["duration_s"] ** 0.6 * battery * attention
    return patience


def _places(n: int, rng: np.random.Generator) -> Columns:
    shares = [country.share for country in _COUNTRIES.values()]
    country = rng.choice(list(_COUNTRIES), size=n, p=shares)
    # Most uploads are in the afternoon and evening.
    return {"country": country, "hour": rng.normal(16, 5, n) % 24}


def _networks(place: Columns, rng: np.random.Generator) -> Columns:
    n = len(place["country"])
    shares = _by(place["country"], {name: c.connections for name, c in _COUNTRIES.items()})
    position = (shares.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)
    connection = np.array(list(_CONNECTIONS))[np.minimum(position, len(_CONNECTIONS) - 1)]
    median, spread, rtt, loss = _by(connection, _CONNECTIONS).T
    up = median * _by(place["country"], {name: c.speed for name, c in _COUNTRIES.items()}) * _around_one(spread, rng)
    return {
        "connection": connection,
        "up_kbps": up,
        "down_kbps": 4 * up * _around_one(np.full(n, 0.5), rng),
        "rtt_ms": rtt * _around_one(np.full(n, 0.4), rng),
        "loss": np.minimum(loss * rng.exponential(size=n), 0.1),
        "metered": (connection != "wifi") & (connection != "ethernet") & (rng.random(n) < 0.8),
    }


def _phones(place: Columns, rng: np.random.Generator) -> Columns:
    n = len(place["country"])
    memory = _by(place["country"], {name: c.memory for name, c in _COUNTRIES.items()})
    return {
        "os": rng.choice(list(_OS), size=n, p=list(_OS.values())),
        "memory_gb": np.clip(memory * _around_one(np.full(n, 0.4), rng), 1, 16),
        "battery": rng.beta(2.2, 1.4, n),
        "charging": rng.random(n) < 0.22,
        "retries": np.minimum(rng.geometric(0.85, n) - 1, 4),
        "foreground": rng.random(n) < 0.9,
    }


def _videos(memory_gb: Float64, rng: np.random.Generator) -> Columns:
    n = len(memory_gb)
    # The rank of a video is drawn around that of its phone, so that better phones film at higher resolutions.
    rank = np.clip(rng.random(n) + 0.12 * np.log2(memory_gb / 4), 0, 1)
    limits = np.cumsum([resolution.share for resolution in _RESOLUTIONS.values()])[:-1]
    resolution = np.array(list(_RESOLUTIONS))[np.searchsorted(limits, rank)]
    fps = rng.choice([24.0, 30.0, 60.0], size=n, p=[0.12, 0.7, 0.18])
    kbps = _by(resolution, {name: r.kbps for name, r in _RESOLUTIONS.items()})
    raw_kbps = kbps * (fps / 30) ** 0.6 * _around_one(np.full(n, 0.35), rng)
    duration = np.clip(32 * _around_one(np.full(n, 1.0), rng), 2, 900)
    return {
        "raw_kbps": raw_kbps,
        "resolution": resolution,
        "duration_s": duration,
        "file_mb": raw_kbps * duration / 8000,
        "fps": fps,
    }


def _by(names: NDArray[np.str_], table: dict[str, Any]) -> Float64:
    """The table's rows for an array of its names."""
    known, position = np.unique(names, return_inverse=True)
    rows: Float64 = np.array([table[str(name)] for name in known], np.float64)[position]
    return rows


def _around_one(spread: Float64, rng: np.random.Generator) -> Float64:
    """Log-normal factors with median 1."""
    factors: Float64 = np.exp(spread * rng.standard_normal(len(spread)))
    return factors
