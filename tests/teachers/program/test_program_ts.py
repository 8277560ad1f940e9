"""Program-TS against the closed form of the same model, and what it says of programs that do not work."""

import dataclasses
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.diagnostics import effective_sample_size

from potstill.keys import Key
from potstill.problem import Observations
from potstill.teachers import LinearTS, ProgramTS, check_teacher, load_state, save_state
from potstill.teachers.conformance import PROBLEM, _leaves, example_contexts, example_observations
from potstill.teachers.program import inference

KEY = Key(4)


def regression(contexts, actions, rewards=None):
    """LinearTS with its default prior, written as a program."""
    x = jnp.concatenate([contexts, jnp.ones((len(contexts), 1))], axis=1)
    variance = numpyro.sample("variance", dist.InverseGamma(6.0, 6.0).expand([3]))
    theta = numpyro.sample("theta", dist.Normal(0.0, jnp.sqrt(variance / 0.25)[:, None]).expand([3, x.shape[1]]))
    mean = (theta[actions] * x).sum(axis=1)
    numpyro.sample("reward", dist.Normal(mean, jnp.sqrt(variance[actions])), obs=rewards)
    return mean


def slopes(contexts, actions, rewards=None):
    """One slope for each action, all with one unknown noise: tiny, to compile quickly."""
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0).expand([3]))
    noise = numpyro.sample("noise", dist.HalfNormal(1.0))
    mean = slope[actions] * contexts[:, 0]
    numpyro.sample("reward", dist.Normal(mean, noise), obs=rewards)
    return mean


# One teacher for nearly all tests, because each number of draws and of chains is compiled apart.
SLOPES = ProgramTS(slopes, chains=2, sets=1, thin=2)


def with_options(**options):
    return dataclasses.replace(SLOPES, **options)


def updated(teacher, observations, key=KEY):
    return teacher.update(teacher.init(PROBLEM), observations, key)


@pytest.fixture(scope="module")
def conjugate():
    """The same observations, weighted, seen by the program and by the closed form."""
    observations = example_observations(60)
    uneven = Observations(
        PROBLEM,
        observations.contexts,
        observations.actions,
        observations.rewards,
        np.linspace(0.1, 0.9, 60).astype(np.float32),
    )
    weighting = "inverse-propensity"
    teachers = ProgramTS(regression, draws=2000, sets=1, thin=2, weighting=weighting), LinearTS(weighting=weighting)
    return [(teacher, updated(teacher, uneven)) for teacher in teachers]


def assert_means_agree(draws, mean):
    """The average of draws is within five standard errors: a false alarm in 2 million, per number."""
    error = draws.std(axis=0) / np.sqrt(np.minimum(effective_sample_size(draws[None]), len(draws)))
    assert (np.abs(draws.mean(axis=0) - mean) < 5 * error).all()


def test_its_draws_have_the_moments_of_the_conjugate_posterior(conjugate):
    """θ is Student-t, σ² inverse-gamma; first and second moments, 63 numbers: false alarm 1 in 30,000."""
    (program, state), (_, exact) = conjugate
    draws, posterior = program.posterior(state), exact.posterior
    alpha, beta = posterior.alpha, posterior.beta
    inverse = np.linalg.inv(np.einsum("kij,klj->kil", posterior.root, posterior.root))
    spread = np.einsum("kii->ki", inverse) * (beta / (alpha - 1))[:, None]
    theta, variance = draws["theta"].astype(np.float64), draws["variance"].astype(np.float64)
    assert_means_agree(theta, posterior.mean)
    assert_means_agree((theta - posterior.mean) ** 2, spread)
    assert_means_agree(variance, beta / (alpha - 1))
    assert_means_agree(variance**2, beta**2 / ((alpha - 1) * (alpha - 2)))
    assert_means_agree(1 / variance, alpha / beta)
    assert state.diverged < 0.01


def test_its_propensities_are_those_of_the_closed_form(conjugate):
    """60 shares of draws, at least half of them effective: five standard errors, false alarm 1 in 30,000."""
    contexts = example_contexts(20)
    p, exact = (teacher.propensities(state, contexts, KEY) for teacher, state in conjugate)
    (program, _), _ = conjugate
    assert ((exact > 0.02) & (exact < 0.98)).mean() > 0.5, "something must be left to estimate"
    assert np.abs(p - exact).max() < 5 * np.sqrt(2) * program.exactness.standard_error


