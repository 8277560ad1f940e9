"""Terms by hand, draws, and actions that were never logged."""

import numpy as np
import pytest
from evaluate_examples import CONTEXTS, MEANS, TARGET, TINY, CutLog, rich_log, table, terms_of

from potstill.errors import InvalidLog, InvalidTarget
from potstill.evaluate.log import ArrayLog
from potstill.evaluate.models import FunctionModel
from potstill.evaluate.targets import target
from potstill.evaluate.terms import compute_terms, uniforms

X, A = np.array([0, 0, 1, 1]), np.array([0, 1, 1, 0])
LOG = ArrayLog(
    TINY,
    contexts=CONTEXTS[X],
    actions=A,
    rewards=[1.0, 2.0, 3.0, 4.0],
    propensities=[0.5, 0.3, 0.2, 0.1],
    times=[10, 20, 30, 40],
    groups={"x": X},
)


def test_terms_by_hand():
    terms = terms_of(LOG, table(TARGET), table(MEANS))
    assert terms.probability.tolist() == [0.1, 0.9, 0.3, 0.3]
    np.testing.assert_allclose(terms.weight, [0.1 / 0.5, 0.9 / 0.3, 0.3 / 0.2, 0.3 / 0.1])
    assert terms.reward.tolist() == [1, 2, 3, 4]
    assert terms.propensity.tolist() == [0.5, 0.3, 0.2, 0.1]
    assert terms.predicted.tolist() == [1.0, 2.0, -1.0, 0.5]
    first, second = 0.1 * 1 + 0.9 * 2 + 0.0, 0.3 * 0.5 - 0.3 + 0.4 * 3
    np.testing.assert_allclose(terms.expected, [first, first, second, second])
    assert len(terms) == 4


def test_the_log_never_took_the_third_action():
    assert terms_of(LOG, table(TARGET)).missing.tolist() == [0.0, 0.0, 0.4, 0.4]
    assert terms_of(LOG, "c").missing.tolist() == [1.0] * 4
    assert terms_of(LOG, "a").missing.tolist() == [0.0] * 4


@pytest.mark.parametrize("last", [1, 2])
def test_an_action_that_comes_late_was_seen(monkeypatch, last):
    monkeypatch.setattr("potstill.evaluate.blocks.BLOCK", 2)
    late = ArrayLog(
        TINY,
        contexts=CONTEXTS[[0] * 5],
        actions=np.array([0, 0, 1, 0, last]),
        rewards=np.zeros(5),
        propensities=[1] * 5,
    )
    assert terms_of(late, "uniform").missing.tolist() == pytest.approx([0.0 if last == 2 else 1 / 3] * 5)


def test_actions_that_were_not_eligible_are_not_missed():
    eligible = np.array([[True, True, False], [True, True, True], [True, True, False], [True, False, True]])
    log = ArrayLog(
        TINY, contexts=CONTEXTS[X], actions=A, rewards=np.zeros(4), propensities=[0.5] * 4, eligible=eligible
    )
    np.testing.assert_allclose(terms_of(log, "uniform").missing, [0, 1 / 3, 0, 0.5])


def test_the_same_number_for_the_same_row_and_seed():
    whole = uniforms(0, 1000, 7)
    np.testing.assert_array_equal(whole[100:300], uniforms(100, 200, 7))
    assert (whole != uniforms(0, 1000, 8)).all()


def test_the_numbers_are_uniform_and_independent():
    u = uniforms(0, 100_000, 0)[:, 0]
    assert (u >= 0).all()
    assert (u < 1).all()
    counts = np.histogram(u, 20, (0, 1))[0]
    assert np.sum((counts - 5000) ** 2 / 5000) < 43.8  # chi-square with 19 degrees of freedom, at 0.1 %
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.01


def test_rows_match_as_often_as_the_target_takes_the_logged_action():
    log = rich_log(20_000)
    terms = terms_of(log, "uniform")
    error = np.sqrt(np.mean(terms.probability * (1 - terms.probability)) / len(terms))
    assert abs(terms.matched.mean() - terms.probability.mean()) < 4 * error
    assert abs(np.corrcoef(terms.matched, terms.reward)[0, 1]) < 0.1


def test_a_certain_target_matches_exactly_its_own_actions():
    terms = terms_of(LOG, "b")
    assert terms.matched.tolist() == [False, True, True, False]


def test_each_row_draws_exactly_one_action():
    log = rich_log(500)
    (rows,) = log.blocks()
    matches = np.zeros(500)
    for action in range(3):
        moved = ArrayLog(
            log.problem,
            contexts=rows.contexts,
            actions=np.full(500, action),
            rewards=rows.rewards,
            propensities=np.ones(500),
        )
        matches += terms_of(moved, table(TARGET)).matched
    assert (matches == 1).all()


def test_what_was_done_weighs_one():
    terms = terms_of(LOG, "logged", table(MEANS))
    assert terms.weight.tolist() == [1.0] * 4
    assert terms.predicted.tolist() == terms.expected.tolist() == terms.reward.tolist()
    assert terms.matched.all()


def test_several_targets_share_a_pass():
    targets = [target(TINY, what) for what in ("a", "logged", table(TARGET))]
    model = FunctionModel(table(MEANS))
    together = compute_terms(LOG, targets, model, by=["x"])
    for one, terms in zip(targets, together.terms, strict=True):
        (alone,) = compute_terms(LOG, [one], model).terms
        for name in ("weight", "expected", "matched", "missing"):
            np.testing.assert_array_equal(getattr(terms, name), getattr(alone, name))
    assert together.times.tolist() == [10, 20, 30, 40]
    assert together.groups["x"].tolist() == X.tolist()


def test_segments_need_values():
    with pytest.raises(InvalidLog, match="no values of 'city' to make segments of; it has x"):
        terms_of(LOG, "a", by=["city"])


def test_a_matrix_that_is_too_long_is_refused():
    with pytest.raises(InvalidTarget, match="probabilities have 5 rows, but the log has 4"):
        terms_of(LOG, np.eye(3)[[0, 1, 2, 0, 1]])


def test_uniform_logs_are_known_as_such():
    model, everything = FunctionModel(table(MEANS)), [target(TINY, "a")]
    even = ArrayLog(TINY, contexts=CONTEXTS[X], actions=A, rewards=X, propensities=[1 / 3] * 4)
    assert compute_terms(even, everything, model).uniform
    assert not compute_terms(LOG, everything, model).uniform
    eligible = np.array([[True] * 3, [True] * 3, [True, True, False], [True, False, False]])
    restricted = ArrayLog(
        TINY, contexts=CONTEXTS[X], actions=A, rewards=X, propensities=[1 / 3, 1 / 3, 1 / 2, 1], eligible=eligible
    )
    assert compute_terms(restricted, everything, model).uniform


def test_some_rows():
    terms = terms_of(LOG, table(TARGET)).where(np.array([True, False, False, True]))
    assert terms.reward.tolist() == [1, 4]
    assert terms.missing.tolist() == [0.0, 0.4]


def test_empty_blocks_are_nothing():
    cut = terms_of(CutLog(LOG, [0, 0, 2, 2]), table(TARGET))
    np.testing.assert_array_equal(cut.weight, terms_of(LOG, table(TARGET)).weight)
