"""The initial design: made from a table of units, handed out, learnt from, and left out of evaluation."""

import asyncio
from collections import Counter

import msgspec
import numpy as np
import polars as pl
import pytest
import worlds
from service_examples import experiment, flushed, opened, publish
from typer.testing import CliRunner

import potstill as ps
from potstill.cli import app
from potstill.evaluate import LakeLog
from potstill.events import LoggedReward, now
from potstill.events.lake import read_observations
from potstill.pipeline.audit import run_audit
from potstill.pipeline.design import make_design
from potstill.pipeline.status import read_status
from potstill.pipeline.update import run_update
from potstill.service.design import Claims, DesignWatcher
from potstill.teachers import max_variance_design
from potstill.teachers.gp.pairs import Points
from potstill.workspace import InvalidDesign, Workspace, forget_unit, read_design

HOUR = 3_600_000_000
GP = b'[teacher]\ntype = "gaussian-process-ts"\ndraws = 64\nfit_steps = 0\n'
UNITS = 40


@pytest.fixture
def users(tmp_path):
    """A table of users with their contexts; one has no connection, one no name."""
    rows = [{"user_id": f"user-{i}", **context} for i, context in enumerate(worlds.contexts(UNITS))]
    rows[5]["user_id"] = None
    path = tmp_path / "users.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return str(path)


def made(tmp_path, config: bytes = GP) -> Workspace:
    return worlds.made(str(tmp_path / "video"), worlds.SETTINGS + config)


def asked(workspace, batches, **options):
    """Replies of a service to batches of requests."""

    async def run():
        async with opened(workspace, **options) as asker:
            answers = [await asker.post("decide/batch", {"requests": batch}) for batch in batches]
            assert [answer.status for answer in answers] == [200] * len(batches)
            return [answer.json["decisions"] for answer in answers]

    return asyncio.run(run())


def requests(units, prefix="d", **stated):
    contexts = worlds.contexts(len(units))
    pairs = zip(units, contexts, strict=True)
    return [{"id": f"{prefix}-{unit}", "context": one, "unit": unit, **stated} for unit, one in pairs]


def test_the_design_is_that_of_the_teacher_with_its_information_gain(tmp_path, users):
    workspace = made(tmp_path)
    design = make_design(workspace, users, 12, unit="user_id", per_unit=None)
    assert msgspec.json.encode(read_design(workspace.storage)) == msgspec.json.encode(design)
    teacher = ps.teachers.GaussianProcessTS(draws=64, fit_steps=0)
    pool = [context for i, context in enumerate(worlds.contexts(UNITS)) if i != 5]
    names = [f"user-{i}" for i in range(UNITS) if i != 5]
    found = max_variance_design(teacher, workspace.problem, pool, 12)
    assert [point.unit for point in design.points] == [names[i] for i in found.contexts]
    assert [point.action for point in design.points] == [("360p", "720p", "1080p")[a] for a in found.actions]
    variances = [point.variance for point in design.points]
    assert sorted(variances, reverse=True) == variances
    model = teacher.model(teacher.init(workspace.problem))
    points = Points(workspace.problem.encode_many(pool)[found.contexts], found.actions.astype(np.int32))
    covariance = model.covariance(points, points) / model.noise
    assert design.information_gain == pytest.approx(0.5 * np.linalg.slogdet(np.eye(12) + covariance)[1], rel=1e-6)
    assert design.contexts == {"table": users, "unit": "user_id", "rows": 39, "of": 40, "unfit": 1}


