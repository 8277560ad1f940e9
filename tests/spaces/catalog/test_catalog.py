"""A catalogue: items with features, which behaves as a list of names and knows what its items are like."""

import msgspec
import numpy as np
import pytest

import potstill as ps
from potstill.problem import difference
from potstill.spaces import FiniteSpace, lake_columns

FEATURES = [
    ps.Numeric("price", low=0, high=10),
    ps.Categorical("genre", ["rock", "jazz"]),
    ps.Vector("taste", size=2, missing="flag"),
]
ITEMS = [
    {"id": "a", "price": 5, "genre": "jazz", "taste": [0.5, 1]},
    {"id": "b", "price": 2.5, "genre": "folk"},
    {"id": "c", "price": 20.0, "genre": "rock", "taste": np.array([1.0, 0.0])},
]


def catalog(items=ITEMS, **options):
    return ps.Catalog(features=FEATURES, items=items, **options)


def test_features_of_items_are_encoded_as_those_of_contexts():
    space = catalog()
    problem = ps.Problem(name="p", context=FEATURES, actions=ps.Discrete(["x", "y"]))
    rows = [{name: value for name, value in item.items() if name != "id"} for item in space.items]
    np.testing.assert_array_equal(space.embed(np.arange(3)), problem.encode_many(rows))
    expected = [[0.5, 0, 1, 0, 0.5, 1, 0], [0.25, 0, 0, 1, 0, 0, 1], [1, 1, 0, 0, 1, 0, 0]]
    np.testing.assert_array_equal(space.embed(np.array([0, 1, 2])), np.array(expected, np.float32))


def test_it_is_a_list_of_names():
    space = catalog(retired=["b"])
    assert isinstance(space, FiniteSpace)
    assert space.labels == ("a", "b", "c")
    assert space.available == ("a", "c")
    assert space.encode(["c", "a"]).tolist() == [2, 0]
    assert space.restrict(["c"]).allowed.tolist() == [[False, False, True]]
    decision = ps.Policy.uniform(ps.Problem(name="p", context=[], actions=space)).decide({}, id="x")
    assert decision.propensity == 0.5
    assert repr(space) == "<Catalog of 3 items with features price, genre, taste>"


def test_equal_items_give_equal_hashes_however_they_are_written():
    def hashed(items):
        return ps.Problem(name="p", context=[], actions=catalog(items)).hash

    plain = [dict(reversed(item.items())) for item in ITEMS]
    plain[0]["price"], plain[1]["taste"] = np.float32(5.0), None
    assert hashed(plain) == hashed(ITEMS)
    assert hashed(plain[::-1]) != hashed(ITEMS)
    assert hashed([*ITEMS[:2], {**ITEMS[2], "price": 19.0}]) != hashed(ITEMS)


def test_a_problem_with_a_catalogue_survives_its_file(tmp_path):
    problem = ps.Problem(name="p", context=[ps.Boolean("new")], actions=catalog(retired=["a"]))
    problem.save(tmp_path / "problem.toml")
    assert ps.Problem.load(tmp_path / "problem.toml") == problem
    assert msgspec.json.decode(msgspec.json.encode(problem), type=ps.Problem).hash == problem.hash


def changed(place, **values):
    items = [dict(item) for item in ITEMS]
    items[place] = {name: value for name, value in {**items[place], **values}.items() if value is not ...}
    return items


@pytest.mark.parametrize(
    ("items", "message"),
    [
        (changed(1, price=None), "item 'b': feature 'price' is missing; send a value"),
        (changed(1, price=float("nan")), "item 'b': feature 'price': expected a finite number, got nan"),
        (changed(1, price="2"), "item 'b': feature 'price': expected a number, got '2'"),
        (changed(1, price=True), "item 'b': feature 'price': expected a number, got True"),
        (changed(0, genre=3), "item 'a': feature 'genre': expected a string, got 3"),
        (changed(2, taste=[1, 2, 3]), r"item 'c': feature 'taste': expected .*2 numbers"),
        (changed(2, taste=[1, float("inf")]), r"item 'c': feature 'taste'\[1\]: expected a finite number"),
        (changed(0, colour="red"), "item 'a': unknown feature 'colour'; must be one of: price, genre, taste"),
        (changed(2, id="a"), "item 'a' is named twice"),
        (changed(2, id=""), r"the id of items\[2\] must be a non-empty string"),
        (changed(2, id=7), r"the id of items\[2\] must be a non-empty string, got 7"),
        (changed(1, id=...), r"items\[1\] has no 'id'"),
        ([*ITEMS, "d"], r"items\[3\] must be a mapping"),
        (ITEMS[:1], "items must be a list of at least two items"),
        ({"a": {}}, "items must be a list of at least two items"),
    ],
)
def test_bad_items_are_refused_by_name(items, message):
    with pytest.raises(ps.InvalidProblem, match=message):
        catalog(items)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        ([], "features must be a list of one or more features of items"),
        (["price"], "features must hold features"),
        ([ps.Boolean("id")], "cannot be called 'id'"),
        ([ps.Boolean("new"), ps.Boolean("new")], "feature 'new' is named twice"),
    ],
)
def test_bad_features_are_refused(features, message):
    with pytest.raises(ps.InvalidProblem, match=message):
        ps.Catalog(features=features, items=ITEMS)


def test_strings_that_end_with_nul_are_not_cut():
    space = ps.Catalog(features=[ps.Categorical("g", ["x"])], items=[{"id": "a", "g": "x\0"}, {"id": "b", "g": "x"}])
    assert space.encoded.tolist() == [[0, 1], [1, 0]]


def test_differences_of_catalogues_are_told():
    def problem(items, **options):
        return ps.Problem(name="p", context=[], actions=catalog(items, **options))

    before = problem(ITEMS)
    assert difference(before, problem(changed(1, price=3.0))).in_words == "item 'b' was changed"
    assert difference(before, problem(ITEMS[::-1])).in_words == "the items were reordered"
    assert difference(before, problem([*ITEMS, {"id": "d", "price": 1, "genre": "x"}])).added == ("d",)
    many = [{"id": f"{i}", "price": 1, "genre": "x"} for i in range(500)]
    assert "480 more were added" in difference(before, problem([*ITEMS, *many])).in_words
    assert before.actions.changed(before.actions) == ()


def test_messages_do_not_list_thousands_of_items():
    space = catalog([{"id": f"item {i}", "price": 1, "genre": "x"} for i in range(2000)])
    with pytest.raises(ps.InvalidContext, match=r"unknown action 'no'.*; the actions are item 0, .* and 1,950 more$"):
        space.parse("no")


def test_lists_of_the_lake_become_masks():
    import polars as pl

    columns = pl.Series([["a", "c"], None, ["gone", "b"], []], dtype=pl.List(pl.String))
    allowed = lake_columns(catalog()).allowed(columns)
    assert allowed.tolist() == [[True, False, True], [True, True, True], [False, True, False], [False, False, False]]
