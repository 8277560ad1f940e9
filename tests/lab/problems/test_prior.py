"""Problems drawn from a teacher's prior: their moments are the prior's, and each trial has a draw of its own."""

import numpy as np
import pytest

from potstill.keys import Key
from potstill.lab.problems import GaussianProcessPrior, LinearPrior, scenario
from potstill.lab.problems.environment import Simulation
from potstill.lab.runs import Fixed
from potstill.policy import Policy
from potstill.teachers import LinearTS
from potstill.teachers.gp import Points
from potstill.teachers.linear import Coefficient


def test_parameters_have_the_moments_of_the_prior():
    """Student-t of 2·alpha degrees of freedom; a mean square of 2,400 of them is within 5 standard errors, 1 in 1e6."""
    prior = LinearPrior(teacher=LinearTS(precision=0.5, alpha=9.0, beta=4.0), width=5, actions=4)
    drawn = [prior.drawn(Key(i)).parameters for i in range(100)]
    variances = np.concatenate([variance for _, variance in drawn])
    assert variances.mean() == pytest.approx(4 / 8, abs=5 * variances.std() / 20)  # beta / (alpha - 1)
    squares = np.concatenate([theta.ravel() ** 2 for theta, _ in drawn])
    assert squares.mean() == pytest.approx(0.5 / 0.5, abs=5 * squares.std() / np.sqrt(len(squares) / 6))


def test_an_informative_prior_is_drawn_from():
    """One coefficient of mean 3 and a standard deviation of about 0.1; 100 draws of it."""
    teacher = LinearTS(prior={"a1": {"x0": Coefficient(mean=3.0, precision=100.0)}})
    drawn = np.array([LinearPrior(teacher=teacher, width=2).drawn(Key(i)).parameters[0] for i in range(100)])
    assert drawn[:, 1, 0].mean() == pytest.approx(3.0, abs=0.06)
    assert drawn[:, 1, 0].std() < 0.2 < 1 < drawn[:, 1, 1].std()
    assert abs(drawn[:, 0, 0].mean()) < 1.1


def test_a_path_has_the_covariance_of_the_kernel():
    prior = GaussianProcessPrior(places=12, actions=3)
    paths = np.array([prior.drawn(Key(i)).path.ravel() for i in range(600)])
    teacher = prior.teacher
    contexts = np.repeat(prior.grid.astype(np.float32), 3, axis=0)
    points = Points(contexts, np.tile(np.arange(3, dtype=np.int32), 12))
    expected = teacher.model(teacher.init(prior.problem)).covariance(points, points)
    empirical = paths.T @ paths / len(paths)
    # A covariance errs by √(k_ii·k_jj + k_ij²)/√600; none of 1,296 by more than 5 of these, which 1 in 1,000 seeds does
    variances = np.diag(expected)
    errors = np.sqrt((np.outer(variances, variances) + expected**2) / len(paths))
    assert (abs(empirical - expected) < 5 * errors).all()
    assert paths.mean() == pytest.approx(0, abs=5 * np.sqrt(expected.mean() / len(paths)))


@pytest.mark.parametrize("prior", [LinearPrior(), GaussianProcessPrior()], ids=["linear", "gp"])
def test_rewards_are_the_means_with_noise_and_a_draw_is_repeatable(prior):
    one, same, other = prior.drawn(Key(1)), prior.drawn(Key(1)), prior.drawn(Key(2))
    contexts = one.contexts(4_000, np.random.default_rng(0))
    means = one.means(contexts)
    np.testing.assert_array_equal(means, same.means(contexts))
    assert np.abs(means - other.means(contexts)).max() > 0.1
    actions = np.zeros(4_000, np.int64)
    noise = one.rewards(contexts, actions, np.random.default_rng(1)) - means[:, 0]
    spread = np.sqrt(one.parameters[1][0]) if isinstance(one, LinearPrior) else one.noise
    assert noise.mean() == pytest.approx(0, abs=5 * spread / np.sqrt(4_000))
    assert noise.std() == pytest.approx(spread, rel=5 / np.sqrt(8_000))


@pytest.mark.parametrize("name", ["linear-prior", "gp-prior"])
def test_trials_of_a_scenario_have_other_reward_functions(name):
    worlds = [scenario(name).world(seed) for seed in (0, 0, 1)]
    assert all(isinstance(world, Simulation) for world in worlds)
    uniform = [Fixed(Policy.uniform(world.problem)) for world in worlds]
    regrets = [world.batch(50, agent.choose).regret for world, agent in zip(worlds, uniform, strict=True)]
    assert regrets[0] == regrets[1] != regrets[2]
