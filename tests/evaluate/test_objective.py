"""An evaluation is of the objective, where the problem has one."""

import msgspec
import numpy as np
import pytest

import potstill as ps
from potstill.evaluate import ArrayLog, evaluate

SPACE = ps.Continuous("price", 1, 9)


def problem(objective, **bounds):
    reward = ps.Reward(objective=objective, **bounds)
    return ps.Problem(name="shop", context=[ps.Numeric("x", low=0, high=1)], actions=SPACE, reward=reward)


def logged(made, rewards):
    rng = np.random.default_rng(0)
    x, prices = rng.random(500), 1 + 8 * rng.random(500)
    sold = (rng.random(500) < 1 / (1 + np.exp(prices - 3 - 4 * x))).astype(float)
    return ArrayLog(
        made, contexts={"x": x}, actions=prices, rewards=rewards(prices, sold), propensities=np.full(500, 1 / 8)
    )


def test_the_value_of_a_target_is_that_of_the_objective():
    """The same as of a log whose rewards are revenues, to the last bit."""
    by_outcome = logged(problem("price * sold", low=0.0, high=1.0), lambda _, sold: sold)
    by_revenue = logged(problem(None, low=0.0, high=9.0), lambda prices, sold: prices * sold)
    one, other = (evaluate(log, 5.0, against="uniform", bandwidth=0.1) for log in (by_outcome, by_revenue))
    assert msgspec.json.encode(one) == msgspec.json.encode(other)
    assert one.logged.value > 1


@pytest.mark.parametrize(
    ("objective", "bounds"),
    [("price * sold", (0, 9)), ("(price - 3) * sold", (-2, 6)), ("sold - price", (-9, 0)), ("price**2 * sold", None)],
)
def test_bounds_are_those_of_the_objective_where_they_are_known(objective, bounds):
    found = problem(objective, low=0.0, high=1.0).maximised
    assert (found.low, found.high) == (bounds or (None, None))
    assert problem(objective).maximised.low is None
