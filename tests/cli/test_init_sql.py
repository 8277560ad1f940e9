"""`potstill init --sql`: a workspace from the result of a query."""

import json

import polars as pl
import pytest
from typer.testing import CliRunner

from potstill.cli import app

pytest.importorskip("duckdb")


def run(*arguments):
    return CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [str(one) for one in arguments])


@pytest.fixture
def sales(tmp_path):
    offers = [("a", 1.0), ("b", 0.2), ("a", 0.8), ("b", 0.4)] * 60
    rows = [
        {"age": 20 + i % 50, "offer": o, "profit": r + i % 3, "p": 0.5, "kept": i % 4 > 0}
        for i, (o, r) in enumerate(offers)
    ]
    path = tmp_path / "sales.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return path


def test_a_query_is_a_table(sales, tmp_path):
    query = f"CREATE VIEW s AS SELECT * FROM '{sales}'; SELECT age, offer, profit, p FROM s WHERE kept"
    columns = ["--action", "offer", "--reward", "profit", "--propensity", "p", "--teacher", "linear-ts"]
    done = run("init", tmp_path / "shop", "--sql", query, *columns, "--json")
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert (made["first_look"]["rows"], made["update"]["outcome"]) == (180, "published")
    assert [column["name"] for column in made["columns"]] == ["age"]
    assert "CREATE VIEW s AS SELECT" in (tmp_path / "shop/problem.toml").read_text()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("", "--sql is empty; state a query"),
        ("SELCT 1", "--sql: Parser Error"),
        ("SELECT * FROM nowhere", "--sql: Catalog Error"),
        ("SELECT INTERVAL 1 DAY AS took", "column 'took' holds INTERVAL, which is no column of a table; convert it"),
        ("SELECT 1 AS a", "SELECT 1 AS a: there is no column 'offer'"),
    ],
)
def test_a_query_that_gives_no_table_is_refused(query, message, tmp_path):
    done = run("init", tmp_path / "shop", "--sql", query, "--action", "offer", "--reward", "profit")
    assert done.exit_code == 1
    assert message in done.stderr
    assert not (tmp_path / "shop").exists()


def test_one_table_is_enough(tmp_path):
    done = run("init", tmp_path / "shop", "--sql", "SELECT 1", "--from", "t.csv")
    assert "--from and --sql are two tables" in done.stderr
