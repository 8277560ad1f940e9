"""Summaries are kept incrementally: in any portions, after any kill and compaction, they are those of all rows."""

import msgspec
import numpy as np
import polars as pl
import pytest
from worlds import CONFIG, LATER, NOON, PROBLEM, log, made

from potstill.events import LoggedDecision, LoggedReward
from potstill.events.lake import compact, expire
from potstill.pipeline import run_update
from potstill.registry import Registry
from potstill.storage import LocalStorage
from potstill.summaries import (
    HOUR,
    TABLES,
    DecisionCell,
    Sums,
    mean_of,
    off_policy,
    read_summary,
    read_updates,
    write_summary,
)
from potstill.summaries.build import refresh_summaries
from potstill.summaries.series import Bounds
from potstill.workspace import Workspace, forget_unit

NEVER = CONFIG.replace(b"min_observations = 50", b"min_observations = 1000000")


def portion(workspace, seed, at):
    log(workspace, workspace.serving(), 60, seed=seed, at=at)
    workspace.flusher().flush()


def summaries(workspace):
    return {table: read_summary(workspace.storage, table) for table in TABLES}


def as_numbers(summary):
    """A summary without the version of its table, and with sums that may differ by rounding."""
    plain = msgspec.to_builtins(msgspec.structs.replace(summary, version=0), str_keys=True)
    return dict(flat(plain))


def flat(value, path=""):
    if isinstance(value, dict):
        for name, item in value.items():
            yield from flat(item, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            yield from flat(item, f"{path}[{at}]")
    else:
        yield path, value


def same(one, other):
    ours, theirs = as_numbers(one), as_numbers(other)
    assert ours.keys() == theirs.keys()
    for key, value in ours.items():
        assert value == (pytest.approx(theirs[key], abs=1e-9) if isinstance(value, float) else theirs[key]), key


@pytest.fixture
def workspace(tmp_path):
    return made(str(tmp_path / "here"), NEVER)


def grown(workspace):
    """Four days of logs, an update after each; summaries are refreshed as they come."""
    for seed in range(4):
        portion(workspace, seed, NOON + seed * 30 * HOUR)
        if seed == 2:
            compact(workspace.lake)
        run_update(workspace, now=LATER + seed * 30 * HOUR)
    return summaries(workspace)


def test_portions_give_what_all_rows_give(workspace):
    kept = grown(workspace)
    for table in TABLES:
        workspace.storage.within("summaries").delete(f"{table}/{kept[table].version:020}.json")
    for name in [f"{table}/{name}" for table in TABLES for name in workspace.storage.within("summaries").names(table)]:
        workspace.storage.within("summaries").delete(name)
    assert set(refresh_summaries(workspace, LATER + 90 * HOUR)) == set(TABLES)
    again = summaries(workspace)
    for table in TABLES:
        same(kept[table], again[table])
    assert refresh_summaries(workspace, LATER) == []


def test_they_say_what_the_rows_say(workspace):
    kept = grown(workspace)
    decisions = workspace.lake.scan("decisions").collect()
    observations = workspace.lake.scan("observations").collect()
    total = kept["decisions"].total
    assert (total.decisions, total.modes) == (240, {"online": 240})
    assert total.actions == dict(decisions["action"].value_counts().iter_rows())
    r, p = observations["reward"].to_numpy(), observations["propensity"].to_numpy()
    joined = kept["observations"].total
    assert mean_of(joined.joined).value == pytest.approx(r.mean())
    w = 1 / (3 * p)
    assert off_policy(joined.uniform, joined.exact).value == pytest.approx((w * r).sum() / w.sum())
    always = observations.filter(pl.col("action") == "720p")
    assert joined.always["720p"].wr == pytest.approx((always["reward"] / always["propensity"]).sum())
    rewards = workspace.lake.scan("rewards").collect()["reward"].to_numpy()
    assert kept["rewards"].total.rewards.total == pytest.approx(rewards.sum())


def test_a_killed_refresh_is_repeated_and_counts_once(workspace, monkeypatch):
    portion(workspace, 0, NOON)
    refresh_summaries(workspace, LATER)
    portion(workspace, 1, NOON + HOUR)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LocalStorage, "create", killed)
        with pytest.raises(KeyboardInterrupt):
            refresh_summaries(workspace, LATER)
    assert read_summary(workspace.storage, "decisions").total.decisions == 60
    for _ in range(2):
        refresh_summaries(workspace, LATER)
    assert read_summary(workspace.storage, "decisions").total.decisions == 120


def test_a_damaged_summary_is_made_again(workspace):
    portion(workspace, 0, NOON)
    refresh_summaries(workspace, LATER)
    folder = workspace.storage.within("summaries")
    [name] = folder.names("decisions")
    folder.replace(f"decisions/{name}", b"\x00not json")
    portion(workspace, 1, NOON + HOUR)
    refresh_summaries(workspace, LATER)
    assert read_summary(workspace.storage, "decisions").total.decisions == 120


def test_they_are_the_same_in_an_object_store(s3):
    workspace = made(s3, NEVER)
    portion(workspace, 0, NOON)
    refresh_summaries(workspace, LATER)
    portion(workspace, 1, NOON + HOUR)
    assert "decisions" in refresh_summaries(workspace, LATER)
    assert read_summary(workspace.storage, "decisions").total.decisions == 120


