"""States as files: every teacher of the registry continues from one to the bit."""

import numpy as np
import pytest
from safetensors.numpy import save

from potstill.keys import Key
from potstill.teachers import TEACHERS, InvalidState, LinearTS, NeuralLinearTS, Uniform, load_state, save_state
from potstill.teachers.conformance import PROBLEM, _leaves, example_contexts, example_observations, problem_for
from potstill.teachers.neural.recipe import Recipe

KEY = Key(8)


@pytest.mark.parametrize("name", TEACHERS)
def test_what_is_read_back_continues_to_the_bit(name, tmp_path):
    teacher = TEACHERS[name]()
    problem = problem_for(teacher)
    state = teacher.update(teacher.init(problem), example_observations(40, problem=problem), KEY)
    save_state(tmp_path / "state", teacher, state, problem)
    restored = load_state(tmp_path / "state", teacher, problem)
    more, contexts = example_observations(20, Key(3), problem), example_contexts(10)
    for a, b in zip(_leaves(state), _leaves(restored), strict=True):
        np.testing.assert_array_equal(a, b)
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
    p = [teacher.propensities(teacher.update(s, more, KEY), contexts, KEY) for s in (state, restored)]
    np.testing.assert_array_equal(*p)


def test_a_prior_can_be_saved_too(tmp_path):
    teacher = LinearTS()
    save_state(tmp_path / "state", teacher, teacher.init(PROBLEM), PROBLEM)
    assert load_state(tmp_path / "state", teacher, PROBLEM).sums.n.sum() == 0


def test_a_state_of_something_else_is_refused(problem, tmp_path):
    path = tmp_path / "state"
    save_state(path, LinearTS(), LinearTS().init(PROBLEM), PROBLEM)
    with pytest.raises(InvalidState, match=r"its teacher differs from the configured teacher in alpha, discount$"):
        load_state(path, LinearTS(alpha=3.0, discount=0.9), PROBLEM)
    with pytest.raises(InvalidState, match=r"its teacher differs from the configured teacher in type$"):
        load_state(path, Uniform(), PROBLEM)
    with pytest.raises(InvalidState, match="it belongs to problem"):
        load_state(path, LinearTS(), problem)
    save_state(path, NeuralLinearTS(), NeuralLinearTS().init(PROBLEM), PROBLEM)
    with pytest.raises(InvalidState, match=r"differs from the configured teacher in recipe\.noise$"):
        load_state(path, NeuralLinearTS(recipe=Recipe(noise=0.5)), PROBLEM)
    path.write_bytes(save({"state": np.zeros(1)}, {"teacher": "no JSON", "problem": PROBLEM.hash}))
    with pytest.raises(InvalidState, match="state: not a readable state"):
        load_state(path, LinearTS(), PROBLEM)
    save_state(path, LinearTS(), LinearTS().init(PROBLEM), PROBLEM)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InvalidState, match="state: not a readable state"):
        load_state(path, LinearTS(), PROBLEM)
