"""Predicted precision against hand-sized cases and against simulated logs."""

import math

import msgspec
import numpy as np
import pytest

import potstill as ps
from potstill.errors import InvalidTarget
from potstill.evaluate.diagnostics import diagnose
from potstill.evaluate.intervals import normal
from potstill.evaluate.planning import FLOORS, ExplorationPlan, plan, raised
from potstill.spaces.influence import Parts

ACTIONS = ["low", "middle", "high"]


def problem_of(reward=None):
    return ps.Problem(
        name="dose",
        context=[ps.Numeric("x", low=0, high=1)],
        actions=ps.Discrete(ACTIONS),
        reward=reward or ps.Reward(low=-1.0, high=3.0),
    )


PROBLEM = problem_of()
CONTEXTS = np.linspace(0, 1, 200, dtype=np.float32)[:, None]


def cautious(contexts):
    """Mostly low; high is rare where x is small."""
    high = 0.02 + 0.2 * contexts[:, 0].astype(float)
    return np.stack([0.9 - high, np.full(len(contexts), 0.1), high], axis=1)


def by_name(floored):
    return {each.target: each for each in floored.targets}


def test_by_hand():
    two = np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]])
    found = by_name(plan(PROBLEM, two, CONTEXTS[:2], floors=[]).current)
    assert list(found) == ["uniform", *ACTIONS]
    assert found["low"].effective_share == pytest.approx(1 / np.mean([2, 10]))
    assert found["high"].effective_share == pytest.approx(1 / np.mean([4, 1.25]))
    assert found["uniform"].effective_share == pytest.approx(1 / np.mean([(2 + 4 + 4) / 9, (10 + 10 + 1.25) / 9]))
    assert found["low"].half_width == pytest.approx(1.959964 * 2.0 * math.sqrt(6))  # half the range is 2
    assert found["low"].half_width_at(100) == pytest.approx(found["low"].half_width / 10)
    rows = found["low"].rows_for(0.1)
    assert found["low"].half_width_at(rows) <= 0.1 < found["low"].half_width_at(rows - 1)


def test_the_policy_itself_is_worth_all_its_rows():
    found = plan(PROBLEM, cautious, CONTEXTS, [cautious], sd=0.5, floors=[])
    assert found.current.targets[0].effective_share == pytest.approx(1)
    assert found.current.targets[0].half_width == pytest.approx(1.959964 * 0.5)
    assert (found.logging, found.contexts, found.sd, found.sd_is_worst) == ("cautious", 200, 0.5, False)


@pytest.mark.parametrize("floor", [0.0, 0.05])
def test_a_simulated_log_has_the_foreseen_size_and_width(floor):
    rng, sd, n = np.random.default_rng(0), 0.4, 2000
    propensities = raised(cautious(CONTEXTS), floor)
    target = np.eye(3)[np.where(CONTEXTS[:, 0] < 0.5, 2, 1)] * 0.8 + 0.2 / 3
    found = plan(PROBLEM, cautious, CONTEXTS, [target], sd=sd, floors=[floor]).floors[0].targets[0]
    effective, values, widths = [], [], []
    for _ in range(600):
        rows = rng.integers(0, len(CONTEXTS), n)
        actions = (rng.random((n, 1)) > propensities[rows].cumsum(axis=1)).sum(axis=1)
        weights = target[rows, actions] / propensities[rows, actions]
        parts = Parts(numerator=weights * rng.normal(1.0, sd, n), denominator=weights)
        interval = normal(parts, 0.95)
        effective.append(parts_share(weights))
        values.append(parts.value)
        widths.append((interval.high - interval.low) / 2)
    error = np.std(effective) / math.sqrt(600)
    assert np.mean(effective) == pytest.approx(found.effective_share, abs=4 * error + 2 / n)
    assert np.mean(widths) == pytest.approx(found.half_width_at(n), rel=0.02)
    assert 1.96 * np.std(values) == pytest.approx(found.half_width_at(n), rel=0.12)  # four of its errors of 2.9 %


def parts_share(weights):
    class Terms:
        weight, missing, reward = weights, np.zeros(len(weights)), np.zeros(len(weights))

    return diagnose(Terms).effective_share


def test_actions_that_are_never_taken():
    never = np.tile([0.5, 0.5, 0.0], (200, 1))
    found = plan(PROBLEM, never, CONTEXTS, floors=[0.0, 0.01])
    uniform = by_name(found.current)["uniform"]
    assert uniform.unsupported == pytest.approx(1 / 3)
    assert uniform.effective_share == pytest.approx(1)  # of the part that the log does have
    high = by_name(found.current)["high"]
    assert (high.effective_share, high.unsupported, high.half_width) == (0.0, 1.0, math.inf)
    assert high.rows_for(0.1) is None
    with_floor = by_name(found.floors[1])["high"]
    assert with_floor.unsupported == 0
    assert with_floor.effective_share == pytest.approx(0.01)