def test_the_declared_standard_error_is_the_largest_of_a_share():
    assert ProgramTS(slopes, draws=400).exactness.standard_error == pytest.approx(0.025)


def test_the_prior_is_that_of_the_program(conjugate):
    """Before any data propensities are LinearTS's: five standard errors, 60 shares, false alarm 1 in 30,000."""
    contexts = example_contexts(20)
    teachers = [teacher for teacher, _ in conjugate]
    p = [teacher.propensities(teacher.init(PROBLEM), contexts, KEY) for teacher in teachers]
    assert np.abs(p[0] - p[1]).max() < 5 * teachers[0].exactness.standard_error


@pytest.mark.parametrize("method", ["nuts", "svi"])
def test_it_keeps_the_contract(method):
    check_teacher(with_options(inference=method))


def test_variational_draws_agree_where_the_posterior_is_nearly_normal():
    """With 200 observations it is; 5 standard errors of NUTS draws and 10 % of the scale for what SVI leaves."""
    observations = example_observations(200)
    exact, fitted = (with_options(inference=method) for method in ("nuts", "svi"))
    a, b = (teacher.posterior(updated(teacher, observations)) for teacher in (exact, fitted))
    for name in ("slope", "noise"):
        scale = a[name].std(axis=0)
        assert (np.abs(a[name].mean(axis=0) - b[name].mean(axis=0)) < (0.1 + 5 * 2 / 1000**0.5) * scale).all()
        np.testing.assert_allclose(b[name].std(axis=0), scale, rtol=0.1 + 5 / 1000**0.5)


def test_beyond_the_limit_variational_inference_takes_over():
    observations = example_observations(30)
    limited = updated(with_options(nuts_limit=29), observations)
    variational = updated(with_options(inference="svi"), observations)
    np.testing.assert_array_equal(limited.draws[1], variational.draws[1])
    within = updated(with_options(nuts_limit=30), observations)
    assert (within.draws[1] != variational.draws[1]).any()


def test_minibatches_of_many_observations_narrow_the_posterior_as_all_of_them_do():
    """3,000 observations are more than a minibatch: the slopes' scale is that of least squares, within a fifth."""
    observations = example_observations(3000)
    teacher = with_options(inference="svi")
    slope = teacher.posterior(updated(teacher, observations))["slope"]
    x = observations.contexts[:, 0].astype(np.float64)
    for a in range(3):
        rows = observations.actions == a
        scale = 0.1 / np.sqrt((x[rows] ** 2).sum())
        assert slope[:, a].std() == pytest.approx(scale, rel=0.2)
        assert abs(slope[:, a].mean() - (x[rows] @ observations.rewards[rows]) / (x[rows] ** 2).sum()) < scale


def test_padding_does_not_count(monkeypatch):
    """Twice the padding leaves the posterior alone: five standard errors, 8 numbers, false alarm 1 in 200,000."""
    observations = example_observations(60)
    few = SLOPES.posterior(updated(SLOPES, observations))
    monkeypatch.setattr(inference, "_MIN_ROWS", 2 * inference._MIN_ROWS)
    many = SLOPES.posterior(updated(SLOPES, observations, Key(5)))
    for name in few:
        scale, error = few[name].std(axis=0), np.sqrt(2 / 500)  # at least every second draw counts
        assert (np.abs(few[name].mean(axis=0) - many[name].mean(axis=0)) < 5 * error * scale).all()
        assert (np.abs(many[name].std(axis=0) / scale - 1) < 5 * error).all()


@pytest.mark.parametrize(
    ("method", "compilations"), [("nuts", inference.nuts_compilations), ("svi", inference.svi_compilations)]
)
def test_a_class_of_sizes_is_compiled_once(method, compilations):
    teacher = with_options(inference=method)
    updated(teacher, example_observations(1))
    before = compilations()
    for n in (2, 7, inference._MIN_ROWS):
        updated(teacher, example_observations(n))
    assert compilations() == before > 0


