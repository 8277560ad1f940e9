"""Tables that cannot be read are refused in one line, before anything is done with them."""

import gzip

import polars as pl
import pytest

from potstill.tables import UnreadableTable, has_parts, is_table_file, is_text, scan_table


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.csv", b"", "empty.csv: empty CSV"),
        ("not.parquet", b"text", "not.parquet: "),
        ("rows.xlsx", b"", r"tables are \.csv, .*\.parquet, \.pq or a folder of Delta Lake, not '\.xlsx'"),
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


TEXT = 'at;price;note\n2026-11-01;1,5;a\n2026-11-02;2,25;"b;c"\n'


def test_semicolons_and_decimal_commas_are_recognised_and_compressed_text_is_read(tmp_path):
    (tmp_path / "german.csv").write_text(TEXT)
    (tmp_path / "german.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    for name in ("german.csv", "german.csv.gz"):
        read = scan_table(str(tmp_path / name)).collect()
        assert read["price"].to_list() == [1.5, 2.25]
        assert read["note"].to_list() == ["a", "b;c"]


def test_semicolons_with_decimal_points_and_commas_within_texts(tmp_path):
    (tmp_path / "t.csv").write_text("price;note\n1.5;3,5 of 4\n2.5;1,5\n")
    assert scan_table(str(tmp_path / "t.csv")).collect()["price"].to_list() == [1.5, 2.5]
    (tmp_path / "u.csv").write_text("a,b;c\n1,x;y\n")  # a comma in the header separates
    assert scan_table(str(tmp_path / "u.csv")).collect().columns == ["a", "b;c"]


def test_tabs_and_json_lines(tmp_path):
    frame = pl.DataFrame({"a": [1, 2], "b": ["x", None]})
    frame.write_csv(tmp_path / "t.tsv", separator="\t")
    frame.write_ndjson(tmp_path / "t.jsonl")
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress((tmp_path / "t.jsonl").read_bytes()))
    for name in ("t.tsv", "t.jsonl", "t.jsonl.gz"):
        assert scan_table(str(tmp_path / name)).collect().equals(frame), name


def test_what_a_name_says():
    assert [is_text(name) for name in ("a.CSV", "a.tsv.gz", "a.jsonl", "a.parquet", "a")] == [1, 1, 0, 0, 0]
    assert [is_table_file(name) for name in ("a.csv.gz", "a.ndjson", "a.pq", "a.gz", "a")] == [1, 1, 1, 0, 0]
    assert [has_parts(name) for name in ("a.csv.gz", "a.jsonl", "a.parquet", "a")] == [0, 0, 1, 1]
