"""Any table becomes a problem whose truth is known."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from potstill.errors import LabError
from potstill.lab import ClassificationProblem, DoseProblem
from potstill.lab.problems.environment import regrets
from potstill.problem import Boolean, Categorical, Numeric

FLOWERS = pl.DataFrame(
    {
        "length": [1.0, 3.0, None, 5.0, None],
        "petals": [3, 4, 5, 4, 3],
        "colour": ["red", "blue", "red", "", None],
        "wild": [True, False, True, True, False],
        "species": ["rose", "iris", "iris", None, "lily"],
    }
)
DOSES = pl.DataFrame({"weight": [50.0, 60.0, 70.0, 80.0], "dose": [0.0, 2.5, 9.0, 10.0]})


class ArrowOnly:
    """A table of another library: all it has in common with Polars is the Arrow stream."""

    def __init__(self, table):
        self.table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self.table.__arrow_c_stream__(requested_schema)


def every_row(problem):
    return {"row": np.arange(problem.rows)}


def test_features_are_read_off_the_columns():
    problem = ClassificationProblem(FLOWERS, label="species")
    # The row without a species is left out, and with it the length of 5.
    assert (problem.rows, problem.dropped) == (4, 1)
    assert problem.problem.context == (
        Numeric("length", low=1, high=3, missing="flag"),
        Numeric("petals", low=3, high=5),
        Categorical("colour", ["blue", "red"]),
        Boolean("wild"),
    )
    encoded = problem.encode(every_row(problem))
    #                       length    petals colour  wild
    np.testing.assert_array_equal(
        encoded,
        [
            [0, 0, 0, 0, 1, 0, 1],
            [1, 0, 0.5, 1, 0, 0, 0],
            [0, 1, 1, 0, 1, 0, 1],
            [0, 1, 0, 0, 0, 1, 0],
        ],
    )


def test_the_right_class_earns_1_and_others_0():
    problem = ClassificationProblem(FLOWERS, label="species")
    assert problem.problem.actions.names == ("iris", "lily", "rose")
    np.testing.assert_array_equal(problem.means(every_row(problem)), [[0, 0, 1], [1, 0, 0], [1, 0, 0], [0, 1, 0]])


def test_rewards_of_several_equally_likely_outcomes():
    table = pl.DataFrame({"x": [1, 2], "kind": ["a", "b"]})
    problem = ClassificationProblem(
        table, label="kind", rewards={"a": {"go": (6, 0, 0), "stay": 1}, "b": {"go": (4, -4)}}
    )
    assert problem.problem.actions.names == ("go", "stay")
    np.testing.assert_allclose(problem.means(every_row(problem)), [[2, 1], [0, 0]])
    assert (problem.problem.reward.low, problem.problem.reward.high) == (-4, 6)
    n, rng = 30_000, np.random.default_rng(0)
    earned = problem.rewards({"row": np.zeros(n, int)}, np.zeros(n, int), rng)
    # Five standard deviations of a binomial: a right program fails with probability 6e-7, over all seeds.
    assert abs((earned == 6).sum() - n / 3) < 5 * np.sqrt(n * 2 / 9)


def test_doses_earn_by_their_distance():
    problem = DoseProblem(DOSES, target="dose", levels=3, low=0, high=10)
    assert problem.problem.actions.names == ("0", "5", "10")
    expected = [[1, 0.5, 0], [0.75, 0.75, 0.25], [0.1, 0.6, 0.9], [0, 0.5, 1]]
    np.testing.assert_allclose(problem.means(every_row(problem)), expected)
    actions = np.array([2, 1, 1, 0])
    earned = problem.rewards(every_row(problem), actions, np.random.default_rng(0))
    np.testing.assert_allclose(earned, [0, 0.75, 0.6, 0])


def test_doses_beyond_the_levels_are_taken_as_the_nearest_level():
    problem = DoseProblem(DOSES, target="dose", levels=2, low=2, high=4)
    np.testing.assert_allclose(problem.means(every_row(problem)), [[1, 0], [0.75, 0.25], [0, 1], [0, 1]])


def test_levels_default_to_the_range_of_the_doses():
    np.testing.assert_allclose(DoseProblem(DOSES, target="dose", levels=5).levels, [0, 2.5, 5, 7.5, 10])


@pytest.mark.parametrize("wrapped", [ArrowOnly, lambda table: table], ids=["arrow", "polars"])
def test_an_arrow_table_will_do(wrapped):
    problem = ClassificationProblem.from_arrow(wrapped(FLOWERS), label="species", features=["petals"])
    assert problem.problem.labels == ("petals",)


def test_a_csv_file_will_do(tmp_path):
    path = tmp_path / "flowers.csv"
    path.write_text("length,wild,species\n1,true,rose\nNA,false,iris\n3,true,\n2.5,false,rose\n")
    problem = ClassificationProblem.from_csv(path, label="species")
    assert problem.problem.context == (Numeric("length", low=1, high=2.5, missing="flag"), Boolean("wild"))
    assert (problem.rows, problem.dropped) == (3, 1)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("x,label,label\n1,a,a\n", "two columns are called 'label'; rename one"),
        (",x,label\n0,1,a\n", r"column 1 has no name; .*index=False"),
        ("", "it is empty; the first line must name the columns"),
        ('x,label\n1,a\n2,b,c\n3,"a,b"\n', "line 3 has 3 fields, and the header 2; fields with a separator"),
        ("größe,label\n1,a\n".encode("latin1"), "it is not UTF-8; convert it, for instance with iconv"),
        (("x,label\n" + "1,a\n" * 5000 + "1,ä\n").encode("latin1"), "convert it, for instance with iconv"),
    ],
    ids=["names twice", "index column", "empty", "too many fields", "latin header", "latin rows"],
)
def test_what_is_wrong_with_a_csv_file_is_said_with_a_way_out(tmp_path, content, complaint):
    path = tmp_path / "t.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=rf"t\.csv: cannot be read as CSV: .*{complaint}"):
        ClassificationProblem.from_csv(path, label="label")


def test_a_header_may_have_quotes_and_a_byte_order_mark(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf"the ""size""","label, true"\n1,a\n2,b\n')
    problem = ClassificationProblem.from_csv(path, label="label, true")
    assert problem.problem.labels == ('the "size"',)


