"""Reward models: regressions from sums against explicit refits, and corner cases."""

import numpy as np
import pytest
from evaluate_examples import RICH, CutLog, rich_log

import potstill as ps
from potstill.errors import InvalidModel
from potstill.evaluate.blocks import numbered
from potstill.evaluate.log import ArrayLog
from potstill.evaluate.models import FunctionModel, RidgeModel, fitted, predict
from potstill.spaces import ridge
from potstill.spaces.ridge import FOLDS, GramSums, RegressionRows


def log_of(contexts, actions, rewards, names=("a", "b", "c"), width=None):
    contexts = np.asarray(contexts, np.float32)
    problem = ps.Problem(
        name="wide",
        context=[ps.Numeric(f"x{i}", low=0, high=1) for i in range(contexts.shape[1])],
        actions=ps.Discrete(list(names)),
    )
    count = len(contexts)
    return ArrayLog(problem, contexts=contexts, actions=actions, rewards=rewards, propensities=np.full(count, 0.5))


def random_log(rows=200, width=3, seed=0, scale=1.0, shift=0.0, noise=0.1):
    rng = np.random.default_rng(seed)
    contexts = shift + scale * rng.normal(size=(rows, width))
    actions = rng.integers(0, 3, rows)
    coefficients = rng.normal(size=(width, 3))
    signal = ((contexts - shift) / scale) @ coefficients + [5.0, 0.0, -5.0]
    return log_of(contexts, actions, signal[np.arange(rows), actions] + rng.normal(0, noise, rows)), signal


def sums_of(log):
    """The sums that the regressions of a list of actions are solved from."""
    rows = (RegressionRows(first, b.contexts, b.actions, b.rewards) for first, b in numbered(log))
    return GramSums.of(rows, len(log.problem.actions))


def refit(x, y, new, penalty, scale, centre, prior, mean):
    """Ridge regression on scaled columns, written as least squares with penalty rows."""
    width = x.shape[1]
    columns = np.column_stack([(x - centre) / scale, np.ones(len(x))])
    rows = np.diag(np.sqrt(np.append(np.full(width, penalty), prior)))
    solved, *_ = np.linalg.lstsq(np.vstack([columns, rows]), np.append(y - mean, np.zeros(width + 1)), rcond=None)
    return mean + np.column_stack([(new - centre) / scale, np.ones(len(new))]) @ solved


@pytest.mark.parametrize("penalty", [0.1, 100.0])
def test_all_folds_but_one_is_a_refit_without_its_rows(penalty):
    log, _ = random_log()
    (rows,) = log.blocks()
    x, fold = rows.contexts.astype(np.float64), np.arange(len(rows)) % FOLDS
    model = RidgeModel(penalties=(penalty,), prior=2.0).fit(log)
    new = np.random.default_rng(1).normal(size=(4, 3)).astype(np.float32)
    for held_out in range(FOLDS):
        predicted = model.predict(new, held_out)
        for action in range(3):
            kept = (fold != held_out) & (rows.actions == action)
            mean = rows.rewards[fold != held_out].mean()
            by_hand = refit(x[kept], rows.rewards[kept], new, penalty, x.std(axis=0), x.mean(axis=0), 2.0, mean)
            np.testing.assert_allclose(predicted[:, action], by_hand, rtol=1e-9, atol=1e-9)


def test_the_held_out_error_is_that_of_the_predictions():
    log, _ = random_log(rows=57)
    (rows,) = log.blocks()
    sums = sums_of(log)
    model = RidgeModel(penalties=(3.0,)).fit(log)
    predicted = predict(model, log.problem, rows, 0).rewards[np.arange(57), rows.actions]
    errors = [np.sum((rows.rewards - predicted)[rows.actions == action] ** 2) for action in range(3)]
    np.testing.assert_allclose(sums.held_out(sums.solve(np.array([3.0] * 3 + [1.0]))), errors, rtol=1e-9)


def test_the_penalty_is_the_one_with_the_smallest_error():
    """With as many columns as rows per action, of which none matters, a heavy penalty predicts best."""
    noise, _ = random_log(rows=150, width=40, noise=0.0)
    (rows,) = noise.blocks()
    rng = np.random.default_rng(3)
    nothing = log_of(rows.contexts, rows.actions, rng.normal(size=150))
    assert min(RidgeModel().fit(nothing).penalties) >= 100
    signal, _ = random_log(rows=2000, noise=0.01)
    assert max(RidgeModel().fit(signal).penalties) <= 1


def test_signals_are_found():
    log, signal = random_log(rows=2000)
    (rows,) = log.blocks()
    predicted = predict(fitted(None, log), log.problem, rows, 0).rewards
    assert np.abs(predicted - signal).max() < 0.1


def test_an_action_without_rows_gets_the_mean_of_all():
    log, _ = random_log()
    (rows,) = log.blocks()
    chosen = rows.actions != 1
    some = log_of(rows.contexts[chosen], rows.actions[chosen], rows.rewards[chosen])
    (left,) = some.blocks()
    predicted = RidgeModel().fit(some).predict(rows.contexts, 2)
    others = np.arange(len(left)) % FOLDS != 2
    np.testing.assert_allclose(predicted[:, 1], left.rewards[others].mean())