def test_a_design_goes_through_the_circle(tmp_path, users):
    workspace = made(tmp_path)
    design = make_design(workspace, users, 12, unit="user_id", per_unit=None)
    points = [(point.unit, point.action) for point in design.points]
    units = [f"user-{i}" for i in range(UNITS)]
    batches = [requests(units, f"round{i}") for i in range(1 + max(Counter(unit for unit, _ in points).values()))]
    replies = [reply for batch in asked(workspace, batches) for reply in batch]
    by_id = {request["id"]: request["unit"] for batch in batches for request in batch}
    handed = [(by_id[one["id"]], one["action"]) for one in replies if one["mode"] == "design"]
    assert Counter(handed) == Counter(points)
    assert all(one["propensity"] == 1 for one in replies if one["mode"] == "design")
    assert Counter(one["mode"] for one in replies if one["mode"] != "design") == {"online": len(replies) - 12}

    with workspace.event_log() as log:
        log.append(*(LoggedReward(id=one["id"], reward=1.0) for one in replies if one["mode"] == "design"))
    status = read_status(workspace)
    assert (status.design.points, status.design.assigned, status.design.rewarded) == (12, 0, 0)  # still in the log
    report = run_update(workspace, now=now() + 2 * HOUR)
    assert report.outcome == "published"
    learnt = sum(len(part) for part in read_observations(workspace.lake, workspace.problem, 0, report.cut))
    assert learnt == len(replies)  # the teacher learns from design points as well
    status = read_status(workspace, now=now() + 2 * HOUR)
    assert (status.design.assigned, status.design.rewarded) == (12, 12)
    assert status.design.in_words == "12 of 12 points assigned, 12 with a reward"
    log = LakeLog(workspace)
    assert (len(log), log.left_out) == (len(replies) - 12, {"design": 12})
    audit = run_audit(workspace)
    assert (audit.clean, audit.fixed, audit.checked) == (True, 12, len(replies) - 12)


def test_each_point_is_handed_out_once_on_a_machine(tmp_path, users):
    workspace = made(tmp_path)
    design = make_design(workspace, users, 6, unit="user_id", per_unit=None)
    unit, count = Counter(point.unit for point in design.points).most_common(1)[0]
    replies = asked(workspace, [requests([unit], f"a{i}") for i in range(count + 2)])
    assert [batch[0]["mode"] for batch in replies] == ["design"] * count + ["online"] * 2
    # A worker that is started later, and a request that is repeated.
    again = asked(workspace, [requests([unit], "a0"), requests([unit], "later")])
    assert [(batch[0]["mode"], batch[0]["action"]) for batch in again] == [
        ("design", replies[0][0]["action"]),
        ("online", again[1][0]["action"]),
    ]


def test_workers_share_the_claims(tmp_path):
    one, other = (Claims(tmp_path / "spool" / "design.claims", 3) for _ in range(2))
    assert [one.take(0, "a"), other.take(0, "b"), other.take(1, "b"), one.take(1, "c")] == [True, False, True, False]
    assert other.take(0, "a")  # a request that is repeated at another worker


def test_an_empty_restriction_is_refused(tmp_path, users):
    workspace = made(tmp_path)
    design = make_design(workspace, users, 1, unit="user_id")

    async def run():
        async with opened(workspace) as asker:
            return await asker.post("decide", {**requests([design.points[0].unit])[0], "eligible": []})

    assert asyncio.run(run()).status == 422


def test_a_restriction_keeps_the_point_for_later(tmp_path, users):
    workspace = made(tmp_path)
    design = make_design(workspace, users, 1, unit="user_id")
    (point,) = design.points
    others = [action for action in ("360p", "720p", "1080p") if action != point.action]
    batches = [requests([point.unit], "a", eligible=others), requests([point.unit], "b", eligible=[point.action])]
    (first,), (second,) = asked(workspace, batches)
    assert first["mode"] == "online"
    assert first["action"] in others
    assert (second["mode"], second["action"]) == ("design", point.action)


def test_other_modes_and_other_units_get_no_point(tmp_path, users):
    workspace = made(tmp_path, GP + b'[serve]\nmode = "log-only"\nfallback = "360p"\n')
    design = make_design(workspace, users, 1, unit="user_id")
    ((reply,),) = asked(workspace, [requests([design.points[0].unit])])
    assert reply["mode"] == "log-only"
    online = worlds.made(str(tmp_path / "online"), worlds.SETTINGS + GP)
    make_design(online, users, 1, unit="user_id")
    context = worlds.contexts(1)[0]
    (replies,) = asked(online, [[{"id": "x", "context": context}, {"id": "y", "context": context, "unit": "nobody"}]])
    assert [reply["mode"] for reply in replies] == ["online", "online"]


