"""Imitation: seconds, steps and KL divergence of each recipe, and their growth with contexts and width.

    python benchmarks/imitation.py                  # a few minutes on two cores
    python benchmarks/imitation.py --case main --seeds 3

Labels are those of Linear-TS: a Bayesian linear regression for each action, on rewards that Thompson sampling itself
collected. The warm start begins with the student of the previous batch; its labels come from a fifth more observations.
Compilation is timed separately; 0.00 means that an earlier row compiled the same program. If torch is installed, the
paper's recipe also runs there as an eager loop, on one thread or on all, whichever is faster on this machine.
"""

import argparse
import importlib.util
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import softmax

from potstill.distill import Imitation, Student, fidelity, imitate
from potstill.keys import Key
from potstill.policy.network import Layer, outputs
from potstill.spaces import FiniteDistribution
from potstill.spaces.finite_learning import FiniteLearning
from potstill.teachers.probability_best import probability_best

DEFAULT = Student()
ADAM = Student(optimiser="adam", learning_rate=0.01, steps=2000)
PAPER = Student.paper()
HIDDEN = [(), (50,), (100,), (50, 50), (100, 100), (200, 200), (100, 100, 100)]
TORCH = importlib.util.find_spec("torch") is not None
LEVELS = 4  # levels of each categorical feature
NUMERIC = 10  # numeric features, at most; the others are one-hot


class Case(NamedTuple):
    """A posterior to imitate: d features, K actions, after some observations."""

    name: str
    features: int
    actions: int
    observations: int


CASES = [
    Case("main", 38, 7, 3_000),
    Case("many actions", 20, 20, 3_000),
    Case("late", 38, 7, 100_000),
    Case("sharp", 38, 7, 3_000_000),
]


class Batch(NamedTuple):
    """Contexts [N, d] and their labels [N, K]."""

    contexts: np.ndarray
    labels: np.ndarray


class LinearPosterior:
    """The normal-inverse-gamma posterior of each action, with the paper's prior and rewards of unit noise."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        self.case, self.rng = case, rng
        self.truth = 0.5 * rng.standard_normal((case.actions, case.features + 1))
        self.precision = np.tile(0.25 * np.eye(case.features + 1), (case.actions, 1, 1))
        self.moment = np.zeros((case.actions, case.features + 1))
        self.squares = np.zeros(case.actions)
        self.count = np.zeros(case.actions)

    def contexts(self, n: int) -> np.ndarray:
        """float32[n, d] in [0, 1]: skewed numbers, then one-hot features whose levels are not equally frequent."""
        kinds = max(0, self.case.features - NUMERIC) // LEVELS
        numbers = self.rng.beta(2, 3, (n, self.case.features - kinds * LEVELS))
        levels = self.rng.choice(LEVELS, (n, kinds), p=[0.5, 0.3, 0.15, 0.05])
        return np.concatenate([numbers, np.eye(LEVELS)[levels].reshape(n, -1)], axis=1).astype(np.float32)

    def learn(self, n: int) -> None:
        """Observe n rewards of actions chosen by Thompson sampling; beyond 4,096 contexts, several per context."""
        contexts = self.contexts(min(n, 4096))
        chosen = (self.labels(contexts).cumsum(axis=1) > self.rng.random((len(contexts), 1))).argmax(axis=1)
        design, weight = _with_intercept(contexts), n / len(contexts)
        for action in range(self.case.actions):
            x = design[chosen == action]
            # The sum of `weight` rewards, each with its own noise.
            reward = weight * x @ self.truth[action] + np.sqrt(weight) * self.rng.standard_normal(len(x))
            self.precision[action] += weight * x.T @ x
            self.moment[action] += x.T @ reward
            self.squares[action] += reward @ reward / weight + (weight - 1) * len(x)
            self.count[action] += weight * len(x)

    def labels(self, contexts: np.ndarray) -> np.ndarray:
        """float32[N, K]."""
        design = _with_intercept(contexts)
        mean = np.linalg.solve(self.precision, self.moment[..., None])[..., 0]
        alpha = 6 + self.count / 2
        beta = 6 + (self.squares - (self.moment * mean).sum(axis=1)) / 2
        spread = [np.einsum("nd,nd->n", design @ np.linalg.inv(p), design) for p in self.precision]
        return probability_best(design @ mean.T, np.sqrt(beta / alpha * np.stack(spread, axis=1)), 2 * alpha)

    def batch(self, n: int) -> Batch:
        """Some contexts with their labels."""
        contexts = self.contexts(n)
        return Batch(contexts, self.labels(contexts))


def _with_intercept(contexts: np.ndarray) -> np.ndarray:
    return np.concatenate([contexts, np.ones((len(contexts), 1))], axis=1).astype(np.float64)


def batches(case: Case, contexts: int, seed: int) -> Iterator[Batch]:
    """A batch after the observations of the case, and another after a fifth more."""
    posterior = LinearPosterior(case, np.random.default_rng(seed))
    for _ in range(10):
        posterior.learn(case.observations // 10)
    yield posterior.batch(contexts)
    posterior.learn(case.observations // 5)
    yield posterior.batch(contexts)


class Clock:
    """Seconds since the last reading, with JAX's compilation counted separately."""

    def __init__(self) -> None:
        self.compiling = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, seconds: float, **_: object) -> None:
        if event.startswith("/jax/core/compile/"):
            self.compiling += seconds

    @contextmanager
    def reading(self) -> Iterator[dict[str, float]]:
        """Seconds of the block under ``compile`` and ``train``."""
        seconds: dict[str, float] = {}
        self.compiling, started = 0.0, time.perf_counter()
        yield seconds
        seconds["compile"] = self.compiling
        seconds["train"] = time.perf_counter() - started - self.compiling