def test_an_action_with_one_row_stays_close_to_the_mean_of_all():
    log = log_of(np.eye(3), np.array([0, 0, 1]), [1.0, 3.0, 100.0])
    # Of fold 0: mean of rows 1 and 2 is 51.5, the only row of action b counts as much as that mean.
    predicted = RidgeModel(penalties=(1e12,)).fit(log).predict(np.eye(3, dtype=np.float32), 0)
    np.testing.assert_allclose(predicted[0, 1], 51.5 + (100 - 51.5) / 2, rtol=1e-6)


def test_one_row_is_enough():
    log = log_of([[0.3]], np.array([1]), [7.0])
    predicted = predict(fitted(None, log), log.problem, next(log.blocks()), 0).rewards
    np.testing.assert_array_equal(predicted, np.zeros((1, 3)))  # nothing is known beside the row itself


@pytest.mark.parametrize(("scale", "shift"), [(1e12, 0.0), (1e-12, 0.0), (1.0, 1e4), (1e9, -1e12)])
def test_the_scale_of_a_feature_does_not_matter(scale, shift):
    log, signal = random_log(rows=2000, scale=scale, shift=shift)
    (rows,) = log.blocks()
    predicted = predict(fitted(None, log), log.problem, rows, 0).rewards
    assert np.abs(predicted - signal).max() < 0.1


def test_the_size_of_rewards_does_not_matter():
    log, signal = random_log(rows=2000)
    (rows,) = log.blocks()
    far = log_of(rows.contexts, rows.actions, rows.rewards + 1e9)
    predicted = predict(fitted(None, far), far.problem, rows, 0).rewards
    assert np.abs(predicted - 1e9 - signal).max() < 0.1


def test_columns_that_do_not_vary_change_nothing():
    log, _ = random_log()
    (rows,) = log.blocks()
    constants = np.tile(np.float32([0.0, 1.0, 123456.789]), (len(rows), 1))
    wider = log_of(np.hstack([rows.contexts, constants]), rows.actions, rows.rewards)
    plain = RidgeModel().fit(log).predict(rows.contexts, 1)
    np.testing.assert_allclose(RidgeModel().fit(wider).predict(next(wider.blocks()).contexts, 1), plain, rtol=1e-6)


def test_wide_contexts_are_mixed_down(monkeypatch):
    log, signal = random_log(rows=3000, width=30, noise=0.0)
    monkeypatch.setattr(ridge, "WIDEST", 25)
    sums = sums_of(log)
    assert sums.xx.shape == (FOLDS, 3, 26, 26)
    (rows,) = log.blocks()
    predicted = predict(fitted(None, log), log.problem, rows, 0).rewards
    assert np.var(predicted - signal) < 0.6 * np.var(signal)


def test_rows_are_predicted_by_the_model_of_their_fold():
    class Fold:
        def predict(self, contexts, fold):
            return np.full((len(contexts), 3), float(fold))

    (rows,) = rich_log(13).blocks()
    unbounded = ps.Problem(name="rich", context=RICH.context, actions=RICH.actions)
    assert predict(Fold(), unbounded, rows, 7).rewards[:, 0].tolist() == [(7 + i) % FOLDS for i in range(13)]


def test_predictions_stay_within_the_bounds_of_the_reward():
    (rows,) = rich_log(10).blocks()
    wild = FunctionModel(lambda contexts: np.tile([-3.0, 0.5, 9.0], (len(contexts), 1)))
    assert predict(wild, RICH, rows, 0).rewards.tolist() == [[0.0, 0.5, 1.0]] * 10


def test_models_that_do_not_predict_are_refused():
    (rows,) = rich_log(10).blocks()
    with pytest.raises(InvalidModel, match=r"must give shape \(2, 3\), got \(2, 2\)"):
        predict(FunctionModel(lambda contexts: np.zeros((len(contexts), 2))), RICH, rows, 0)
    with pytest.raises(InvalidModel, match="row 100: the reward model must be finite"):
        predict(FunctionModel(lambda contexts: np.full((len(contexts), 3), np.nan)), RICH, rows, 100)


def test_models_of_ones_own():
    class Zero:
        def fit(self, log):
            return self

        def predict(self, contexts, fold):
            return np.zeros((len(contexts), 3))

    zero = Zero()
    assert fitted(zero, rich_log(10)) is zero
    assert isinstance(fitted(lambda contexts: contexts, rich_log(10)), FunctionModel)


def test_sums_do_not_depend_on_how_the_log_is_cut(monkeypatch):
    monkeypatch.setattr("potstill.evaluate.blocks.BLOCK", 32)
    log = rich_log(200)
    one, other = sums_of(log), sums_of(CutLog(log, [3, 50, 51, 180]))
    for name in ("xx", "xy", "yy"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_many_actions_leave_fewer_columns(monkeypatch):
    monkeypatch.setattr(ridge, "_NUMBERS", FOLDS * 3 * 11**2)
    log, _ = random_log(rows=100, width=12)
    assert sums_of(log).xx.shape == (FOLDS, 3, 11, 11)


def test_contexts_may_be_empty():
    log = log_of(np.zeros((50, 0)), np.arange(50) % 2, np.arange(50) % 2 + 10.0)
    predicted = predict(RidgeModel(prior=1e-9).fit(log), log.problem, next(log.blocks()), 0).rewards
    np.testing.assert_allclose(predicted, np.tile([10.0, 11.0, 10.5], (50, 1)), rtol=1e-6)