def test_cells_grow_coarser_with_age_and_never_overlap(workspace):
    day = 24 * HOUR
    for days in (0, 10, 30):
        portion(workspace, days, NOON + days * day)
    refresh_summaries(workspace, NOON + 31 * day)
    found = read_summary(workspace.storage, "decisions")
    cells = list(found.series())
    assert sum(cell.decisions for _, _, cell in cells) == 180
    ends = [start + width for start, width, _ in cells]
    assert all(end <= start for end, (start, _, _) in zip(ends[:-1], cells[1:], strict=True))
    assert len(cells) < 10
    bounds = Bounds.of(found.newest)
    assert {bounds.width(start) for start, _, _ in cells} >= {24 * HOUR}


def test_a_time_far_ahead_does_not_make_today_coarse(workspace):
    portion(workspace, 0, NOON)
    with workspace.event_log() as opened:
        opened.append(LoggedReward(id="x", reward=1.0, time=NOON + 10_000 * 24 * HOUR))
    workspace.flusher().flush()
    refresh_summaries(workspace, NOON + HOUR)
    assert read_summary(workspace.storage, "rewards").newest <= NOON + 25 * HOUR


def test_agreement_and_own_propensities_are_counted(workspace):
    context = {"bandwidth_kbps": 900.0, "connection": "4g"}
    events = []
    for at in range(10):
        would = "360p" if at < 4 else "720p"
        events.append(
            LoggedDecision(
                id=f"d{at}", context=context, action="360p", propensity=1 / 3, policy=0, mode="apprentice",
                would=would, own_propensity=0.5, time=NOON + at,
            )
        )  # fmt: skip
        events.append(LoggedReward(id=f"d{at}", reward=1.0, time=NOON + at))
    with workspace.event_log() as opened:
        opened.append(*events)
    run_update(workspace, now=LATER)
    cell = read_summary(workspace.storage, "decisions").total
    assert (cell.compared, cell.agreed, cell.modes) == (10, 4, {"apprentice": 10})
    joined = read_summary(workspace.storage, "observations").total
    assert joined.sources == {"apprentice": Sums(10, 10.0, 10.0)}
    assert joined.always["360p"].w == pytest.approx(20.0)


def test_an_update_that_fails_is_recorded(workspace, monkeypatch):
    def broken(*_):
        raise RuntimeError("no space\nleft")

    monkeypatch.setattr(Registry, "head", broken)
    with pytest.raises(RuntimeError):
        run_update(workspace, now=LATER, every=600.0)
    last = read_updates(workspace.storage).last
    assert (last.outcome, last.why) == ("failed", "RuntimeError: no space\nleft")


def test_a_workspace_from_before_has_no_summaries_and_gets_them(tmp_path):
    workspace = Workspace.create(str(tmp_path), PROBLEM, NEVER)
    assert summaries(workspace)["decisions"].total.decisions == 0
    portion(workspace, 0, NOON)
    for table in TABLES:
        assert not workspace.storage.within("summaries").names(table)
    refresh_summaries(workspace, LATER)
    assert np.isclose(summaries(workspace)["decisions"].total.decisions, 60)


def test_a_forgotten_unit_is_in_no_summary(workspace):
    events = [
        LoggedDecision(
            id=f"d{at}", context={"bandwidth_kbps": 900.0, "connection": "4g"}, action="360p", propensity=0.5,
            policy=0, unit="ann" if at < 10 else "ben", time=NOON + at,
        )
        for at in range(30)
    ]  # fmt: skip
    with workspace.event_log() as opened:
        opened.append(*events, *(LoggedReward(id=f"d{at}", reward=1.0, time=NOON + at) for at in range(30)))
    run_update(workspace, now=LATER)
    assert read_summary(workspace.storage, "decisions").total.decisions == 30
    forget_unit(workspace, "ann")
    refresh_summaries(workspace, LATER)
    kept = summaries(workspace)
    assert kept["decisions"].total.decisions == 20
    assert kept["rewards"].total.rewards.n == 20
    assert kept["observations"].total.joined.n == 20


def test_days_that_expired_stay_in_summaries(workspace):
    portion(workspace, 0, NOON)
    portion(workspace, 1, NOON + 40 * 24 * HOUR)
    refresh_summaries(workspace, NOON + 40 * 24 * HOUR)
    expire(workspace.lake, older_than=30 * 86_400, now=NOON + 41 * 24 * HOUR)
    portion(workspace, 2, NOON + 41 * 24 * HOUR)
    refresh_summaries(workspace, NOON + 41 * 24 * HOUR)
    assert read_summary(workspace.storage, "decisions").total.decisions == 180


def test_of_two_processes_one_stores_a_version(workspace):
    portion(workspace, 0, NOON)
    refresh_summaries(workspace, LATER)
    first = read_summary(workspace.storage, "decisions")
    other = msgspec.structs.replace(first, total=DecisionCell(decisions=7))
    write_summary(workspace.storage, "decisions", other)
    assert read_summary(workspace.storage, "decisions") == first