def test_floors_are_those_that_the_policy_would_have():
    weights = np.random.default_rng(1).normal(0, 2, (1, 3)).astype(np.float32)
    layers = [(weights, np.array([1.0, 0.0, -3.0], np.float32))]
    policy = ps.Policy.build(PROBLEM, layers, version=1, floor=0.03)
    found = plan(PROBLEM, policy, CONTEXTS)
    for floored in (found.current, *found.floors):
        p = policy.probabilities_many(CONTEXTS, floor=floored.floor).astype(float)
        assert floored.smallest == pytest.approx(p.min(), rel=1e-5)
        assert by_name(floored)["middle"].effective_share == pytest.approx(1 / np.mean(1 / p[:, 1]), rel=1e-5)
    assert found.current.floor == pytest.approx(0.03)
    assert [floored.floor for floored in found.floors] == list(FLOORS)


def test_more_floor_more_rows_more_cost():
    found = plan(PROBLEM, cautious, CONTEXTS, ["high"]).floors
    shares, costs = [each.targets[0].effective_share for each in found], [each.cost for each in found]
    assert shares == sorted(shares)
    assert costs == sorted(costs)
    assert shares[-1] > 2 * shares[0]
    assert costs[0] == 0


def test_what_a_floor_costs():
    def rewards(contexts):
        return np.stack([np.ones(len(contexts)), np.zeros(len(contexts)), 2.0 * contexts[:, 0]], axis=1)

    found = plan(PROBLEM, cautious, CONTEXTS, floors=[0.05], rewards=rewards)
    before, after = cautious(CONTEXTS), raised(cautious(CONTEXTS), 0.05)
    lost = ((before - after) * rewards(CONTEXTS)).sum(axis=1).mean()
    assert found.floors[0].cost == pytest.approx(lost)
    assert not found.cost_is_worst
    worst = plan(PROBLEM, cautious, CONTEXTS, floors=[0.05])
    assert worst.cost_is_worst
    most = np.max(
        [(before - after) @ reward for reward in np.array(np.meshgrid(*[[-1, 3]] * 3)).reshape(3, -1).T], axis=0
    )
    assert worst.floors[0].cost == pytest.approx(most.mean())  # the worst of all rewards at the bounds, row by row


def test_eligible_actions():
    eligible = np.tile([True, True, False], (200, 1))
    eligible[::2] = True
    p = raised(np.where(eligible, 1.0, 0.0) * [0.9, 0.1, 0.0], 0.02, eligible)
    assert p[1].tolist() == pytest.approx([0.02 + 0.96 * 0.9, 0.02 + 0.96 * 0.1, 0.0])
    assert p[0].tolist() == pytest.approx([0.02 + 0.94 * 0.9, 0.02 + 0.94 * 0.1, 0.02])
    found = plan(PROBLEM, lambda contexts: np.zeros(len(contexts), int), CONTEXTS, eligible=eligible, floors=[0.02])
    assert found.floors[0].smallest == 0.02
    uniform = by_name(found.floors[0])["uniform"]
    squared = [(1 / 0.96 + 2 / 0.02) / 9, (1 / 0.98 + 1 / 0.02) / 4]
    assert uniform.effective_share == pytest.approx(1 / np.mean(squared))
    assert found.floors[0].cost == pytest.approx(4 * np.mean([0.04, 0.02]))


def test_json():
    found = plan(PROBLEM, cautious, CONTEXTS, ["high"])
    assert msgspec.json.decode(msgspec.json.encode(found), type=ExplorationPlan) == found


def test_rewards_without_bounds():
    unbounded = problem_of(ps.Reward(low=0.0))
    with pytest.raises(ValueError, match=r"state the standard deviation of rewards \(sd\)"):
        plan(unbounded, cautious, CONTEXTS)
    found = plan(unbounded, cautious, CONTEXTS, sd=2.0)
    assert found.floors[-1].cost is None
    assert not found.cost_is_worst
    with pytest.raises(ValueError, match="sd must be a number above 0, got 0"):
        plan(unbounded, cautious, CONTEXTS, sd=0)


def test_targets_of_the_same_name_are_all_there():
    found = plan(PROBLEM, cautious, CONTEXTS, [cautious(CONTEXTS), np.full((200, 3), 1 / 3)]).current.targets
    assert [each.effective_share < 0.9 for each in found] == [False, True]


def test_a_floor_below_zero():
    with pytest.raises(ValueError, match=r"a floor must be at least 0, got -0\.1"):
        plan(PROBLEM, cautious, CONTEXTS, floors=[-0.1])


def test_no_contexts():
    with pytest.raises(InvalidTarget, match="no contexts were given"):
        plan(PROBLEM, cautious, CONTEXTS[:0])
