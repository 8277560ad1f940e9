"""Decisions and rewards become observations: against the oracle, through cuts, compactions and interruptions."""

import importlib
import math
import tempfile
from pathlib import Path
from unittest import mock

import msgspec
import polars as pl
import pytest
from events.join_oracle import DAY, MINUTE, SECOND, D, R
from events.worlds import BASE, SETTLE, WINDOW, Workspace, after, counts, world
from hypothesis import given, settings
from hypothesis import strategies as st

from potstill.events import backfill
from potstill.events.join import changes, dedup, execute, join
from potstill.events.join.cuts import (
    AlreadyImported,
    Cut,
    ImportedFile,
    complete_cuts,
    last_cut,
    newest_cut,
    read_cut,
    write_cut,
)
from potstill.events.lake import Lake
from potstill.events.lake.writer import add_files
from potstill.tables import TIME

#: The module, which the function of the same name hides.
join_module = importlib.import_module("potstill.events.join.join")

#: Few ids, times and values, so that they often meet.
AT = [0, 0, 0, 1, 30 * SECOND, 100 * SECOND, 200 * SECOND, DAY, 3 * DAY, -DAY]
DELAYS = [-MINUTE - 1, -MINUTE, -1, 0, SECOND, SECOND, 99 * SECOND, 100 * SECOND, 100 * SECOND + 1, 110 * SECOND]
DELAYS += [DAY + 100 * SECOND, DAY + 100 * SECOND + 1]

ids = st.sampled_from(["a", "b", "ü", "日本"])
times = st.sampled_from(AT).map(lambda at: BASE + at)
decisions = st.builds(
    D,
    id=ids,
    time=times,
    action=st.sampled_from(["l", "l", "l", "r"]),
    policy=st.sampled_from([1, 1, 2]),
    x=st.sampled_from([0.25, 0.5]),
    fits=st.sampled_from([True, True, True, True, False]),
    eligible=st.sampled_from([None, None, ("l", "r"), ("r",)]),
    unit=st.sampled_from([None, "u", "v"]),
    arm=st.sampled_from([None, "new:control", "new:treatment"]),
    mode=st.sampled_from([None, None, "fallback"]),
)
metrics = st.dictionaries(st.sampled_from(["clicks", "watched"]), st.sampled_from([0.1, 0.2, 0.3, -0.0, 1e16]))
rewards = st.builds(
    lambda name, time, delay, reward, key, metrics: R(name, time + delay, reward, key, tuple(sorted(metrics.items()))),
    name=ids,
    time=times,
    delay=st.sampled_from(DELAYS),
    reward=st.sampled_from([0.1, 0.1, 0.2, 0.3, -1.0, 1e16]),
    key=st.sampled_from([None, None, "k"]),
    metrics=st.one_of(st.just({}), metrics),
)


def arrivals(size: int):
    """Some of each, in how many files they come, whether files are then compacted, and up to when they are joined."""
    some = st.tuples(
        st.lists(decisions, min_size=size // 3, max_size=size), st.lists(rewards, min_size=size, max_size=2 * size)
    )
    return st.tuples(some.map(lambda both: both[0] + both[1]), st.integers(1, 3), st.booleans(), times)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, world())


def forgotten(*_: object) -> None:
    """Stands in for `arrived` when the history of commits was cleaned up."""


