"""Overview, apprentice, features and health over HTTP: what they say of an empty, a sound and a broken problem."""

import asyncio
import html
import json
import re

import numpy as np
import pytest
import worlds
from service_examples import opened
from worlds import HOUR

from potstill.events import LoggedDecision, LoggedReward, now
from potstill.pipeline import run_update
from potstill.storage import LocalStorage
from potstill.summaries import HealthReport, UpdateRun, record_update, write_report
from potstill.summaries.build import refresh_summaries

CONTEXT = {"bandwidth_kbps": 900.0, "connection": "4g"}
NEVER = worlds.CONFIG.replace(b"min_observations = 50", b"min_observations = 1000000")


@pytest.fixture
def workspace(tmp_path):
    made = worlds.made(str(tmp_path / "video"), NEVER)
    made.start()
    return made


def get(workspace, *paths):
    async def work():
        async with opened(workspace) as asker:
            return [(await asker.ask("GET", *path_and_query(path))).json for path in paths]

    return asyncio.run(work())


def path_and_query(path):
    return path, b"", {}


def words(found):
    return " ".join(f"{one['what']} {one['then']}" for one in found["findings"])


def test_an_empty_problem_says_what_to_do_next(workspace):
    overview, apprentice, features, health = get(workspace, "overview", "apprentice", "features", "health")
    assert (overview["decisions"], overview["points"], overview["version"]) == (0, [], 0)
    assert "No decision has been logged yet" in words(overview)
    assert (apprentice["ready"], apprentice["rows"]) == ("no data", 0)
    assert features["features"] == []
    assert health["report"] is None
    assert "potstill update" in words(health)


def test_a_sound_problem_has_series_and_comparisons(workspace):
    at = now() - 2 * HOUR
    worlds.log(workspace, workspace.serving(), 300, at=at)
    run_update(workspace, now=now(), every=600.0)
    [overview, health] = get(workspace, "overview", "health")
    assert (overview["decisions"], overview["joined"], overview["update"]["outcome"]) == (300, 300, "waiting")
    assert sum(sum(point["actions"].values()) for point in overview["points"]) == 300
    assert [line["name"] for line in overview["compared"]] == ["uniformly random actions"]
    assert overview["compared"][0]["difference"]["value"] == pytest.approx(0.0, abs=1e-6)
    assert overview["due"] == overview["update"]["ended"] + 600_000_000
    assert [mark["version"] for mark in overview["marks"]] == [0]
    assert health["report"]["checked"] == 300
    assert health["entropy"]


def test_entropy_and_trend_are_those_of_each_action(workspace):
    """Shares and entropies by hand; decisions of the second hour take one action only."""
    at, policy, events = now() - 3 * HOUR, workspace.serving(), []
    for number in range(4000):
        decision = policy.decide(CONTEXT, id=f"e{number}", eligible=["360p"] if number >= 2000 else None)
        events.append(LoggedDecision.of(decision, CONTEXT, time=at + (number >= 2000) * HOUR + number))
    with workspace.event_log() as opened_log:
        opened_log.append(*events)
    refresh = workspace.flusher().flush()
    assert refresh.error is None
    refresh_summaries(workspace, now())
    [found] = get(workspace, "health?hours=6")
    actions = {one["action"]: one for one in found["actions"]}
    assert [one["action"] for one in found["actions"]] == sorted(actions, key=lambda one: -actions[one]["share"])
    shares = np.array([one["share"] for one in found["actions"]])
    parts = np.array([one["entropy"] for one in found["actions"]])
    assert shares.sum() == pytest.approx(1.0)
    assert parts == pytest.approx(-shares * np.log(shares) / np.log(3))
    third = actions["360p"]["share"] - 0.5  # of the first half, over both halves
    assert actions["360p"]["trend"] == pytest.approx(1 - 2 * third)
    assert sum(one["trend"] for one in found["actions"]) == pytest.approx(0.0, abs=1e-12)
    assert sum(one["entropy_trend"] for one in found["actions"]) == pytest.approx(found["trend"])


def test_a_page_shows_nothing_of_rows_that_are_out_of_its_range(workspace):
    async def work():
        async with opened(workspace) as asker:
            app = asker.app
            found = []
            for query in (b"hours=0", b"hours=1", b"hours=-1", b"hours=nan", b"days=1"):
                sent = []

                async def receive():
                    return {"type": "http.request", "body": b"", "more_body": False}

                async def send(message, sent=sent):
                    sent.append(message)

                scope = {"type": "http", "method": "GET", "path": asker.prefix + "overview", "headers": []}
                await app({**scope, "query_string": query}, receive, send)
                found.append(sent[0]["status"])
            return found

    assert asyncio.run(work()) == [200, 200, 422, 422, 422]


def test_findings_name_the_cause(workspace):
    at = now() - 3 * HOUR
    worlds.log(workspace, workspace.serving(), 200, at=at, rewarded=0.0)
    run_update(workspace, now=now())
    record_update(
        workspace.storage,
        UpdateRun(began=1, ended=now(), outcome="failed", why="disk <full>", every=60.0, matched=10, orphans=90),
    )
    [overview] = get(workspace, "overview")
    told = words(overview)
    assert "None of 200 joined decisions has a reward" in told
    assert "90% of today's rewards are of no known decision" in told
    assert "The last update failed: disk <full>" in told
    assert [one["tone"] for one in overview["findings"]] == sorted(
        (one["tone"] for one in overview["findings"]), key=("bad", "warn", "good").index
    )
    record_update(workspace.storage, UpdateRun(began=2, ended=1, outcome="published", every=60.0))
    [overview] = get(workspace, "overview")
    assert "overdue" in words(overview)


