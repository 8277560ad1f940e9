import numpy as np
import pytest
from scipy.special import expit

import potstill as ps
from potstill.errors import InvalidObservation, InvalidOption
from potstill.keys import Key
from potstill.problem import Observations
from potstill.teachers import EmpiricalLinearTS, ForestTS, LogisticTS, PoissonTS, check_support
from potstill.teachers.conformance import parts_are_read_as_the_whole

KEY = Key(0)
PROBLEM = ps.Problem(name="offer", context=[ps.Numeric("x", low=0, high=1)], actions=ps.Discrete(["a", "b", "c"]))
TEACHERS = {LogisticTS: np.array([[-3.0, 2.0, 0.0], [1.0, -1.0, -6.0]]), PoissonTS: np.array([[0, 1, -1], [1, 0, 2.0]])}


def observed(teacher, n=400, seed=0):
    """Intercepts and slopes of each action, as `TEACHERS` has them."""
    rng, (intercepts, slopes) = np.random.default_rng(seed), TEACHERS[teacher]
    x, actions = rng.random((n, 1)).astype(np.float32), rng.integers(0, 3, n).astype(np.int32)
    predictor = intercepts[actions] + slopes[actions] * x[:, 0]
    rewards = rng.random(n) < expit(predictor) if teacher is LogisticTS else rng.poisson(np.exp(predictor))
    return Observations(PROBLEM, x, actions, rewards.astype(np.float64), np.full(n, 1 / 3, np.float32))


@pytest.mark.parametrize("kind", TEACHERS)
def test_means_come_near_the_truth(kind):
    given, (intercepts, slopes) = observed(kind, 20_000), TEACHERS[kind]
    state = kind().update(kind().init(PROBLEM), given, KEY)
    x = np.array([[0.1], [0.9]], np.float32)
    inverse = expit if kind is LogisticTS else np.exp
    np.testing.assert_allclose(kind().mean_rewards(state, x), inverse(intercepts + slopes * x), rtol=0.1, atol=0.02)


@pytest.mark.parametrize("kind", TEACHERS)
def test_the_posterior_does_not_depend_on_the_division_into_updates(kind):
    given, teacher = observed(kind), kind()
    once = teacher.update(teacher.init(PROBLEM), given, KEY)
    twice = teacher.update(teacher.update(teacher.init(PROBLEM), given[:150], KEY), given[150:], KEY)
    np.testing.assert_array_equal(once.posterior.mean, twice.posterior.mean)
    np.testing.assert_array_equal(once.posterior.factor, twice.posterior.factor)


@pytest.mark.parametrize("kind", TEACHERS)
def test_weighted_parts_are_read_as_the_whole(kind):
    parts_are_read_as_the_whole(kind(weighting="inverse-propensity"))


def test_propensities_are_those_of_the_posterior_by_importance_sampling():
    """The exact posterior of 40 observations, from 200,000 draws of the approximation weighted by density: the Laplace
    approximation is within 0.02 in total variation.
    """
    given, teacher = observed(LogisticTS, 40), LogisticTS()
    state = teacher.update(teacher.init(PROBLEM), given, KEY)
    rng, (mean, factor, precision) = np.random.default_rng(1), state.posterior
    rate = (given.rewards.sum() + 0.5) / 41
    centre, x = np.array([0, np.log(rate / (1 - rate))]), np.concatenate([given.contexts, np.ones((40, 1))], axis=1)
    contexts = np.array([[0.2], [0.8]], np.float32)
    values = []
    for a in range(3):
        z = rng.standard_t(5, (200_000, 2))
        drawn = mean[a] + z @ factor[a].T
        rows, signs = given.actions == a, 2 * given.rewards - 1
        log_density = np.log(expit(signs[rows] * (drawn @ x[rows].T))).sum(axis=1)
        log_density -= precision / 2 * ((drawn - centre) ** 2).sum(axis=1)
        log_density += 3 * np.log1p(z**2 / 5).sum(axis=1)  # less the density of the draws
        weights = np.exp(log_density - log_density.max())
        kept = drawn[rng.choice(len(drawn), len(drawn), p=weights / weights.sum())]
        values.append(kept @ np.concatenate([contexts, np.ones((2, 1))], axis=1).T)
    best = np.argmax(values, axis=0)
    exact = np.stack([(best == a).mean(axis=0) for a in range(3)], axis=1)
    gap = np.abs(teacher.propensities(state, contexts, KEY) - exact).sum(axis=1) / 2
    assert gap.max() < 0.02


def test_mean_rewards_are_rates_where_those_of_a_linear_teacher_are_not():
    given, everywhere = observed(LogisticTS, 3000), np.linspace(0, 1, 50, dtype=np.float32)[:, None]
    means = {
        teacher: teacher.mean_rewards(teacher.update(teacher.init(PROBLEM), given, KEY), everywhere)
        for teacher in (LogisticTS(), ForestTS(), EmpiricalLinearTS())
    }
    logistic, forest, linear = means.values()
    assert 0 < logistic.min() < logistic.max() < 1
    assert 0 <= forest.min() <= forest.max() <= 1
    assert linear.min() < 0


def test_a_window_forgets():
    given, teacher = observed(LogisticTS, 300), LogisticTS(window=100)
    state = teacher.update(teacher.init(PROBLEM), given, KEY)
    latest = LogisticTS().update(LogisticTS().init(PROBLEM), given[200:], KEY)
    np.testing.assert_array_equal(state.posterior.mean, latest.posterior.mean)
    assert teacher.passes == 0


@pytest.mark.parametrize("value", [0.5, 2.0, -1.0])
def test_rewards_that_do_not_fit_are_refused_with_a_teacher_that_takes_them(value):
    for kind in TEACHERS:
        if kind is PoissonTS and value > 0:
            continue
        rewards = np.array([1.0, 0.0, value])
        given = Observations(
            PROBLEM, np.zeros((3, 1), np.float32), np.zeros(3, np.int32), rewards, np.ones(3, np.float32)
        )
        must = "0 or 1" if kind is LogisticTS else "0 or more"
        message = rf"{kind.__name__}: rewards must be {must}, got {value:g} in row 2; .*use auto-ts or empirical"
        with pytest.raises(InvalidObservation, match=message):
            kind().update(kind().init(PROBLEM), given, KEY)


def test_a_problem_that_states_other_rewards_is_refused_before_any_update():
    number = ps.Problem(name="n", context=[], actions=ps.Discrete(["a", "b"]), reward=ps.Reward(kind="number"))
    with pytest.raises(InvalidOption, match="LogisticTS learns from rewards of kind yes/no, and the problem"):
        check_support(LogisticTS(), number)
    check_support(EmpiricalLinearTS(), number)
    check_support(LogisticTS(), PROBLEM)


@pytest.mark.parametrize(("options", "message"), [({"precision": 0.0}, "precision"), ({"window": 0}, "window")])
def test_wrong_options_are_refused(options, message):
    with pytest.raises(InvalidOption, match=f"LogisticTS: {message} must be"):
        LogisticTS(**options)


def test_a_still_distils_it():
    still = ps.Still(PROBLEM, teacher=LogisticTS())
    report = still.update(observed(LogisticTS))
    assert report.exactness.kind == "exact"
    assert still.policy.probabilities({"x": 0.95})[1] > 0.9