@given(
    script=st.tuples(arrivals(12), arrivals(6), arrivals(3)),
    aggregate=st.sampled_from(["first", "last", "sum", "max", "mean"]),
    slice_rows=st.sampled_from([1, 2, 5, 1000]),
    partition_rows=st.sampled_from([7, 10_000]),
    high=st.sampled_from([float("inf"), 0.25]),
    exact=st.sampled_from([True, True, False]),
)
@settings(max_examples=24)
def test_any_world_is_joined_as_the_oracle_joins_it(script, aggregate, slice_rows, partition_rows, high, exact):
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(execute, "SLICE", slice_rows),
        mock.patch.object(execute, "PARTITION", partition_rows),
        mock.patch.object(dedup, "SUSPECTS", 2 * slice_rows),
        mock.patch.object(changes, "arrived", changes.arrived if exact else forgotten),
    ):
        workspace = Workspace(Path(folder), world(aggregate, high=high, exact=exact))
        for events, files, compacted, until in script:
            workspace.add(*events, files=files)
            if compacted:
                workspace.compact()
            foreseen = counts(workspace.preview(after(until)))
            assert counts(workspace.join(after(until))) == workspace.world.join(after(until)) == foreseen
        assert workspace.observed() == workspace.world.observed


def test_an_empty_lake_and_one_with_rewards_only_have_nothing_to_join(workspace):
    assert workspace.join(after(BASE)).cut is None
    workspace.add(R("a", BASE))
    report = workspace.join(after(BASE + DAY))
    assert (report.cut, report.rewards.orphans) == (None, 0)
    assert last_cut(workspace.lake) == 0
    assert workspace.cuts.names("") == []


def test_a_decision_is_final_when_its_window_and_the_time_to_settle_have_passed(workspace):
    workspace.add(D("a", BASE))
    assert workspace.join(after(BASE) - 1).pending == 1
    assert workspace.join(after(BASE)).decisions == 1


def test_a_cut_says_what_was_joined_and_how(workspace):
    workspace.add(D("a", BASE), R("a", BASE + 1))
    workspace.join(after(BASE))
    cut = read_cut(workspace.cuts, 1)
    assert (cut.kind, cut.after, cut.until, cut.made) == ("join", 0, BASE, after(BASE))
    assert (cut.decisions, cut.rewards) == (workspace.lake.version("decisions"), workspace.lake.version("rewards"))
    assert (cut.aggregate, cut.window, cut.settle, cut.default) == ("sum", WINDOW, SETTLE, -0.5)
    assert cut.problem == workspace.problem.hash


def test_ids_whose_rows_state_several_decisions_are_left_out_and_counted(workspace):
    """A retry that was decided again by another version: nobody knows which was answered, equal actions or not."""
    workspace.add(
        D("retried", BASE), D("retried", BASE + 5, action="r", policy=2), D("retried", BASE + 9), R("retried", BASE),
        D("same action", BASE), D("same action", BASE + 5, propensity=0.25, policy=2), R("same action", BASE + 9),
        D("repeated", BASE), D("repeated", BASE + 5), D("single", BASE),
    )  # fmt: skip
    report = workspace.join(after(BASE + 9))
    assert (report.decisions, report.ambiguous, report.duplicates, report.conflicting) == (2, 2, 2, 2)
    assert [row["id"] for row in workspace.observed()] == ["repeated", "single"]


def test_a_fallback_that_was_answered_in_place_of_a_decision_counts(workspace):
    workspace.add(
        D("a", BASE, mode="fallback", propensity=1.0), D("a", BASE + 1, action="r"),
        D("not replaced", BASE, mode="fallback"), D("not replaced", BASE + 2, action="r"),
        D("no fallback", BASE), D("no fallback", BASE + 1, action="r"),
        D("again", BASE, mode="fallback"), D("again", BASE + 1, action="r"), D("again", BASE + 9, action="r"),
    )  # fmt: skip
    report = workspace.join(after(BASE + 9))
    assert (report.decisions, report.ambiguous, report.conflicting) == (1, 3, 5)
    assert [(row["id"], row["said"][1]) for row in workspace.observed()] == [("a", "l")]


