"""Before launch: how well the decisions of a policy let other policies be evaluated, and what a floor would change.

A policy that hardly ever takes an action will teach hardly anything about policies that do. What it will teach is
known before the first decision: it follows from its probabilities in the contexts to come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidTarget
from potstill.evaluate.intervals import two_sided
from potstill.evaluate.log import Block
from potstill.evaluate.targets import Target, TargetLike, target
from potstill.policy import Policy
from potstill.problem import Contexts, Problem
from potstill.spaces import finite

Float64 = NDArray[np.float64]

#: Floors that are looked at unless others are stated; those above one over the number of actions are left out.
FLOORS = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1)


class TargetPrecision(msgspec.Struct, frozen=True, kw_only=True):
    """How well a target can be evaluated.

    Attributes:
        target: its name.
        effective_share: how many rows of the target's own a logged row will be worth. The effective sample size of N
            rows is about N times this.
        unsupported: the share of the target's decisions that the logging policy never takes; nothing will be known of
            them.
        half_width: of the interval, for one row; for N rows, divide by √N. Infinite if nothing will be known at all.
    """

    target: str
    effective_share: float
    unsupported: float
    half_width: float

    def half_width_at(self, rows: int) -> float:
        """The half-width of the interval that so many rows will give."""
        return self.half_width / math.sqrt(rows)

    def rows_for(self, half_width: float) -> int | None:
        """How many rows an interval of this half-width takes; None if no number of rows gives it."""
        return None if math.isinf(self.half_width) else math.ceil((self.half_width / half_width) ** 2)


class FloorEffect(msgspec.Struct, frozen=True, kw_only=True):
    """What a floor would change.

    Attributes:
        floor: the smallest propensity of an eligible action.
        smallest: the smallest propensity in the contexts that were given.
        cost: what it takes from the policy's own value per decision, compared with no floor; None if not known.
        targets: how well each target can be evaluated.
    """

    floor: float
    smallest: float
    cost: float | None
    targets: list[TargetPrecision]


class ExplorationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the decisions of a policy will be good for.

    Attributes:
        logging: the policy's name.
        contexts: how many contexts this was worked out on.
        level: the confidence of intervals.
        sd: the standard deviation of rewards about their predictions that half-widths assume.
        sd_is_worst: whether it is the worst that the reward's bounds allow, as none was stated.
        cost_is_worst: whether costs are the worst that the reward's bounds allow, as no reward model was given.
        current: with the floor that the policy has now.
        floors: with other floors, ascending.
    """

    logging: str
    contexts: int
    level: float
    sd: float
    sd_is_worst: bool
    cost_is_worst: bool
    current: FloorEffect
    floors: list[FloorEffect]


def plan(
    problem: Problem,
    logging: TargetLike,
    contexts: Contexts,
    targets: Sequence[TargetLike] | None = None,
    *,
    eligible: NDArray[np.bool_] | None = None,
    floors: Sequence[float] = FLOORS,
    sd: float | None = None,
    rewards: Callable[[NDArray[np.float32]], Float64] | None = None,
    level: float = 0.95,
) -> ExplorationPlan:
    """What a policy's decisions will let one evaluate.

    Half-widths are those of the doubly robust or self-normalised estimate of a target: `sd` over the root of the
    effective sample size. Left out is the spread of predicted rewards between contexts, which is the same whoever logs.

    Args:
        problem: what is decided.
        logging: the policy that will serve and be logged, or anything that `target` takes.
        contexts: as they will come; a few thousand are enough.
        targets: to evaluate; uniform and every single action if left out.
        eligible: the actions that are allowed in each context, bool[N, K].
        floors: to look at; those above one over the number of actions are left out.
        sd: of rewards about their predictions; half the reward's range if left out.
        rewards: a reward model, encoded contexts to float[N, K], for what a floor costs; else the worst case is given.
        level: the confidence of intervals.
    """
    space, block = finite(problem.actions, "planning of exploration"), _block(problem, contexts, eligible)
    every_action = space.decode(np.arange(len(space)))
    given = [target(problem, each) for each in (["uniform", *every_action] if targets is None else targets)]
    wanted = [(each.name, _probabilities(each, block, len(space))) for each in given]
    raw, own = _without_floor(problem, logging, block)
    assumed, width = _spread(problem, sd), two_sided(level)
    price = _price(problem, raw, None if rewards is None else np.asarray(rewards(block.contexts)), eligible)

    def floored(floor: float) -> FloorEffect:
        propensities = raised(raw, floor, eligible)
        seen = [_foresight(name, p, propensities, width * assumed) for name, p in wanted]
        smallest = propensities.min() if eligible is None else propensities[eligible].min()
        cost = None if price is None else floor * price
        return FloorEffect(floor=floor, smallest=float(smallest), cost=cost, targets=seen)

    return ExplorationPlan(
        logging=target(problem, logging).name,
        contexts=len(block),
        level=level,
        sd=assumed,
        sd_is_worst=sd is None,
        cost_is_worst=rewards is None and price is not None,
        current=floored(own),
        floors=[floored(floor) for floor in sorted(floors) if floor <= 1 / len(space)],
    )


