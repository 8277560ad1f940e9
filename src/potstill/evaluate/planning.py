"""Planning of exploration: how precisely the log of a policy will evaluate other policies, and what a floor changes.

A policy that hardly ever takes an action logs little evidence about policies that do. How much is known before the
first decision: it follows from the policy's probabilities in the expected contexts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from potstill.errors import InvalidOption, InvalidTarget
from potstill.evaluate.intervals import two_sided
from potstill.evaluate.log import Block
from potstill.evaluate.targets import Target, TargetLike, target
from potstill.policy import Policy
from potstill.problem import Contexts, Problem
from potstill.spaces import finite

Float64 = NDArray[np.float64]

#: Default floors; those above one over the number of actions are left out.
FLOORS = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1)


class TargetPrecision(msgspec.Struct, frozen=True, kw_only=True):
    """How precisely a target can be evaluated.

    Attributes:
        target: Name of the target.
        effective_share: Effective sample size per logged row.
        unsupported: Share of the target's decisions that the logging policy never takes; the log will say nothing about
            them.
        half_width: Half-width of the interval for one row; for N rows, divide by √N. Infinite if the log will say
            nothing about the target.
    """

    target: str
    effective_share: float
    unsupported: float
    half_width: float

    def half_width_at(self, rows: int) -> float:
        """Half-width of the interval for a number of rows."""
        return self.half_width / math.sqrt(rows)

    def rows_for(self, half_width: float) -> int | None:
        """Number of rows for an interval of this half-width; None if no number is enough."""
        return None if math.isinf(self.half_width) else math.ceil((self.half_width / half_width) ** 2)


class FloorEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a floor.

    Attributes:
        floor: Smallest propensity of an eligible action.
        smallest: Smallest propensity in the given contexts.
        cost: Loss of the policy's own value per decision, compared with no floor; None if not known.
        targets: Precision of each target.
    """

    floor: float
    smallest: float
    cost: float | None
    targets: list[TargetPrecision]


class ExplorationPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How precisely the log of a policy will evaluate other policies.

    Attributes:
        logging: Name of the logging policy.
        contexts: Number of contexts that the plan is based on.
        level: Confidence level of intervals.
        sd: Standard deviation of rewards about their predictions that half-widths assume.
        sd_is_worst: Whether `sd` is the largest that the reward's bounds allow, as none was stated.
        cost_is_worst: Whether costs are the largest that the reward's bounds allow, as no reward model was given.
        current: Effect of the policy's present floor.
        floors: Effects of other floors, ascending.
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
    """How precisely the log of a policy will evaluate other policies. Actions must be a finite list.

    Half-widths are those of the doubly robust or self-normalised estimate of a target: `sd` over the root of the
    effective sample size. They leave out the spread of predicted rewards between contexts, which does not depend on
    the logging policy.

    Args:
        problem: The problem.
        logging: The policy that will serve and be logged, or anything that `target` accepts.
        contexts: A sample of expected contexts; a few thousand are enough.
        targets: Targets to evaluate; uniform and every single action if left out.
        eligible: Eligible actions in each context, bool[N, K].
        floors: Floors to consider; those above one over the number of actions are left out.
        sd: Standard deviation of rewards about their predictions; half the reward's range if left out.
        rewards: A reward model, encoded contexts to float[N, K], for the cost of a floor; the worst case if left out.
        level: Confidence level of intervals.
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
        precisions = [_precision(name, p, propensities, width * assumed) for name, p in wanted]
        smallest = propensities.min() if eligible is None else propensities[eligible].min()
        cost = None if price is None else floor * price
        return FloorEffect(floor=floor, smallest=float(smallest), cost=cost, targets=precisions)

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
    """Probabilities mixed with a floor, as policies do: every eligible action gets at least the floor."""
    if not floor >= 0:
        raise InvalidOption(f"a floor must be at least 0, got {floor}")
    counted = np.ones(probabilities.shape, bool) if eligible is None else eligible
    return np.where(counted, floor + (1 - floor * counted.sum(axis=1, keepdims=True)) * probabilities, 0.0)


def _block(problem: Problem, contexts: Contexts, eligible: NDArray[np.bool_] | None) -> Block:
    """Contexts as rows of a log with placeholder actions and rewards."""
    encoded = problem.encode_many(contexts)
    n = len(encoded)
    if not n:
        raise InvalidTarget("no contexts were given; exploration depends on them")
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
    """The assumed standard deviation; bounds limit it to half their distance (Popoviciu 1935)."""
    if sd is not None:
        if not 0 < sd < math.inf:
            raise InvalidOption(f"sd must be a number above 0, got {sd}")
        return sd
    range_ = _range(problem)
    if range_ is None:
        raise InvalidOption("the problem states no bounds of its reward: state the standard deviation of rewards (sd)")
    return range_ / 2


def _range(problem: Problem) -> float | None:
    low, high = problem.maximised.low, problem.maximised.high
    return None if low is None or high is None else high - low


def _price(problem: Problem, raw: Float64, rewards: Float64 | None, eligible: NDArray[np.bool_] | None) -> float | None:
    """Cost of a floor per decision, divided by the floor.

    A floor f moves f·(m·p - 1) of an action's probability p to others, m being the number of eligible actions. At
    worst, all moved probability goes from the highest to the lowest reward.
    """
    m = raw.shape[1] if eligible is None else eligible.sum(axis=1, keepdims=True)
    moved = m * raw - (1.0 if eligible is None else eligible)
    if rewards is not None:
        return float((moved * rewards).sum(axis=1).mean())
    range_ = _range(problem)
    return None if range_ is None else range_ * float(np.maximum(moved, 0).sum(axis=1).mean())


def _precision(name: str, wanted: Float64, propensities: Float64, width: float) -> TargetPrecision:
    """By the expected weight and squared weight of a logged row, Σ π and Σ π²/p over actions with p > 0."""
    possible = propensities > 0
    weight = float(wanted.sum(axis=1, where=possible).mean())
    squared = float(np.divide(wanted**2, propensities, where=possible, out=np.zeros_like(wanted)).sum(axis=1).mean())
    share = weight**2 / squared if squared else 0.0
    half_width = width / math.sqrt(share) if share else math.inf
    unsupported = float(wanted.sum(axis=1, where=~possible).mean())
    return TargetPrecision(target=name, effective_share=share, unsupported=unsupported, half_width=half_width)
