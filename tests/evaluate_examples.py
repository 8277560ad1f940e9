"""Logs for tests of evaluation: a problem small enough to enumerate, and one with every column of a log."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

import potstill as ps
from potstill.evaluate.blocks import numbered
from potstill.evaluate.log import ArrayLog, Block
from potstill.evaluate.models import FunctionModel
from potstill.evaluate.targets import target
from potstill.evaluate.terms import Terms, compute_terms

TINY = ps.Problem(name="tiny", context=[ps.Boolean("x")], actions=ps.Discrete(["a", "b", "c"]))
CONTEXTS = np.array([[0.0], [1.0]], np.float32)
#: Probabilities of the two contexts, and of actions in each under the logging and the target policy.
SHARES = np.array([0.4, 0.6])
LOGGING = np.array([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]])
TARGET = np.array([[0.1, 0.9, 0.0], [0.3, 0.3, 0.4]])
#: Mean reward of each action in each context; a reward is this plus or minus `NOISE`, with equal probability.
MEANS = np.array([[1.0, 2.0, 0.0], [0.5, -1.0, 3.0]])
NOISE = 0.5
VALUE = float(SHARES @ (TARGET * MEANS).sum(axis=1))


@dataclass
class Event:
    """One possible row and its probability."""

    context: int
    action: int
    reward: float
    probability: float


def events(logging=LOGGING, noise=NOISE) -> list[Event]:
    """All rows that can be logged."""
    signs = (-noise, noise) if noise else (0.0,)
    return [
        Event(x, a, MEANS[x, a] + sign, SHARES[x] * logging[x, a] / len(signs))
        for x, a, sign in product(range(2), range(3), signs)
    ]


def logs(rows: int, *, logging=LOGGING, stated=None, noise=NOISE) -> Iterator[tuple[ArrayLog, float]]:
    """Every log of `rows` rows with its probability; `stated` are the logged propensities, correct or not."""
    stated = logging if stated is None else stated
    for chosen in product(events(logging, noise), repeat=rows):
        x, a = np.array([e.context for e in chosen]), np.array([e.action for e in chosen])
        log = ArrayLog(
            TINY,
            contexts=CONTEXTS[x],
            actions=a,
            rewards=[e.reward for e in chosen],
            propensities=stated[x, a],
        )
        yield log, float(np.prod([e.probability for e in chosen]))


def table(rows: np.ndarray):
    """A function of contexts that looks rows up by context."""
    return lambda contexts: rows[contexts[:, 0].astype(int)]


def terms_of(log, what, model=None, **options) -> Terms:
    """The terms of one target, with a reward model that is a function of contexts (default: zeros)."""
    fixed = FunctionModel(model or (lambda contexts: np.zeros((len(contexts), len(log.problem.actions)))))
    return compute_terms(log, [target(log.problem, what)], fixed, **options).terms[0]


RICH = ps.Problem(
    name="rich",
    context=[ps.Numeric("speed", low=0, high=10), ps.Categorical("device", ["phone", "tv"]), ps.Boolean("new")],
    actions=ps.Discrete(["low", "middle", "high"]),
    reward=ps.Reward(low=0, high=1),
)


def rich_log(rows: int = 400, seed: int = 0) -> ArrayLog:
    """Random decisions under a softmax, with eligible actions, times and groups."""
    rng = np.random.default_rng(seed)
    speed, device = rng.uniform(0, 10, rows), rng.choice(["phone", "tv"], rows)
    contexts = RICH.encode_many({"speed": speed, "device": device, "new": rng.uniform(size=rows) < 0.3})
    eligible = rng.uniform(size=(rows, 3)) < 0.8
    eligible[~eligible.any(axis=1)] = True
    p = np.exp(contexts @ rng.normal(size=(RICH.width, 3))) * eligible
    p /= p.sum(axis=1, keepdims=True)
    actions = (p.cumsum(axis=1) < rng.uniform(size=(rows, 1))).sum(axis=1).clip(0, 2)
    rewards = rng.uniform(size=rows) < 0.2 + 0.05 * speed * (actions == 2) + 0.2 * (actions == 1)
    return ArrayLog(
        RICH,
        contexts=contexts,
        actions=actions,
        rewards=rewards,
        propensities=p[np.arange(rows), actions],
        eligible=eligible,
        times=1_760_000_000_000_000 + np.sort(rng.integers(0, 20 * 86_400_000_000, rows)),
        groups={"speed": speed, "device": device},
    )


class CutLog:
    """The rows of another log in blocks that end at given rows."""

    def __init__(self, log, ends):
        self.problem, self.log, self.ends = log.problem, log, ends

    def blocks(self) -> Iterator[Block]:
        (whole,) = self.log.blocks()
        for start, end in zip([0, *self.ends], [*self.ends, len(whole)], strict=True):
            yield whole[start:end]


def rows_of(log) -> Block:
    """All rows of a log shorter than a block."""
    ((_, block),) = numbered(log)
    return block
