import numpy as np
from scipy.integrate import quad

from potstill.keys import Key
from potstill.problem import Discrete, Numeric, Observations, Problem
from potstill.teachers import EmpiricalLinearTS
from potstill.teachers.linear import nig
from potstill.teachers.linear.empirical import NOISES, PRECISIONS, best_scales, log_evidence, standardised

PROBLEM = Problem(name="scales", context=[Numeric("x", low=0, high=1)], actions=Discrete(["a", "b"]))


def observed(n=200, shift=0.0, scale=1.0):
    rng = np.random.default_rng(4)
    x, actions = rng.random((n, 1)).astype(np.float32), rng.integers(0, 2, n).astype(np.int32)
    rewards = shift + scale * (x[:, 0] * actions + 0.3 * rng.normal(size=n))
    return Observations(PROBLEM, x, actions, rewards, np.full(n, 0.5, np.float32))


def test_log_evidence_agrees_with_the_integral_over_the_noise():
    """Given the noise variance, rewards are jointly normal: integrate their density over its prior numerically."""
    x, y = np.array([[0.2, 1.0], [0.9, 1.0], [0.4, 1.0]]), np.array([0.5, -0.3, 1.1])
    sums = nig.sums(x, np.zeros(3, np.int32), y, np.ones(3), 1)
    shape = np.eye(3) + x @ x.T / 0.7
    square, log_det = y @ np.linalg.solve(shape, y), np.linalg.slogdet(shape)[1]

    def density(v):
        normal = np.exp(-0.5 * (3 * np.log(2 * np.pi * v) + log_det + square / v))
        return normal * 0.4**1.5 / 0.886226925452758 * v**-2.5 * np.exp(-0.4 / v)  # Γ(1.5) = 0.886…

    assert np.isclose(log_evidence(sums, 0.7, 1.5, np.array([0.4]))[0], np.log(quad(density, 0, np.inf)[0]))


def test_the_scales_are_the_best_on_the_grid():
    sums, _, _ = standardised(EmpiricalLinearTS().summarise(observed()))
    chosen = best_scales(sums, 1.0)
    table = {(p, v): log_evidence(sums, p, 1.0, np.array([v]))[0] for p in PRECISIONS for v in NOISES}
    assert chosen == max(table, key=table.get)


def test_shifting_and_scaling_rewards_changes_no_propensity():
    teacher, contexts = EmpiricalLinearTS(), observed().contexts
    found = [
        teacher.propensities(teacher.update(teacher.init(PROBLEM), given, Key(0)), contexts, Key(0))
        for given in (observed(), observed(shift=1000.0, scale=0.01), observed(shift=-3.0, scale=50.0))
    ]
    assert np.allclose(found[0], found[1], atol=1e-4)
    assert np.allclose(found[0], found[2], atol=1e-4)


def test_means_are_in_units_of_rewards():
    teacher = EmpiricalLinearTS()
    given = observed(n=5000, shift=100.0, scale=2.0)
    means = teacher.mean_rewards(teacher.update(teacher.init(PROBLEM), given, Key(0)), np.array([[0.5]], np.float32))
    assert np.allclose(means, [[100.0, 101.0]], atol=0.1)


def test_equal_rewards_are_learnt_without_a_warning():
    teacher = EmpiricalLinearTS()
    given = observed(n=50, scale=0.0, shift=7.0)
    state = teacher.update(teacher.init(PROBLEM), given, Key(0))
    assert np.allclose(teacher.mean_rewards(state, given.contexts), 7.0)
    assert np.isfinite(teacher.propensities(state, given.contexts, Key(0))).all()
