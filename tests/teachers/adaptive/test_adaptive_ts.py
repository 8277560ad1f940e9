"""Adaptive-TS: its regression against brute force, its evidence against a textbook formula, and what it adapts to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from potstill.keys import Key
from potstill.problem import Discrete, Numeric, Observations, Problem
from potstill.teachers import AdaptiveTS, check_teacher, load_state, save_state
from potstill.teachers import joint_normal as joints
from potstill.teachers.adaptive import coregional, evidence
from potstill.teachers.linear import nig

KEY = Key(1)
QUICK = {"hidden": (16, 8), "draws": 2000}


def problem(k, d=2):
    return Problem(
        name=f"adaptive-{k}-{d}",
        context=[Numeric(f"x{i}", low=0, high=1) for i in range(d)],
        actions=Discrete([f"a{i}" for i in range(k)]),
    )


def observations(k, n, reward, seed=0, d=2):
    rng = Key(seed).child("adaptive").generator()
    contexts, actions = rng.random((n, d)).astype(np.float32), rng.integers(k, size=n).astype(np.int32)
    rewards = reward(contexts.astype(float), actions, rng)
    return Observations(problem(k, d), contexts, actions, rewards, np.full(n, 1 / k, np.float32))


def test_contract():
    check_teacher(AdaptiveTS(**QUICK))


def regression(seed, k=3, blocks=(1, 2), n=30):
    """Factors, regressors and data of a small regression."""
    rng = np.random.default_rng(seed)
    factors = tuple(rng.standard_normal((k, 2)) for _ in blocks)
    x = rng.standard_normal((n, sum(blocks)))
    actions, rewards = rng.integers(k, size=n).astype(np.int32), rng.standard_normal(n)
    return factors, x, actions, rewards


def prior_covariance(factors, x, actions, y, others, blocks):
    """Covariance of f(x, a) and f(x', a'), summed block by block as the model is written down."""
    total, at = np.zeros((len(x), len(y))), 0
    for u, width in zip(factors, blocks, strict=True):
        columns = slice(at, at + width)
        total += (x[:, columns] @ y[:, columns].T) * (u @ u.T)[np.ix_(actions, others)]
        at += width
    return total


@given(st.integers(0, 10_000))
def test_the_posterior_is_that_of_a_gaussian_process_with_the_same_covariance(seed):
    blocks, k, noise = (1, 2), 3, 0.3
    factors, x, actions, rewards = regression(seed, k, blocks)
    total = nig.sums(x, actions, rewards, np.ones(len(x)), k)
    fitted = coregional.posterior(factors, total, blocks, noise)
    new = np.random.default_rng(seed + 1).standard_normal((4, sum(blocks)))
    joint = coregional.joint(fitted, new, blocks)
    gram = prior_covariance(factors, x, actions, x, actions, blocks) + noise * np.eye(len(x))
    for i, row in enumerate(new):
        rows, every = np.repeat(row[None], k, axis=0), np.arange(k)
        cross = prior_covariance(factors, rows, every, x, actions, blocks)
        own = prior_covariance(factors, rows, every, rows, every, blocks)
        np.testing.assert_allclose(joint.mean[i], cross @ np.linalg.solve(gram, rewards), atol=1e-8)
        np.testing.assert_allclose(joint.covariance[i], own - cross @ np.linalg.solve(gram, cross.T), atol=1e-8)


def test_residuals_from_sums_are_those_of_the_rows():
    blocks, k = (1, 2), 3
    factors, x, actions, rewards = regression(3, k, blocks)
    total = nig.sums(x, actions, rewards, np.ones(len(x)), k)
    beta = coregional.coefficients(coregional.posterior(factors, total, blocks, 0.5), blocks)
    direct = ((rewards - (x * beta[actions]).sum(axis=1)) ** 2).sum()
    assert coregional.residuals(total, beta) == pytest.approx(direct, rel=1e-10)


def whole(parts):
    return joints.Joint(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


@pytest.mark.parametrize("rows", [1, 7, 100])
@pytest.mark.parametrize("unused", [0, 4], ids=["all blocks", "one left out"])
def test_covariances_of_many_contexts_at_once_are_those_of_each(rows, unused):
    """By the inverse of the precision and, for few contexts, by solving; a block of rank 0 changes nothing."""
    blocks, k = (1, 2), 3
    factors, x, actions, rewards = regression(5, k, blocks)
    fitted = coregional.posterior(factors, nig.sums(x, actions, rewards, np.ones(len(x)), k), blocks, 0.3)
    expected = coregional.joint(fitted, x, blocks)
    wider = np.concatenate([x, np.full((len(x), unused), 7.0)], axis=1)
    idle = fitted._replace(factors=(*factors, np.zeros((k, 0))))
    for n in (len(x), 1):
        found = whole(coregional.joints(idle, wider[:n], (*blocks, unused), rows))
        np.testing.assert_allclose(found.mean, expected.mean[:n], atol=1e-10)
        np.testing.assert_allclose(found.covariance, expected.covariance[:n], atol=1e-10)


@pytest.mark.parametrize("root", [joints.eigen_root, joints.cholesky_root])
def test_shares_of_draws_are_those_of_the_joint_normal(root):
    """Each of 12 shares of 20,000 draws lies within 5 standard errors (false alarm below 1e-5)."""
    blocks, k, n = (1, 2), 3, 20_000
    factors, x, actions, rewards = regression(5, k, blocks)
    fitted = coregional.posterior(factors, nig.sums(x, actions, rewards, np.ones(len(x)), k), blocks, 0.3)
    joint = coregional.joint(fitted, np.random.default_rng(6).standard_normal((4, 3)), blocks)
    shares, rng = joints.shares(joint, n, Key(1).generator(), root), np.random.default_rng(7)
    for i in range(4):
        best = rng.multivariate_normal(joint.mean[i], joint.covariance[i], n).argmax(axis=1)
        expected = np.bincount(best, minlength=k) / n
        assert np.abs(shares[i] - expected).max() < 5 * np.sqrt(2 * 0.25 / n)


def test_a_covariance_without_a_factor_is_drawn_from_too():
    nothing = joints.Joint(np.array([[0.0, 2.0, 1.0]]), np.zeros((1, 3, 3)))
    np.testing.assert_array_equal(joints.shares(nothing, 10, Key(1).generator(), joints.cholesky_root), [[0, 1, 0]])


def test_every_context_has_draws_of_its_own():
    """500 labels of one context differ, and their mean has the error of 500 times the draws.

    With draws that all contexts share, the labels were equal, and so was their error: up to 0.5/√64 = 0.06.
    """
    teacher = AdaptiveTS(**{**QUICK, "draws": 64})
    state = teacher.update(
        teacher.init(problem(5, 2)),
        observations(5, 60, lambda x, a, rng: x[:, 0] * a / 5 + rng.standard_normal(len(a))),
        KEY,
    )
    contexts = np.repeat(observations(5, 1, lambda x, a, rng: x[:, 0]).contexts, 500, axis=0)
    labels = teacher.propensities(state, contexts, KEY)
    assert len(np.unique(labels, axis=0)) > 100
    truth = teacher.propensities(state, np.repeat(contexts[:1], 20_000, axis=0), Key(77)).mean(axis=0)
    stated = teacher.exactness.mean_standard_error(500)
    assert stated == pytest.approx(0.5 / np.sqrt(64 * 500))
    assert np.abs(labels.mean(axis=0) - truth).max() < 5 * stated


def test_the_evidence_is_the_density_of_the_rewards_and_its_gradient_is_right():
    rng = np.random.default_rng(1)
    blocks, actions, targets = [np.ones((12, 1)), rng.random((12, 2))], rng.integers(3, size=12), rng.normal(size=12)
    patterns = evidence.patterns(3)[:, actions[:, None], actions]
    components = np.stack([(x @ x.T) * alike for x in blocks for alike in patterns])
    centre = np.zeros(len(components) + 1)

    def value(logs):
        return evidence._objective(logs, components, targets, centre)[0]

    def direct(logs):
        covariance = np.tensordot(np.exp(logs[:-1]), components, 1) + np.exp(logs[-1]) * np.eye(12)
        prior = 0.5 * ((logs / evidence._SPREAD) ** 2).sum()
        return prior - multivariate_normal(np.zeros(12), covariance).logpdf(targets)

    a, b = rng.normal(-1, 0.5, (2, len(centre)))
    assert value(a) - value(b) == pytest.approx(direct(a) - direct(b), rel=1e-8)
    slope = evidence._objective(a, components, targets, centre)[1]
    steps = 1e-5 * np.eye(len(a))
    numeric = np.array([(value(a + step) - value(a - step)) / 2e-5 for step in steps])
    np.testing.assert_allclose(slope, numeric, rtol=1e-4, atol=1e-6)


def likeness_of_neighbours(reward):
    """The prior correlation of neighbouring actions' coefficients, learnt from the first 400 observations of ten."""
    data = observations(10, 1500, reward)
    teacher = AdaptiveTS(**QUICK)
    learnt = teacher.update(teacher.init(data.problem), data, Key(0)).mixes[0].covariances(10)[1]
    return (np.diag(learnt, 1) / np.diag(learnt)[0]).mean()