COLUMNS = {
    "case": "<13",
    "recipe": "<22",
    "contexts": ">9",
    "compile s": ">10.2f",
    "train s": ">8.2f",
    "steps": ">6",
    "KL mean": ">8.4f",
    "KL p95": ">8.4f",
    "TV mean": ">8.4f",
}


def heading(title: str) -> None:
    print(f"\n{title}\n" + " ".join(f"{name:{style.split('.')[0]}}" for name, style in COLUMNS.items()))


def row(*cells: object) -> None:
    print(" ".join(f"{cell:{style}}" for cell, style in zip(cells, COLUMNS.values(), strict=True)), flush=True)


def show(
    case: Case, recipe: str, seconds: dict[str, float], steps: int, labels: np.ndarray, p: np.ndarray, n: int
) -> None:
    f = fidelity(FiniteLearning(labels.shape[1]), labels, FiniteDistribution(p), reward_range=1.0)
    row(case.name, recipe, n, seconds["compile"], seconds["train"], steps, f.kl_mean, f.kl_p95, f.tv_mean)


def run(
    clock: Clock, case: Case, recipe: str, student: Student, batch: Batch, seed: int, start: list[Layer] | None = None
) -> Imitation:
    with clock.reading() as seconds:
        imitation = imitate(*batch, student, Key(seed), start, learning=FiniteLearning(batch.labels.shape[1]))
    rows = imitation.held_out
    p = softmax(outputs(imitation.layers, student.activation, batch.contexts[rows]), axis=1)
    show(case, recipe, seconds, imitation.steps, batch.labels[rows], p, len(batch.contexts))
    return imitation


def recipes(clock: Clock, case: Case, contexts: int, seed: int) -> None:
    before, now = batches(case, contexts, seed)
    earlier = run(clock, case, "default, before", DEFAULT, before, seed)
    run(clock, case, "default, cold", DEFAULT, now, seed)
    run(clock, case, "default, warm", DEFAULT, now, seed, earlier.layers)
    run(clock, case, "adam", ADAM, now, seed)
    run(clock, case, "paper", PAPER, now, seed)
    if TORCH:
        torch_peer(case, now, seed)


def torch_peer(case: Case, batch: Batch, seed: int) -> None:
    """The paper's recipe in torch; the last rows are held out for the measurement."""
    import torch

    x, p = map(torch.tensor, batch)
    cut = len(x) - min(len(x) // 10, 4096)

    def train(threads: int, steps: int) -> tuple[float, torch.nn.Module]:
        torch.set_num_threads(threads)
        torch.manual_seed(seed)
        started = time.perf_counter()
        network = torch_train(x[:cut], p[:cut], steps)
        return time.perf_counter() - started, network

    threads = min((1, os.cpu_count() or 1), key=lambda threads: train(threads, 100)[0])
    seconds, network = train(threads, PAPER.steps)
    with torch.no_grad():
        judged = network(x[cut:]).exp().numpy()
    timed = {"compile": 0.0, "train": seconds}
    show(case, f"paper, torch, {threads} thr.", timed, PAPER.steps, batch.labels[cut:], judged, len(x))


def torch_train(x, p, steps):
    """A network of log-probabilities trained on the labels p[N, K] of the contexts x[N, d]."""
    import torch
    from torch import nn

    hidden = [layer for a, b in pairwise([x.shape[1], *PAPER.hidden]) for layer in (nn.Linear(a, b), nn.Tanh())]
    network = nn.Sequential(*hidden, nn.Linear(PAPER.hidden[-1], p.shape[1]), nn.LogSoftmax(dim=1))
    optimiser = torch.optim.RMSprop(network.parameters(), lr=PAPER.learning_rate, alpha=0.9)
    decay = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 / (1 + 0.05 * (step // 100)))
    for _ in range(steps):
        rows = torch.randint(len(x), (PAPER.batch,))
        optimiser.zero_grad()
        nn.functional.kl_div(network(x[rows]), p[rows], reduction="batchmean").backward()
        optimiser.step()
        decay.step()
    return network


def units(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",") if word)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[case.name for case in CASES], action="append", help="default: all")
    parser.add_argument("--contexts", type=int, default=50_000)
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="*",
        default=[10_000, 50_000, 200_000],
        help="numbers of contexts of the growth table",
    )
    parser.add_argument(
        "--hidden", type=units, nargs="*", default=HIDDEN, help="hidden layers of the width table, such as 100,100"
    )
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.case is None or case.name in arguments.case]
    clock = Clock()
    if not TORCH:
        print("torch is not installed; skipping the peer")
    heading("Recipes")
    for case in cases:
        for seed in range(arguments.seeds):
            recipes(clock, case, arguments.contexts, seed)
    heading("Growth with contexts")
    for case in cases:
        for size in arguments.sizes:
            run(clock, case, "default, cold", DEFAULT, next(batches(case, size, seed=0)), seed=0)
    heading("Growth with width")
    batch = next(batches(cases[0], arguments.contexts, seed=0))
    for hidden in arguments.hidden:
        run(clock, cases[0], f"hidden {hidden}", Student(hidden=hidden), batch, seed=0)


if __name__ == "__main__":
    main()
