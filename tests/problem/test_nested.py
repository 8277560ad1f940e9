"""Nested features as a flat context: one rule for logs and for requests."""

import pytest

from potstill.errors import InvalidContext
from potstill.problem import Boolean, Categorical, Numeric, Vector, as_text, fit_context, flatten

REQUEST = [{"timeOfDay": "Morning", "user": {"age": 30, "profile": {"id": "x"}}}, {"device": {"mobile": True}}]
FLAT = {"timeOfDay": "Morning", "user.age": 30, "user.profile.id": "x", "device.mobile": True}


def test_a_request_and_what_personalizer_logs_of_it_are_the_same():
    assert flatten(REQUEST) == flatten({"FromUrl": REQUEST, "_multi": [{"a": 1}]}) == FLAT


def test_each_rule_by_hand():
    assert flatten({"a": [1, 2.5], "b": [], "c": None, "_d": 1, "e": {"_f": 1, "g": [{"h": 1}, {"h": 2}]}}) == {
        "a": [1, 2.5],
        "e.g.h": 2,
    }
    assert flatten({"tags": ["news", "_no", {"x": 1}], "mixed": [1, True, "y"]}) == {
        "tags.news": True,
        "tags.x": 1,
        "mixed": True,
        "mixed.y": True,
    }
    assert flatten(["alone", 3]) == {"alone": True}
    assert flatten({"a": {"FromUrl": 1}, "": 3}) == {"a.FromUrl": 1}
    assert flatten("text") == {}


def test_deep_nesting_is_refused_by_name():
    deep = 1
    for _ in range(40):
        deep = {"x": deep}
    with pytest.raises(InvalidContext, match="more than 32 levels"):
        flatten(deep)


def test_values_become_what_their_features_hold():
    features = [Numeric("n", 0, 1), Boolean("b"), Categorical("c", ["1", "true"]), Vector("v", size=2)]
    assert fit_context(features, {"n": True, "b": 2, "c": 1.0, "v": [1, 2], "other": 1}) == {
        "n": 1.0,
        "b": True,
        "c": "1",
        "v": [1, 2],
    }
    assert fit_context(features, {"b": "false", "c": True, "n": "x"}) == {"b": False, "c": "true", "n": "x"}


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (3.0, "3"), (0.1, "0.1"), (10**20, "1" + "0" * 20), ([1, 2.5], "[1, 2.5]")]
)
def test_texts(value, text):
    assert as_text(value) == text