def test_a_parquet_file_will_do(tmp_path):
    FLOWERS.write_parquet(tmp_path / "flowers.parquet")
    read = ClassificationProblem.from_parquet(tmp_path / "flowers.parquet", label="species")
    assert read.problem.context == ClassificationProblem(FLOWERS, label="species").problem.context
    (tmp_path / "text.parquet").write_text("x,y")
    with pytest.raises(ValueError, match=r"text\.parquet: cannot be read as Parquet"):
        DoseProblem.from_parquet(tmp_path / "text.parquet", target="y")


def test_columns_can_be_left_out():
    table = pl.DataFrame({"id": [f"user {i}" for i in range(100)], "x": range(100), "kind": ["a", "b"] * 50})
    with pytest.raises(ValueError, match="column 'id' has 100 different values"):
        ClassificationProblem(table, label="kind")
    assert ClassificationProblem(table, label="kind", without=["id"]).problem.labels == ("x",)
    with pytest.raises(ValueError, match="feature 'name' is not a column; the columns are id, x, kind"):
        ClassificationProblem(table, label="kind", without=["name"])


def test_halves_share_no_row_and_have_all_of_them():
    problem = DoseProblem(pl.DataFrame({"x": range(7), "dose": range(7)}), target="dose")
    halves = problem.halves(np.random.default_rng(0))
    met = [half.contexts(half.rows, np.random.default_rng(1)) for half in halves]
    assert sorted([*met[0]["row"], *met[1]["row"]]) == list(range(7))
    assert [half.rows for half in halves] == [4, 3]
    assert problem.rows == 7
    np.testing.assert_array_equal(halves[1].encode(met[1])[:, 0], np.float32(met[1]["row"] / 6))
    with pytest.raises(ValueError, match="4 decisions need 4 rows and the table has 3"):
        halves[1].contexts(4, np.random.default_rng(0))


