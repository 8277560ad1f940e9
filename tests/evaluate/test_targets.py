"""Targets: their distributions, and answers that are refused."""

import numpy as np
import pytest
from evaluate_examples import CONTEXTS, RICH, TARGET, TINY, rich_log, rows_of, table
from examples import random_layers

import potstill as ps
from potstill.errors import InvalidTarget
from potstill.evaluate.log import Block
from potstill.evaluate.targets import target

ALL = Block(CONTEXTS[[0, 1, 1]], np.array([0, 1, 2], np.int32), np.zeros(3), np.ones(3))
#: In the first row all actions are eligible, in the second not a, in the third only a.
MASK = np.array([[True, True, True], [False, True, True], [True, False, False]])
SOME = Block(ALL.contexts, np.array([0, 1, 0], np.int32), ALL.rewards, ALL.propensities, MASK)


def p(what, block=ALL, first_row=0):
    return target(TINY, what).distribution(block, first_row).p.tolist()


def test_a_fixed_action():
    assert p("b") == [[0, 1, 0]] * 3
    assert p("a", SOME) == [[1, 0, 0], [0, 0.5, 0.5], [1, 0, 0]]


def test_uniform():
    assert p("uniform") == [[1 / 3] * 3] * 3
    assert p("uniform", SOME) == [[1 / 3] * 3, [0, 0.5, 0.5], [1, 0, 0]]


def test_a_function_that_gives_probabilities():
    assert p(table(TARGET)) == [[0.1, 0.9, 0.0], [0.3, 0.3, 0.4], [0.3, 0.3, 0.4]]
    np.testing.assert_allclose(p(table(TARGET), SOME), [[0.1, 0.9, 0.0], [0, 3 / 7, 4 / 7], [1, 0, 0]])


def test_a_function_that_gives_actions():
    assert p(lambda contexts: contexts[:, 0].astype(int) + 1) == [[0, 1, 0], [0, 0, 1], [0, 0, 1]]


def test_a_matrix_is_read_by_row_number():
    rows = np.eye(3)[[0, 0, 2, 1, 0]]
    assert p(rows, ALL, first_row=1) == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]


def test_a_policy_is_asked_with_what_is_eligible():
    policy = ps.Policy.build(RICH, random_layers(RICH), version=7)
    block = rows_of(rich_log(50))
    asked = target(RICH, policy)
    np.testing.assert_array_equal(
        asked.distribution(block, 0).p, policy.probabilities_many(block.contexts, eligible=block.eligible)
    )
    assert asked.name == "policy 7"


def test_a_teacher_is_asked_for_the_best_of_what_is_eligible():
    """Renormalising what it says of all actions would be another answer."""
    pytest.importorskip("jax")
    teacher = ps.teachers.LinearTS()
    block = rows_of(rich_log(80))
    learnt = teacher.update(
        teacher.init(RICH),
        ps.Observations(RICH, block.contexts, block.actions, block.rewards, np.full(80, 0.3)),
        ps.Key(0),
    )
    asked = target(RICH, (teacher, learnt, ps.Key(1))).distribution(block, 0).p
    np.testing.assert_array_equal(asked, teacher.propensities(learnt, block.contexts, ps.Key(1), block.eligible))
    whole = teacher.propensities(learnt, block.contexts, ps.Key(1)) * block.eligible
    assert np.abs(asked - whole / whole.sum(axis=1, keepdims=True)).max() > 0.01


def test_a_policy_of_another_problem_is_refused():
    with pytest.raises(InvalidTarget, match=r"the policy decides 'rich' .* but the log is of 'tiny'"):
        target(TINY, ps.Policy.uniform(RICH))


class Coin:
    """A teacher that draws its propensities."""

    def propensities(self, state, contexts, key):
        drawn = key.generator().uniform(size=(len(contexts), 3))
        return (drawn / drawn.sum(axis=1, keepdims=True)).astype(np.float32)


def test_a_teacher_has_a_key_for_each_block():
    taught = target(TINY, (Coin(), None, ps.Key(3)))
    np.testing.assert_array_equal(
        taught.distribution(ALL, 5).p, Coin().propensities(None, ALL.contexts, ps.Key(3).child(5)).astype(np.float64)
    )
    masked = taught.distribution(SOME, 5).p
    assert (masked[~MASK] == 0).all()
    np.testing.assert_allclose(masked.sum(axis=1), 1, atol=1e-6)
    assert taught.name == "Coin"


def test_a_real_teacher():
    pytest.importorskip("jax")
    teacher = ps.teachers.LinearTS()
    taught = target(TINY, (teacher, teacher.init(TINY), ps.Key(0)))
    np.testing.assert_allclose(taught.distribution(ALL, 0).p, 1 / 3, atol=1e-5)


class Own:
    name = "mine"

    def __init__(self, rows):
        self.rows = rows

    def probabilities(self, block, first_row):
        return self.rows


def test_a_target_of_ones_own_is_checked():
    assert p(Own(np.eye(3))) == np.eye(3).tolist()
    assert target(TINY, Own(np.eye(3))).name == "mine"
    with pytest.raises(InvalidTarget, match="mine, row 41: probabilities must add up to 1"):
        p(Own(np.eye(3) * [1, 0.5, 1]), first_row=40)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            np.array([[0.5, 0.5, 0], [0.5, 0.4, 0], [1, 0, 0]]),
            r"row 11: probabilities must add up to 1, got \[0.5, 0.4",
        ),
        (np.array([[0.5, 0.5, 0], [0, 0, 1], [1.5, -0.5, 0]]), "row 12: probabilities must be at least 0"),
        (np.array([[np.nan, 0.5, 0.5], [0, 0, 1], [1, 0, 0]]), "row 10: probabilities must be at least 0"),
        (np.ones((3, 2)) / 2, r"must give probabilities float\[3, 3\] for 3 contexts.*got float64\[3, 2\]"),
        (np.array([0, 1, 3]), "row 12: an action must be a position from 0 to 2, got 3"),
        (np.array([0, 1]), "an action for each of 3 contexts, got 2"),
        (np.array(["a", "b", "c"]), "must give probabilities"),
    ],
)
def test_functions_that_do_not_say_what_they_would_do(given, message):
    def odd(contexts):
        return given

    with pytest.raises(InvalidTarget, match=f"odd.*{message}"):
        p(odd, first_row=10)


def test_a_matrix_that_is_too_short_or_too_narrow():
    with pytest.raises(InvalidTarget, match="probabilities have 2 rows, but the log has 3 or more"):
        p(np.eye(3)[:2])
    with pytest.raises(InvalidTarget, match=r"probabilities must give probabilities float\[1, 3\]"):
        target(TINY, np.ones((3, 2)) / 2)


def test_unknown_targets_are_refused_with_the_known_ones():
    with pytest.raises(InvalidTarget, match=r"unknown action 'z' .*; the actions are a, b, c, and other targets"):
        target(TINY, "z")
    with pytest.raises(InvalidTarget, match="a target is a policy"):
        target(TINY, 3)


def test_what_was_done_has_no_probabilities_of_other_actions():
    with pytest.raises(InvalidTarget, match="does not say how probable the other actions were"):
        p("logged")


def test_targets_can_be_named():
    assert target(TINY, "a", name="always a").name == "always a"
    assert target(TINY, lambda contexts: contexts).name == "lambda"
    one = target(TINY, "a")
    assert target(TINY, one, name="other").name == "other"
    assert one.name == "a"
