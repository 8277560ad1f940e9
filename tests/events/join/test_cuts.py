"""The record of cuts, and imports as cuts of their own."""

import msgspec
import polars as pl
import pytest
from events.join_oracle import SECOND, D, R, World
from events.worlds import Workspace, decision_frame

from potstill.events.backfill import add_history
from potstill.events.join import join
from potstill.events.join.cuts import (
    AlreadyImported,
    Cut,
    CutConflict,
    ImportedFile,
    complete_cuts,
    last_cut,
    newest_cut,
    read_cut,
    write_cut,
)
from potstill.events.lake import Lake
from potstill.problem import InvalidObservation
from potstill.storage import open_storage

TIME = 1_700_000_000 * SECOND
SOURCE = ImportedFile(name="history.csv", sha256="0" * 64, rows=2)
CUT = Cut(number=3, kind="join", made=TIME, after=1, until=TIME, problem="hash")


@pytest.fixture
def workspace(tmp_path) -> Workspace:
    return Workspace(tmp_path, World(window=100, settle=20, default=0.0, aggregate="last"))


def history(*rows: D) -> pl.DataFrame:
    return decision_frame(rows).drop("problem").with_columns(reward=pl.lit(1.0), source=pl.lit("import"))


def imported(workspace: Workspace, *frames: pl.DataFrame, source: ImportedFile = SOURCE) -> Cut:
    return add_history(workspace.lake, workspace.cuts, workspace.problem, iter(frames), source)


def final(time: int) -> int:
    return time + 120 * SECOND


def test_a_cut_is_read_as_it_was_written_and_never_written_over(place):
    cuts = open_storage(place)
    write_cut(cuts, CUT)
    assert read_cut(cuts, 3) == CUT
    with pytest.raises(CutConflict, match="cut 3"):
        write_cut(cuts, msgspec.structs.replace(CUT, until=0))
    assert read_cut(cuts, 3) == CUT
    assert newest_cut(cuts, 2) == CUT
    assert newest_cut(cuts, 3) is None


def test_a_cut_that_is_missing_or_damaged_is_named(tmp_path):
    cuts = open_storage(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"0000000007\.json is missing"):
        read_cut(cuts, 7)
    cuts.create("0000000007.json", b"{}")
    with pytest.raises(ValueError, match=r"0000000007\.json is not a cut"):
        read_cut(cuts, 7)


def test_an_import_is_a_cut_and_joins_go_on_where_they_were(workspace):
    workspace.add(D("a", TIME), R("a", TIME + 1, 3.0))
    workspace.join(final(TIME))
    cut = imported(workspace, history(D("h1", 5)), history(D("h2", 6)))
    assert (cut.number, cut.kind, cut.after, cut.until, cut.source) == (2, "import", 1, TIME, SOURCE)
    workspace.add(D("b", TIME - 1), D("h1", 5), D("c", TIME + 1))
    report = workspace.join(final(TIME + 1))
    assert (report.cut, report.decisions, report.duplicates) == (3, 2, 1)
    table = workspace.lake.scan("observations").sort("cut", "time").collect()
    assert table["id"].to_list() == ["a", "h1", "h2", "b", "c"]
    assert table["source"].to_list() == ["log", "import", "import", "log", "log"]
    assert table["problem"].to_list()[1:3] == [workspace.problem.hash] * 2
    assert table["weight"].null_count() == table["rewarded"].null_count() == 0
    assert [cut.number for cut in complete_cuts(workspace.lake, workspace.cuts)] == [3, 2, 1]


def broken(*frames: pl.DataFrame):
    yield from frames
    raise OSError("the file ends here")


def test_an_interrupted_import_is_passed_over_by_joins_and_imports(workspace):
    workspace.add(D("a", TIME))
    for _ in range(2):
        with pytest.raises(OSError, match="ends here"):
            add_history(workspace.lake, workspace.cuts, workspace.problem, broken(history(D("h", 5))), SOURCE)
    assert last_cut(workspace.lake) == 0
    assert workspace.preview(final(TIME)).cut == 3
    assert workspace.join(final(TIME)).cut == 3
    assert read_cut(workspace.cuts, 3).after == 0
    assert imported(workspace, history(D("h", 5))).number == 4
    assert [cut.number for cut in complete_cuts(workspace.lake, workspace.cuts)] == [4, 3]
    assert workspace.lake.scan("observations").collect()["id"].sort().to_list() == ["a", "h"]


def test_an_import_that_a_join_overtook_adds_nothing(workspace):
    workspace.add(D("a", TIME))
    lake = Lake(workspace.lake.root, workspace.problem)

    def overtaken():
        yield history(D("h", 5))
        join(lake, workspace.cuts, workspace.problem, aggregate="last", settle=20, now=final(TIME))

    with pytest.raises(CutConflict, match="run it again"):
        add_history(workspace.lake, workspace.cuts, workspace.problem, overtaken(), SOURCE)
    assert workspace.lake.scan("observations").collect()["id"].to_list() == ["a"]


def test_the_same_file_is_not_imported_twice(workspace):
    imported(workspace, history(D("h", 5)))
    with pytest.raises(AlreadyImported, match=r"again\.csv was imported before, as cut 1 \(history\.csv\)"):
        imported(workspace, history(D("i", 5)), source=msgspec.structs.replace(SOURCE, name="again.csv"))


def test_a_row_that_does_not_fit_is_named_and_nothing_is_imported(workspace):
    with pytest.raises(InvalidObservation, match=r"row 1 does not fit .*'gone'.*1 more"):
        imported(workspace, history(D("h", 5)), history(D("i", 5, fits=False), D("j", 5, fits=False)))
    assert last_cut(workspace.lake) == 0


def test_events_are_joined_in_an_object_store_as_in_a_folder(place, workspace):
    workspace.lake = Lake(f"{place}/events", workspace.problem)
    workspace.cuts = open_storage(f"{place}/cuts")
    workspace.add(D("a", TIME), D("b", TIME + 9), R("a", TIME + 1, 3.0), files=2)
    workspace.join(final(TIME))
    workspace.add(D("late", TIME - 1), R("late", TIME, 4.0))
    workspace.compact()  # which of the rows arrived since is now in the log of commits only
    report = workspace.join(final(TIME + 9))
    assert (report.decisions, report.rewarded, report.duplicates) == (2, 1, 0)
    assert [(row["id"], row["reward"]) for row in workspace.observed()] == [("a", 3.0), ("late", 4.0), ("b", 0.0)]
