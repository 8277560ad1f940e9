"""Newton's method, the evidence and the expected rewards, against general optimisers and numerical integrals."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit

from potstill.teachers.glm import BERNOULLI, POISSON, laplace
from potstill.teachers.linear import nig
from potstill.teachers.memory import Memory

FAMILIES = {"bernoulli": BERNOULLI, "poisson": POISSON}


def data_of(family, n=300, k=3, slope=2.0, seed=1):
    rng = np.random.default_rng(seed)
    contexts, actions = rng.random((n, 2)).astype(np.float32), rng.integers(0, k, n).astype(np.int32)
    predictor = slope * contexts[:, 0] * (actions - 1) - 0.5
    drawn = rng.random(n) < expit(predictor) if family is BERNOULLI else rng.poisson(np.exp(predictor))
    return Memory(contexts, actions, drawn.astype(np.float64), rng.uniform(0.5, 1.5, n))


def regressors(rows):
    return nig.with_intercept(rows.contexts)


def fitted(family, data, k=3):
    calls = []

    def expand_all(coefficients):
        calls.append(coefficients)
        return laplace.expand_in_chunks(regressors, data, family, coefficients)

    sums = nig.sums(data.contexts, data.actions, data.rewards, data.weights, k, intercept=True)
    return laplace.fit(sums, family, expand_all), calls


def log_likelihood(family, data, coefficients, action):
    """Written out: Bernoulli and Poisson log probabilities."""
    rows = data.actions == action
    predictor, y = regressors(data)[rows] @ coefficients, data.rewards[rows]
    if family is BERNOULLI:
        each = y * np.log(expit(predictor)) + (1 - y) * np.log(expit(-predictor))
    else:
        each = y * predictor - np.exp(predictor)
    return float(data.weights[rows] @ each)


def centre_of(family, data):
    rate = (data.weights @ data.rewards + 0.5) / (data.weights.sum() + 1)
    return np.array([0, 0, np.log(rate / (1 - rate)) if family is BERNOULLI else np.log(rate)])


@pytest.mark.parametrize("name", FAMILIES)
def test_the_mode_and_the_covariance_are_those_of_a_general_optimiser(name):
    family, data = FAMILIES[name], data_of(FAMILIES[name])
    posterior, _ = fitted(family, data)
    centre, precision = centre_of(family, data), float(posterior.precision)

    for action in range(3):

        def density(c, action=action):
            return precision / 2 * ((c - centre) ** 2).sum() - log_likelihood(family, data, c, action)

        found = minimize(density, centre, method="BFGS", options={"gtol": 1e-8})
        np.testing.assert_allclose(posterior.mean[action], found.x, atol=1e-4)
        step = 1e-4 * np.eye(3)
        at = posterior.mean[action]
        hessian = [
            [density(at + u + v) - density(at + u - v) - density(at - u + v) + density(at - u - v) for v in step]
            for u in step
        ]
        covariance = posterior.factor[action] @ posterior.factor[action].T
        np.testing.assert_allclose(covariance, np.linalg.inv(np.array(hessian) / 4e-8), rtol=2e-3, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_evidence_at_the_mode_is_near_the_integral(name):
    """One action and one coefficient: integrate likelihood times prior. Laplace is within 0.02 at 60 observations."""
    family, rng = FAMILIES[name], np.random.default_rng(3)
    y = (rng.random(60) < 0.3).astype(np.float64) if family is BERNOULLI else rng.poisson(1.5, 60).astype(np.float64)
    data = Memory(np.zeros((60, 0), np.float32), np.zeros(60, np.int32), y, np.ones(60))
    precision, centre = 0.5, 0.2

    def height(c):
        return log_likelihood(family, data, np.array([c]), 0) - precision / 2 * (c - centre) ** 2

    mode = minimize(lambda c: -height(c[0]), [0.0]).x[0]
    expansion = laplace.expand(np.ones((60, 1)), data, family, np.array([[mode]]))
    found = laplace.log_evidence(expansion, np.array([[mode - centre]]), np.array([precision]))[0]
    area = quad(lambda c: np.exp(height(c) - height(mode)), mode - 5, mode + 5)[0]
    exact = np.log(area) + height(mode) + np.log(precision / (2 * np.pi)) / 2
    assert found == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_precision_is_the_best_on_the_grid_by_its_own_modes(name):
    """Refit at every precision of the grid by a general optimiser, and compare Laplace evidences."""
    family, data = FAMILIES[name], data_of(FAMILIES[name])
    centre, evidences = centre_of(family, data), []
    for precision in laplace.PRECISIONS:

        def density(c, precision=precision):
            c = c.reshape(3, 3)
            likelihood = sum(log_likelihood(family, data, c[a], a) for a in range(3))
            return precision / 2 * ((c - centre) ** 2).sum() - likelihood

        mode = minimize(density, np.tile(centre, 3), method="BFGS").x.reshape(3, 3)
        expansion = laplace.expand_in_chunks(regressors, data, family, mode)
        evidences.append(laplace.log_evidence(expansion, mode - centre, np.array([precision]))[0])
    assert float(fitted(family, data)[0].precision) == laplace.PRECISIONS[np.argmax(evidences)]


def test_few_passes_are_enough_and_the_start_follows_from_the_sums():
    for family in FAMILIES.values():
        data = data_of(family, n=2000, slope=6.0)
        _, calls = fitted(family, data)
        assert len(calls) <= 8
        rates = np.bincount(data.actions, data.weights * data.rewards) / np.bincount(data.actions, data.weights)
        constant = np.zeros((3, 3))
        constant[:, -1] = family.link(rates)
        sums = nig.sums(data.contexts, data.actions, data.rewards, data.weights, 3, intercept=True)
        expected = laplace.expand_in_chunks(regressors, data, family, constant)
        for one, other in zip(laplace._constant(sums, family, rates), expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_separated_rewards_have_a_finite_mode():
    x = np.linspace(0, 1, 40, dtype=np.float32)
    data = Memory(np.stack([x, x], axis=1), np.zeros(40, np.int32), (x > 0.5).astype(np.float64), np.ones(40))
    posterior, calls = fitted(BERNOULLI, data, k=1)
    assert np.abs(posterior.mean).max() < 100
    assert len(calls) < laplace.EVALUATIONS


@pytest.mark.parametrize("mean", [-4.0, -0.3, 0.0, 2.0])
@pytest.mark.parametrize("scale", [0.0, 0.5, 3.0, 25.0])
def test_expected_rewards_are_integrals_over_the_normal_predictor(mean, scale):
    def integral(function, bound):
        def weighted(z):
            return function(mean + scale * z) * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)

        return quad(weighted, -bound, bound, points=[-mean / scale] if scale else None, limit=500)[0]

    rate = BERNOULLI.expected(np.array([mean]), np.array([scale]))[0]
    assert rate == pytest.approx(integral(expit, 9), abs=1e-7)
    if scale < 10:
        count = POISSON.expected(np.array([mean]), np.array([scale]))[0]
        assert count == pytest.approx(integral(np.exp, 12), rel=1e-6)