def test_features_can_be_chosen_and_described():
    problem = DoseProblem(DOSES, target="dose", features=[Numeric("weight", low=10, high=100, scale="log")])
    expected = np.log(DOSES["weight"].to_numpy() / 10) / np.log(10)
    np.testing.assert_allclose(problem.encode(every_row(problem))[:, 0], expected, rtol=1e-6)


def test_columns_that_never_change_are_0_or_one_value():
    table = pl.DataFrame({"seven": [7, 7], "same": ["s", "s"], "kind": [1, 2]})
    problem = ClassificationProblem(table, label="kind")
    np.testing.assert_array_equal(problem.encode(every_row(problem)), [[0, 1, 0]] * 2)
    assert problem.problem.actions.names == ("1", "2")


def test_equal_generators_give_equal_streams_and_luck_whatever_the_action():
    table = pl.DataFrame({"x": [1, 2], "kind": ["a", "b"]})
    problem = ClassificationProblem(table, label="kind", rewards={k: {"up": (1, 0), "down": (2, 0)} for k in "ab"})
    first, second = (problem.contexts(500, np.random.default_rng(3)) for _ in range(2))
    np.testing.assert_array_equal(first["row"], second["row"])
    up, down = (problem.rewards(first, np.full(500, a), np.random.default_rng(4)) for a in (0, 1))
    np.testing.assert_array_equal(2 * up, down)
    assert 0 < up.mean() < 1


def test_without_replacement_every_row_comes_once():
    problem = DoseProblem(DOSES, target="dose", resample=False)
    assert sorted(problem.contexts(4, np.random.default_rng(0))["row"]) == [0, 1, 2, 3]
    assert len(problem.contexts(2, np.random.default_rng(0))["row"]) == 2
    with pytest.raises(ValueError, match=r"5 decisions need 5 rows and the table has 4; .*resample=True"):
        problem.contexts(5, np.random.default_rng(0))


def test_with_replacement_every_row_is_as_likely():
    problem = DoseProblem(DOSES, target="dose")
    counts = np.bincount(problem.contexts(40_000, np.random.default_rng(0))["row"])
    # Five standard deviations of a binomial, for four counts: a right program fails with probability 3e-6.
    assert abs(counts - 10_000).max() < 5 * np.sqrt(40_000 * 3 / 16)


@given(
    targets=st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20),
    levels=st.integers(2, 12),
    low=st.floats(-1e6, 1e6),
    span=st.floats(1e-3, 1e6),
)
def test_of_any_doses_the_best_has_no_regret_and_no_other_has_less(targets, levels, low, span):
    table = pl.DataFrame({"x": range(len(targets)), "dose": targets})
    problem = DoseProblem(table, target="dose", levels=levels, low=low, high=low + span)
    means = problem.means(every_row(problem))
    assert means.min() >= 0
    assert means.max() <= 1
    nearest = np.abs(problem.levels - np.clip(targets, low, low + span)[:, None]).argmin(axis=1)
    assert regrets(means, nearest).max() <= 1e-9
    for action in range(levels):
        assert regrets(means, np.full(len(targets), action)).min() >= 0


@given(labels=st.lists(st.sampled_from("abc"), min_size=2, max_size=20).filter(lambda kinds: len(set(kinds)) > 1))
def test_of_any_labels_the_right_one_has_no_regret_and_others_1(labels):
    problem = ClassificationProblem(pl.DataFrame({"x": range(len(labels)), "kind": labels}), label="kind")
    means = problem.means(every_row(problem))
    right = np.array([problem.problem.actions.index(label) for label in labels])
    assert not regrets(means, right).any()
    assert (regrets(means, (right + 1) % len(problem.problem.actions)) == 1).all()


