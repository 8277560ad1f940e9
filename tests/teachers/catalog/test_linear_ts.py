"""The mixed model of a catalogue, against multivariate normal conditioning and brute-force sampling."""

import msgspec
import numpy as np
import pytest
from scipy.stats import multivariate_t

import potstill as ps
from potstill.errors import InvalidOption, UnsupportedSpace
from potstill.keys import Key
from potstill.problem import Observations
from potstill.teachers import CatalogLinearTS, check_support, default_teacher, digest, pack, unpack
from potstill.teachers.catalog.regression import (
    EFFECTS,
    PRECISIONS,
    Gone,
    JointSampler,
    Marginal,
    Prior,
    Scales,
    explained,
    fit,
    log_evidence,
    sums_of,
)

KEY = Key(5)
FEATURES = np.array([[0.1, 0.9], [0.8, 0.2], [0.5, 0.5], [0.5, 0.5]])


def problem(features=FEATURES, names=None):
    names = [f"i{i}" for i in range(len(features))] if names is None else names
    items = [{"id": name, "a": a, "b": b} for name, (a, b) in zip(names, features.tolist(), strict=True)]
    space = ps.Catalog(features=[ps.Numeric("a", low=0, high=1), ps.Numeric("b", low=0, high=1)], items=items)
    return ps.Problem(name="p", context=[ps.Numeric("x", low=0, high=1)], actions=space)


def observed(n, seed=0, features=FEATURES, of=None):
    rng = np.random.default_rng(seed)
    x, places = rng.random((n, 1)).astype(np.float32), rng.integers(of or len(features), size=n).astype(np.int32)
    effects = np.array([0.5, -0.5, 0.3, 0.0])[np.arange(len(features)) % 4]
    rewards = 2 + x[:, 0] * features[places, 0] + effects[places] + 0.5 * rng.standard_normal(n)
    return Observations.from_columns(
        problem(features), contexts=x, actions=places, rewards=rewards, propensities=np.full(n, 1 / len(features))
    )


def kron(x, z):
    one = lambda values: np.concatenate([np.ones((len(values), 1)), values], axis=1)  # noqa: E731
    return np.einsum("ni,nj->nij", one(x), one(z)).reshape(len(x), -1)


class Conditioned:
    """Rewards of all items in a context given observations, by the covariance of everything, relative to the noise."""

    def __init__(self, found, rewards, context, scales, prior, features=FEATURES):
        n, k = len(rewards), len(features)
        phi = kron(found.contexts.astype(float), features[found.actions])
        at = kron(np.full((k, 1), context), features)
        every = np.concatenate([at, phi])
        items = np.concatenate([np.arange(k), found.actions])
        prior_covariance = every @ every.T / float(scales.precision)
        prior_covariance += float(scales.effect) * (items[:, None] == items)
        a, b = prior_covariance[:k, :k], prior_covariance[:k, k:]
        inverse = np.linalg.inv(prior_covariance[k:, k:] + np.eye(n))
        self.mean, self.shape = b @ inverse @ rewards, a - b @ inverse @ b.T
        self.alpha, self.beta = prior.alpha + n / 2, prior.beta + rewards @ inverse @ rewards / 2
        marginal = multivariate_t(
            np.zeros(n), prior.beta / prior.alpha * np.linalg.inv(inverse), df=2 * prior.alpha, seed=0
        )
        self.log_evidence = marginal.logpdf(rewards)


PRIOR = Prior(Scales(np.array(0.5), np.array(0.3)), 2.0, 1.5)


def standard(n=12, seed=0):
    """Observations with rewards of mean 0 and variance 1, which `fit` takes as they are."""
    found = observed(n, seed)
    rewards = (found.rewards - found.rewards.mean()) / found.rewards.std()
    return found, rewards, sums_of(found.contexts, FEATURES, found.actions, rewards)


def nothing(sums):
    return Gone.nothing(len(sums.moment))


@pytest.mark.parametrize("scales", [(0.5, 0.3), (4.0, 1e-6), (0.05, 30.0)])
def test_the_posterior_is_that_of_conditioning(scales):
    """Means exactly; covariances of 400,000 joint draws within 5 standard errors (16 entries: 1e-5 by chance)."""
    scales = Scales(*map(np.array, scales))
    found, rewards, sums = standard()
    posterior = fit(sums, nothing(sums), PRIOR, scales)
    exact = Conditioned(found, rewards, 0.7, scales, PRIOR)
    sampler, at = JointSampler(posterior, sums, 2), kron(np.full((4, 1), 0.7), FEATURES)
    np.testing.assert_allclose(at @ posterior.mean + sampler.effects, exact.mean, atol=1e-8)
    np.testing.assert_allclose([posterior.alpha, posterior.beta], [exact.alpha, exact.beta], rtol=1e-9)
    n = 400_000
    drawn = sampler.draw(n, KEY.generator())
    rated = np.einsum("d,ndf,kf->nk", [1, 0.7], drawn.coefficients, kron(np.zeros((4, 0)), FEATURES)) + drawn.effects
    # What is the same for all items is left out of draws: differences from the last item have the full covariance.
    gaps, differ = rated[:, :3] - rated[:, 3:], np.concatenate([np.eye(3), -np.ones((3, 1))], axis=1)
    covariance = exact.beta / (exact.alpha - 1) * differ @ exact.shape @ differ.T
    centred = gaps - differ @ exact.mean
    error = 5 * np.sqrt(np.var(centred[:, :, None] * centred[:, None, :], axis=0) / n)
    assert (np.abs(centred.T @ centred / n - covariance) < error).all()
    assert (np.abs(centred.mean(axis=0)) < 5 * np.sqrt(np.diag(covariance) / n)).all()