def test_a_retry_on_the_other_side_of_a_cut_makes_an_id_ambiguous_too(workspace):
    minute = 60 * SECOND
    workspace.add(
        D("retried", BASE), D("retried", BASE + minute, action="r"), D("retried", BASE + 2 * minute),
        D("used again", BASE), D("used again", BASE + 11 * minute, action="r"),
    )  # fmt: skip
    report = workspace.join(after(BASE + 5))
    assert (report.decisions, report.ambiguous) == (1, 1)
    report = workspace.join(after(BASE + minute))
    assert (report.decisions, report.ambiguous) == (0, 1)
    report = workspace.join(after(BASE + 11 * minute))
    assert (report.decisions, report.ambiguous) == (0, 1)
    assert [row["id"] for row in workspace.observed()] == ["used again"]


def test_a_late_row_of_another_action_conflicts_with_the_observation(workspace):
    workspace.add(D("a", BASE))
    workspace.join(after(BASE))
    workspace.add(D("a", BASE + 5, action="r"))
    report = workspace.join(after(BASE + 5))
    assert (report.decisions, report.ambiguous, report.conflicting) == (0, 0, 1)


def test_a_reward_is_no_orphan_while_its_decision_is_not_final(workspace):
    workspace.add(D("a", BASE), D("later", BASE + 30 * SECOND), R("later", BASE, 2.0), R("nobody", BASE))
    assert workspace.join(after(BASE)).rewards.orphans == 1
    report = workspace.join(after(BASE + 30 * SECOND))
    assert (report.rewards.matched, report.rewards.orphans) == (1, 0)


def test_rewards_of_one_key_count_once_and_the_first_counts(workspace):
    workspace.add(
        D("a", BASE),
        R("a", BASE + 2, 5.0, "click"),
        R("a", BASE + 1, 3.0, "click"),
        R("a", BASE + 3, 3.0, "click"),
        R("a", BASE + 3, 3.0),
        R("a", BASE + 3, 3.0),
        R("a", BASE + 4, 3.0),
    )
    rewards = workspace.join(after(BASE)).rewards
    assert (rewards.matched, rewards.duplicates, rewards.conflicting) == (3, 2, 1)
    assert [row["reward"] for row in workspace.observed()] == [9.0]


def test_metrics_go_with_the_rewards_that_count_each_name_for_itself(workspace):
    workspace.add(
        D("a", BASE, arm="new:treatment", unit="u", eligible=("l",)),
        R("a", BASE + 1, 1.0, "first", (("watched", 3.0),)),
        R("a", BASE + 2, 1.0, "first", (("watched", 50.0),)),
        R("a", BASE + 3, 2.0, "second", (("clicks", 1.0), ("watched", 4.0))),
        D("b", BASE, arm="new:control"),
        R("b", BASE + 1, 1.0, None, (("watched", 5.0),)),
        D("c", BASE),
    )
    workspace.join(after(BASE))
    observed = {row["id"]: row for row in workspace.observed()}
    assert observed["a"]["metrics"] == {"clicks": 1.0, "watched": 7.0}
    assert observed["a"]["of"] == (("l",), "u", "new:treatment")
    assert (observed["b"]["metrics"], observed["b"]["of"]) == ({"watched": 5.0}, (None, None, "new:control"))
    assert (observed["c"]["metrics"], observed["c"]["of"]) == (None, (None, None, None))


@pytest.mark.parametrize("aggregate", ["first", "last", "sum", "max", "mean"])
@pytest.mark.parametrize("files", [1, 5])
def test_several_metrics_come_to_what_several_rewards_do(tmp_path, aggregate, files):
    """Values go down as time goes up, and of equal times they go up as rewards go down."""
    workspace = Workspace(tmp_path, world(aggregate))
    named = [
        R("a", BASE + at, reward, key, (("watched", value),))
        for at, reward, key, value in [(5, 1.0, "k", 0.1), (1, 1.0, "k", 0.3), (3, 1.0, None, 0.2), (3, 2.0, None, 0.1)]
    ]
    other = [R("a", BASE + 4, 1.0, None, (("clicks", value),)) for value in (7.0, 5.0, 6.0)]
    workspace.add(D("a", BASE), *named, *other, R("a", BASE + 4, 1.0), R("a", BASE + 9, 1.0), files=files)
    workspace.join(after(BASE))
    workspace.world.join(after(BASE))
    assert workspace.observed() == workspace.world.observed
    (row,) = workspace.observed()
    total = math.fsum([0.3, 0.2, 0.1])
    totals = {"first": 0.3, "last": 0.2, "sum": total, "mean": total / 3, "max": 0.3}
    assert row["metrics"] == {"clicks": 5.0, "watched": totals[aggregate]}