def test_requests_with_eligible_that_are_renormalised_are_a_finding(workspace):
    write_report(workspace.storage, HealthReport(made=now(), decisions=9, checked=9, decided=200, renormalised=50))
    overview, health = get(workspace, "overview", "health")
    for found in (overview, health):
        assert "25.0% of the last 200 decisions state eligible" in words(found)
        assert "Set masked = true in [student]" in words(found)
    write_report(workspace.storage, HealthReport(made=now(), decisions=9, checked=9, decided=200))
    assert not any("eligible" in words(found) for found in get(workspace, "overview", "health"))


def test_a_damaged_summary_and_report_are_as_if_there_were_none(workspace):
    worlds.log(workspace, workspace.serving(), 60, at=now() - 2 * HOUR)
    run_update(workspace, now=now())
    folder = workspace.storage.within("summaries")
    assert isinstance(folder, LocalStorage)
    for path in sorted(folder.folder.rglob("*.json")):
        path.write_bytes(b"\x00")
    overview, apprentice, features, health = get(workspace, "overview", "apprentice", "features", "health")
    assert (overview["decisions"], apprentice["rows"], features["features"], health["report"]) == (0, 0, [], None)
    for path in sorted(folder.folder.glob("*/*.json")):
        path.unlink()
    refresh_summaries(workspace, now())
    [overview] = get(workspace, "overview")
    assert overview["decisions"] == 60


def test_the_apprentice_logs_what_the_policy_would_have_done(workspace):
    async def work():
        async with opened(workspace) as asker:
            await asker.post("admin/mode", {"mode": "apprentice"})
            asked = {"id": "a", "context": CONTEXT, "action": "720p", "propensity": 0.8}
            first = (await asker.post("decide", asked)).json
            refused = await asker.post("decide", {"context": CONTEXT, "action": "720p", "propensity": 1.5})
            await asker.post("admin/mode", {"mode": "online"})
            online = await asker.post("decide", {"context": CONTEXT, "propensity": 0.5})
            batch = await asker.post("decide/batch", {"requests": [{"context": CONTEXT}, {**asked, "id": "b"}]})
            return first, refused.status, online, batch.status

    first, refused, online, batch = asyncio.run(work())
    assert (refused, online.status, batch) == (422, 422, 422)
    assert "mode apprentice" in online.json["error"]

    async def again():
        async with opened(workspace) as asker:
            await asker.post("admin/mode", {"mode": "apprentice"})
            return (await asker.post("decide", {"id": "a", "context": CONTEXT, "action": "720p"})).json

    assert asyncio.run(again()) == first  # with `would`, which is on disk
    workspace.flusher().flush()
    logged = workspace.lake.scan("decisions").select("action", "would", "own_propensity", "mode").collect().rows()
    assert logged == [("720p", first["would"], 0.8, "apprentice")]


HOSTILE = "<script>document.title='owned'</script>"
LONG = "\u202e" + "شكرا " * 2000


def test_hostile_names_and_values_are_text(tmp_path):
    problem = worlds.PROBLEM.replace(b'"360p"', f'"{HOSTILE}"'.encode())
    workspace = worlds.made(str(tmp_path / "video"), NEVER, problem)
    [hostile, *_] = workspace.problem.actions.names
    assert "<script>" in hostile
    at, events = now() - 2 * HOUR, []
    for number in range(150):
        context = {"bandwidth_kbps": 900.0, "connection": LONG if number % 2 else HOSTILE}
        events.append(
            LoggedDecision(
                id=f"d{number}", context=context, action=hostile, propensity=0.5, policy=0, mode="apprentice",
                would=hostile, unit=HOSTILE, time=at + number,
            )
        )  # fmt: skip
        events.append(LoggedReward(id=f"d{number}", reward=1.0, time=at + number))
    with workspace.event_log() as log:
        log.append(*events)
    run_update(workspace, now=now())
    record_update(workspace.storage, UpdateRun(began=1, ended=2, outcome="failed", why=HOSTILE + LONG))

    async def work():
        async with opened(workspace) as asker:
            return [
                await asker.get(f"/p/video-upload/{view}") for view in ("overview", "apprentice", "features", "health")
            ]

    for answer in asyncio.run(work()):
        page = answer.body.decode()
        assert answer.status == 200
        assert "<script>document" not in page
        assert len(page) < 400_000
    assert "&lt;script&gt;document" in page


def test_the_overview_says_rates_of_now_only(workspace):
    """What came hours ago is not per minute now; a chart has zeros where nothing came."""

    async def page():
        async with opened(workspace) as asker:
            return (await asker.get("/p/video-upload/overview?hours=6")).body.decode()

    for seed, hours in ((2, 5), (3, 3)):
        worlds.log(workspace, workspace.serving(), 60, at=now() - hours * HOUR, seed=seed)
    run_update(workspace, now=now())
    old = asyncio.run(page())
    assert "none in the last" in old
    assert "per minute since" not in old
    chart = html.unescape(re.search(r'data-chart="([^"]*)" role="img" aria-label="Decisions and rewards', old)[1])
    spec = json.loads(chart)
    assert spec["unit"] == "per minute"
    assert spec["series"][0]["values"][-1] == 0.0
    assert spec["x"][-1] > (now() - HOUR) / 1e6
    worlds.log(workspace, workspace.serving(), 60, at=now() - 60_000_000, seed=1)
    workspace.flusher().flush()
    refresh_summaries(workspace, now())
    assert "per minute since <time" in asyncio.run(page())