def test_evidence_is_the_density_of_all_rewards():
    found, rewards, sums = standard()
    for effect in EFFECTS[[0, 6, -1]]:
        marginal = explained(sums, effect) + Marginal(sums.gram, sums.moment, sums.square)
        computed = log_evidence(marginal, np.log1p(sums.counts * effect).sum(), len(rewards), PRIOR)
        for place in (0, 4, -1):
            scales = Scales(PRECISIONS[place], np.array(effect))
            exact = Conditioned(found, rewards, 0.7, scales, PRIOR).log_evidence
            np.testing.assert_allclose(computed[place], exact, rtol=1e-8)


def test_propensities_are_those_of_brute_force_draws():
    """8 comparisons of 40,000 draws with as many of another sampler: 1e-5 in all by chance (Hoeffding, both sides)."""
    teacher = CatalogLinearTS(draws=40_000)
    found = observed(15)
    state = teacher.update(teacher.init(found.problem), found, KEY)
    mean, sd = found.rewards.mean(), found.rewards.std()
    prior = Prior(Scales(np.array(1.0), np.array(1.0)), 1.0, 1.0)
    contexts = np.array([[0.0], [0.9]], np.float32)
    propensities = teacher.propensities(state, contexts, KEY)
    rng = np.random.default_rng(1)
    for row, context in enumerate([0.0, 0.9]):
        exact = Conditioned(found, (found.rewards - mean) / sd, np.float32(context), state.posterior.scales, prior)
        noise = exact.beta / rng.gamma(exact.alpha, size=(40_000, 1))
        drawn = exact.mean + np.sqrt(noise) * rng.multivariate_normal(np.zeros(4), exact.shape, 40_000)
        share = np.bincount(drawn.argmax(axis=1), minlength=4) / 40_000
        assert np.abs(share - propensities[row]).max() < 2 * np.sqrt(np.log(2 * 8 / 1e-5) / (2 * 40_000))
        np.testing.assert_allclose(teacher.mean_rewards(state, contexts[[row]])[0], mean + sd * exact.mean, atol=1e-8)


def test_items_with_equal_features_and_no_effects_are_perfectly_correlated():
    _, _, sums = standard()
    posterior = fit(sums, nothing(sums), PRIOR, Scales(np.array(0.5), np.array(1e-10)))
    drawn = JointSampler(posterior, sums, 2).draw(2000, KEY.generator())
    rated = drawn.coefficients[:, 0] @ kron(np.zeros((4, 0)), FEATURES).T + drawn.effects
    assert np.corrcoef(rated[:, 2], rated[:, 3])[0, 1] > 1 - 1e-6
    assert np.corrcoef(rated[:, 0], rated[:, 3])[0, 1] < 0.99


def test_effects_are_found_where_items_differ_beyond_their_features():
    rng = np.random.default_rng(2)
    features = rng.random((60, 2))
    plain, own = np.zeros(60), rng.standard_normal(60)
    for effects, low, high in ((plain, 0, 0.02), (own, 0.5, 2.0)):
        x, places = rng.random((6000, 1)).astype(np.float32), rng.integers(60, size=6000).astype(np.int32)
        rewards = features[places, 0] + effects[places] + rng.standard_normal(6000)
        sums = sums_of(x, features, places, rewards)
        found = fit(sums, nothing(sums), Prior(PRIOR.scales, 1.0, 1.0))
        assert low <= found.scales.effect * found.noise <= high
        assert found.noise == pytest.approx(1.0, rel=0.1)


def test_a_new_item_starts_at_its_features_and_removed_ones_leave_what_they_told():
    teacher, found = CatalogLinearTS(), observed(400)
    state = teacher.update(teacher.init(found.problem), found, KEY)
    features = np.concatenate([FEATURES[[3, 1]], [[0.1, 0.9]]])
    after = problem(features, names=["i3", "i1", "new"])
    kept = teacher.with_actions(state, found.problem, after, {})
    np.testing.assert_allclose(kept.posterior.mean, state.posterior.mean, rtol=1e-8)
    contexts = np.array([[0.3]], np.float32)
    before, now = teacher.mean_rewards(state, contexts)[0], teacher.mean_rewards(kept, contexts)[0]
    np.testing.assert_allclose(now[:2], before[[3, 1]], rtol=1e-8)
    effects = teacher.item_effects(kept)
    assert effects[2].tolist() == [0, 1]
    assert (effects[:2, 1] < 0.5).all()
    unit = np.sqrt(float(state.posterior.scales.effect) * state.posterior.noise)
    np.testing.assert_allclose(before[0] - now[2], teacher.item_effects(state)[0, 0] * unit, rtol=1e-4)
    # It goes on learning as one that has all items would.
    later = observed(40, seed=1)
    of_kept = later[np.isin(later.actions, [1, 3])]
    whole = teacher.update(state, of_kept, KEY).posterior
    places = np.array([-1, 1, -1, 0])[of_kept.actions]
    columns = {"contexts": of_kept.contexts, "rewards": of_kept.rewards, "propensities": of_kept.propensities}
    part = teacher.update(kept, Observations.from_columns(after, actions=places, **columns), KEY).posterior
    assert part.scales == whole.scales
    np.testing.assert_allclose(part.mean, whole.mean, rtol=1e-8)
    np.testing.assert_allclose(part.root, whole.root, rtol=1e-8, atol=1e-9)


