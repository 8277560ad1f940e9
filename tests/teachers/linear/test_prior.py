"""Informative priors of linear teachers: by closed form, by name, and without a trace where there is none."""

import msgspec
import numpy as np
import pytest

import potstill as ps
from potstill.keys import Key
from potstill.teachers import (
    Coefficient,
    DiagonalLinearTS,
    LinearTS,
    LinUCB,
    check_teacher,
    from_config,
    has_informed_prior,
    load_state,
    pack,
    probability_best,
    save_state,
    to_config,
)
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations
from potstill.teachers.states import InvalidState, unpack

KEY = Key(1)
#: "high" is believed to be 0.8 at speed 0 and 0.5 more at speed 10, as surely as after 20 observations.
KNOWN = {"high": {"intercept": Coefficient(mean=0.8, precision=20), "speed": Coefficient(mean=0.5, precision=8)}}


def test_the_prior_by_closed_form():
    """The mean reward is Student-t: 2α degrees of freedom, location xᵀμ₀ and scale √(β/α · Σ x²/precision)."""
    teacher, contexts = LinearTS(prior=KNOWN), example_contexts(10)
    x = np.concatenate([contexts.astype(float), np.ones((10, 1))], axis=1)
    mean, precision = np.zeros((3, x.shape[1])), np.full((3, x.shape[1]), 0.25)
    mean[2, -1], mean[2, 0], precision[2, -1], precision[2, 0] = 0.8, 0.5, 20, 8
    scale = np.sqrt(x**2 @ (1 / precision).T)  # β/α = 1
    expected = probability_best(x @ mean.T, scale, np.full(3, 12.0))
    found = teacher.propensities(teacher.init(PROBLEM), contexts, KEY)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert found[:, 2].mean() != pytest.approx(1 / 3, abs=0.01)


def test_the_posterior_by_hand():
    """Two observations of an action at x = 0 with rewards 1 and 3, and an intercept with mean 5 and precision 2.

    Λ = 2 + 2, μ = (2·5 + 4)/4 = 3.5, β = 6 + (1 + 9 + 2·25 - 4·3.5²)/2 = 6 + 5.5.
    """
    problem = ps.Problem(name="hand", context=[ps.Numeric("x", low=0, high=1)], actions=ps.Discrete(["left", "right"]))
    teacher = LinearTS(prior={"right": {"intercept": {"mean": 5, "precision": 2}}})
    observed = ps.Observations.from_columns(
        problem, contexts=np.zeros((2, 1)), actions=np.array([1, 1]), rewards=[1.0, 3.0], propensities=[0.5, 0.5]
    )
    state = teacher.update(teacher.init(problem), observed, KEY).posterior
    np.testing.assert_allclose(state.mean[1], [0, 3.5])
    np.testing.assert_allclose(state.root[1] @ state.root[1].T, [[0.25, 0], [0, 4]])
    assert state.alpha[1] == 7
    assert state.beta[1] == pytest.approx(11.5)


def test_a_prior_of_the_defaults_is_the_default():
    stated = LinearTS(prior={"low": {"speed": Coefficient()}})
    for observations in (example_observations(0), example_observations(40)):
        one, other = (t.update(t.init(PROBLEM), observations, KEY).posterior for t in (LinearTS(), stated))
        for a, b in zip(one, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_the_prior_is_not_forgotten_with_old_observations():
    teacher = LinearTS(prior=KNOWN, discount=0.5)
    state, nothing = teacher.init(PROBLEM), ps.Observations.none(PROBLEM)
    for _ in range(60):
        state = teacher.update(state, nothing, KEY)
    np.testing.assert_allclose(state.posterior.mean, teacher.init(PROBLEM).posterior.mean)


@pytest.mark.parametrize("kind", [LinearTS, DiagonalLinearTS, LinUCB])
def test_teachers_with_a_prior_keep_the_contract(kind):
    check_teacher(kind(prior=KNOWN))


def test_without_a_prior_configurations_and_states_are_what_they_were():
    assert to_config(LinearTS()) == {
        "type": "linear-ts",
        "precision": 0.25,
        "alpha": 6.0,
        "beta": 6.0,
        "discount": 1.0,
        "weighting": "equal",
    }
    assert LinearTS(prior={}) == LinearTS()
    assert not has_informed_prior(LinearTS())
    names = set(msgspec.json.decode(_header(pack(LinearTS().init(PROBLEM), LinearTS(), PROBLEM))))
    assert names == {"__metadata__", *(f"state.{i}.{j}" for i in (0, 1) for j in range(4))}


def _header(data):
    return data[8 : 8 + int.from_bytes(data[:8], "little")]


def test_a_prior_is_configuration(tmp_path):
    teacher = LinearTS(prior=KNOWN)
    assert has_informed_prior(teacher)
    assert from_config(to_config(teacher)) == teacher
    state = teacher.update(teacher.init(PROBLEM), example_observations(), KEY)
    save_state(tmp_path / "state", teacher, state, PROBLEM)
    restored = load_state(tmp_path / "state", teacher, PROBLEM)
    np.testing.assert_array_equal(restored.prior.precision, state.prior.precision)
    other = LinearTS(prior={"high": {"intercept": Coefficient(mean=0.9, precision=20)}})
    with pytest.raises(InvalidState, match=r"differs from the configured teacher in prior\.high\.intercept\.mean"):
        unpack((tmp_path / "state").read_bytes(), other.init(PROBLEM), other, PROBLEM)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ({"hihg": {}}, "unknown action 'hihg' .did you mean 'high'.*one of: low, middle, high"),
        ({"high": {"sped": {}}}, "prior of action 'high': unknown feature 'sped' .did you mean 'speed'.*intercept"),
        ({"high": {"place": {}}}, "unknown feature 'place'.*place=home, place=work"),
        ({"high": {"speed": {"maen": 1}}}, r"unknown key 'maen' .did you mean 'mean'.*at `\$.high.speed`"),
        ({"high": {"speed": {"precision": 0}}}, "precision must be a positive number, got 0.0"),
        ({"high": {"speed": {"mean": "much"}}}, "Expected `float`, got `str`"),
    ],
)
def test_mistakes_are_named(prior, message):
    with pytest.raises(ValueError, match=message):
        LinearTS(prior=prior).init(PROBLEM)


def test_a_feature_called_intercept_leaves_no_name_for_the_constant():
    problem = ps.Problem(name="odd", context=[ps.Boolean("intercept")], actions=ps.Discrete(["a", "b"]))
    with pytest.raises(ValueError, match="'intercept' names the constant and a feature of this problem"):
        LinearTS(prior={"a": {"intercept": {"mean": 1.0}}}).init(problem)
