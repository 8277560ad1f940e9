"""Off-policy evaluation of numbers: density ratios, smoothed numbers and their bandwidth, against known values."""

import numpy as np
import pytest

import potstill as ps
from potstill.errors import InvalidOption, InvalidTarget
from potstill.evaluate import ArrayLog, evaluate, target
from potstill.policy import Layer
from potstill.spaces import off_policy

LINEAR, LOG = ps.Continuous("price", 2, 14), ps.Continuous("bid", 0.1, 100, "log")


def problem(space):
    return ps.Problem(name="numbers", context=[ps.Numeric("demand", low=0, high=1)], actions=space)


def reward(space, demand, actions):
    """A bump whose place rises with demand."""
    return np.exp(-8 * (space.unit(actions) - 0.2 - 0.6 * demand) ** 2)


def logged(space, rows, seed, policy=None):
    rng = np.random.default_rng(seed)
    demand = rng.random(rows)
    policy = policy or ps.Policy.uniform(problem(space))
    actions, densities = policy.decide_many(
        policy.problem.encode_many({"demand": demand}), [f"{seed}-{i}" for i in range(rows)]
    )
    rewards = reward(space, demand, actions) + 0.1 * rng.standard_normal(rows)
    contexts = policy.problem.encode_many({"demand": demand})
    return ArrayLog(policy.problem, contexts=contexts, actions=actions, rewards=rewards, propensities=densities)


def rising(space, slope=4.0):
    """A policy whose numbers rise with demand."""
    made = problem(space)
    bins = np.linspace(-1, 1, space.bins)
    layer = Layer((slope * bins[None]).astype(np.float32), (-0.5 * slope * bins).astype(np.float32))
    return ps.Policy.build(made, [layer], version=1)


def truth(space, policy):
    """The value of a policy on a fine grid of contexts and all bins."""
    demand = (np.arange(400) + 0.5) / 400
    distribution = policy.distribution(policy.problem.encode_many({"demand": demand}))
    nodes = [weights * reward(space, demand, actions) for actions, weights in distribution.nodes()]
    return float(sum(nodes).mean())


@pytest.mark.parametrize("space", [LINEAR, LOG], ids=["linear", "log"])
def test_exact_density_ratios_value_a_policy(space):
    """Within four standard errors of the truth (false alarm 6e-5 for each)."""
    policy = rising(space)
    found = evaluate(logged(space, 6000, 1), policy, estimators=("ips", "snips", "dr"), intervals=("normal",))
    for name, estimate in found.target.estimates.items():
        assert abs(estimate.value - truth(space, policy)) < 4 * estimate.standard_error, name
    assert found.target.bandwidth is None


def test_intervals_of_a_policys_value_cover_it():
    """95 % intervals of 100 logs: fewer than 85 would be a chance of 1e-4."""
    policy, value = rising(LINEAR), truth(LINEAR, rising(LINEAR))
    covered = 0
    for seed in range(100):
        estimate = evaluate(logged(LINEAR, 400, seed), policy, estimators=("dr",), intervals=("normal",)).estimate
        interval = estimate.intervals["normal"]
        covered += interval.low <= value <= interval.high
    assert covered >= 85


@pytest.mark.parametrize("space", [LINEAR, LOG], ids=["linear", "log"])
def test_a_number_is_smoothed_by_a_chosen_bandwidth(space):
    place = 0.5
    number = float(space.from_unit(np.array([place]))[0])
    log = logged(space, 6000, 2)
    found = evaluate(log, number, estimators=("snips", "dr"), intervals=("normal",))
    demand = np.linspace(0, 1, 2001)
    value = float(reward(space, demand, np.full(2001, number)).mean())
    assert 0.01 <= found.target.bandwidth <= 0.5
    assert abs(found.estimate.value - value) < 0.03
    narrow = evaluate(log, number, estimators=("dr",), intervals=("normal",), bandwidth=0.01)
    assert narrow.target.bandwidth == 0.01
    assert narrow.estimate.standard_error > 1.5 * found.estimate.standard_error


