"""Tables that cannot be read are refused in one line, before anything is done with them."""

import polars as pl
import pytest

from potstill.tables import UnreadableTable, scan_table


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.csv", b"", "empty.csv: empty CSV"),
        ("not.parquet", b"text", "not.parquet: "),
        ("rows.xlsx", b"", r"tables are \.csv, \.parquet or a folder of Delta Lake, not '\.xlsx'"),
        ("missing.csv", None, "there is no such file"),
    ],
)
def test_files_that_are_no_table_are_refused(tmp_path, name, data, message):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UnreadableTable, match=message):
        scan_table(str(tmp_path / name))


def test_a_folder_that_is_no_delta_table_is_refused(tmp_path):
    with pytest.raises(UnreadableTable, match="this folder is not a Delta Lake table"):
        scan_table(str(tmp_path))


def test_tables_are_read_by_their_suffix(tmp_path):
    frame = pl.DataFrame({"a": [1, 2]})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_delta(str(tmp_path / "delta"))
    for name in ("t.csv", "t.parquet", "delta"):
        assert scan_table(str(tmp_path / name)).collect().equals(frame)
