"""Program-TS on an interval against the closed form of the same model, and a price whose best value is known."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from scipy.stats import norm

from potstill.errors import InvalidModel, InvalidOption, UnsupportedSpace
from potstill.keys import Key
from potstill.problem import Discrete, Numeric, Observations, Problem, Reward
from potstill.spaces import Continuous
from potstill.teachers import ContinuousProgramTS, ProgramTS, check_teacher

KEY = Key(4)
NOISE = 0.5


def parabola(contexts, actions, rewards=None):
    """The reward is largest at 10·theta·(½ + x); linear in theta, so that its posterior has a closed form."""
    theta = numpyro.sample("theta", dist.Normal(2.0, 1.0))
    u = actions / 10
    mean = theta * (0.5 + contexts[:, 0]) * u - u**2 / 2
    numpyro.sample("reward", dist.Normal(mean, NOISE), obs=rewards)
    return mean


TEACHER = ContinuousProgramTS(parabola, draws=500, sets=2, thin=2)


def problem(**options):
    space = Continuous("dose", **{"low": 10, "high": 30, "bins": 32, **options})
    return Problem(name="dose", context=[Numeric("x", low=0, high=1)], actions=space)


def observations(n=40, theta=2.4):
    rng = np.random.default_rng(0)
    contexts, actions = rng.random((n, 1)).astype(np.float32), rng.uniform(10, 30, n)
    u = actions / 10
    rewards = theta * (0.5 + contexts[:, 0]) * u - u**2 / 2 + NOISE * rng.standard_normal(n)
    return Observations(problem(), contexts, actions, rewards, np.full(n, 0.05, np.float32))


@pytest.fixture(scope="module")
def learnt():
    return TEACHER.update(TEACHER.init(problem()), observations(), KEY)


@pytest.fixture(scope="module")
def conjugate():
    """Mean and standard deviation of theta."""
    given = observations()
    u = given.actions / 10
    slopes = (0.5 + given.contexts[:, 0]) * u
    precision = 1 + (slopes**2).sum() / NOISE**2
    return (2 + (slopes * (given.rewards + u**2 / 2)).sum() / NOISE**2) / precision, precision**-0.5


def test_labels_are_the_distribution_of_the_best_action(learnt, conjugate):
    """Within the margin of 300 independent draws, with a false alarm below 1e-6 for each context (DKW)."""
    contexts = np.linspace(0, 1, 9, dtype=np.float32)[:, None]
    labels = TEACHER.propensities(learnt, contexts, KEY)
    mean, sd = conjugate
    ends = np.linspace(10, 30, 33)[1:-1]
    exact = norm.cdf(ends / (10 * (0.5 + contexts)), mean, sd)  # beyond the interval, the best action is its end
    assert labels.shape == (9, 32)
    assert np.abs(labels.cumsum(axis=1)[:, :-1] - exact).max() < np.sqrt(np.log(2e6) / 600)


def test_mean_rewards_and_samples_follow_the_posterior(learnt, conjugate):
    contexts = np.array([[0.1], [0.9]], np.float32)
    u = problem().actions.middles / 10
    mean, sd = conjugate
    exact = mean * (0.5 + contexts) * u - u**2 / 2
    assert np.abs(TEACHER.mean_rewards(learnt, contexts) - exact).max() < 5 * sd * 4.2 / np.sqrt(300)
    drawn = TEACHER.sample_actions(learnt, contexts, 2_000, Key(9))
    labels = TEACHER.propensities(learnt, contexts, Key(9))
    bins = ((drawn - 10) / 20 * 32).astype(int).clip(0, 31)
    shares = np.stack([np.bincount(row, minlength=32) / 2_000 for row in bins])
    assert np.abs(shares.cumsum(axis=1) - labels.cumsum(axis=1)).max() < np.sqrt(np.log(2e6) / 4_000)


def test_a_context_has_the_same_label_in_any_batch_of_its_set(learnt):
    contexts = np.random.default_rng(1).random((200, 1)).astype(np.float32)
    whole = TEACHER.propensities(learnt, contexts, KEY)
    np.testing.assert_array_equal(TEACHER.propensities(learnt, contexts[:70], KEY), whole[:70])
    assert TEACHER.propensities(learnt, contexts[:0], KEY).shape == (0, 32)
    assert TEACHER.mean_rewards(learnt, contexts[:0]).shape == (0, 32)


def test_it_keeps_the_contract():
    check_teacher(ContinuousProgramTS(parabola, draws=100, sets=1, warmup=100))


def demand(contexts, actions, rewards=None):
    """Whether it is sold, by a logistic curve: what is maximised is the price times that."""
    taste = numpyro.sample("taste", dist.Normal(3.0, 2.0))
    p = jax.nn.sigmoid(taste + contexts[:, 0] - actions)
    numpyro.sample("sold", dist.Bernoulli(p), obs=rewards)
    return p


def test_with_an_objective_the_program_models_the_outcome():
    prices = Problem(
        name="price",
        context=[Numeric("x", low=0, high=1)],
        actions=Continuous("price", low=1, high=10, bins=64),
        reward=Reward(objective="price * sold"),
    )
    rng, n = np.random.default_rng(3), 2_000
    contexts, actions = rng.random((n, 1)).astype(np.float32), rng.uniform(1, 10, n)
    sold = (rng.random(n) < 1 / (1 + np.exp(actions - 4 - contexts[:, 0]))).astype(float)
    given = Observations(prices, contexts, actions, sold, np.full(n, 1 / 9, np.float32))
    teacher = ContinuousProgramTS(demand, draws=200, sets=1, warmup=200)
    state = teacher.update(teacher.init(prices), given, KEY)
    grid = np.linspace(1, 10, 9001)
    for x in (0.0, 1.0):
        best = grid[(grid / (1 + np.exp(grid - 4 - x))).argmax()]
        found = teacher.sample_actions(state, np.array([[x]], np.float32), 200, KEY)
        assert abs(found.mean() - best) < 0.2  # the taste is known to about 0.1
        means = teacher.mean_rewards(state, np.array([[x]], np.float32))[0]
        assert abs(prices.actions.middles[means.argmax()] - best) < 0.3


def fails(contexts, actions, rewards=None):
    theta = numpyro.sample("theta", dist.Normal(0.0, 1.0))
    mean = theta * jnp.log(actions - 12)
    numpyro.sample("reward", dist.Normal(jnp.nan_to_num(mean), 1.0), obs=rewards)
    return mean


def test_what_cannot_be_is_refused():
    teacher = dataclasses.replace(TEACHER, program=fails)
    with pytest.raises(InvalidModel, match="mean rewards of context 0 are not finite under 500 of 500 draws"):
        teacher.propensities(teacher.init(problem()), np.zeros((1, 1), np.float32), KEY)
    with pytest.raises(UnsupportedSpace, match=r"ContinuousProgramTS does not support .* it needs a continuous action"):
        TEACHER.init(Problem(name="p", context=[], actions=Discrete(["a", "b"])))
    with pytest.raises(UnsupportedSpace, match="finite list"):
        ProgramTS(parabola).init(problem())
    with pytest.raises(InvalidOption, match="ContinuousProgramTS: draws must be at least 1, got 0"):
        ContinuousProgramTS(parabola, draws=0)
