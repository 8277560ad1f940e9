"""Linear-TS: the posterior worked out by hand, its invariants, and what it refuses."""

import re

import numpy as np
import pytest

import potstill as ps
from potstill.keys import Key
from potstill.teachers import DiagonalLinearTS, LinearTS
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations

KEY = Key(1)
ONE_FEATURE = ps.Problem(name="hand", context=[ps.Numeric("x", low=0, high=1)], actions=ps.Discrete(["left", "right"]))


def observed(rows):
    x, actions, rewards = zip(*rows, strict=True)
    return ps.Observations.from_columns(
        ONE_FEATURE,
        contexts=np.array(x)[:, None],
        actions=np.array(actions),
        rewards=rewards,
        propensities=np.full(len(rows), 0.5),
    )


def test_posterior_after_three_observations_by_hand():
    """Action 0 at x = 0, 1, 1 with rewards 1, 2, 4, and the paper's prior NIG(0, 0.25 I, 6, 6).

    With columns (x, 1): XᵀX = [[2, 2], [2, 3]], Λ = [[2.25, 2], [2, 3.25]], det Λ = 3.3125, Xᵀy = (6, 7),
    yᵀy = 21. μ = Λ⁻¹Xᵀy = (3.25·6 - 2·7, -2·6 + 2.25·7) / det = (5.5, 3.75) / 3.3125.
    α = 6 + 3/2, β = 6 + (21 - μ·Xᵀy)/2 with μ·Xᵀy = (33 + 26.25) / 3.3125.
    """
    state = LinearTS().update(LinearTS().init(ONE_FEATURE), observed([(0, 0, 1), (1, 0, 2), (1, 0, 4)]), KEY).posterior
    det = 3.3125
    np.testing.assert_allclose(state.mean[0], [5.5 / det, 3.75 / det], rtol=1e-12)
    np.testing.assert_allclose(state.root[0] @ state.root[0].T, [[2.25, 2], [2, 3.25]], rtol=1e-12)
    assert state.alpha[0] == 7.5
    assert state.beta[0] == pytest.approx(6 + (21 - 59.25 / det) / 2, rel=1e-12)
    # The action that was never tried keeps its prior.
    np.testing.assert_array_equal(state.mean[1], 0)
    assert (state.alpha[1], state.beta[1]) == (6, 6)


def test_marginals_by_hand():
    """Prior at x = 0.5: s = (0.5, 1), sᵀΛ⁻¹s = 4·1.25 = 5, so Student-t(12), location 0, scale √(6/6·5)."""
    location, scale, dof = LinearTS().marginals(LinearTS().init(ONE_FEATURE), np.float32([[0.5]]))
    np.testing.assert_allclose(location, 0)
    np.testing.assert_allclose(scale, np.sqrt(5))
    np.testing.assert_allclose(dof, 12)