def test_points_are_outside_of_experiments(tmp_path, users):
    workspace = made(tmp_path, GP + experiment())
    publish(workspace)
    design = make_design(workspace, users, 5, unit="user_id")
    (replies,) = asked(workspace, [requests([f"user-{i}" for i in range(UNITS)])])
    chosen = {point.unit for point in design.points}
    for reply in replies:
        unit = reply["id"].removeprefix("d-")
        assert (reply["mode"] == "design") == (unit in chosen)
        assert (reply.get("arm") is None) == (unit in chosen)
    rows = flushed(workspace).scan("decisions").filter(pl.col("mode") == "design").collect()
    assert rows["arm"].to_list() == [None] * len(chosen)


def test_a_design_that_does_not_fit_is_refused_and_said(tmp_path, users):
    workspace = made(tmp_path)
    make_design(workspace, users, 2, unit="user_id")
    changed = worlds.PROBLEM.replace(b'"1080p"', b'"4k"')
    workspace.storage.replace("problem.toml", changed)
    again = Workspace(workspace.url)
    watcher = DesignWatcher(again)
    watcher.reload()
    assert watcher.current is None
    assert "is for problem" in watcher.notice
    assert read_status(again).design.in_words.startswith("refused: design.json is for problem")
    again.storage.replace("design.json", b'{"format": 1}')
    watcher.reload()
    assert "is not a design" in watcher.notice
    again.storage.delete("design.json")
    watcher.reload()
    assert watcher.notice is None


def test_what_cannot_be_designed_is_refused(tmp_path, users):
    workspace = made(tmp_path)
    with pytest.raises(InvalidDesign, match="no column 'unit', of the units; state --unit, one of: user_id"):
        make_design(workspace, users, 2)
    make_design(workspace, users, 2, unit="user_id")
    with pytest.raises(InvalidDesign, match="exists already"):
        make_design(workspace, users, 2, unit="user_id")
    assert len(make_design(workspace, users, 3, unit="user_id", replace=True).points) == 3


def test_a_unit_that_is_forgotten_leaves_the_design(tmp_path, users):
    workspace = made(tmp_path)
    design = make_design(workspace, users, 3, unit="user_id")
    unit = design.points[0].unit
    forget_unit(workspace, unit)
    left = read_design(workspace.storage)
    assert (left.id, len(left.points)) == (design.id, 3)
    assert unit not in msgspec.json.encode(left).decode()


@pytest.mark.parametrize("per_unit", [1, 2])
def test_a_unit_gets_no_more_points_than_it_may(tmp_path, users, per_unit):
    workspace = made(tmp_path)
    design = make_design(workspace, users, 20, unit="user_id", per_unit=per_unit)
    assert max(Counter(point.unit for point in design.points).values()) == per_unit
    free = make_design(workspace, users, 20, unit="user_id", per_unit=None, replace=True)
    assert design.information_gain <= free.information_gain
    with pytest.raises(InvalidDesign, match=f"39 units, too few for 100 points with {per_unit} for each"):
        make_design(workspace, users, 100, unit="user_id", per_unit=per_unit, replace=True)


def test_a_large_table_is_sampled(tmp_path, users, monkeypatch):
    monkeypatch.setattr("potstill.pipeline.design.NUMBERS", 60)
    design = make_design(made(tmp_path, b""), users, 2, unit="user_id")
    assert (design.contexts["rows"] + design.contexts["unfit"], design.contexts["of"]) == (10, 40)
    assert design.teacher["type"] == "gaussian-process-ts"  # linear-ts is configured


def test_the_command_makes_shows_and_ends_a_design(tmp_path, users):
    workspace = made(tmp_path)
    run = CliRunner().invoke
    place = [workspace.url]
    assert "there is no design" in run(app, ["design", *place]).output
    first = run(app, ["design", *place, "--contexts", users, "--size", "4", "--unit", "user_id"])
    assert first.exit_code == 0, first.output
    assert "4 points for" in first.output
    assert "nats, by gaussian-process-ts" in first.output
    assert "0 of 4 points assigned" in run(app, ["design", *place]).output
    assert "design     0 of 4 points assigned, 0 with a reward" in run(app, ["status", *place]).output
    assert run(app, ["design", *place, "--contexts", users]).exit_code == 1
    shown = run(app, ["design", *place, "--contexts", users, "--size", "2", "--unit", "user_id", "--replace", "--json"])
    assert len(msgspec.json.decode(shown.stdout)["points"]) == 2
    assert run(app, ["design", *place, "--end"]).exit_code == 0
    assert read_design(workspace.storage) is None