def test_items_whose_features_change_keep_their_observations():
    teacher, found = CatalogLinearTS(), observed(400)
    state = teacher.update(teacher.init(found.problem), found, KEY)
    moved = FEATURES.copy()
    moved[0] = [1.0, 0.9]
    kept = teacher.with_actions(state, found.problem, problem(moved), {})
    np.testing.assert_array_equal(teacher.item_effects(kept), teacher.item_effects(state))
    contexts = np.array([[1.0]], np.float32)
    gap = teacher.mean_rewards(kept, contexts)[0] - teacher.mean_rewards(state, contexts)[0]
    coefficients = state.posterior.mean.reshape(2, 3)
    assert gap[0] == pytest.approx(0.9 * (coefficients[0, 1] + coefficients[1, 1]))
    np.testing.assert_allclose(gap[1:], 0, atol=1e-9)


def test_other_features_are_refused():
    teacher, found = CatalogLinearTS(), observed(20)
    state = teacher.update(teacher.init(found.problem), found, KEY)
    space = ps.Catalog(features=[ps.Boolean("c")], items=[{"id": "i0", "c": True}, {"id": "i1", "c": False}])
    with pytest.raises(InvalidOption, match="the features of items have changed"):
        teacher.with_actions(state, found.problem, msgspec.structs.replace(found.problem, actions=space), {})
    with pytest.raises(InvalidOption, match="leave out what it is like"):
        teacher.with_actions(state, found.problem, found.problem, {"new": "i0"})


def test_masks_are_thompson_sampling_among_the_eligible():
    teacher, found = CatalogLinearTS(draws=20_000), observed(30)
    state = teacher.update(teacher.init(found.problem), found, KEY)
    contexts = np.array([[0.2], [0.8]], np.float32)
    mask = np.array([[True, False, True, False], [False, True, True, True]])
    p = teacher.propensities(state, contexts, KEY, mask)
    assert (p[~mask] == 0).all()
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-6)
    rng, sampler = np.random.default_rng(4), JointSampler(state.posterior, state.sums, 2)
    drawn = sampler.draw(20_000, rng)
    rated = np.einsum("d,ndf,kf->nk", [1, 0.2], drawn.coefficients, kron(np.zeros((4, 0)), FEATURES)) + drawn.effects
    assert abs((rated[:, 0] > rated[:, 2]).mean() - p[0, 0]) < 2 * np.sqrt(np.log(2 / 1e-5) / (2 * 20_000))


def test_states_survive_their_files_whatever_the_number_of_items():
    teacher, found = CatalogLinearTS(), observed(50)
    state = teacher.update(teacher.init(found.problem), found, KEY)
    again = unpack(pack(state, teacher, found.problem), teacher.init(found.problem), teacher, found.problem)
    assert digest(again, teacher, found.problem) == digest(state, teacher, found.problem)


def test_it_is_the_default_of_catalogues_alone():
    assert default_teacher(problem().actions) == CatalogLinearTS()
    assert not isinstance(default_teacher(ps.Discrete(["a", "b"])), CatalogLinearTS)
    names = ps.Problem(name="p", context=[], actions=ps.Discrete(["a", "b"]))
    with pytest.raises(UnsupportedSpace, match="needs items with features"):
        check_support(CatalogLinearTS(), names)
    with pytest.raises(UnsupportedSpace, match="needs items with features"):
        CatalogLinearTS().init(names)


@pytest.mark.parametrize("option", [{"precision": 0}, {"effect": -1}, {"discount": 1.5}, {"draws": 0}, {"alpha": 0}])
def test_options_out_of_range_are_refused(option):
    with pytest.raises(InvalidOption, match=next(iter(option))):
        CatalogLinearTS(**option)


def test_too_many_regressors_are_refused_before_they_are_made():
    space = ps.Catalog(features=[ps.Vector("v", size=64)], items=[{"id": i, "v": [0.0] * 64} for i in "ab"])
    wide = ps.Problem(name="p", context=[ps.Vector("c", size=64)], actions=space)
    with pytest.raises(InvalidOption, match=r"64 columns of contexts and 64 of items make 4,225 regressors"):
        CatalogLinearTS().init(wide)
