"""The first policy imitates the prior's Thompson sampling; it is uniform only where that is."""

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest

import potstill as ps
from potstill.distill import declared_contexts
from potstill.keys import Key
from potstill.teachers import TEACHERS, LinearTS, ProgramTS, has_informed_prior

PROBLEM = ps.Problem(
    name="first",
    context=[
        ps.Numeric("load", low=0, high=50, missing="flag"),
        ps.Categorical("place", ["home", "work"]),
        ps.Boolean("new"),
    ],
    actions=ps.Discrete(["low", "middle", "high"]),
)
QUICK = ps.Student(hidden=(16,), steps=300)
KNOWN = {"high": {"intercept": {"mean": 2.0, "precision": 10}, "load": {"mean": -4.0, "precision": 10}}}
EMPTY, FULL = (
    {"load": 0.0, "place": "home", "new": False},
    {"load": 50.0, "place": "home", "new": False},
)


def test_contexts_are_drawn_from_what_is_declared():
    contexts = declared_contexts(PROBLEM, 2000, Key(0))
    load, flag, places, new = contexts[:, 0], contexts[:, 1], contexts[:, 2:5], contexts[:, 5]
    assert (load[flag == 1] == 0).all()
    assert 0.05 < flag.mean() < 0.15
    assert load.max() > 0.99
    assert np.quantile(load[flag == 0], 0.5) == pytest.approx(0.5, abs=0.05)
    assert (places.sum(axis=1) == 1).all()
    np.testing.assert_allclose(places.mean(axis=0), 1 / 3, atol=0.05)
    assert set(np.unique(new)) == {0.0, 1.0}
    np.testing.assert_array_equal(contexts, declared_contexts(PROBLEM, 2000, Key(0)))


def test_an_informative_prior_is_imitated():
    """Against the exact propensities of the prior, on contexts that nothing was trained on."""
    teacher = LinearTS(prior=KNOWN)
    still = ps.Still(PROBLEM, teacher, student=QUICK)
    contexts = declared_contexts(PROBLEM, 500, Key(9))
    exact = teacher.propensities(teacher.init(PROBLEM), contexts, Key(0))
    assert exact[:, 2].max() - exact[:, 2].min() > 0.3, "the prior must prefer something"
    assert np.abs(still.policy.probabilities_many(contexts) - exact).max() < 0.05
    lineage = still.policy.metadata.lineage
    assert (still.policy.version, lineage.observations, lineage.origin) == (0, 0, {"prior": True})
    assert lineage.teacher["prior"]["high"]["intercept"] == {"mean": 2.0, "precision": 10.0}
    assert still.policy.metadata.fidelity["kl_mean"] < 0.01


def test_the_first_batch_acts_by_the_prior():
    """500 decisions in each of two contexts: shares within five standard errors of the prior's propensities."""
    teacher = LinearTS(prior=KNOWN)
    still = ps.Still(PROBLEM, teacher, student=QUICK, seed=3)
    for context in (EMPTY, FULL):
        exact = teacher.propensities(teacher.init(PROBLEM), PROBLEM.encode_many([context]), Key(0))[0]
        actions = [still.policy.decide(context, id=str(i)).action for i in range(500)]
        shares = np.array([actions.count(name) / 500 for name in ("low", "middle", "high")])
        assert np.abs(shares - exact).max() < 5 * np.sqrt(0.25 / 500) + 0.02


def overload(contexts, actions, rewards=None):
    """High costs more the higher the load; by how much is unknown."""
    price = numpyro.sample("price", dist.LogNormal(0, 0.5))
    mean = actions * (1.0 - 3.0 * price * contexts[:, 0])
    numpyro.sample("reward", dist.Normal(mean, 1.0), obs=rewards)
    return jnp.asarray(mean)


def test_the_prior_of_a_program_is_imitated():
    """P(high is best) = P(price < 1 / (3·load)) = Φ(-log(3·load) / 0.5), and low otherwise."""
    still = ps.Still(PROBLEM, ProgramTS(overload, draws=500), student=QUICK)
    p = still.policy.probabilities_many([{**EMPTY, "load": 50 * share} for share in (0.05, 1 / 3, 0.9)])
    assert p[0, 2] > 0.9
    assert p[1, 2] == pytest.approx(0.5, abs=0.08)
    assert p[2, 0] > 0.9


def test_equal_stills_have_equal_first_policies_and_updates_need_none():
    one, other = (ps.Still(PROBLEM, LinearTS(prior=KNOWN), student=QUICK, floor=0.05) for _ in range(2))
    assert one.policy.to_bytes() == other.policy.to_bytes()
    assert one.policy.floor == 0.05
    rng = np.random.default_rng(0)
    contexts = declared_contexts(PROBLEM, 60, Key(1))
    observations = ps.Observations.from_columns(
        PROBLEM,
        contexts=contexts,
        actions=rng.integers(3, size=60),
        rewards=rng.random(60),
        propensities=np.full(60, 1 / 3),
    )
    waiting = ps.Still(PROBLEM, LinearTS(prior=KNOWN), student=QUICK, floor=0.05)
    one.update(observations)
    waiting.update(observations)
    assert one.policy.to_bytes() == waiting.policy.to_bytes()


@pytest.mark.parametrize("name", TEACHERS)
def test_default_teachers_begin_uniformly(name):
    teacher = TEACHERS[name]()
    assert not has_informed_prior(teacher)
    if name in ("linear-ts", "neural-linear-ts", "gaussian-process-ts"):
        still = ps.Still(PROBLEM, teacher, seed=4)
        assert still.policy.to_bytes() == ps.Policy.uniform(PROBLEM, seed=4).to_bytes()
