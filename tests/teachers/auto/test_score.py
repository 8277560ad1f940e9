import numpy as np

from potstill.teachers.auto.score import Scores


def test_weights_of_errors_are_proportional_to_the_observations_at_that_time():
    scores = Scores.nothing(1, 1)
    for error, count in ((1.0, 10), (2.0, 30), (3.0, 60)):
        scores = scores.after(np.full((1, count), error), np.zeros(count, np.int32))
    # Batches end at 10, 40 and 100 observations, which are their weights relative to the last.
    assert np.isclose(scores.squares[0, 0], 10 * 1 * 0.1 + 30 * 4 * 0.4 + 60 * 9)
    assert np.isclose(scores.n[0], 10 * 0.1 + 30 * 0.4 + 60)
    assert scores.seen == 100


def test_the_log_score_is_a_normal_log_density_with_the_variance_of_own_errors():
    rng = np.random.default_rng(0)
    errors, actions = rng.normal(size=(2, 50_000)) * [[1.0], [1.1]], rng.integers(0, 2, 50_000).astype(np.int32)
    first, second = Scores.nothing(2, 2).after(errors, actions).log_scores()

    def log_density(e):
        return (-0.5 * np.log(2 * np.pi * e.var()) - e**2 / (2 * e.var())).sum()

    assert np.isclose(first - second, log_density(errors[0]) - log_density(errors[1]), rtol=1e-3)


def test_a_variance_per_action_makes_quiet_actions_count():
    """One candidate errs on the quiet action, where rewards hardly vary; the noisy one hides it in a pooled error."""
    rng = np.random.default_rng(1)
    actions = np.repeat([0, 1], 500).astype(np.int32)
    noise = np.where(actions == 0, 0.01, 10.0) * rng.normal(size=1000)
    errors = np.stack([noise, noise + np.where(actions == 0, 0.05, 0.0)])
    assert Scores.nothing(2, 2).after(errors, actions).weights(0.01)[0] == 1.0


def test_weights_are_equal_before_any_prediction_and_small_ones_are_zero():
    assert Scores.nothing(4, 3).weights(0.01).tolist() == [0.25] * 4
    errors = np.array([[1.0] * 20, [1.02] * 20, [5.0] * 20])
    weights = Scores.nothing(3, 1).after(errors, np.zeros(20, np.int32)).weights(0.01)
    assert weights[2] == 0.0
    assert weights[0] > weights[1] > 0
    assert np.isclose(weights.sum(), 1)


def test_perfect_predictions_have_finite_scores():
    errors = np.array([[0.0] * 20, [1.0] * 20])
    weights = Scores.nothing(2, 1).after(errors, np.zeros(20, np.int32)).weights(0.01)
    assert weights.tolist() == [1.0, 0.0]
    assert Scores.nothing(2, 1).after(0 * errors, np.zeros(20, np.int32)).weights(0.01).tolist() == [0.5, 0.5]
