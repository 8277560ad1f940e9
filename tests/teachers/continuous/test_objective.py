"""Teachers of numbers model the outcome and maximise the objective."""

import numpy as np
import pytest

from potstill.keys import Key
from potstill.problem import Numeric, Observations, Problem, Reward
from potstill.spaces import Continuous
from potstill.teachers import (
    ContinuousGaussianProcessTS,
    ContinuousLinearTS,
    ContinuousNeuralLinearTS,
    InvalidState,
    pack,
    unpack,
)
from potstill.teachers.continuous.basis import cosines
from potstill.teachers.continuous.evidence import covariance

KEY = Key(6)


def pricing(objective="price * sold", bins=8):
    return Problem(
        name="pricing",
        context=[Numeric("wealth", low=0, high=1)],
        actions=Continuous("price", low=1, high=11, bins=bins),
        reward=Reward(objective=objective),
    )


def demand(wealth, price):
    return np.clip(1 - price / (5 + 5 * wealth), 0, 1)


def observations(n, problem=None, seed=0):
    rng = np.random.default_rng(seed)
    contexts, prices = rng.random((n, 1)).astype(np.float32), rng.uniform(1, 11, n)
    sold = (rng.random(n) < demand(contexts[:, 0], prices)).astype(np.float64)
    return Observations(problem or pricing(), contexts, prices, sold, np.full(n, 0.1, np.float32))


def learnt(teacher, given):
    return teacher.update(teacher.init(given.problem), given, KEY)


TEACHERS = (
    ContinuousLinearTS(),
    ContinuousNeuralLinearTS(),
    ContinuousGaussianProcessTS(fit_limit=200, inducing=60),
)


@pytest.mark.parametrize("teacher", TEACHERS, ids=lambda teacher: type(teacher).__name__)
def test_the_best_price_is_found_though_the_outcome_falls_with_it(teacher):
    """The best price is half of that at which nobody buys: 2.75 and 4.75."""
    given, contexts = observations(3000), np.array([[0.1], [0.9]], np.float32)
    state = learnt(teacher, given)
    mean = teacher.sample_actions(state, contexts, 200, KEY).mean(axis=1)
    revenue = mean * demand(contexts[:, 0], mean)
    assert (revenue > 0.85 * np.array([5.5, 9.5]) / 4).all(), mean
    assert mean[1] > mean[0] + 1
    plain = learnt(teacher, observations(3000, pricing(None)))
    assert teacher.sample_actions(plain, contexts[:1], 200, KEY).mean() < 2, "sold alone is best at the lowest price"
    middles = given.problem.actions.middles
    expected = middles * demand(contexts, middles)
    np.testing.assert_allclose(teacher.mean_rewards(state, contexts), expected, atol=0.6)


def test_the_maximisers_are_those_of_draws_of_all_weights():
    """Shares of two sets of 20,000 draws in a bin differ by over 0.02 with probability below 1e-3, by Hoeffding."""
    problem, draws, rng = pricing("(price - 2) * sold - price / 9"), 20_000, np.random.default_rng(1)
    teacher, given = ContinuousLinearTS(), observations(60, problem)
    state = learnt(teacher, given)
    fitted, size = state.regression, teacher.size
    noise = np.sqrt(fitted.posterior.beta[0] / rng.standard_gamma(fitted.posterior.alpha[0], (draws, 1)))
    root = np.linalg.cholesky(covariance(fitted.posterior))
    weights = fitted.posterior.mean[0] + noise * (rng.standard_normal((draws, 2 * size)) @ root.T)
    coefficients = np.einsum("k,skj->sj", [1, 0.4 - fitted.centre[0]], weights.reshape(draws, 2, size))
    grid = np.linspace(0, 1, 1000)
    price, outcome = 1 + 10 * grid, given.rewards.mean() + given.rewards.std() * (coefficients @ cosines(grid, size).T)
    best = price[((price - 2) * outcome - price / 9).argmax(axis=1)]
    ours = teacher.sample_actions(state, np.array([[0.4]], np.float32), draws, KEY)[0]
    shares = [np.histogram(actions, problem.actions.edges)[0] / draws for actions in (ours, best)]
    assert np.abs(shares[0] - shares[1]).max() < 0.02


def test_a_state_of_another_objective_is_refused():
    teacher, given = ContinuousLinearTS(), observations(20)
    state = learnt(teacher, given)
    data = pack(state, teacher, given.problem)
    unpack(data, teacher.init(given.problem), teacher, given.problem)
    other = pricing("sold - price")
    with pytest.raises(InvalidState, match=r"its objective is price [*] sold, expected sold - price"):
        unpack(data, teacher.init(other), teacher, other)