def test_functions_and_arrays_of_numbers_are_targets():
    log = logged(LINEAR, 3000, 3)

    def best(contexts):
        return LINEAR.from_unit(0.2 + 0.6 * contexts[:, 0].astype(np.float64))

    found = evaluate(log, best, against=7.0, estimators=("dr",), intervals=("normal",), bandwidth=0.05)
    assert found.estimate.value == pytest.approx(1, abs=0.06)
    assert found.difference["dr"].value > 0.1
    same = evaluate(log, best(next(log.blocks()).contexts), estimators=("dr",), intervals=("normal",), bandwidth=0.05)
    assert same.estimate.value == found.estimate.value


@pytest.mark.parametrize("space", [LINEAR, LOG], ids=["linear", "log"])
def test_a_smoothed_number_is_a_density(space):
    """It integrates to one, also near an end and within an interval, and its draws follow it."""
    allowed = np.array([[space.low, space.high], list(space.from_unit(np.array([0.3, 0.52])))])
    numbers = space.from_unit(np.array([0.01, 0.5]))
    made = off_policy(space).smoothed(0.1).distribution(numbers, 2, allowed, name="t", first_row=0)
    grid = space.from_unit(np.linspace(0, 1, 40_001))
    density = np.array([made.propensity(np.full(2, a)) for a in grid])
    np.testing.assert_allclose(np.trapezoid(density, grid, axis=0), 1, rtol=2e-3)
    for step in (0.2, 0.8):
        below = np.array([np.trapezoid(np.where(grid <= a, density[:, i], 0), grid)
                          for i, a in enumerate(made.draw(np.full((2, 1), step)))])  # fmt: skip
        np.testing.assert_allclose(below, step, atol=5e-3)


def test_expectations_by_coefficients_equal_those_by_nodes():
    log, policy = logged(LINEAR, 500, 4), rising(LINEAR)
    ope = off_policy(LINEAR)
    block = next(log.blocks())
    model, contexts = ope.fit([(0, block)], (1.0,), 1.0), block.contexts
    fast = ope.predictions(model, contexts, 0, (0.1, 0.9))
    slow = super(type(ope), ope).predictions(model, contexts, 0, (0.1, 0.9))
    np.testing.assert_allclose(fast.at(block.actions), slow.at(block.actions), atol=1e-6)
    distribution = policy.distribution(contexts)
    np.testing.assert_allclose(fast.expected(distribution), slow.expected(distribution), atol=1e-6)
    restricted = policy.distribution(contexts, eligible=np.tile([3.0, 5.5], (500, 1)))
    np.testing.assert_allclose(fast.expected(restricted), slow.expected(restricted), atol=1e-6)


def test_what_is_no_number_or_no_bandwidth_is_refused():
    log = logged(LINEAR, 50, 5)
    with pytest.raises(InvalidTarget, match="price must be a number from 2 to 14, got 99"):
        evaluate(log, 99.0)
    with pytest.raises(InvalidTarget, match=r"row 3: 99\.0 is not an action"):
        evaluate(log, np.r_[np.full(3, 7.0), 99.0, np.full(46, 7.0)])
    with pytest.raises(InvalidOption, match="bandwidth must be a share of the scale, above 0 and at most 1, got 2"):
        evaluate(log, 7.0, bandwidth=2)
    assert target(log.problem, 7.0).name == "7.0"


def test_numbers_that_were_never_logged_are_noticed():
    """A policy that prefers high prices, on a log of low ones: most of what it would do was never tried."""
    log = logged(LINEAR, 500, 6)
    block = next(log.blocks())
    low = block.actions < 8
    cut = ArrayLog(
        log.problem,
        contexts=block.contexts[low],
        actions=block.actions[low],
        rewards=block.rewards[low],
        propensities=2 * block.propensities[low],
    )
    found = evaluate(cut, rising(LINEAR, 20.0), estimators=("dr",), intervals=("normal",))
    assert found.target.diagnostics.unsupported == pytest.approx(0.5, abs=0.1)
    assert found.target.trust.grade != "good"
    assert evaluate(log, rising(LINEAR, 20.0), estimators=("dr",)).target.diagnostics.unsupported == 0
