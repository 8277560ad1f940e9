"""Imitation: seconds, steps and divergence of each recipe, and how they grow with contexts and width.

    python benchmarks/imitation.py                  # about two minutes on two quiet cores
    python benchmarks/imitation.py --case main --seeds 3

Labels are those of Linear-TS: a Bayesian linear regression for each action, of rewards that Thompson sampling itself
collected. The warm start goes on from the student of the batch before, to labels that a fifth more observations have
moved. Compilation is timed apart; a row with 0.00 found its program compiled by the row before. If torch is installed
the paper's recipe also runs there, as an ordinary eager loop.
"""

import argparse
import importlib.util
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import jax
import numpy as np
from scipy.special import softmax

from potstill.distill import Fidelity, Imitation, Student, fidelity, imitate
from potstill.keys import Key
from potstill.policy.network import logits
from potstill.teachers.best import probability_best

DEFAULT = Student()
ADAM = Student(optimiser="adam", learning_rate=0.01, steps=2000)
PAPER = Student.paper()
LEVELS = 4  # of each categorical feature
NUMERIC = 10  # features, at most; the others are one-hot


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
        """Observe n rewards of actions that Thompson sampling chose; beyond 4,096 contexts, several rewards of each."""
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


def _with_intercept(contexts: np.ndarray) -> np.ndarray:
    return np.concatenate([contexts, np.ones((len(contexts), 1))], axis=1).astype(np.float64)


@dataclass
class Batches:
    """Two batches of one bandit: contexts and labels, and again after a fifth more observations."""

    before: tuple[np.ndarray, np.ndarray]
    now: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(cls, case: Case, contexts: int, seed: int) -> "Batches":
        posterior = LinearPosterior(case, np.random.default_rng(seed))
        for _ in range(10):
            posterior.learn(case.observations // 10)
        before = posterior.contexts(contexts)
        labelled = before, posterior.labels(before)
        posterior.learn(case.observations // 5)
        now = posterior.contexts(contexts)
        return cls(labelled, (now, posterior.labels(now)))


class Clock:
    """Seconds since the last reading, with those that JAX spent on compilation apart."""

    def __init__(self) -> None:
        self.compiling = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._hear)

    def _hear(self, event: str, seconds: float, **_: object) -> None:
        if event.startswith("/jax/core/compile/"):
            self.compiling += seconds

    @contextmanager
    def reading(self) -> Iterator[dict[str, float]]:
        seconds: dict[str, float] = {}
        self.compiling, started = 0.0, time.perf_counter()
        yield seconds
        seconds["compile"] = self.compiling
        seconds["train"] = time.perf_counter() - started - self.compiling


COLUMNS = {
    "case": "<13",
    "recipe": "<20",
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


class Runner:
    """Trains students one after the other and prints a row for each."""

    def __init__(self) -> None:
        self.clock = Clock()

    def run(
        self, case: Case, recipe: str, student: Student, batch: tuple[np.ndarray, np.ndarray], seed: int, start=None
    ) -> Imitation:
        contexts, labels = batch
        with self.clock.reading() as seconds:
            imitation = imitate(contexts, labels, student, Key(seed), start)
        rows = imitation.held_out
        p = softmax(logits(imitation.layers, student.activation, contexts[rows]), axis=1)
        f = fidelity(labels[rows], p, 1.0)
        row(case.name, recipe, len(contexts), *seconds.values(), imitation.steps, f.kl_mean, f.kl_p95, f.tv_mean)
        return imitation

    def recipes(self, case: Case, contexts: int, seed: int) -> None:
        batches = Batches.of(case, contexts, seed)
        earlier = self.run(case, "default, before", DEFAULT, batches.before, seed)
        self.run(case, "default, cold", DEFAULT, batches.now, seed)
        self.run(case, "default, warm", DEFAULT, batches.now, seed, earlier.layers)
        self.run(case, "adam", ADAM, batches.now, seed)
        self.run(case, "paper", PAPER, batches.now, seed)
        torch_peer(case, batches.now, seed)

    def growth(self, case: Case, sizes: list[int], seed: int) -> None:
        for size in sizes:
            self.run(case, "default, cold", DEFAULT, Batches.of(case, size, seed).now, seed)

    def widths(self, case: Case, contexts: int, seed: int) -> None:
        batch = Batches.of(case, contexts, seed).now
        for hidden in [(), (100,), (50, 50), (100, 100), (200, 200), (100, 100, 100)]:
            self.run(case, f"hidden {hidden}", Student(hidden=hidden), batch, seed)


def torch_peer(case: Case, batch: tuple[np.ndarray, np.ndarray], seed: int) -> None:
    """The paper's recipe as one would write it in torch. Its fidelity is on the last tenth, which it does not see."""
    if importlib.util.find_spec("torch") is None:
        return
    import torch

    torch.manual_seed(seed)
    x, p = map(torch.tensor, batch)
    cut = len(x) - min(len(x) // 10, 4096)
    sizes = [x.shape[1], *PAPER.hidden]
    hidden = [m for a, b in zip(sizes, sizes[1:], strict=False) for m in (torch.nn.Linear(a, b), torch.nn.Tanh())]
    network = torch.nn.Sequential(*hidden, torch.nn.Linear(sizes[-1], p.shape[1]), torch.nn.LogSoftmax(dim=1))
    optimiser = torch.optim.RMSprop(network.parameters(), lr=PAPER.learning_rate, alpha=0.9)
    decay = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 / (1 + 0.05 * (step // 100)))
    started = time.perf_counter()
    for _ in range(PAPER.steps):
        rows = torch.randint(cut, (PAPER.batch,))
        optimiser.zero_grad()
        torch.nn.functional.kl_div(network(x[rows]), p[rows], reduction="batchmean").backward()
        optimiser.step()
        decay.step()
    seconds = time.perf_counter() - started
    with torch.no_grad():
        f = fidelity(p[cut:].numpy(), network(x[cut:]).exp().numpy(), 1.0)
    row(case.name, "paper, torch eager", len(x), 0.0, seconds, PAPER.steps, f.kl_mean, f.kl_p95, f.tv_mean)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--case", choices=[case.name for case in CASES], action="append", help="default: all")
    parser.add_argument("--contexts", type=int, default=50_000)
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 50_000, 200_000], help="for the growth table")
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    cases = [case for case in CASES if arguments.case is None or case.name in arguments.case]
    runner = Runner()
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed: no peer is run")
    heading("Recipes")
    for case in cases:
        for seed in range(arguments.seeds):
            runner.recipes(case, arguments.contexts, seed)
    heading("Growth with contexts")
    for case in cases:
        runner.growth(case, arguments.sizes, seed=0)
    heading("Growth with width")
    runner.widths(cases[0], arguments.contexts, seed=0)


if __name__ == "__main__":
    main()
