"""Labels of contexts that repeat."""

import numpy as np
import pytest

from potstill.keys import Key
from potstill.spaces import learning
from potstill.teachers import TEACHERS, FunctionTeacher, GaussianProcessTS
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations, problem_for
from potstill.teachers.propensities import label

KEY = Key(0)
LEARNING = learning(PROBLEM.actions)


@pytest.mark.parametrize("name", TEACHERS)
def test_labels_are_the_propensities_whether_contexts_repeat_or_not(name):
    teacher = TEACHERS[name]()
    problem = problem_for(teacher)
    state = teacher.update(teacher.init(problem), example_observations(200, problem=problem), KEY)
    some = example_contexts(20)
    for contexts in (some, np.repeat(some, 3, axis=0), some[::-1][[0, 5, 0, 5, 19, 3]], some[:1], some[:0]):
        expected = teacher.propensities(state, contexts, KEY)
        labels = label(learning(problem.actions), teacher, state, contexts, KEY)
        np.testing.assert_allclose(labels, expected, atol=1e-6)


class Asked:
    """A rule that remembers how many contexts it was asked about."""

    def __init__(self):
        self.rows = []

    def __call__(self, contexts):
        self.rows.append(len(contexts))
        return np.full((len(contexts), 3), 1 / 3)


@pytest.mark.parametrize(
    ("contexts", "asked"),
    [
        (np.repeat(example_contexts(20), 50, axis=0), 20),
        (example_contexts(20), 20),
        (example_contexts(20)[:0], 0),
        (np.zeros((7, 0), np.float32), 7),  # a problem without context
        (np.asfortranarray(np.repeat(example_contexts(5), 2, axis=0)), 5),
    ],
    ids=["repeated", "distinct", "none", "no columns", "by columns"],
)
def test_a_rule_is_asked_once_for_equal_contexts(contexts, asked):
    rule = Asked()
    assert label(LEARNING, FunctionTeacher(rule), (np.array(3),), contexts, KEY).shape == (len(contexts), 3)
    assert rule.rows == [asked]


def test_estimates_are_drawn_for_every_context():
    teacher = GaussianProcessTS()
    state = teacher.update(teacher.init(PROBLEM), example_observations(12), KEY)
    labels = label(LEARNING, teacher, state, np.repeat(example_contexts(1), 50, axis=0), KEY)
    assert len(np.unique(labels, axis=0)) > 1
