"""GaussianProcessTS: the textbook posterior, brute force and closed forms beside what the teacher says."""

import re

import numpy as np
import pytest
from scipy.stats import multivariate_normal, norm

import potstill as ps
from potstill.keys import Key
from potstill.teachers import GaussianProcessTS, GaussianProcessUCB, from_config, max_variance_design, to_config
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations
from potstill.teachers.gp import pairs, regression
from potstill.teachers.gp.kernels import RBF, Constant, Independent, Linear, Matern
from potstill.teachers.states import load_state, save_state

KEY = Key(1)
DOSES = ps.Problem(
    name="doses", context=[ps.Numeric("x", low=0, high=1)], actions=ps.Discrete([f"{mg} mg" for mg in range(20)])
)
TWO = ps.Problem(name="two", context=[ps.Numeric("x", low=0, high=1)], actions=ps.Discrete(["left", "right"]))
#: Features of three actions. Not symmetric, or else two pairs could have equal variances and either choice be right.
UNEVEN = ((0.0,), (0.3,), (1.0,))
SMOOTH = RBF("context", length_scale=0.5) * RBF("action", length_scale=0.3)


def observed(problem, rows):
    x, actions, rewards = (np.array(column) for column in zip(*rows, strict=True))
    return ps.Observations.from_columns(
        problem,
        contexts=x.astype(np.float32)[:, None],
        actions=actions,
        rewards=rewards,
        propensities=np.full(len(x), 0.5),
    )


def learnt(teacher, problem, observations):
    return teacher.update(teacher.init(problem), observations, KEY)


# The posterior.


def rbf(x, y, length_scale):
    return np.exp(-((np.subtract.outer(x, y) / length_scale) ** 2) / 2)


def test_the_textbook_posterior_on_five_points():
    """μ = m + k*ᵀ(K + σ²I)⁻¹(r - m) and Σ = k** - k*ᵀ(K + σ²I)⁻¹k*, by plain formulas, at x = 0.6 for 20 doses."""
    x, a = np.array([0.0, 0.25, 0.5, 0.75, 1.0]), np.array([0, 5, 5, 12, 19])
    r = np.array([1.0, 3.0, 2.0, 5.0, 4.0])
    teacher = GaussianProcessTS(kernel=SMOOTH, noise=0.2, fit_steps=0)
    joint = teacher.joint(learnt(teacher, DOSES, observed(DOSES, zip(x, a, r, strict=True))), np.float32([[0.6]]))

    dose, every, now = a / 19, np.arange(20) / 19, np.full(20, float(np.float32(0.6)))
    mean, scale = 3.0, np.sqrt(2.0)  # of r, which are 1 to 5
    inverse = np.linalg.inv(rbf(x, x, 0.5) * rbf(dose, dose, 0.3) + 0.2 * np.eye(5))
    cross = rbf(x, now, 0.5) * rbf(dose, every, 0.3)
    np.testing.assert_allclose(joint.mean[0], mean + cross.T @ inverse @ (r - mean), rtol=1e-6)
    expected = scale**2 * (rbf(every, every, 0.3) - cross.T @ inverse @ cross)
    np.testing.assert_allclose(joint.covariance[0], expected, rtol=1e-6, atol=1e-7)


