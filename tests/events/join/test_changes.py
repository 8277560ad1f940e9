"""Which rows a cut takes up: the same in any layout of files, and after compactions, deletions and vacuums."""

from datetime import UTC, datetime
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from events.join_oracle import DAY, SECOND, D, R
from events.worlds import BASE, Workspace, after, counts, world

from potstill.events.join import execute


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, world())


def random_events(rng: np.random.Generator) -> list[D | R]:
    """Decisions and rewards of few ids, so that there are many copies."""
    rows = zip(rng.integers(0, 60, 160), rng.integers(0, 400, 160), rng.normal(size=160), strict=True)
    made: list[D | R] = []
    for i, (name, second, value) in enumerate(rows):
        stated = f"id-{name}", BASE + int(second) * SECOND
        made.append(D(*stated, x=float(value)) if i % 2 else R(*stated, float(value)))
    return made


def joined(workspace: Workspace, files: int, slice_rows: int, compacted: bool) -> tuple[object, object]:
    """The counts of a second join, and all observations."""
    rng = np.random.default_rng(7)
    with mock.patch.object(execute, "SLICE", slice_rows), mock.patch.object(execute, "PARTITION", 4 * slice_rows):
        for _ in range(2):
            workspace.add(*random_events(rng), files=files)
            if compacted:
                workspace.compact()
            report = workspace.join(after(BASE + 300 * SECOND))
    return counts(report), workspace.lake.scan("observations").sort("cut", "time", "id").collect()


@pytest.mark.parametrize(("files", "slice_rows", "compacted"), [(1, 30, False), (5, 11, False), (3, 7, True)])
def test_observations_are_the_same_to_the_bit_in_any_layout(tmp_path, files, slice_rows, compacted):
    expected, table = joined(Workspace(tmp_path / "plain", world("mean")), 1, 1000, False)
    found, other = joined(Workspace(tmp_path / "other", world("mean")), files, slice_rows, compacted)
    assert found == expected
    assert other.equals(table)
    assert len(table) > 40


def test_what_was_deleted_after_a_compaction_does_not_come_back(workspace):
    workspace.add(D("a", BASE + DAY))
    workspace.join(after(BASE + DAY))
    workspace.add(D("late", BASE - DAY), D("kept", BASE))
    workspace.add(D("late too", BASE - DAY + 1))
    workspace.compact()
    day = datetime.fromtimestamp(BASE / SECOND, UTC).date()
    workspace.lake.tables["decisions"].current().delete(f"day < '{day}'")
    assert workspace.join(after(BASE + DAY)).decisions == 1
    assert [row["id"] for row in workspace.observed()] == ["a", "kept"]


def test_after_a_vacuum_nothing_is_lost_or_observed_twice(workspace):
    workspace.add(D("a", BASE), D("b", BASE + 2 * DAY), R("a", BASE + 5), R("nobody", BASE), files=2)
    assert workspace.join(after(BASE)).rewards.orphans == 1
    workspace.add(D("late", BASE - 5), D("a", BASE), D("c", BASE + DAY), R("late", BASE), files=3)
    workspace.compact()
    for table in ("decisions", "rewards"):
        handle = workspace.lake.tables[table].current()
        handle.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    report = workspace.join(after(BASE + 2 * DAY))
    assert [row["id"] for row in workspace.observed()] == ["a", "late", "c", "b"]
    assert (report.decisions, report.rewarded, report.duplicates, report.rewards.orphans) == (3, 1, 0, 0)


@pytest.mark.parametrize("exact", [True, False])
def test_an_id_that_is_used_again_weeks_later_is_a_new_decision(workspace, exact):
    """Also after a vacuum, when the rows of the first use are read again."""
    workspace.world.exact = exact
    workspace.add(D("a", BASE), D("b", BASE), R("a", BASE), files=2)
    assert counts(workspace.join(after(BASE))) == workspace.world.join(after(BASE))
    late = BASE + 20 * DAY
    again = [D("a", late, action="r"), D("a", late + 1, action="r")]
    workspace.add(D("a", BASE + DAY, action="r"), *again, R("a", late), files=3)
    if not exact:
        workspace.compact()
        for table in ("decisions", "rewards"):
            handle = workspace.lake.tables[table].current()
            handle.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    report = workspace.join(after(late + 1))
    assert (report.decisions, report.duplicates, report.conflicting) == (1, 1, 1 if exact else 0)
    assert counts(report) == workspace.world.join(after(late + 1))
    assert workspace.observed() == workspace.world.observed
    assert [(row["id"], row["time"]) for row in workspace.observed()] == [("a", BASE), ("b", BASE), ("a", late)]
