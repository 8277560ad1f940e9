"""Exact labels compared with labels from posterior draws: time, accuracy and growth.

    python benchmarks/labels.py --contexts 50000 --actions 20

The draws are optimised NumPy (float32, a fast generator, chunks that fit the cache, the same number of threads as the
quadrature). They are timed on a sample of contexts, whose size is printed, and scaled up. Ratios are of processor time,
which other work on the machine distorts less than the wall clock.
"""

import argparse
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy.special import beta, stdtr, stdtrit

from potstill.teachers.probability_best import probability_best

THREADS = os.cpu_count() or 1
FEATURES = 10
DRAWS = 2048
CHUNK = 16  # contexts whose draws for one action stay in cache


@dataclass
class Posterior:
    """A LinearTS posterior: weights of action a are Student-t with mean[a], root[a] @ root[a].T and dof[a]."""

    mean: np.ndarray  # [K, d]
    root: np.ndarray  # [K, d, d]
    dof: np.ndarray  # [K]

    @classmethod
    def learned(cls, actions: int, rng: np.random.Generator) -> "Posterior":
        """From 10 to 5,000 observations of each action, as for a bandit that already prefers some actions."""
        parts = []
        for count in np.geomspace(10, 5000, actions).astype(int):
            X = contexts(count, rng)
            reward = X @ rng.normal(0, 0.3, FEATURES) + rng.normal(0, 0.5, count)
            precision = np.eye(FEATURES) + X.T @ X
            mean = np.linalg.solve(precision, X.T @ reward)
            dof = 2 + count
            variance = (2 + reward @ reward - mean @ precision @ mean) / dof
            parts.append((mean, np.linalg.cholesky(variance * np.linalg.inv(precision)), dof))
        return cls(*(np.array(part) for part in zip(*parts, strict=True)))

    def marginals(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The location[N, K], scale[N, K] and dof[K] of the rewards in contexts X[N, d]."""
        scale = np.sqrt(np.square(np.einsum("nd,kde->nke", X, self.root)).sum(axis=2))
        return X @ self.mean.T, scale, self.dof.astype(float)


def contexts(count: int, rng: np.random.Generator) -> np.ndarray:
    return np.concatenate([np.ones((count, 1)), rng.uniform(0, 1, (count, FEATURES - 1))], axis=1)


def normal_noise(rng: np.random.Generator, _dof: float) -> np.ndarray:
    return rng.standard_normal((CHUNK, DRAWS), dtype=np.float32)


def student_noise(rng: np.random.Generator, dof: float) -> np.ndarray:
    noise = normal_noise(rng, dof)
    noise /= np.sqrt(rng.standard_gamma(dof / 2, (CHUNK, DRAWS), dtype=np.float32) * np.float32(2 / dof))
    return noise


def drawn(location: np.ndarray, scale: np.ndarray, dof: np.ndarray, noise: Callable) -> np.ndarray:
    """The share of draws in which each action was best: [N, K]."""

    def chunk(start: int) -> np.ndarray:
        rng = np.random.Generator(np.random.SFC64([start, 1]))
        rewards = (
            np.float32(m)[:, None] + np.float32(s)[:, None] * noise(rng, nu)[: len(m)]
            for m, s, nu in zip(location[start : start + CHUNK].T, scale[start : start + CHUNK].T, dof, strict=True)
        )
        return wins(rewards, len(dof))

    with ThreadPoolExecutor(THREADS) as pool:
        return np.concatenate(list(pool.map(chunk, range(0, len(location), CHUNK))))


def drawn_once(X: np.ndarray, posterior: Posterior) -> np.ndarray:
    """Like `drawn`, with one set of weight draws for all contexts: far fewer draws, but correlated errors."""
    rng = np.random.default_rng(1)
    shrink = np.sqrt(posterior.dof[:, None] / rng.chisquare(posterior.dof[:, None], (len(posterior.dof), DRAWS)))
    normal = rng.standard_normal((len(posterior.dof), FEATURES, DRAWS))
    weights = (posterior.mean[..., None] + posterior.root @ normal * shrink[:, None]).astype(np.float32)
    rows = X.astype(np.float32)

    def chunk(start: int) -> np.ndarray:
        return wins((rows[start : start + CHUNK] @ w for w in weights), len(weights))

    with ThreadPoolExecutor(THREADS) as pool:
        return np.concatenate(list(pool.map(chunk, range(0, len(X), CHUNK))))


def wins(rewards, actions: int) -> np.ndarray:
    """Shares[n, K] of the draws won, from the rewards[n, draws] of one action after another."""
    top = next(rewards)
    winner = np.zeros(top.shape, np.int16)
    for action, reward in enumerate(rewards, start=1):
        np.copyto(winner, action, where=reward > top)
        np.maximum(top, reward, out=top)
    return np.stack([np.count_nonzero(winner == action, axis=1) for action in range(actions)], axis=1) / DRAWS


def reference(location: np.ndarray, scale: np.ndarray, dof: np.ndarray) -> np.ndarray:
    """One row to about 1e-10: Gauss-Legendre on ∫ f_a ∏ F_b, with breakpoints dense around every location."""
    location = location - location.max()
    steps = np.concatenate([np.arange(0, 8, 0.5), np.geomspace(8, -stdtrit(dof.min(), 1e-13), 25)])
    points = np.unique(location[:, None] + scale[:, None] * np.concatenate([-steps, steps]))
    points = points[points >= (location + scale * stdtrit(dof, 1e-13)).max()]
    node, weight = np.polynomial.legendre.leggauss(12)
    half = np.diff(points)[:, None] / 2
    x = (points[:-1, None] + half * (1 + node)).ravel()
    z = (x - location[:, None]) / scale[:, None]
    cdf = stdtr(dof[:, None], z)
    norm = np.sqrt(dof) * beta(dof / 2, 0.5) * scale
    density = np.exp(-(dof[:, None] + 1) / 2 * np.log1p(z**2 / dof[:, None])) / norm[:, None]
    return (density / cdf * cdf.prod(axis=0)) @ (half * weight).ravel()


def timed(work: Callable, repeats: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Smallest wall-clock and CPU seconds, and the result."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter(), time.process_time()
        result = work()
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    return np.min(times, axis=0), result


def distance(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    return np.abs(p - q).sum(axis=1) / 2


def compare(count: int, actions: int, sample: int, rng: np.random.Generator) -> None:
    posterior, X = Posterior.learned(actions, rng), contexts(count, rng)
    marginals = posterior.marginals(X)
    few = [part[:sample] for part in marginals[:2]] + [marginals[2]]
    exact_time, exact = timed(lambda: probability_best(*marginals), repeats=3)
    truth = np.array([reference(m, s, marginals[2]) for m, s in zip(few[0][:100], few[1][:100], strict=True)])
    peers = {
        f"{DRAWS} normal draws": lambda: drawn(*few, normal_noise),
        f"{DRAWS} Student-t draws": lambda: drawn(*few, student_noise),
        f"{DRAWS} shared weight draws": lambda: drawn_once(X[:sample], posterior),
    }
    print(f"\n{count:,} contexts x {actions} actions, {THREADS} threads; draws timed on {sample:,} contexts, scaled up")
    print(f"{'':26}{'seconds':>9}{'CPU s':>9}{'CPU ratio':>11}{'TV mean':>10}{'TV max':>10}")
    report("exact quadrature", exact_time, exact_time, distance(exact[:100], truth))
    for name, work in peers.items():
        taken, found = timed(work)
        report(name, taken * count / sample, exact_time, distance(found, exact[:sample]))


def report(name: str, taken: np.ndarray, exact: np.ndarray, error: np.ndarray) -> None:
    wall, cpu = taken
    print(f"{name:26}{wall:9.2f}{cpu:9.2f}{cpu / exact[1]:11.1f}{error.mean():10.1e}{error.max():10.1e}")


def grow(count: int, actions: int, rng: np.random.Generator) -> None:
    print("\ngrowth: contexts x actions, seconds, CPU µs per context, CPU ns per context and action")
    sizes = [(count // 4, actions), (count // 2, actions), (count, actions)]
    sizes += [(count // 10, k) for k in (2, 5, 20, 50, 200)]
    for n, k in sizes:
        marginals = Posterior.learned(k, rng).marginals(contexts(n, rng))
        (wall, cpu), _ = timed(lambda arguments=marginals: probability_best(*arguments), repeats=2)
        print(f"{n:9,} x {k:<4}{wall:9.3f}{cpu / n * 1e6:9.1f}{cpu / n / k * 1e9:9.0f}")


def stretch(count: int, actions: int, rng: np.random.Generator) -> None:
    """Scales that differ by a factor of 10⁶ within every row, with light and with heavy tails."""
    location, scale, dof = Posterior.learned(actions, rng).marginals(contexts(count, rng))
    scale = scale * 10 ** rng.uniform(-6, 0, scale.shape)
    print("\nscales differing by 10⁶: dof, contexts, seconds, CPU µs per context, TV mean and max over 50 contexts")
    for name, freedom in (("as learned", dof), ("all 2.5", np.full(actions, 2.5))):
        (wall, cpu), exact = timed(lambda nu=freedom: probability_best(location, scale, nu))
        truth = np.array([reference(m, s, freedom) for m, s in zip(location[:50], scale[:50], strict=True)])
        error = distance(exact[:50], truth)
        print(f"{name:>12}{count:9,}{wall:9.3f}{cpu / count * 1e6:9.1f}{error.mean():10.1e}{error.max():10.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--contexts", type=int, default=50_000)
    parser.add_argument("--actions", type=int, default=20)
    parser.add_argument("--sample", type=int, default=512, help="number of contexts on which the draws are timed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    compare(options.contexts, options.actions, min(options.sample, options.contexts), rng)
    grow(options.contexts, options.actions, rng)
    stretch(options.contexts // 5, options.actions, rng)


if __name__ == "__main__":
    main()