def test_batch_equals_one_at_a_time_equals_shards():
    teacher, observations = LinearTS(), example_observations(200)
    prior = teacher.init(PROBLEM)
    batch = teacher.update(prior, observations, KEY)
    one_at_a_time = prior
    for i in range(len(observations)):
        one_at_a_time = teacher.update(one_at_a_time, observations[i : i + 1], KEY)
    shards = teacher.summarise(observations[:70]) + teacher.summarise(observations[70:])
    for other in (one_at_a_time, teacher.absorb(prior, shards)):
        for a, b in zip(batch.posterior, other.posterior, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_propensities_are_what_posterior_draws_do():
    """The paper's own way: draw σ², then θ, take the best action, count. 200,000 draws; false alarm below 1e-5."""
    teacher = LinearTS()
    state = teacher.update(teacher.init(PROBLEM), example_observations(30), KEY)
    x = np.append(example_contexts(1)[0].astype(float), 1.0)
    rng, n = np.random.default_rng(3), 200_000
    rewards = []
    for mean, root, alpha, beta in zip(*state.posterior, strict=True):
        sigma = np.sqrt(beta / rng.gamma(alpha, size=n))
        theta = mean + sigma[:, None] * np.linalg.solve(root.T, rng.standard_normal((len(x), n))).T
        rewards.append(theta @ x)
    share = np.bincount(np.argmax(rewards, axis=0), minlength=3) / n
    p = teacher.propensities(state, example_contexts(1), KEY)[0]
    np.testing.assert_allclose(p, share, atol=5 * np.sqrt(0.25 / n))


def test_a_discount_forgets():
    """Ten equal batches at discount ½ weigh 1 + ½ + ¼ + … batches: just under two."""
    teacher, batch = LinearTS(discount=0.5), observed([(0.5, 0, 1.0), (0.5, 1, -1.0)])
    state = teacher.init(ONE_FEATURE)
    for _ in range(10):
        state = teacher.update(state, batch, KEY)
    np.testing.assert_allclose(state.sums.n, 2 - 2.0**-9)
    np.testing.assert_allclose(state.posterior.alpha, 6 + (2 - 2.0**-9) / 2)


def test_it_learns_which_action_is_best():
    observations = example_observations(2000)
    teacher = LinearTS()
    state = teacher.update(teacher.init(PROBLEM), observations, KEY)
    fast = PROBLEM.encode_many([{"speed": 9.0, "place": "home", "new": False}])
    assert teacher.propensities(state, fast, KEY)[0, 2] > 0.99


def test_huge_equal_rewards_give_a_finite_posterior():
    rows = [(0.5, 0, 1e9)] * 1000
    state = LinearTS().update(LinearTS().init(ONE_FEATURE), observed(rows), KEY).posterior
    assert np.isfinite(state.mean).all()
    assert (state.beta >= 6).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"precision": 0.0}, "LinearTS: precision must be a positive number, got 0.0"),
        ({"alpha": -1.0}, "alpha must be a positive number"),
        ({"beta": float("nan")}, "beta must be a positive number"),
        ({"discount": 0.0}, "discount must be above 0 and at most 1"),
        ({"discount": 1.1}, "discount must be above 0 and at most 1"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        LinearTS(**options)


def test_a_diagonal_posterior_by_hand():
    """The three observations of above: the same mean, and x²-weighted variances 1/Λ_jj without the cross term."""
    teacher = DiagonalLinearTS()
    state = teacher.update(teacher.init(ONE_FEATURE), observed([(0, 0, 1), (1, 0, 2), (1, 0, 4)]), KEY)
    exact = LinearTS().update(LinearTS().init(ONE_FEATURE), observed([(0, 0, 1), (1, 0, 2), (1, 0, 4)]), KEY)
    np.testing.assert_allclose(state.posterior.mean, exact.posterior.mean)
    _, scale, _ = teacher.marginals(state, np.float32([[0.5]]))
    spread = 0.25 / 2.25 + 1 / 3.25
    np.testing.assert_allclose(scale[0, 0] ** 2, spread * state.posterior.beta[0] / 7.5)


def test_inverse_propensity_weights_count_rare_actions_more():
    """Two observations with propensities ½ and ¼ weigh 2 and 4 over their mean of 3."""
    observations = ps.Observations.from_columns(
        ONE_FEATURE,
        contexts=np.array([[0.0], [0.0]]),
        actions=np.array([0, 1]),
        rewards=[1.0, 1.0],
        propensities=[0.5, 0.25],
    )
    sums = LinearTS(weighting="inverse-propensity").summarise(observations).normalised()
    np.testing.assert_allclose(sums.n, [2 / 3, 4 / 3])
    np.testing.assert_allclose(sums.moment[:, 1], [2 / 3, 4 / 3])
    np.testing.assert_allclose(sums.gram[:, 1, 1], [2 / 3, 4 / 3])


def test_a_misspelt_weighting_is_refused():
    with pytest.raises(ValueError, match="weighting must be 'equal' or 'inverse-propensity', got 'inverse_propensity'"):
        LinearTS(weighting="inverse_propensity").summarise(example_observations(3))