def test_what_is_read_back_continues_to_the_bit(tmp_path):
    teacher = SLOPES
    state = updated(teacher, example_observations(40))
    save_state(tmp_path / "state", teacher, state, PROBLEM)
    restored = load_state(tmp_path / "state", teacher, PROBLEM)
    for a, b in zip(_leaves(state), _leaves(restored), strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
    more, contexts = example_observations(20, Key(3)), example_contexts(10)
    p = [teacher.propensities(teacher.update(s, more, KEY), contexts, KEY) for s in (state, restored)]
    np.testing.assert_array_equal(*p)


def test_another_key_gives_other_draws_and_chains_agree():
    """Two chains of 500: their means differ by less than five standard errors, 4 numbers, false alarm 1 in 400,000."""
    observations = example_observations(60)
    first, second = (updated(SLOPES, observations, key) for key in (KEY, Key(6)))
    assert (first.draws[1] != second.draws[1]).any()
    for values in first.draws:
        chains = values.reshape(2, 500, -1)
        gap = np.abs(chains[0].mean(axis=0) - chains[1].mean(axis=0))
        assert (gap < 5 * np.sqrt(2 / 250) * chains[0].std(axis=0)).all()


def test_a_window_forgets():
    old, new = example_observations(60), example_observations(60, Key(9))
    flipped = Observations(PROBLEM, old.contexts, old.actions, -old.rewards, old.propensities)
    teacher = with_options(window=60)
    state = teacher.update(updated(teacher, flipped), new, KEY)
    assert len(state.memory.actions) == 60
    np.testing.assert_allclose(teacher.posterior(state)["slope"].mean(axis=0), [0, 1, 2], atol=0.2)


def test_many_contexts_are_labelled_as_few_are():
    teacher = SLOPES
    state, contexts = teacher.init(PROBLEM), example_contexts(5000)
    whole = teacher.propensities(state, contexts, KEY)
    np.testing.assert_array_equal(whole[4990:], teacher.propensities(state, contexts[4990:], KEY))


def test_chunks_of_contexts_use_other_draws():
    teacher = ProgramTS(slopes, draws=50, sets=3)
    state = teacher.init(PROBLEM)
    labels = teacher.propensities(state, np.repeat(example_contexts(1), 4 * 256, axis=0), KEY).reshape(4, 256, 3)
    assert (labels == labels[:, :1]).all()
    assert len(np.unique(labels[:3, 0], axis=0)) > 1
    np.testing.assert_array_equal(labels[3], labels[0])
    assert len(teacher.posterior(state)["slope"]) == 150
    assert teacher.exactness.mean_standard_error(10_000) == pytest.approx(0.5 / np.sqrt(150))


def test_shares_are_those_of_counting():
    """Against a NumPy count over the kept draws."""
    teacher = SLOPES
    state, contexts = teacher.init(PROBLEM), example_contexts(9)
    slope = teacher.posterior(state)["slope"]
    best = (slope[:, None, :] * contexts[None, :, :1]).argmax(axis=2)
    counted = np.stack([(best == a).mean(axis=0) for a in range(3)], axis=1)
    np.testing.assert_allclose(teacher.propensities(state, contexts, KEY), counted, atol=1e-6)


def no_latent(contexts, actions, rewards=None):
    numpyro.sample("reward", dist.Normal(contexts[:, 0], 1.0), obs=rewards)
    return contexts[:, 0]


def with_mean(mean):
    def program(contexts, actions, rewards=None):
        slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
        numpyro.sample("reward", dist.Normal(slope * contexts[:, 0], 1.0), obs=rewards)
        return mean(slope, contexts)

    return program


def with_latent(prior):
    def program(contexts, actions, rewards=None):
        latent = numpyro.sample("latent", prior(len(contexts)))
        mean = jnp.sum(latent) * contexts[:, 0]
        numpyro.sample("reward", dist.Normal(mean, 1.0), obs=rewards)
        return mean

    return program


def with_likelihood(register):
    def program(contexts, actions, rewards=None):
        mean = numpyro.sample("slope", dist.Normal(0.0, 1.0)) * contexts[:, 0]
        register(mean, rewards)
        return mean

    return program


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (no_latent, "program no_latent: it has no latent parameter: register some with numpyro.sample"),
        (with_mean(lambda slope, x: slope * x), r"must return the mean rewards, of shape \(2,\) .* got shape \(2, 5\)"),
        (with_mean(lambda slope, x: None), r"must return the mean rewards, of shape \(2,\) for 2 rows, got None"),
        (with_latent(lambda n: dist.Bernoulli(0.5)), "latent 'latent' is discrete; .*: marginalise it out"),
        (with_latent(lambda n: dist.Normal().expand([n])), "latent 'latent' must not change its shape with the number"),
        (with_likelihood(lambda mean, rewards: None), "it has no likelihood: end with numpyro.sample"),
        (
            with_likelihood(lambda mean, y: numpyro.sample("y", dist.Normal(mean, 1.0).to_event(1), obs=y)),
            r"the likelihood 'y' must have shape \(2,\) for 2 rows, got \(\)",
        ),
        (
            with_likelihood(lambda mean, y: numpyro.sample("y", dist.Normal(mean, numpyro.param("s", 1.0)), obs=y)),
            "'s' has no prior: use numpyro.sample instead of numpyro.param",
        ),
    ],
)
def test_a_program_that_cannot_work_is_refused_with_the_reason(program, message):
    with pytest.raises(ValueError, match=message):
        ProgramTS(program).init(PROBLEM)