def test_it_finds_out_whether_neighbouring_actions_are_alike():
    levels = np.linspace(0, 1, 10)
    offsets = np.random.default_rng(0).normal(size=10)

    def smooth(x, a, rng):
        return -np.abs(levels[a] - x[:, 0]) + 0.05 * rng.standard_normal(len(a))

    def unlike(x, a, rng):
        return offsets[a] * (x[:, 0] - 0.5) * 4 + offsets[::-1][a] + 0.05 * rng.standard_normal(len(a))

    assert likeness_of_neighbours(smooth) > 0.8
    assert likeness_of_neighbours(unlike) < 0.6


def test_neighbours_share_what_they_learn():
    """One observation per action: the regression still knows the order, since doses next to each other are alike."""
    levels = np.linspace(0, 1, 20)
    data = observations(20, 200, lambda x, a, rng: -np.abs(levels[a] - 0.2 - 0.6 * x[:, 0]))
    teacher = AdaptiveTS(**QUICK)
    state = teacher.update(teacher.init(data.problem), data, Key(0))
    contexts = np.array([[0.1, 0.5], [0.9, 0.5]], np.float32)
    expected = teacher.propensities(state, contexts, Key(1)) @ levels
    assert abs(expected[0] - 0.26) < 0.15
    assert abs(expected[1] - 0.74) < 0.15


