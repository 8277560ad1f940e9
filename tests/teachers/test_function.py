"""A plain Python function as a teacher, distilled like any other."""

import numpy as np
import pytest

import potstill as ps
from potstill.keys import Key
from potstill.teachers import FunctionTeacher, check_teacher
from potstill.teachers.conformance import PROBLEM, example_contexts, example_observations

KEY = Key(0)


def by_speed(contexts):
    """The faster, the more probable is the last action."""
    fast = contexts[:, :1]
    return np.concatenate([(1 - fast) / 2, (1 - fast) / 2, fast], axis=1)


def test_it_keeps_the_contract():
    check_teacher(FunctionTeacher(by_speed))


def test_it_can_be_distilled():
    still = ps.Still(PROBLEM, FunctionTeacher(by_speed), student=ps.Student(hidden=(16,)))
    report = still.update(example_observations(2000))
    assert report.fidelity.kl_mean < 0.01
    contexts = example_contexts(100)
    np.testing.assert_allclose(still.policy.probabilities_many(contexts), by_speed(contexts), atol=0.1)
    assert still.policy.metadata.lineage.teacher == {
        "type": "FunctionTeacher",
        "description": "FunctionTeacher(by_speed)",
    }


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: np.ones((len(x), 2)) / 2, r"must return probabilities of shape \(4, 3\), got \(4, 2\)"),
        (lambda x: np.ones((len(x), 3)), r"must return probabilities that sum to 1; row 0 is \[1.0, 1.0, 1.0\]"),
        (lambda x: np.full((len(x), 3), np.nan), "must return probabilities that sum to 1; row 0 is"),
        (lambda x: np.tile([1.5, -0.5, 0.0], (len(x), 1)), "must return probabilities that sum to 1; row 0 is"),
    ],
)
def test_what_is_no_probability_is_refused(function, message):
    teacher = FunctionTeacher(function)
    with pytest.raises(ValueError, match=message):
        teacher.propensities(teacher.init(PROBLEM), example_contexts(4), KEY)
