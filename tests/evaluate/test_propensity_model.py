"""Estimated propensities, against those of simulated logs, which are known."""

import numpy as np
import pytest

import potstill as ps
from potstill.evaluate import ArrayLog, estimate_propensities, evaluate, with_estimated_propensities

ROWS = 6_000


def simulated(probabilities, columns=3, seed=0):
    """Contexts, actions, and the true propensities of these."""
    rng = np.random.default_rng(seed)
    contexts = rng.random((ROWS, columns)).astype(np.float32)
    p = probabilities(contexts)
    actions = (rng.random((ROWS, 1)) > p.cumsum(axis=1)).sum(axis=1)
    return contexts, actions, p[np.arange(ROWS), actions]


def smooth(contexts):
    scores = np.stack([0 * contexts[:, 0], 2 * contexts[:, 0], 3 * contexts[:, 1] - 1], axis=1)
    return np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)


def steps(contexts):
    first = np.where((contexts[:, 0] > 0.5) ^ (contexts[:, 1] > 0.5), 0.8, 0.2)
    return np.stack([first, 0.9 - first, 0.1 + 0 * first], axis=1)


def flat(contexts):
    return np.tile([0.6, 0.3, 0.1], (len(contexts), 1))


@pytest.mark.parametrize(
    ("probabilities", "model", "error"), [(smooth, "logistic", 0.03), (steps, "trees", 0.08), (flat, "shares", 0.015)]
)
def test_the_model_that_fits_is_chosen_and_is_close_to_the_truth(probabilities, model, error):
    contexts, actions, true = simulated(probabilities)
    found = estimate_propensities(contexts, actions, 3, ps.Key(0))
    assert found.model.model in (model, "logistic") if model == "shares" else found.model.model == model
    assert np.abs(found.propensities - true).mean() < error
    assert found.model.log_loss < -np.log(true).mean() + 0.03
    assert found.model.calibration_error < 0.05


def test_equal_keys_give_equal_estimates():
    contexts, actions, _ = simulated(smooth)
    first, second = (estimate_propensities(contexts, actions, 3, ps.Key(1)) for _ in range(2))
    assert first.propensities.tobytes() == second.propensities.tobytes()


def test_an_action_without_overlap_is_counted():
    contexts, _, _ = simulated(flat)
    actions = (contexts[:, 0] > 0.5).astype(int)
    actions[:3] = 1 - actions[:3]
    found = estimate_propensities(contexts, actions, 3, ps.Key(0))  # the third action never occurs
    assert (found.propensities >= 1e-3).all()
    assert 0 < found.model.rare < 0.01


def test_a_value_by_estimates_is_near_that_by_the_truth_and_never_trusted():
    problem = ps.Problem(
        name="p",
        context=[ps.Numeric(f"x{i}", 0, 1) for i in range(3)],
        actions=ps.Discrete(["a", "b", "c"]),
        reward=ps.Reward(low=0, high=1),
    )
    contexts, actions, true = simulated(smooth)
    rewards = (np.random.default_rng(5).random(ROWS) < 0.2 + 0.6 * contexts[:, 0] * (actions == 1)).astype(float)
    found = estimate_propensities(contexts, actions, 3, ps.Key(0)).propensities
    by_truth, by_estimate = (
        evaluate(ArrayLog(problem, contexts=contexts, actions=actions, rewards=rewards, propensities=p), "b", "logged")
        for p in (true, found)
    )
    assert by_truth.target.trust.grade == "good"
    doubted = with_estimated_propensities(by_estimate)
    assert doubted.target.trust.grade == "caution"
    assert "estimated" in doubted.target.trust.sentence
    assert doubted.against == by_estimate.against
    # E[reward | b] = 0.2 + 0.6 · ½; two standard errors are 0.03.
    assert by_truth.estimate.value == pytest.approx(0.5, abs=0.03)
    assert doubted.estimate.value == pytest.approx(0.5, abs=0.04)