class Killed(BaseException):
    """The process ends here."""


def killed_before_the_commit(*_, **__):
    raise Killed


def killed_after_the_commit(*arguments, **named):
    add_files(*arguments, **named)
    raise Killed


def interrupted(workspace: Workspace, now: int, instead) -> None:
    with mock.patch.object(execute, "add_files", instead), pytest.raises(Killed):
        workspace.join(now)


def test_a_join_that_was_killed_before_its_commit_is_made_as_it_was_recorded(workspace):
    workspace.add(D("a", BASE), D("b", BASE + 1), R("a", BASE + 5))
    expected = workspace.world.join(after(BASE))
    interrupted(workspace, after(BASE), killed_before_the_commit)
    assert last_cut(workspace.lake) == 0

    # What arrives meanwhile, and the later time, belong to the next cut.
    workspace.add(R("a", BASE + 6), D("c", BASE - 1))
    workspace.compact()
    assert counts(workspace.preview(after(BASE + DAY)))["decisions"] == 1
    assert workspace.join(after(BASE + DAY)).decisions == expected["decisions"]
    assert workspace.observed() == workspace.world.observed
    expected = workspace.world.join(after(BASE + DAY))
    assert counts(workspace.join(after(BASE + DAY))) == expected
    assert expected["too_late"] == 1
    assert workspace.observed() == workspace.world.observed


def test_a_join_that_was_killed_after_its_commit_is_not_made_again(workspace):
    workspace.add(D("a", BASE), D("b", BASE + 1), R("a", BASE + 5))
    workspace.world.join(after(BASE + 1))
    interrupted(workspace, after(BASE + 1), killed_after_the_commit)
    assert workspace.join(after(BASE + DAY)).cut is None
    assert workspace.observed() == workspace.world.observed


@pytest.mark.parametrize("more", [False, True])
def test_what_another_process_has_joined_meanwhile_is_not_joined_again(workspace, more):
    workspace.add(D("a", BASE), D("b", BASE + 1), R("a", BASE + 5))
    other = Lake(workspace.lake.root, workspace.problem)
    write, faster = join_module.write_cut, [True]

    def write_cut(cuts, cut):
        """Before this process records its cut the other one makes it, and perhaps something more arrives."""
        if faster and faster.pop():
            done = join(other, cuts, workspace.problem, aggregate="sum", settle=SETTLE, now=after(BASE))
            assert counts(done) == workspace.world.join(after(BASE))
            workspace.add(*([D("c", BASE)] if more else []))
        write(cuts, cut)

    with mock.patch.object(join_module, "write_cut", write_cut):
        assert workspace.join(after(BASE)).cut == (2 if more else None)
    workspace.world.join(after(BASE))
    assert workspace.observed() == workspace.world.observed
    assert newest_cut(workspace.cuts, 0).number == (2 if more else 1)


def test_a_recorded_cut_of_another_process_is_made_by_both(workspace):
    workspace.add(D("a", BASE), R("a", BASE + 5))
    expected = workspace.world.join(after(BASE))

    def both(*arguments, **named):
        with mock.patch.object(execute, "add_files", add_files):
            assert counts(workspace.join(after(BASE))) == expected
        return add_files(*arguments, **named)

    with mock.patch.object(execute, "add_files", both):
        assert counts(workspace.join(after(BASE))) == expected
    assert workspace.observed() == workspace.world.observed


