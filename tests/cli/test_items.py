"""`potstill items` and `init --items`: what they print, ask and refuse."""

import json

import polars as pl
import pytest
from catalog_examples import HOUR, NOON, PROBLEM, item, log, shop
from typer.testing import CliRunner

from potstill.cli import app
from potstill.events.join import join
from potstill.workspace import Workspace


def run(*arguments: object, code: int = 0, given: str | None = None) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)), input=given, env={"COLUMNS": "200"})
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture
def table(tmp_path):
    """A table of items as users have them: other columns too, and one row that does not fit."""

    def written(name, rows):
        frame, path = pl.DataFrame(rows), tmp_path / name
        frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
        return path

    return written


def observed(place):
    """A workspace with 60 observations, without a version that has learnt from them."""
    workspace = shop(place, count=4)
    log(workspace, 60)
    workspace.flusher().flush(now=NOON + 3 * HOUR)
    join(workspace.lake, workspace.cuts, workspace.problem, aggregate="last", settle=0, now=NOON + 3 * HOUR)
    return workspace.url


def test_a_workspace_begins_with_a_table_of_items(tmp_path, table):
    (tmp_path / "problem.toml").write_bytes(PROBLEM)
    rows = [{**item(number), "stock": 3} for number in range(5)]
    for name in ("items.csv", "items.parquet"):
        place = tmp_path / name.replace(".", "-")
        run("init", place, "--problem", tmp_path / "problem.toml", "--items", table(name, rows))
        assert list(Workspace(place).problem.actions.items) == [item(number) for number in range(5)]
    assert "state it with --problem" in run("init", tmp_path / "x", "--items", "items.csv", code=1)
    assert "at least two items" in run("init", tmp_path / "y", "--problem", tmp_path / "problem.toml", code=1)


def test_items_are_listed_synced_and_removed(tmp_path, table):
    place = observed(str(tmp_path / "shop"))
    listed = run("items", place)
    assert "genre" in listed
    assert listed == run("items", "list", place)
    shown = json.loads(run("items", place, "--json"))["items"]
    assert shown[1]["price"] == 1.0
    assert sum(one["observations"] for one in shown) == 60
    said = run("items", "sync", place, table("new.csv", [item(number) for number in range(1, 7)]), "--by", "ann")
    assert "6 items: 3 added, 1 removed" in said
    assert "version 1 serves; running services follow within seconds" in said
    assert Workspace(place).registry.head().by == "ann"
    again = json.loads(run("items", "sync", place, tmp_path / "new.csv", "--json"))
    assert (again["published"], again["added"], again["items"]) == (False, [], 6)
    asked = run("items", "remove", place, "i1", "i6", given="n\n", code=1)
    assert "of 2 items will be left out of evaluation" in asked
    assert "confirm it with --yes" in run("items", "remove", place, "i1", "--json", code=1)
    assert "5 items: 1 removed" in run("items", "remove", place, "i1", "--yes")
    assert "… and 3 more" in run("items", place, "--rows", 2)


def test_rows_that_do_not_fit_are_named_and_left_out_by_choice(tmp_path, table):
    place = shop(str(tmp_path / "shop"), count=4).url
    rows = [item(1), item(2, price=None), item(3), item(3, price=1.0), {**item(4), "id": ""}]
    path = table("bad.csv", rows)
    said = run("items", "sync", place, path, code=1)
    assert "row 1: price must be" in said
    assert "row 3: id 'i3' occurs before" in said
    assert "row 4: id must be a text that is not empty, got" in said
    assert "--skip-unfit" in said
    assert Workspace(place).problem.actions.names == ("i0", "i1", "i2", "i3")
    said = run("items", "sync", place, path, "--skip-unfit")
    assert "3 rows of the table do not fit, and were left out" in said
    assert Workspace(place).problem.actions.names == ("i1", "i3")


def test_tables_that_are_none_are_refused(tmp_path, table):
    place = shop(str(tmp_path / "shop"), count=4).url
    without = table("without.csv", [{"id": "a", "genre": "rock"}, {"id": "b", "genre": "jazz"}])
    assert "there is no column 'price', which is a feature of items" in run("items", "sync", place, without, code=1)
    unnamed = table("unnamed.csv", [{"price": 1.0, "genre": "rock"}])
    assert "there is no column 'id'" in run("items", "sync", place, unnamed, code=1)
    assert "there is no such file" in run("items", "sync", place, tmp_path / "nowhere.csv", code=1)


def test_actions_of_a_catalogue_point_to_items(tmp_path):
    place = shop(str(tmp_path / "shop"), count=4).url
    assert "i3" in run("actions", place)
    assert "see potstill items" in run("actions", "add", place, "x", code=1)
