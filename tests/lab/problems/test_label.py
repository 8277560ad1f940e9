"""The label of a table, where nobody said."""

import polars as pl
import pytest

from potstill.errors import LabError
from potstill.lab.problems import data, read_table
from potstill.lab.problems.label import label_of

N = 60
AMOUNT = [i / 7 for i in range(N)]
MANY = list(range(N))
DIGIT = [i % 4 for i in range(N)]
NAME = ["abc"[i % 3] for i in range(N)]
ID = [f"id{i}" for i in range(N)]


@pytest.mark.parametrize(
    ("columns", "label", "why"),
    [
        ({"x": AMOUNT, "Class": DIGIT, "z": NAME}, "Class", "by its name"),
        ({"y": NAME, "a": AMOUNT, "colour": NAME}, "y", "by its name"),
        ({"letter": NAME, "f0": DIGIT, "f1": DIGIT}, "letter", "the only column of names"),
        ({"a": DIGIT, "kind": NAME, "id": ID}, "kind", "the only column of names"),
        ({"a": AMOUNT, "kind": [True, False] * (N // 2)}, "kind", "the only column of names"),
        ({"a": DIGIT, "b": AMOUNT, "digit": DIGIT}, "digit", "the last column, with 4 values"),
        ({"digit": [float(i) for i in DIGIT], "b": AMOUNT}, "digit", "the first column, with 4 values"),
        ({"c1": NAME, "c2": NAME, "c3": NAME}, "c3", "the last column, with 3 values"),
        # An amount called y does not hide a class called label.
        ({"y": AMOUNT, "label": NAME}, "label", "by its name"),
    ],
)
def test_the_rule(columns, label, why):
    found = label_of(pl.DataFrame(columns))
    assert (found.column, found.why) == (label, why)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"x": DIGIT, "y": AMOUNT}, "'y' is called like a label and holds 60 different values of type Float64"),
        ({"label": NAME, "class": NAME, "x": AMOUNT}, "label and class could all be the label"),
        ({"x": AMOUNT, "z": MANY}, "no column is clearly the label"),
        ({"id": ID, "x": AMOUNT}, "neither the last .'x'. nor the first .'id'. has few"),
    ],
)
def test_an_unclear_label_is_refused(columns, said):
    with pytest.raises(LabError, match=said):
        label_of(pl.DataFrame(columns))


def test_it_finds_the_labels_of_the_real_tables():
    try:
        folder = data.tables()
    except data.MissingData as error:
        pytest.skip(str(error))
    known = {"bank.csv": "y", "covtype.csv": "cover", "letter.csv": "letter", "pendigits.csv": "digit"}
    found = {name: label_of(read_table(folder / name)).column for name in known if (folder / name).exists()}
    assert found == {name: known[name] for name in found}
    assert found