def test_a_weight_of_two_is_an_observation_seen_twice():
    points = pairs.Points(np.float32([[0.1], [0.8]]), np.int32([3, 9]))
    twice = pairs.Points(np.float32([[0.1], [0.8], [0.8]]), np.int32([3, 9, 9]))
    model = GaussianProcessTS(kernel=SMOOTH).model(GaussianProcessTS(kernel=SMOOTH).init(DOSES))
    weighted = regression.exact(model, points, regression.Targets(np.array([1.0, -1.0]), np.array([1.0, 2.0])))
    repeated = regression.exact(model, twice, regression.Targets(np.array([1.0, -1.0, -1.0]), np.ones(3)))
    for one, other in zip(
        *(regression.predict(model, p, np.float32([[0.3], [0.9]])) for p in (weighted, repeated)), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_inverse_propensities_make_rare_actions_less_noisy():
    rows = observed(TWO, [(0.2, 0, 0.0), (0.4, 0, 0.1), (0.6, 0, 0.2), (0.5, 1, 1.0)])
    rare = ps.Observations(TWO, rows.contexts, rows.actions, rows.rewards, np.float32([0.9, 0.9, 0.9, 0.1]))
    spread = [
        learnt(GaussianProcessTS(weighting=weighting, fit_steps=0), TWO, rare)
        for weighting in ("equal", "inverse-propensity")
    ]
    equal, weighted = (
        GaussianProcessTS(fit_steps=0).joint(s, np.float32([[0.5]])).covariance[0, 1, 1] / s.unit[1] ** 2
        for s in spread
    )
    assert weighted < 0.7 * equal


def test_an_action_never_tried_keeps_its_prior():
    teacher = GaussianProcessTS(kernel=Matern("context") * Independent(variance=2.0), fit_steps=0)
    state = learnt(teacher, TWO, observed(TWO, [(0.5, 0, 1.0), (0.2, 0, 3.0)]))
    joint = teacher.joint(state, np.float32([[0.5]]))
    assert joint.mean[0, 1] == pytest.approx(2.0)  # the mean of what was seen
    assert joint.covariance[0, 1, 1] == pytest.approx(2.0 * 1.0)  # prior variance, in units of the rewards' variance 1
    assert joint.covariance[0, 0, 0] < 0.5


def wavy(n, seed, noise=0.2):
    """Observations of a smooth function of one context column and 20 doses."""
    rng = np.random.default_rng(seed)
    x, a = rng.random(n), rng.integers(20, size=n)
    return observed(DOSES, zip(x, a, np.sin(5 * x + 4 * a / 19) + noise * rng.standard_normal(n), strict=True))


def test_inducing_points_come_close_to_the_exact_posterior():
    kept = GaussianProcessTS(kernel=SMOOTH, fit_steps=0)
    sparse = GaussianProcessTS(kernel=SMOOTH, fit_steps=0, exact_limit=0, inducing=120)
    observations, contexts = wavy(900, seed=2), np.linspace(0, 1, 40, dtype=np.float32)[:, None]
    states = [learnt(teacher, DOSES, observations) for teacher in (kept, sparse)]
    assert len(states[0].posterior.weights) == 900
    assert len(states[1].posterior.weights) <= 120
    exact, close = (kept.joint(state, contexts) for state in states)
    deviation = np.sqrt(np.einsum("nkk->nk", exact.covariance))
    assert (np.abs(close.mean - exact.mean) < 0.05 * deviation).all()
    np.testing.assert_allclose(close.covariance, exact.covariance, atol=0.05 * deviation.min() ** 2)


def test_too_few_inducing_points_are_not_overconfident():
    """Three points cannot know a wavy function: the variance must cover the error rather than vanish."""
    teacher = GaussianProcessTS(kernel=SMOOTH, fit_steps=0, exact_limit=0, inducing=3)
    joint = teacher.joint(learnt(teacher, DOSES, wavy(900, seed=2)), np.float32([[0.1], [0.5], [0.9]]))
    truth = np.sin(5 * np.array([[0.1], [0.5], [0.9]]) + 4 * np.arange(20) / 19)
    error = (joint.mean - truth) ** 2 / np.einsum("nkk->nk", joint.covariance)
    assert error.mean() < 2


def test_inducing_points_are_exact_where_they_hold_all_points():
    points = pairs.Points(np.float32([[0.1], [0.4], [0.4], [0.9], [0.7]]), np.int32([2, 9, 15, 3, 19]))
    targets = regression.Targets(np.array([1.0, 0.0, 2.0, -1.0, 0.5]), np.array([1.0, 3.0, 0.2, 1.0, 0.5]))
    model = GaussianProcessTS(kernel=SMOOTH).model(GaussianProcessTS(kernel=SMOOTH).init(DOSES))
    both = regression.exact(model, points, targets), regression.sparse(model, points, targets, points)
    contexts = np.float32([[0.0], [0.3], [1.0]])
    for one, other in zip(*(regression.predict(model, posterior, contexts) for posterior in both), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


# Hyperparameters.


def test_the_marginal_likelihood_and_its_gradient():
    """The value beside SciPy's normal density, the gradient by every hyperparameter beside finite differences."""
    kernel = Linear("context") + Matern("context", 0.4, smoothness="1/2") * (RBF("action", 0.3) + Constant())
    rows = example_observations(30)
    points, relevance = pairs.Points(rows.contexts, rows.actions), np.linspace(-1, 1, PROBLEM.width)
    targets = regression.Targets(rows.rewards, np.random.default_rng(0).uniform(0.5, 2, 30))
    logs = np.append(kernel.start(None), np.log(0.3))

    def likelihood(vector):
        model = regression.Model(kernel, vector[: len(logs)], vector[len(logs) :], np.array(UNEVEN))
        return regression.log_marginal_likelihood(model, points, targets)

    at = np.append(logs, relevance)
    value, slope = likelihood(at)
    covariance = regression.Model(kernel, logs, relevance, np.array(UNEVEN)).covariance(points, points)
    density = multivariate_normal(cov=covariance + np.diag(0.3 / targets.weights))
    assert value == pytest.approx(density.logpdf(rows.rewards), rel=1e-6)
    step = 1e-5
    differences = [likelihood(at + step * e)[0] - likelihood(at - step * e)[0] for e in np.eye(len(at))]
    np.testing.assert_allclose(slope, np.array(differences) / (2 * step), rtol=1e-5, atol=1e-5)


def test_known_hyperparameters_are_found_again():
    """A draw of the process itself at 400 points; length scales and noise come back within a third."""
    truth = RBF("context", 0.15) * RBF("action", 0.4)
    rng = np.random.default_rng(8)
    points = pairs.Points(rng.random((400, 1)).astype(np.float32), rng.integers(20, size=400).astype(np.int32))
    covariance = truth(truth.start(None), pairs.between(points, points, np.linspace(0, 1, 20)[:, None]))
    rewards = np.linalg.cholesky(covariance + 0.05 * np.eye(400)) @ rng.standard_normal(400)
    teacher = GaussianProcessTS(kernel=RBF("context") * RBF("action"), spread=10.0, relevance=False)
    state = learnt(teacher, DOSES, observed(DOSES, zip(points.contexts[:, 0], points.actions, rewards, strict=True)))
    _, context_scale, _, action_scale, noise = np.exp(state.logs)
    assert context_scale == pytest.approx(0.15, rel=1 / 3)
    assert action_scale == pytest.approx(0.4, rel=1 / 3)
    assert noise * state.unit[1] ** 2 == pytest.approx(0.05, rel=1 / 3)


def test_columns_that_do_not_matter_are_found():
    """Six columns, of which the first alone decides; without relevance, the error is more than twice as large."""
    problem = ps.Problem(
        name="six", context=[ps.Numeric(f"x{i}", low=0, high=1) for i in range(6)], actions=ps.Discrete(["a", "b"])
    )
    rng = np.random.default_rng(6)
    x, a = rng.random((200, 6)).astype(np.float32), rng.integers(2, size=200)
    rows = ps.Observations.from_columns(
        problem,
        contexts=x,
        actions=a,
        rewards=np.sin(6 * x[:, 0] + 2 * a) + 0.1 * rng.standard_normal(200),
        propensities=np.full(200, 0.5),
    )
    new = rng.random((300, 6)).astype(np.float32)
    errors = []
    for relevance in (True, False):
        teacher = GaussianProcessTS(relevance=relevance)
        state = learnt(teacher, problem, rows)
        errors.append(np.abs(teacher.joint(state, new).mean - np.sin(6 * new[:, :1] + [0, 2])).mean())
        assert (state.relevance[0] > state.relevance[1:].max() + 1) if relevance else not state.relevance.any()
    assert errors[0] < 0.5 * errors[1]


def test_learning_goes_on_where_the_last_update_left_it():
    """Fifteen updates of one step each come near to what a hundred steps at once find; one step does not."""
    teacher, first = GaussianProcessTS(kernel=SMOOTH, fit_steps=1), wavy(80, seed=1)
    once = state = learnt(teacher, DOSES, first)
    for seed in range(15):
        state = teacher.update(state, wavy(1, seed), KEY)
    long = learnt(GaussianProcessTS(kernel=SMOOTH, fit_steps=100), DOSES, first)
    assert np.abs(state.logs - long.logs).max() < 0.3 * np.abs(once.logs - long.logs).max()


# Joint draws.


def test_draws_agree_with_the_normal_difference():
    """With two actions P(right is best) = Φ(gap / deviation of the gap), from the covariance with its correlation."""
    teacher = GaussianProcessTS(kernel=SMOOTH, fit_steps=0, noise=0.5)
    state = learnt(teacher, TWO, observed(TWO, [(0.2, 0, 1.0), (0.5, 1, 0.7), (0.8, 0, 0.4)]))
    contexts = np.linspace(0, 1, 5, dtype=np.float32)[:, None]
    mean, covariance = teacher.joint(state, contexts)
    contrast = np.array([-1.0, 1.0])
    right = norm.cdf(mean @ contrast / np.sqrt(contrast @ covariance @ contrast))
    np.testing.assert_allclose(teacher.propensities(state, contexts, KEY)[:, 1], right, atol=1e-6)
    # 40,000 draws per context, five standard errors: a false alarm once in 300,000 runs.
    share = teacher.sample_actions(state, contexts, 40_000, KEY).mean(axis=1)
    np.testing.assert_allclose(share, right, atol=5 * 0.5 / np.sqrt(40_000))


def test_shares_of_correlated_actions():
    """20 doses: 200,000 draws by NumPy's own multivariate normal, and the teacher's 2,048; false alarm below 1e-4."""
    teacher = GaussianProcessTS(kernel=SMOOTH, fit_steps=0)
    state = learnt(teacher, DOSES, wavy(15, seed=3))
    x = np.float32([[0.4]])
    mean, covariance = teacher.joint(state, x)
    draws = np.random.default_rng(0).multivariate_normal(mean[0], covariance[0], 200_000, method="eigh")
    share = np.bincount(draws.argmax(axis=1), minlength=20) / len(draws)
    assert teacher.exactness.standard_error == 0.5 / np.sqrt(2048)
    np.testing.assert_allclose(teacher.propensities(state, x, KEY)[0], share, atol=5 * teacher.exactness.standard_error)


def test_chunks_do_not_show(monkeypatch):
    """Contexts and observations that are taken a few at a time give what they give all at once."""
    teacher = GaussianProcessTS(draws=64, exact_limit=0, inducing=20)
    state = learnt(teacher, PROBLEM, example_observations(30))
    whole = teacher.propensities(state, example_contexts(50), KEY)
    monkeypatch.setattr("potstill.teachers.gp.gp_ts._CHUNK", 64 * 3 * 7)
    monkeypatch.setattr("potstill.teachers.gp.regression._ROWS", 7)
    np.testing.assert_allclose(teacher.propensities(state, example_contexts(50), KEY), whole, atol=1e-6)
    again = learnt(teacher, PROBLEM, example_observations(30))
    np.testing.assert_allclose(again.posterior.weights, state.posterior.weights, rtol=1e-6, atol=1e-8)


def test_neighbouring_doses_share_what_they_learn():
    """60 observations of 20 doses, 8 worlds: sharing must at least halve the regret of independent doses."""
    x = np.linspace(0, 1, 50)[:, None]
    means = np.sin(5 * x + 4 * np.arange(20) / 19)
    shared, apart = [], []
    for seed in range(8):
        for kernel, regrets in ((RBF("action"), shared), (Independent(), apart)):
            teacher = GaussianProcessTS(kernel=Matern("context") + Matern("context") * kernel, draws=256)
            p = teacher.propensities(learnt(teacher, DOSES, wavy(60, seed)), x.astype(np.float32), KEY)
            regrets.append((means.max(axis=1) - (p * means).sum(axis=1)).mean())
    assert np.mean(shared) < 0.5 * np.mean(apart)
    assert all(s < a for s, a in zip(shared, apart, strict=True))


# The paper's first batch.


def brute_force_design(model, candidates, n):
    """Each choice from a posterior that is worked out anew from all earlier ones."""
    chosen = []
    for _ in range(n):
        prior = model.covariance(candidates, candidates)
        cross = prior[chosen]
        noisy = prior[np.ix_(chosen, chosen)] + model.noise * np.eye(len(chosen))
        variance = (
            np.diag(prior) - np.einsum("ij,ij->j", cross, np.linalg.inv(noisy) @ cross) if chosen else np.diag(prior)
        )
        chosen.append(int(np.argmax(variance)))
    return np.array(chosen)


def crossed(contexts, k):
    return pairs.Points(np.repeat(contexts, k, axis=0), np.tile(np.arange(k, dtype=np.int32), len(contexts)))


@pytest.mark.parametrize(("noise", "pool"), [(0.1, 12), (3.0, 12), (3.0, 4)])
def test_the_design_is_what_brute_force_chooses(noise, pool):
    """Also where the pool has fewer pairs than are wanted, so that some come twice."""
    kernel = (Linear("context") + Matern("context", 0.6)) * (RBF("action") + Constant(0.3))
    teacher = GaussianProcessTS(kernel=kernel, action_features=UNEVEN, noise=noise)
    contexts = example_contexts(pool)
    design = max_variance_design(teacher, PROBLEM, contexts, 15)
    expected = brute_force_design(teacher.model(teacher.init(PROBLEM)), crossed(contexts, 3), 15)
    np.testing.assert_array_equal(design.contexts * 3 + design.actions, expected)


def test_the_design_goes_on_from_what_is_known():
    """After observing the first picks, the next ones are those that one long design would have made."""
    kernel = (Linear("context") + Matern("context", 0.6)) * RBF("action")
    teacher = GaussianProcessTS(kernel=kernel, action_features=UNEVEN, fit_steps=0)
    contexts = example_contexts(12)
    long = max_variance_design(teacher, PROBLEM, contexts, 10)
    first = ps.Observations.from_columns(
        PROBLEM,
        contexts=contexts[long.contexts[:6]],
        actions=long.actions[:6],
        rewards=np.arange(6.0),
        propensities=np.ones(6),
    )
    rest = max_variance_design(teacher, PROBLEM, contexts, 4, learnt(teacher, PROBLEM, first))
    np.testing.assert_array_equal(rest.contexts, long.contexts[6:])
    np.testing.assert_array_equal(rest.actions, long.actions[6:])


def test_a_design_spreads_over_actions_and_contexts():
    teacher = GaussianProcessTS(kernel=SMOOTH)
    pool = np.linspace(0, 1, 11, dtype=np.float32)[:, None]
    design = max_variance_design(teacher, DOSES, pool, 8)
    assert {0, 10} <= set(design.contexts.tolist())
    assert {0, 19} <= set(design.actions.tolist())
    assert len(max_variance_design(teacher, DOSES, pool, 0).actions) == 0
    with pytest.raises(ValueError, match=re.escape("needs n >= 0 and a non-empty pool, got n=3 and 0")):
        max_variance_design(teacher, DOSES, pool[:0], 3)


# Hard data, states, options.


@pytest.mark.parametrize("exact_limit", [1000, 0])
@pytest.mark.parametrize("scale", [1.0, 1e9, 1e-9, 1e99, 0.0])
def test_hard_rewards_and_columns_stay_finite(exact_limit, scale):
    """Constant and collinear columns, repeated rows, one action never tried, rewards of any size or all equal."""
    teacher = GaussianProcessTS(exact_limit=exact_limit, draws=64, fit_steps=10)
    contexts = example_contexts(6)
    rows = ps.Observations.from_columns(
        PROBLEM,
        contexts=np.concatenate([np.repeat(contexts[:1], 20, axis=0), contexts]),
        actions=np.arange(26) % 2,
        rewards=scale * (1 + 1e-3 * (np.arange(26) % 3)),
        propensities=np.full(26, 0.5),
    )
    state = learnt(teacher, PROBLEM, rows)
    p = teacher.propensities(state, contexts, KEY)
    assert all(np.isfinite(leaf).all() for leaf in (*state.posterior[1:], state.logs, state.unit, p))
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize("exact_limit", [1000, 0])
def test_points_without_variance_teach_nothing(exact_limit):
    """A line through the origin is 0 at the first dose whatever its slope: no inducing point is worth having."""
    teacher = GaussianProcessTS(kernel=Linear("action"), exact_limit=exact_limit)
    state = learnt(teacher, DOSES, observed(DOSES, [(0.5, 0, 1.0), (0.7, 0, 2.0)]))
    p = teacher.propensities(state, np.float32([[0.5]]), KEY)[0]
    # The slope is as likely up as down, and so the best dose is the last or the first.
    np.testing.assert_allclose(p[[0, -1]], 0.5, atol=5 * teacher.exactness.standard_error)
    assert not p[1:-1].any()


def test_units_of_the_reward_do_not_matter():
    rows = example_observations(40)
    teacher, contexts = GaussianProcessTS(), example_contexts(10)
    shifted = ps.Observations(PROBLEM, rows.contexts, rows.actions, 1e6 + 1e3 * rows.rewards, rows.propensities)
    one, other = (teacher.joint(learnt(teacher, PROBLEM, o), contexts) for o in (rows, shifted))
    np.testing.assert_allclose(other.mean, 1e6 + 1e3 * one.mean, rtol=1e-8)


# Information.


def test_the_information_gain_is_the_log_determinant():
    teacher = GaussianProcessTS(kernel=SMOOTH, noise=0.2, fit_steps=0)
    observations = example_observations(30)
    state = learnt(teacher, PROBLEM, observations)
    x, k = observations.contexts.astype(np.float64), len(observations)
    squared = ((x[:, None] - x) ** 2).sum(axis=2)
    features = np.linspace(0, 1, 3)[observations.actions]
    covariance = np.exp(-squared / 0.5) * rbf(features, features, 0.3)
    whole = 0.5 * np.linalg.slogdet(np.eye(k) + covariance / 0.2)[1]
    assert teacher.information_gain(state, k) == pytest.approx(whole, rel=1e-6)
    first = 0.5 * np.linalg.slogdet(np.eye(20) + covariance[:20, :20] / 0.2)[1]
    assert teacher.information_gain(state, 10) == pytest.approx(whole - first, rel=1e-6)
    assert teacher.information_gain(state, 0) == 0
    assert teacher.information_gain(teacher.init(PROBLEM), 0) == 0


def test_inducing_points_that_hold_all_points_have_the_same_information():
    options = {"kernel": SMOOTH, "noise": 0.2, "fit_steps": 0}
    observations = example_observations(30)
    exact, sparse = GaussianProcessTS(**options), GaussianProcessTS(**options, exact_limit=0, inducing=30)
    few = GaussianProcessTS(**options, exact_limit=0, inducing=5)
    gains = [one.information_gain(learnt(one, PROBLEM, observations), 30) for one in (exact, sparse, few)]
    assert gains[1] == pytest.approx(gains[0], rel=1e-4)
    assert 0 < gains[2] < gains[0]


def test_weights_of_equal_propensities_do_not_change_the_information():
    options = {"kernel": SMOOTH, "noise": 0.2, "fit_steps": 0}
    observations = observed(TWO, [(i / 30, i % 2, i % 3) for i in range(30)])
    equal, weighted = (GaussianProcessTS(**options, weighting=one) for one in ("equal", "inverse-propensity"))
    gains = [one.information_gain(learnt(one, TWO, observations), 10) for one in (equal, weighted)]
    assert gains[1] == pytest.approx(gains[0], rel=1e-6)


def test_the_report_of_a_batch_has_its_information_gain():
    student = ps.Student(hidden=(4,), steps=20)
    still = ps.Still(PROBLEM, GaussianProcessTS(draws=64, fit_steps=0), student=student)
    gains = [still.update(example_observations(40, Key(seed))).information_gain for seed in (1, 2, 3)]
    assert gains[0] > gains[1] > gains[2] > 0
    assert ps.Still(PROBLEM, student=student).update(example_observations(40)).information_gain is None


# The mean function.


def test_a_linear_mean_is_followed_beyond_the_observations():
    rows = [(x, a, 2 * x * (1 if a else -1)) for x in np.linspace(0, 0.4, 12) for a in (0, 1)]
    kernel = RBF("context", variance=0.1, length_scale=0.1) * Independent()
    far = np.array([[1.0]], np.float32)
    linear, constant = (
        GaussianProcessTS(kernel=kernel, noise=1e-3, fit_steps=0, mean=mean) for mean in ("linear", "constant")
    )
    means = [one.joint(learnt(one, TWO, observed(TWO, rows)), far).mean[0] for one in (linear, constant)]
    np.testing.assert_allclose(means[0], [-2, 2], atol=0.3)
    np.testing.assert_allclose(means[1], [0, 0], atol=0.1)


def test_a_linear_mean_is_bayesian_regression():
    """With a negligible kernel, the posterior is that of a regression for each action, with coefficients of sd 3."""
    rows = [(0.1, 0, 0.3), (0.9, 0, 1.4), (0.4, 0, 0.2), (0.2, 1, -1.0), (0.7, 1, 0.5)]
    kernel = RBF("context", variance=1e-8) * Independent()
    teacher = GaussianProcessTS(kernel=kernel, noise=0.1, fit_steps=0, mean="linear")
    state = learnt(teacher, TWO, observed(TWO, rows))
    offset, scale = state.unit
    found = teacher.joint(state, np.array([[0.5]], np.float32))
    for action in (0, 1):
        x = np.array([[1, x] for x, a, _ in rows if a == action])
        y = (np.array([r for _, a, r in rows if a == action]) - offset) / scale
        precision = np.eye(2) / 9 + x.T @ x / 0.1
        coefficients, at = np.linalg.solve(precision, x.T @ y / 0.1), np.array([1, 0.5])
        assert found.mean[0, action] == pytest.approx(offset + scale * at @ coefficients, rel=1e-4)
        variance = scale**2 * at @ np.linalg.solve(precision, at)
        assert found.covariance[0, action, action] == pytest.approx(variance, rel=1e-4)


def test_coefficients_of_the_mean_keep_their_prior():
    teacher = GaussianProcessTS(mean="linear", fit_steps=5)
    state = learnt(teacher, PROBLEM, example_observations())
    np.testing.assert_array_equal(state.logs[-4:-1], teacher.init(PROBLEM).logs[-4:-1])


def test_an_option_that_came_later_changes_no_lineage():
    assert "mean" not in to_config(GaussianProcessTS())
    assert to_config(GaussianProcessTS(mean="linear"))["mean"] == "linear"


# Upper confidence bounds.


def test_the_bound_is_that_of_the_paper():
    teacher = GaussianProcessUCB(kernel=SMOOTH, fit_steps=0)
    state, contexts = learnt(teacher, PROBLEM, example_observations(50)), example_contexts(20)
    joint = GaussianProcessTS(kernel=SMOOTH, fit_steps=0).joint(state, contexts)
    beta = 2 * np.log(50.0**4 * 50**2)  # r = d = 1
    bounds = joint.mean + np.sqrt(beta * np.diagonal(joint.covariance, axis1=1, axis2=2))
    np.testing.assert_allclose(teacher.bounds(state, contexts), bounds)
    p = teacher.propensities(state, contexts, KEY)
    np.testing.assert_array_equal(p, np.eye(3)[bounds.argmax(axis=1)])
    certain = GaussianProcessUCB(kernel=SMOOTH, fit_steps=0, beta=0.0)
    np.testing.assert_array_equal(certain.propensities(state, contexts, KEY).argmax(axis=1), joint.mean.argmax(axis=1))


def test_more_dimensions_of_actions_widen_the_bound():
    flat, wide = (
        GaussianProcessUCB(kernel=SMOOTH, fit_steps=0, action_features=features)
        for features in (UNEVEN, ((0.0, 0.0), (0.3, 2.0), (1.0, 1.0)))
    )
    assert _beta(wide) > _beta(flat)
    with pytest.raises(ValueError, match="beta must be 0 or more"):
        GaussianProcessUCB(beta=-1.0)


def _beta(teacher):
    state, contexts = learnt(teacher, PROBLEM, example_observations(50)), example_contexts(1)
    joint = teacher.joint(state, contexts)
    spread = np.sqrt(joint.covariance[0, 0, 0])
    return float((teacher.bounds(state, contexts)[0, 0] - joint.mean[0, 0]) / spread) ** 2


def test_a_window_forgets():
    teacher = GaussianProcessTS(window=10, fit_steps=0)
    old, new = example_observations(30), example_observations(10, Key(9))
    state = teacher.update(learnt(teacher, PROBLEM, old), new, KEY)
    for one, other in zip(state.posterior, learnt(teacher, PROBLEM, new).posterior, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("exact_limit", [1000, 20])
def test_a_saved_state_continues_to_the_bit(exact_limit, tmp_path):
    teacher = GaussianProcessTS(exact_limit=exact_limit, inducing=15, window=70, weighting="inverse-propensity")
    state = learnt(teacher, PROBLEM, example_observations(60))
    save_state(tmp_path / "gp.state", teacher, state, PROBLEM)
    loaded = load_state(tmp_path / "gp.state", teacher, PROBLEM)
    more, contexts = example_observations(30, Key(4)), example_contexts(20)
    went_on, resumed = (teacher.update(s, more, KEY) for s in (state, loaded))
    np.testing.assert_array_equal(went_on.logs, resumed.logs)
    for one, other in ((state, loaded), (went_on, resumed)):
        np.testing.assert_array_equal(*(teacher.propensities(s, contexts, KEY) for s in (one, other)))


def test_action_features_decide_who_are_neighbours():
    """Actions 0 and 2 have the same features: what is learnt of one is learnt of the other."""
    teacher = GaussianProcessTS(
        kernel=RBF("context") * RBF("action", length_scale=1.0),
        action_features=((0.0, 0.0), (5.0, 0.0), (0.0, 0.0)),
        fit_steps=0,
    )
    mean, covariance = teacher.joint(learnt(teacher, PROBLEM, example_observations(20)), example_contexts(4))
    np.testing.assert_allclose(mean[:, 0], mean[:, 2], rtol=1e-9)
    np.testing.assert_allclose(covariance[:, 0, 0], covariance[:, 0, 2], rtol=1e-9)
    assert from_config(to_config(teacher)) == teacher


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": RBF("context")}, "a kernel on the context alone gives all actions the same reward"),
        ({"noise": 0.0}, "GaussianProcessTS: noise must be from 1e-06 to 10.0, got 0.0"),
        ({"spread": float("nan")}, "spread must be a positive number, got nan"),
        ({"draws": 0}, "draws must be at least 1, got 0"),
        ({"fit_steps": -1}, "fit_steps must be 0 or more, got -1"),
        ({"window": 0}, "window must be at least 1, or None, got 0"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        GaussianProcessTS(**options)


@pytest.mark.parametrize("features", [((0.0,), (1.0,)), ((0.0,), (1.0,), (1.0, 2.0)), ((0.0,), (1.0,), (np.inf,))])
def test_action_features_have_to_fit_the_actions(features):
    with pytest.raises(ValueError, match="the same number of finite values for each of 3 actions"):
        GaussianProcessTS(action_features=features).init(PROBLEM)


def test_without_standardising_the_prior_is_that_of_the_kernel():
    """The textbook formula on rewards as they are: one distant reward of 50 moves neither mean nor unit elsewhere."""
    rows = [(0.1, 0, 50.0), (0.9, 1, -1.0), (0.85, 1, 0.5)]
    teacher = GaussianProcessTS(
        kernel=RBF("context", length_scale=0.1) * Independent(), noise=0.25, fit_steps=0, standardise=False
    )
    state = learnt(teacher, TWO, observed(TWO, rows))
    model = teacher.model(state)
    points = pairs.Points(np.array([[x] for x, _, _ in rows], np.float32), np.array([a for _, a, _ in rows], np.int32))
    at = pairs.Points(np.array([[0.8], [0.8]], np.float32), np.array([0, 1], np.int32))
    cross = model.covariance(at, points)
    expected = cross @ np.linalg.solve(model.covariance(points, points) + 0.25 * np.eye(3), [r for _, _, r in rows])
    np.testing.assert_allclose(teacher.mean_rewards(state, np.float32([[0.8]]))[0], expected, atol=1e-6)
    assert abs(expected[0]) < 1e-3  # far from the only observation of this action, the prior's mean
    assert state.unit.tolist() == [0.0, 1.0]


def test_the_default_does_not_show_in_configurations():
    assert "standardise" not in to_config(GaussianProcessTS())
    assert from_config(to_config(GaussianProcessTS(standardise=False))) == GaussianProcessTS(standardise=False)
