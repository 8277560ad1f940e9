"""The explanation of a number: expectation, quantiles and effects by hand-sized cases."""

import numpy as np
import pytest

import potstill as ps
from potstill.errors import UnsupportedSpace
from potstill.policy import Layer, explain_number

CONTEXT = {"demand": 1.0, "age": 0.3}


def policy(weight, bins=4):
    """Scores of bins of 0 to 8 by demand alone; age has no effect."""
    context = [ps.Numeric("demand", low=0, high=1), ps.Numeric("age", low=0, high=1)]
    problem = ps.Problem(name="p", context=context, actions=ps.Continuous("price", 0, 8, bins=bins))
    scores = np.array([weight, [0.0] * bins], np.float32)
    return ps.Policy.build(problem, [Layer(scores, np.zeros(bins, np.float32))], version=1)


def test_a_uniform_number():
    found = explain_number(policy([0.0] * 4), CONTEXT)
    assert (found.expected, found.average) == (pytest.approx(4), pytest.approx(4))
    assert (found.low, found.high) == (pytest.approx(0.8), pytest.approx(7.2))
    assert [(one.low, one.high, one.probability) for one in found.ranges] == [
        (2 * i, 2 * i + 2, pytest.approx(0.25)) for i in range(4)
    ]
    assert [effect.moved for effect in found.effects] == [pytest.approx(0, abs=1e-7)] * 2


def test_a_feature_moves_the_number():
    """At demand 1 all mass is in the last bin, 7 on average; at its mean 0 the number is uniform, 4."""
    found = explain_number(policy([0.0, 0.0, 0.0, 50.0]), CONTEXT)
    assert found.expected == pytest.approx(7)
    first, second = found.effects
    assert (first.feature, first.value, first.change) == ("demand", 1.0, pytest.approx(3))
    assert first.moved == pytest.approx(3)  # all mass moves up
    assert (second.feature, second.change, second.moved) == ("age", pytest.approx(0), pytest.approx(0))


def test_a_spread_that_changes_is_a_distance_without_a_change():
    """Half the mass in each outer bin against a uniform number: |F - G| is a triangle of height 1/4 at 2 and 6."""
    effect = explain_number(policy([50.0, 0.0, 0.0, 50.0]), CONTEXT).effects[0]
    assert effect.change == pytest.approx(0, abs=1e-6)
    assert effect.moved == pytest.approx(1.0)


def test_an_interval_and_a_floor_restrict_it():
    found = explain_number(policy([0.0, 0.0, 0.0, 50.0]), CONTEXT, eligible=[1, 5])
    assert (found.ranges[0].low, found.ranges[-1].high) == (1, 5)
    assert found.expected == pytest.approx(3)
    uniform = explain_number(policy([0.0, 0.0, 0.0, 50.0]), CONTEXT, floor=1.0)
    assert uniform.expected == pytest.approx(4)
    assert len(explain_number(policy(np.zeros(100), bins=100), CONTEXT).ranges) == 16


def test_a_list_is_refused():
    problem = ps.Problem(name="p", context=[ps.Boolean("x")], actions=ps.Discrete(["a", "b"]))
    with pytest.raises(UnsupportedSpace, match="needs a list of actions or a number"):
        explain_number(ps.Policy.uniform(problem), {"x": True})
