"""Tables that cannot be read are refused in one line, before anything is done with them."""

import gzip

import polars as pl
import pytest

from potstill.tables import UnreadableTable, collected, has_parts, is_table_file, is_text, scan_table


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("empty.csv", b"", "empty.csv: empty CSV"),
        ("not.parquet", b"text", "not.parquet: "),
        ("rows.xlsx", b"", r"tables are \.csv, .*\.parquet, \.pq or a folder of Delta Lake, not '\.xlsx'"),
        ("missing.csv", None, "there is no such file"),
        ("x" * 5_000 + ".csv", None, "File name too long"),
        ("*.parquet", None, r"a query reads several files: --sql \"SELECT \* FROM '.*\*\.parquet'\""),
        ("no_suffix", b"a,b\n1,2\n", r"tables are \.csv"),
        (
            "latin.csv",
            "größe,b\n1,2\n".encode("latin1"),
            "it is not UTF-8; convert it, for instance with iconv -f latin1",
        ),
        (
            "excel.csv",
            "größe,b\n1,2\n".encode("utf-16"),
            "it is not UTF-8; convert it, for instance with iconv -f utf-16",
        ),
        ("cut.csv.gz", gzip.compress(b"a,b\n1,2\n", mtime=0)[:-4], "ended before the end-of-stream marker"),
        ("twice.csv", b"reward,reward\n1,2\n", "two columns are called 'reward'; rename one"),
        ("pattern.csv", b"^re.*$,reward\n1,2\n", r"a column cannot be called '\^re\.\*\$'"),
        ("ours.csv", b"number of the row,reward\n1,2\n", "a column cannot be called 'number of the row'"),
        ("cut.jsonl", b'{"a": 1}\n{"a"', "line 2 is not a JSON object: Input data was truncated"),
        ("list.jsonl", b'[{"a": 1}]', "line 1 is not a JSON object: Expected `object`, got `array`"),
    ],
)
def test_files_that_are_no_table_are_refused(tmp_path, name, data, message):
    if data is not None:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UnreadableTable, match=message):
        scan_table(str(tmp_path / name))


def test_a_folder_that_is_no_delta_table_is_refused(tmp_path):
    with pytest.raises(UnreadableTable, match=r"this folder is not a Delta Lake table; .* by a query: --sql"):
        scan_table(str(tmp_path))


def test_tables_are_read_by_their_suffix(tmp_path):
    frame = pl.DataFrame({"a": [1, 2]})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    frame.write_delta(str(tmp_path / "delta"))
    for name in ("t.csv", "t.parquet", "delta"):
        assert scan_table(str(tmp_path / name)).collect().equals(frame)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("latin.csv", b"a,b\n" + b"1,x\n" * 300_000 + "1,ü\n".encode("latin1"), "not UTF-8; convert it"),
        ("long.csv", b"a,b\n1,x\n1,x,y\n", "line 3 has 3 fields, and the header 2; .* need quotes"),
        ("long.csv.gz", gzip.compress(b"a;b\n1;x\n1;x;y\n", mtime=0), "line 3 has 3 fields, and the header 2"),
    ],
)
def test_rows_that_cannot_be_read_are_named(tmp_path, name, data, message):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UnreadableTable, match=message):
        collected(scan_table(str(tmp_path / name)), str(tmp_path / name))


def test_parquet_that_is_damaged_inside_is_refused(tmp_path):
    place = tmp_path / "t.parquet"
    pl.DataFrame({"a": range(1_000)}).write_parquet(place)
    place.write_bytes(place.read_bytes()[:4] + b"\xff" * 40 + place.read_bytes()[44:])
    with pytest.raises(UnreadableTable, match=r"t\.parquet: parquet"):
        collected(scan_table(str(place)), str(place))


def test_types_are_those_of_all_rows(tmp_path):
    lines = [f"{i % 7},{i % 5}" for i in range(12_000)]
    (tmp_path / "t.csv").write_text("\n".join(["reward,age", *lines, "1.5,old"]))
    (tmp_path / "t.jsonl").write_text("\n".join(['{"reward": 1}'] * 12_000 + ['{"reward": 1.5, "late": 2}']))
    assert scan_table(str(tmp_path / "t.csv")).collect_schema() == {"reward": pl.Float64, "age": pl.String}
    assert scan_table(str(tmp_path / "t.jsonl")).collect_schema() == {"reward": pl.Float64, "late": pl.Int64}


def test_decimals_and_categories_are_read_as_numbers_and_strings(tmp_path):
    frame = pl.DataFrame({"a": [1.25, 2.5], "b": ["x", "y"], "c": [1, 2]})
    schema = {"a": pl.Decimal(10, 2), "b": pl.Categorical, "c": pl.Int64}
    frame.cast(schema).write_parquet(tmp_path / "t.parquet")
    assert scan_table(str(tmp_path / "t.parquet")).collect().equals(frame)


TEXT = 'at;price;note\n2026-11-01;1,5;a\n2026-11-02;2,25;"b;c"\n'


def test_semicolons_and_decimal_commas_are_recognised_and_compressed_text_is_read(tmp_path):
    (tmp_path / "german.csv").write_text(TEXT)
    (tmp_path / "german.csv.gz").write_bytes(gzip.compress(TEXT.encode()))
    for name in ("german.csv", "german.csv.gz"):
        read = scan_table(str(tmp_path / name)).collect()
        assert read["price"].to_list() == [1.5, 2.25]
        assert read["note"].to_list() == ["a", "b;c"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators_are_those_of_the_header_outside_of_quotes(tmp_path, separator):
    text = '"age, in years",offer\n31,"a; b"\n'.replace("s,", "s" + separator).replace('",o', f'"{separator}o')
    (tmp_path / "t.csv").write_text(text.replace("31,", f"31{separator}"))
    assert scan_table(str(tmp_path / "t.csv")).collect().rows() == [(31, "a; b")]
    (tmp_path / "long.csv").write_text(f"a{separator}b\n1{separator}{'x' * 200_000}\n")
    assert scan_table(str(tmp_path / "long.csv")).collect().width == 2


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
