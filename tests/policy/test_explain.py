"""Explanations: on a policy whose answer can be worked out by hand."""

import numpy as np
import pytest

import potstill as ps
from potstill.policy import Layer
from potstill.policy.explain import explain


@pytest.fixture
def policy():
    """Two actions; the log-odds of the second are 4·x - 2; the boolean does nothing."""
    problem = ps.Problem(
        name="p", context=[ps.Numeric("x", low=0, high=1), ps.Boolean("idle")], actions=ps.Discrete(["a", "b"])
    )
    layer = Layer(np.float32([[0, 4], [0, 0]]), np.float32([0, -2]))
    return ps.Policy.build(problem, [layer], version=1, mean=np.float32([0.5, 0.3]))


def test_by_hand(policy):
    explanation = explain(policy, {"x": 1.0, "idle": True})
    sigmoid = 1 / (1 + np.exp(-2))
    assert explanation.probabilities["b"] == pytest.approx(sigmoid, abs=1e-6)
    assert explanation.average == pytest.approx({"a": 0.5, "b": 0.5})
    first, second = explanation.effects
    assert (first.feature, first.value) == ("x", 1.0)
    assert first.moved == pytest.approx(sigmoid - 0.5, abs=1e-6)
    assert first.change == pytest.approx({"a": 0.5 - sigmoid, "b": sigmoid - 0.5}, abs=1e-6)
    assert (second.feature, second.moved) == ("idle", 0.0)


def test_a_feature_at_its_mean_moves_nothing(policy):
    assert explain(policy, {"x": 0.5, "idle": True}).effects[0].moved == 0


def test_restricted_to_one_action_nothing_can_move(policy):
    explanation = explain(policy, {"x": 1.0, "idle": True}, eligible=["a"])
    assert explanation.probabilities == {"a": 1.0, "b": 0.0}
    assert all(effect.moved == 0 for effect in explanation.effects)