def test_rewards_that_are_impossible_under_every_draw_are_refused():
    """Their squares are beyond float32."""
    some = example_observations(5)
    impossible = Observations(PROBLEM, some.contexts, some.actions, 1e30 * (1 + some.rewards), some.propensities)
    state = SLOPES.init(PROBLEM)
    with pytest.raises(ValueError, match="found no parameters under which the rewards have a finite likelihood"):
        SLOPES.update(state, impossible, KEY)


def test_mean_rewards_that_are_not_finite_are_refused_with_their_context():
    teacher = ProgramTS(with_mean(lambda slope, x: slope * jnp.log(x[:, 0])), draws=10)
    contexts = example_contexts(4)
    contexts[2, 0] = -1.0
    with pytest.raises(ValueError, match="mean rewards of context 2 are not finite under 10 of 10 draws"):
        teacher.propensities(teacher.init(PROBLEM), contexts, KEY)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": 0}, "draws must be at least 1, got 0"),
        ({"draws": 10, "chains": 3}, "draws must be a multiple of chains, 3, got 10"),
        ({"inference": "mcmc"}, "inference must be 'nuts' or 'svi', got 'mcmc'"),
        ({"window": 0}, "window must be at least 1, or None, got 0"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=f"ProgramTS: {message}"):
        ProgramTS(slopes, **options)


def test_its_description_has_no_address_in_memory():
    assert repr(ProgramTS(slopes)) == (
        "ProgramTS(slopes, draws=1000, sets=4, inference='nuts', warmup=400, thin=1, chains=1, nuts_limit=5000, "
        "steps=2000, window=None, weighting='equal')"
    )


WITHOUT = """
import sys
sys.modules["numpyro"] = None
from potstill.teachers import ProgramTS
from potstill.teachers.conformance import PROBLEM
assert "jax" not in sys.modules
try:
    ProgramTS(len).init(PROBLEM)
except ModuleNotFoundError as error:
    print(error)
"""


def test_without_numpyro_the_way_out_is_named():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "ProgramTS needs numpyro: pip install 'potstill[programs]'"


def dose_response(contexts, actions, rewards=None):
    """A product and a sum inside abs: what a compiler fuses one way here and another way there."""
    slope = numpyro.sample("slope", dist.Normal(0, 3))
    mean = -jnp.abs(actions - slope * contexts[:, 0])
    numpyro.sample("reward", dist.Normal(mean, 1.0), obs=rewards)
    return mean


@pytest.mark.parametrize("n", [1, 5, 37, 400])
def test_no_draw_is_lost_to_rounding(n):
    teacher = ProgramTS(dose_response, draws=100)
    p = teacher.propensities(teacher.init(PROBLEM), example_contexts(n), KEY)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-5)