def test_a_recorded_cut_of_a_problem_that_has_changed_is_passed_over(workspace):
    workspace.add(D("a", BASE), R("a", BASE + 5))
    interrupted(workspace, after(BASE), killed_before_the_commit)
    changed = msgspec.structs.replace(workspace.problem, name="renamed")
    lake = Lake(workspace.lake.root, changed)
    report = join(lake, workspace.cuts, changed, aggregate="sum", settle=SETTLE, now=after(BASE))
    assert (report.cut, report.decisions) == (2, 1)
    assert read_cut(workspace.cuts, 2).after == 0


@pytest.mark.parametrize("number", [1, 2])
def test_an_import_at_the_same_time_loses_nothing_and_is_not_forgotten(workspace, number):
    """Whichever recorded its cut first, the import is completed first; the join, which did not know, begins again."""
    workspace.add(D("a", BASE), R("a", BASE + 5))
    source = ImportedFile(name="old.csv", sha256="0" * 64, rows=1)
    cut = Cut(number=number, kind="import", made=BASE, after=0, problem=workspace.problem.hash, source=source)
    old = pl.DataFrame({"id": ["old"], "action": ["l"], "propensity": [0.5], "reward": [1.0], "source": ["import"]})
    old = old.with_columns(
        time=pl.lit(BASE).cast(TIME), context_x=pl.lit(0.5), context_c=pl.lit("a"), context_b=pl.lit(value=True)
    )
    if number == 1:
        write_cut(workspace.cuts, cut)
    waiting = [cut]

    def outrun(*arguments, **named):
        if waiting and waiting.pop():
            if number == 2:
                write_cut(workspace.cuts, cut)
            rows = backfill._observations(iter([old]), workspace.problem, cut)
            assert workspace.lake.append_stream("observations", rows, writer="cuts", number=number, after=0)
        return add_files(*arguments, **named)

    with mock.patch.object(execute, "add_files", outrun):
        assert workspace.join(after(BASE)).decisions == 1
    assert [cut.kind for cut in complete_cuts(workspace.lake, workspace.cuts)] == ["join", "import"]
    assert sorted(workspace.lake.scan("observations").collect()["id"]) == ["a", "old"]
    with pytest.raises(AlreadyImported):
        backfill.add_history(workspace.lake, workspace.cuts, workspace.problem, iter([old]), source)


def test_a_cut_is_not_completed_after_another_that_it_does_not_know(workspace):
    """Of two updaters with problems that differ, both take up the same decision, and one of them counts it."""
    workspace.add(D("a", BASE), R("a", BASE + 5))
    changed = msgspec.structs.replace(workspace.problem, name="renamed")
    lake = Lake(workspace.lake.root, changed)

    def outrun(*arguments, **named):
        with mock.patch.object(execute, "add_files", add_files):
            assert join(lake, workspace.cuts, changed, aggregate="sum", settle=SETTLE, now=after(BASE)).decisions == 1
        return add_files(*arguments, **named)

    with mock.patch.object(execute, "add_files", outrun):
        workspace.join(after(BASE))
    assert workspace.lake.scan("observations").collect()["id"].to_list() == ["a"]


def test_cuts_do_not_go_back_in_time(workspace):
    workspace.add(D("a", BASE + 10))
    workspace.join(after(BASE + 10))
    workspace.add(D("b", BASE))
    assert workspace.join(after(BASE + 9)).cut is None
    assert workspace.join(after(BASE + 10)).decisions == 1


def test_the_sum_of_rewards_does_not_depend_on_the_order_of_files(workspace):
    values = [1e16, 1.0, -1e16, 0.1, 0.2, 0.3]
    workspace.add(D("a", BASE))
    for i, value in enumerate(values):
        workspace.add(R("a", BASE + i % 2, value))
    workspace.join(after(BASE))
    assert [row["reward"] for row in workspace.observed()] == [math.fsum(values)]
