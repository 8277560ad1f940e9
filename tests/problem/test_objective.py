"""Objectives: what they accept, what they refuse and why, and their two parts."""

import re

import msgspec
import numpy as np
import pytest

from potstill.errors import InvalidProblem
from potstill.problem import Discrete, Problem, Reward
from potstill.spaces import Continuous


def problem(objective, low=1, high=20):
    return Problem(
        name="p", context=[], actions=Continuous("price", low=low, high=high), reward=Reward(objective=objective)
    )


@pytest.mark.parametrize(
    ("text", "coefficient", "constant"),
    [
        ("price * sold", lambda a: a, lambda a: 0 * a),
        ("(price - 3) * sold - 0.5", lambda a: a - 3, lambda a: 0 * a - 0.5),
        ("-sold / price ** 2 + price", lambda a: -1 / a**2, lambda a: a),
        ("sold * 2 * price + (1 - sold) * +4", lambda a: 2 * a - 4, lambda a: 0 * a + 4),
        ("margin", lambda a: 0 * a + 1, lambda a: 0 * a),
    ],
)
def test_coefficient_and_constant(text, coefficient, constant):
    actions = np.array([1.0, 2.5, 20.0])
    found = problem(text).objective
    np.testing.assert_allclose(found.parts(actions), [coefficient(actions), constant(actions)], atol=1e-12)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("price * sold * sold", "must be linear in the outcome 'sold'; 'price * sold * sold' is not"),
        ("price / sold", "must be linear in the outcome 'sold'"),
        ("sold ** 2", "must be linear in the outcome 'sold'"),
        ("price ** sold", "must be linear in the outcome 'sold'"),
        ("price * 2", "must name one outcome beside the action 'price', such as 'price * sold'; there is none"),
        ("price * sold - cost", "got cost, sold"),
        ("price * sold(1)", "may have numbers, names, + - * / ** and parentheses, got 'sold(1)'"),
        ("__import__('os').system('true') * sold", "may have numbers"),
        ("sold.real", "may have numbers"),
        ("sold * True", "may have numbers"),
        ("sold * 'a'", "may have numbers"),
        ("price if sold else 0", "may have numbers"),
        ("price // sold", "may have numbers"),
        ("sold * 1" + "0" * 150 + "**9", "must be finite for every action"),
        ("sold * 1e400", "may have numbers"),
        ("price *", "must be an expression such as 'price * sold'"),
        ("", "must be an expression such as 'price * sold'"),
        ("sold + " * 60 + "1", "must have at most 200 characters, got 421"),
        ("(" * 190 + "sold", "must be an expression"),
        ("sold / (price - 1)", "must be finite for every action; it is not at price = 1"),
        ("sold * (price - 5) ** 0.5", "it is not at price = 1"),
    ],
)
def test_others_are_refused_with_the_reason(text, why):
    with pytest.raises(InvalidProblem, match="reward: objective .*" + re.escape(why)):
        problem(text)


def test_it_needs_text_and_a_continuous_action():
    with pytest.raises(InvalidProblem, match=r"objective must be a text such as 'price [*] sold', got 3"):
        Reward(objective=3)
    with pytest.raises(
        InvalidProblem, match=r"needs a continuous action, .* log what is to be maximised as the reward"
    ):
        Problem(name="p", context=[], actions=Discrete(["a", "b"]), reward=Reward(objective="a * sold"))


def test_it_is_stored_and_leaves_other_problems_as_they_were(tmp_path):
    priced = problem("price * sold")
    priced.save(tmp_path / "problem.toml")
    assert Problem.load(tmp_path / "problem.toml") == priced
    assert priced.hash == problem(None).hash, "a policy stays usable, as with any change of the reward"
    assert b"objective" not in msgspec.json.encode(problem(None))
    assert problem(None).objective is None