def raised(probabilities: Float64, floor: float, eligible: NDArray[np.bool_] | None = None) -> Float64:
    """Probabilities with a floor, as policies have it: every eligible action gets it, and shares what is left."""
    if not floor >= 0:
        raise ValueError(f"a floor must be at least 0, got {floor}")
    counted = np.ones(probabilities.shape, bool) if eligible is None else eligible
    return np.where(counted, floor + (1 - floor * counted.sum(axis=1, keepdims=True)) * probabilities, 0.0)


def _block(problem: Problem, contexts: Contexts, eligible: NDArray[np.bool_] | None) -> Block:
    """Contexts as rows of a log in which nothing has happened yet."""
    encoded = problem.encode_many(contexts)
    n = len(encoded)
    if not n:
        raise InvalidTarget("no contexts were given; what a policy will explore depends on them")
    return Block(encoded, np.zeros(n, np.int32), np.zeros(n), np.ones(n), eligible)


def _without_floor(problem: Problem, logging: TargetLike, block: Block) -> tuple[Float64, float]:
    """The logging policy's probabilities without its floor, and the floor."""
    if isinstance(logging, Policy):
        p = logging.probabilities_many(block.contexts, eligible=block.eligible, floor=0.0)
        return p.astype(np.float64), logging.floor
    actions = len(finite(problem.actions, "planning of exploration"))
    return _probabilities(target(problem, logging), block, actions), 0.0


def _probabilities(one: Target, block: Block, actions: int) -> Float64:
    """The probability of each action in each row, float64[n, K]."""
    distribution = one.distribution(block, 0)
    every = (np.full(len(block), action, np.int32) for action in range(actions))
    return np.stack([distribution.propensity(action) for action in every], axis=1).astype(np.float64)


def _spread(problem: Problem, sd: float | None) -> float:
    """The standard deviation to assume; within bounds it is half their distance at most (Popoviciu 1935)."""
    if sd is not None:
        if not 0 < sd < math.inf:
            raise ValueError(f"sd must be a number above 0, got {sd}")
        return sd
    range_ = _range(problem)
    if range_ is None:
        raise ValueError("the problem states no bounds of its reward: state the standard deviation of rewards (sd)")
    return range_ / 2


def _range(problem: Problem) -> float | None:
    low, high = problem.reward.low, problem.reward.high
    return None if low is None or high is None else high - low


def _price(problem: Problem, raw: Float64, rewards: Float64 | None, eligible: NDArray[np.bool_] | None) -> float | None:
    """What a floor takes from the value per decision, over the floor.

    A floor f moves f·(m·p - 1) of an action's probability p to others, m being the number of eligible actions. At
    worst, all that is moved goes from the highest to the lowest reward.
    """
    m = raw.shape[1] if eligible is None else eligible.sum(axis=1, keepdims=True)
    moved = m * raw - (1.0 if eligible is None else eligible)
    if rewards is not None:
        return float((moved * rewards).sum(axis=1).mean())
    range_ = _range(problem)
    return None if range_ is None else range_ * float(np.maximum(moved, 0).sum(axis=1).mean())


def _foresight(name: str, wanted: Float64, propensities: Float64, width: float) -> TargetPrecision:
    """From the expected weight and squared weight of a logged row, Σ π and Σ π²/p over actions that can be taken."""
    possible = propensities > 0
    weight = float(wanted.sum(axis=1, where=possible).mean())
    squared = float(np.divide(wanted**2, propensities, where=possible, out=np.zeros_like(wanted)).sum(axis=1).mean())
    share = weight**2 / squared if squared else 0.0
    half_width = width / math.sqrt(share) if share else math.inf
    unsupported = float(wanted.sum(axis=1, where=~possible).mean())
    return TargetPrecision(target=name, effective_share=share, unsupported=unsupported, half_width=half_width)
