"""What differs between two problems, in words."""

import pytest

from potstill.problem import Continuous, Discrete, Problem, difference


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            Continuous("price", 2, 14),
            Continuous("price", 2, 20),
            "'price' was changed from 2 to 14 (linear, 128 bins) to 2 to 20 (linear, 128 bins)",
        ),
        (Discrete(["a", "b"]), Discrete(["b", "a"]), "the actions were reordered"),
        (Discrete(["a", "b"]), Discrete(["a", "b"], positions=[1, 2]), "the distances between actions were changed"),
        (Discrete(["a", "b"]), Continuous("price", 2, 14), "action 'a' was removed, action 'b' was removed"),
    ],
)
def test_changed_actions_are_told(before, after, told):
    one, other = (Problem(name="p", context=[], actions=actions) for actions in (before, after))
    assert difference(one, other).in_words == told