@pytest.mark.parametrize(
    ("reward", "helps"),
    [
        (lambda x, a, rng: np.where(((x - 0.5) ** 2).sum(axis=1) > 0.1, 1.0 - a, a + 0.0), True),
        (lambda x, a, rng: (a * 2 - 1) * (x[:, 0] - 0.5) + rng.standard_normal(len(a)), False),
    ],
    ids=["a circle", "a line in noise"],
)
def test_the_network_is_used_only_where_it_predicts_better(reward, helps):
    data = observations(2, 3000, reward)
    teacher = AdaptiveTS()
    assert bool(teacher.update(teacher.init(data.problem), data, Key(0)).networked) is helps


def test_scales_without_the_network_need_no_observation_that_it_was_not_shown():
    teacher = AdaptiveTS(**QUICK)
    data = observations(3, 4, lambda x, a, rng: a * x[:, 0])  # the fifth would be the first that it is not shown
    before = teacher.init(data.problem)
    without, with_network = teacher.update(before, data, Key(0)).mixes
    assert not np.array_equal(without.logs, before.mixes[0].logs)
    np.testing.assert_array_equal(with_network.logs, before.mixes[1].logs)


def test_between_refits_only_the_posterior_changes():
    teacher = AdaptiveTS(**QUICK, refit=1.5)
    data = observations(3, 260, lambda x, a, rng: a * x[:, 0] + 0.1 * rng.standard_normal(len(a)))
    first = teacher.update(teacher.init(data.problem), data[:200], Key(0))
    second = teacher.update(first, data[200:], Key(1))
    assert (int(first.learnt), int(second.learnt), int(second.seen)) == (200, 200, 260)
    np.testing.assert_array_equal(first.networks.weights[0], second.networks.weights[0])
    assert not np.array_equal(first.posterior.mean, second.posterior.mean)


def test_features_that_are_absent_from_the_rows_get_a_prior_that_can_be_computed_with():
    rng = np.random.default_rng(0)
    blocks = [np.ones((20, 1)), rng.random((20, 2)), np.zeros((20, 4))]
    mix = evidence.learn(blocks, rng.integers(3, size=20), rng.standard_normal(20), 3, evidence.start(3))
    assert mix.covariances(3).max() < 1e8


def test_a_window_of_two_always_leaves_something_to_train_on():
    teacher = AdaptiveTS(**QUICK, window=2, refit=1.0)
    data = observations(3, 12, lambda x, a, rng: a * x[:, 0])
    state = teacher.init(data.problem)
    for i in range(12):
        state = teacher.update(state, data[i : i + 1], Key(i))
    assert len(state.memory.actions) == 2
    assert np.isfinite(state.posterior.mean).all()


def test_a_temperature_of_zero_is_greedy_and_of_one_explores_more():
    data = observations(3, 60, lambda x, a, rng: a * (x[:, 0] - 0.5) + rng.standard_normal(len(a)))
    contexts = np.random.default_rng(3).random((50, 2)).astype(np.float32)

    def certainty(temperature):
        teacher = AdaptiveTS(**QUICK, temperature=temperature)
        state = teacher.update(teacher.init(data.problem), data, Key(0))
        return teacher.propensities(state, contexts, Key(1)).max(axis=1).mean()

    assert certainty(0.0) == 1.0
    assert certainty(0.5) > certainty(1.0)


def test_a_state_is_saved_and_read_back(tmp_path):
    teacher = AdaptiveTS(**QUICK)
    data = observations(3, 120, lambda x, a, rng: a * x[:, 0])
    state = teacher.update(teacher.init(data.problem), data, Key(0))
    save_state(tmp_path / "a.state", teacher, state, data.problem)
    again = load_state(tmp_path / "a.state", teacher, data.problem)
    more = observations(3, 80, lambda x, a, rng: a * x[:, 0], seed=1)
    one, two = (teacher.update(s, more, Key(2)) for s in (state, again))
    contexts = more.contexts[:20]
    np.testing.assert_array_equal(
        teacher.propensities(one, contexts, Key(3)), teacher.propensities(two, contexts, Key(3))
    )


@pytest.mark.parametrize(
    "option", [{"vagueness": 0.0}, {"temperature": -0.1}, {"refit": 0.5}, {"draws": 0}, {"hidden": ()}, {"window": 1}]
)
def test_bad_options_are_refused(option):
    with pytest.raises(ValueError, match=next(iter(option))):
        AdaptiveTS(**option)