@pytest.mark.parametrize(
    ("table", "options", "complaint"),
    [
        ({"x": [1]}, {"label": "y"}, "label 'y' is not a column of the table; its columns are x"),
        ({"x": [], "y": []}, {"label": "y"}, r"label 'y': no row of the table has a value \(0 rows"),
        ({"x": [1, 2], "y": [None, None]}, {"label": "y"}, r"no row of the table has a value \(2 rows"),
        ({"x": [1, 2], "y": ["a", "a"]}, {"label": "y"}, "every row is 'a'; there is nothing to decide"),
        ({"y": ["a", "b"]}, {"label": "y"}, "no column but 'y'"),
        ({"x": [1, 2], "y": [1, 2]}, {"label": "y", "features": ["z"]}, "feature 'z' is not a column"),
        ({"x": [1, 2], "y": [1, 2]}, {"label": "y", "features": ["y"]}, "feature 'y' is what is to be predicted"),
        ({"x": [[1], [2]], "y": [1, 2]}, {"label": "y"}, r"column 'x' holds List\(Int64\), and only numbers"),
        ({"x": [None, None], "y": [1, 2]}, {"label": "y"}, "column 'x' has no values; leave it out"),
        ({"x": ["", ""], "y": [1, 2]}, {"label": "y"}, "column 'x' has no values; leave it out"),
        ({"x": [1.0, np.inf], "y": [1, 2]}, {"label": "y"}, "column 'x' holds NaN or an infinite number"),
        ({"x": [1.0, np.nan], "y": [1, 2]}, {"label": "y"}, "column 'x' holds NaN .* replace it by null"),
        ({"x": [f"id{i}" for i in range(65)], "y": [1, 2, *[3] * 63]}, {"label": "y"}, "'x' has 65 different values"),
        ({"x": [1, 2], "y": ["a", "b"]}, {"label": "y", "rewards": {"a": {"go": 1}}}, "name each class once: a, b"),
        (
            {"x": [1, 2], "y": ["a", "b"]},
            {"label": "y", "rewards": {"a": {"go": ()}, "b": {}}},
            "must be finite numbers",
        ),
        ({"x": range(1001), "y": range(1001)}, {"label": "y"}, "'y' has 1,001 classes, .* target .*DoseProblem"),
        ({"x": range(30), "y": np.arange(30) + 0.5}, {"label": "y"}, "'y' has 30 classes, more than 20 fractions"),
    ],
)
def test_what_a_classification_needs(table, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        ClassificationProblem(pl.DataFrame(table), **options)


@pytest.mark.parametrize(
    ("table", "options", "complaint"),
    [
        ({"x": [1, 2], "y": ["3", "much"]}, {}, r"target 'y' must hold finite numbers, got 'much' \(1 such rows\)"),
        ({"x": [1, 2], "y": [3.0, np.inf]}, {}, "target 'y' must hold finite numbers, got inf"),
        ({"x": [1, 2], "y": [np.nan, None]}, {}, "target 'y': no row of the table has a value"),
        ({"x": [1, 2], "y": [3, 3]}, {}, "levels need low < high, got low=3.0 and high=3.0"),
        ({"x": [1, 2], "y": [3, 4]}, {"low": 5, "high": 5}, "levels need low < high"),
        ({"x": [1, 2], "y": [-1e308, 1e308]}, {}, "the range of levels, -1e.308 to 1e.308, overflows"),
        ({"x": [1, 2], "y": [3, 4]}, {"levels": 1}, "levels must be 2 or more, got 1"),
    ],
)
def test_what_a_dose_needs(table, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        DoseProblem(pl.DataFrame(table, strict=False), target="y", **options)


def test_a_file_that_is_no_csv_is_named(tmp_path):
    (tmp_path / "empty.csv").touch()
    with pytest.raises(ValueError, match=r"empty\.csv: cannot be read as CSV"):
        ClassificationProblem.from_csv(tmp_path / "empty.csv", label="y")
    with pytest.raises(ValueError, match=r"absent\.csv: cannot be read as CSV"):
        DoseProblem.from_csv(tmp_path / "absent.csv", target="y")


def test_what_is_wrong_with_a_file_is_said_with_its_name(tmp_path):
    (tmp_path / "flowers.csv").write_text("length;species\n1;rose\n2;iris\n")
    with pytest.raises(
        ValueError, match=r"flowers\.csv: label 'species' is not a column .* columns are length;species"
    ):
        ClassificationProblem.from_csv(tmp_path / "flowers.csv", label="species")


def test_what_is_no_arrow_table_is_named():
    with pytest.raises(LabError, match="expected an Arrow table, got dict"):
        ClassificationProblem.from_arrow({"x": [1]}, label="x")
