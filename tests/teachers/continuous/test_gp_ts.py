"""GP-TS on an interval against dense algebra and draws on a fine grid."""

import numpy as np
import pytest

from potstill.keys import Key
from potstill.problem import Numeric, Observations, Problem
from potstill.spaces import Continuous
from potstill.teachers import ContinuousGaussianProcessTS
from potstill.teachers.gp.kernels import RBF, Matern

KEY = Key(9)
PROBLEM = Problem(
    name="dose",
    context=[Numeric("a", low=0, high=1), Numeric("b", low=0, high=1)],
    actions=Continuous("dose", low=1, high=100, scale="log", bins=8),
)
#: Lengths of the kernel of `fixed`, of contexts and of positions on the scale, and its noise.
CONTEXT, ACTION, NOISE = 0.7, 0.3, 0.2


def fixed(**options):
    kernel = RBF("context", length_scale=CONTEXT) * RBF("action", length_scale=ACTION)
    return ContinuousGaussianProcessTS(kernel=kernel, noise=NOISE, fit_steps=0, **options)


def observations(n, seed=0, noise=0.1):
    rng = np.random.default_rng(seed)
    contexts, units = rng.random((n, 2)).astype(np.float32), rng.random(n)
    rewards = 7 - 20 * (units - 0.2 - 0.6 * contexts[:, 0] * contexts[:, 1]) ** 2 + noise * rng.standard_normal(n)
    return Observations(PROBLEM, contexts, 100**units, rewards, np.full(n, 0.1, np.float32))


def learnt(teacher, given):
    return teacher.update(teacher.init(PROBLEM), given, KEY)


def dense(given, context, units):
    """Mean and covariance of the posterior in one context at some positions, in units of the reward, written out."""

    def between(x, u, z, v):
        apart = ((x[:, None] - z) ** 2).sum(axis=2) / CONTEXT**2 + (u[:, None] - v) ** 2 / ACTION**2
        return np.exp(-apart / 2)

    mean, scale = given.rewards.mean(), given.rewards.std()
    seen, at = given.contexts.astype(np.float64), np.log(given.actions) / np.log(100)
    here = np.repeat(context[None].astype(np.float64), len(units), axis=0)
    inverse = np.linalg.inv(between(seen, at, seen, at) + NOISE * np.eye(len(seen)))
    cross = between(here, units, seen, at)
    covariance = between(here, units, here, units) - cross @ inverse @ cross.T
    return mean + scale * (cross @ inverse @ ((given.rewards - mean) / scale)), scale**2 * covariance


def test_the_mean_is_that_of_dense_algebra():
    given, contexts = observations(40), observations(3, seed=1).contexts
    found = fixed().mean_rewards(learnt(fixed(), given), contexts)
    units = np.log(PROBLEM.actions.middles) / np.log(100)
    for context, row in zip(contexts, found, strict=True):
        # Observed actions are rounded to 1/1024 of the scale.
        np.testing.assert_allclose(row, dense(given, context, units)[0], atol=0.02)


def test_the_maximisers_are_those_of_draws_on_a_fine_grid():
    """Shares of two sets of 20,000 draws in a bin differ by over 0.02 with probability below 1e-3, by Hoeffding."""
    given, draws, rng = observations(15, noise=1.0), 20_000, np.random.default_rng(2)
    context, units = observations(1, seed=1).contexts, np.linspace(0, 1, 300)
    mean, covariance = dense(given, context[0], units)
    values = mean + rng.multivariate_normal(np.zeros(300), covariance, draws, method="eigh")
    expected = np.bincount((8 * units[values.argmax(axis=1)]).astype(int).clip(max=7), minlength=8) / draws
    actions = fixed().sample_actions(learnt(fixed(), given), context, draws, KEY)[0]
    assert np.abs(np.histogram(actions, PROBLEM.actions.edges)[0] / draws - expected).max() < 0.02


def test_it_learns_a_best_action_that_depends_on_two_columns_together():
    teacher, given, contexts = ContinuousGaussianProcessTS(), observations(300), observations(50, seed=1).contexts
    units = np.log(teacher.sample_actions(learnt(teacher, given), contexts, 20, KEY)) / np.log(100)
    assert np.abs(units - 0.2 - 0.6 * (contexts[:, 0] * contexts[:, 1])[:, None]).mean() < 0.04


def test_beyond_the_limit_inducing_points_give_nearly_the_same():
    given, contexts = observations(200), observations(20, seed=1).contexts
    means = [teacher.mean_rewards(learnt(teacher, given), contexts) for teacher in (fixed(), fixed(exact_limit=50))]
    np.testing.assert_allclose(*means, atol=0.05)


def test_options_that_do_not_apply_are_refused_and_a_window_is_kept():
    assert len(learnt(fixed(window=30), observations(50)).memory.actions) == 30
    with pytest.raises(ValueError, match="ContinuousGaussianProcessTS: points must be at least 3, got 2"):
        ContinuousGaussianProcessTS(points=2)
    with pytest.raises(ValueError, match="action_features must be left out"):
        ContinuousGaussianProcessTS(action_features=((0.0,), (1.0,)))
    with pytest.raises(ValueError, match="a kernel on the context alone"):
        ContinuousGaussianProcessTS(kernel=Matern("context"))
