"""The result of an SQL query as a table: DuckDB reads files and other databases."""

from __future__ import annotations

from pathlib import Path

from potstill.tables.scan import UnreadableTable, in_one_line


def run_query(query: str, path: Path) -> None:
    """Write the rows of a query to a Parquet file, in little memory.

    DuckDB reads CSV, Parquet and JSON by their paths, and other databases by its extensions (``ATTACH``). Of several
    statements, the last one is the query.

    Args:
        query: SQL as DuckDB has it.
        path: The file.
    """
    import duckdb

    with duckdb.connect() as connection:
        try:
            *before, last = duckdb.extract_statements(query) or [None]
            if last is None:
                raise UnreadableTable("--sql is empty; state a query, such as SELECT * FROM 'decisions.parquet'")
            for statement in before:
                connection.execute(statement)
            found = connection.sql(last.query)
            if found is None:
                raise UnreadableTable(
                    f"--sql gives no rows: {in_one_line(Exception(last.query))}; end it with a SELECT"
                )
            for name, kind in zip(found.columns, found.types, strict=True):
                if "INTERVAL" in str(kind):
                    raise UnreadableTable(
                        f"--sql: column {name!r} holds {kind}, which is no column of a table; convert it, for instance "
                        f"to seconds with epoch({name}), or leave it out"
                    )
            found.write_parquet(str(path))
        except duckdb.Error as error:
            raise UnreadableTable(f"--sql: {in_one_line(error)}") from error
