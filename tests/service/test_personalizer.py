"""The interface of Azure Personalizer: request bodies as its public API description has them."""

import asyncio
import http.client
import json
import os
import signal
from urllib.parse import urlsplit

import pytest
from dsjson_examples import DRINKS, event, log, write
from openapi_spec_validator import OpenAPIV31SpecValidator
from service_examples import flushed, opened, publish, server
from typer.testing import CliRunner

from potstill.cli import app
from potstill.clock import now
from potstill.pipeline import run_audit
from potstill.service.auth import Guard
from potstill.service.openapi import document
from potstill.service.personalizer.held import HeldDecisions
from potstill.service.routes import PERSONALIZER_ENDPOINTS
from potstill.service.tokens import SCOPES, TokenFile
from potstill.workspace import Workspace

ROOT = "/personalizer/v1.0/"
PROBLEM = b"""
name = "news"
[[context]]
name = "timeOfDay"
type = "categorical"
values = ["Morning", "Evening"]
[[context]]
name = "user.age"
type = "numeric"
low = 0
high = 100
missing = "flag"
[[context]]
name = "device.mobile"
type = "boolean"
missing = false
[actions]
type = "discrete"
names = ["EntertainmentArticle", "NewsArticle", "SportsArticle"]
[reward]
low = -1.0
high = 1.0
window = "1h"
"""
ACTIONS = [
    {"id": "NewsArticle", "features": [{"type": "News"}]},
    {"id": "SportsArticle", "features": [{"type": "Sports"}]},
    {"id": "EntertainmentArticle", "features": [{"type": "Entertainment"}]},
]
RANK = {
    "contextFeatures": [{"timeOfDay": "Morning", "user": {"age": 30, "_id": 5}}, {"device": {"mobile": 1, "os": "x"}}],
    "actions": ACTIONS,
    "excludedActions": ["SportsArticle"],
    "eventId": "75269AD0-BFEE-4598-8196-C57383D38E10",
    "deferActivation": False,
}
CONTEXT = {"timeOfDay": "Morning", "user.age": 30, "device.mobile": True}


@pytest.fixture
def workspace(tmp_path):
    made = Workspace.create(tmp_path / "news", PROBLEM, b"[update]\nmin_observations = 20\n")
    publish(made)
    return made


def serve(workspace, work, **options):
    async def inner():
        async with opened(workspace, personalizer=True, **options) as asker:
            return await work(asker)

    return asyncio.run(inner())


def decisions(workspace):
    return flushed(workspace).scan("decisions").sort("time").collect().to_dicts()


# ---- rank


def test_a_rank_request_of_the_api_description(workspace):
    async def work(asker):
        return await asker.post(f"{ROOT}rank", RANK), await asker.post("decide", {"context": CONTEXT, "id": "other"})

    ranked, _ = serve(workspace, work)
    assert ranked.status == 201
    ranking, chosen = ranked.json["ranking"], ranked.json["rewardActionId"]
    assert ranked.json["eventId"] == RANK["eventId"]
    assert ranking[0]["id"] == chosen
    assert ranking[1] == {"id": "SportsArticle", "probability": 0.0}
    policy = workspace.registry.policy()
    eligible = ["EntertainmentArticle", "NewsArticle"]
    p = policy.probabilities(CONTEXT, eligible=eligible)
    expected = dict(zip(workspace.problem.actions.names, p.tolist(), strict=True))
    assert {one["id"]: one["probability"] for one in ranking} == pytest.approx(expected, abs=1e-6)
    drawn = policy.decide(CONTEXT, id=RANK["eventId"], eligible=eligible)
    assert (drawn.action, drawn.propensity) == (chosen, ranking[0]["probability"])
    logged = decisions(workspace)[0]
    assert logged["id"] == RANK["eventId"]
    assert (logged["action"], logged["propensity"], logged["policy"]) == (chosen, drawn.propensity, policy.version)
    assert logged["eligible"] == eligible
    assert {name: logged[f"context_{name}"] for name in CONTEXT} == CONTEXT


def test_frequencies_are_the_ranked_probabilities(workspace):
    """Of 2,000 draws the share of an action is within 4.4 standard errors: a false alarm in 30,000 runs."""
    body = {"actions": ACTIONS, "contextFeatures": [{"timeOfDay": "Evening"}]}

    async def work(asker):
        return [(await asker.post(f"{ROOT}rank", {**body, "eventId": f"e{i}"})).json for i in range(2_000)]

    found = serve(workspace, work)
    for action in DISTINCT:
        (p,) = {round(one["probability"], 6) for reply in found for one in reply["ranking"] if one["id"] == action}
        share = sum(reply["rewardActionId"] == action for reply in found) / len(found)
        assert abs(share - p) < 4.4 * (p * (1 - p) / len(found)) ** 0.5
    assert all(sorted(one["id"] for one in reply["ranking"]) == DISTINCT for reply in found)


DISTINCT = sorted(action["id"] for action in ACTIONS)


def test_the_same_event_is_the_same_decision_at_both_doors(workspace):
    body = {name: value for name, value in RANK.items() if name != "excludedActions"}

    async def work(asker):
        first, again = await asker.post(f"{ROOT}rank", body), await asker.post(f"{ROOT}rank", body)
        own = await asker.post("decide", {"context": CONTEXT, "id": RANK["eventId"]})
        preview = await asker.post("/personalizer/v1.1-preview.3/rank", body)
        other = await asker.post(f"{ROOT}rank", {**body, "contextFeatures": []})
        return first.json, again.json, preview.json, own.json, other

    first, again, preview, own, other = serve(workspace, work)
    assert first == again == preview
    assert (own["action"], own["propensity"]) == (first["rewardActionId"], first["ranking"][0]["probability"])
    assert other.status == 409
    assert other.json["error"]["code"] == "BadRequest"
    assert len(decisions(workspace)) == 1


def test_an_event_without_an_id_gets_one_and_a_subset_is_eligible(workspace):
    async def work(asker):
        return await asker.post(f"{ROOT}rank", {"actions": [{"id": "NewsArticle"}], "contextFeatures": None})

    found = serve(workspace, work)
    assert found.status == 201
    assert found.json["ranking"] == [{"id": "NewsArticle", "probability": 1.0}]
    (logged,) = decisions(workspace)
    assert (logged["id"], logged["eligible"], logged["propensity"]) == (found.json["eventId"], ["NewsArticle"], 1.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": []}, "length >= 1"),
        ({"actions": None}, "Expected `array`"),
        ({"actions": [{"id": "Weather"}]}, "actions[0]: 'Weather' is not an action of 'news'"),
        ({"actions": [*ACTIONS, ACTIONS[0]]}, "an id is stated twice"),
        ({"excludedActions": [*DISTINCT]}, "every action is excluded"),
        ({"eventId": ""}, "length >= 1"),
        ({"eventId": "x" * 5_000}, "length <="),
        ({"contextFeatures": [{"user": {"age": "old"}}]}, "Expected `float"),
        ({"contextFeatures": [json.loads("[" * 60 + "1" + "]" * 60)]}, "more than 32 levels"),
        ({"contextFeatures": "Morning"}, "Expected `array"),
    ],
)
def test_bad_requests_have_the_error_of_personalizer(workspace, change, message):
    async def work(asker):
        return await asker.post(f"{ROOT}rank", {**RANK, **change})

    found = serve(workspace, work)
    assert found.status == 400
    assert found.json["error"]["code"] == "BadRequest"
    assert message in found.json["error"]["message"]
    assert decisions(workspace) == []


def test_other_addresses_methods_and_bodies(workspace):
    async def work(asker):
        return [
            await asker.post(f"{ROOT}nothing", {}),
            await asker.post("/personalizer/v9/rank", RANK),
            await asker.get(f"{ROOT}rank"),
            await asker.post(f"{ROOT}rank", body=b"{"),
            await asker.ask("POST", f"{ROOT}rank", b"{}", {"content_type": "text/plain"}),
            await asker.post("/elsewhere", {}),
        ]

    found = serve(workspace, work)
    assert [answer.status for answer in found] == [404, 404, 405, 400, 415, 404]
    codes = [answer.json["error"]["code"] for answer in found[:-1]]
    assert codes == ["ResourceNotFound", "ResourceNotFound", "ResourceNotFound", "BadRequest", "BadRequest"]
    assert isinstance(found[-1].json["error"], str)


def test_a_fault_of_the_service_has_the_error_of_personalizer(workspace, monkeypatch):
    def fail(*_):
        raise RuntimeError("broken")

    monkeypatch.setattr("potstill.service.personalizer.endpoints.flatten", fail)

    async def work(asker):
        return await asker.post(f"{ROOT}rank", RANK)

    found = serve(workspace, work)
    assert (found.status, found.json["error"]["code"]) == (500, "InternalServerError")
    assert "broken" not in found.json["error"]["message"]


def test_several_slots_are_refused_in_words(workspace):
    async def work(asker):
        slots = [{"id": "Main", "baselineAction": "NewsArticle"}]
        return [
            await asker.post("/personalizer/v1.1-preview.1/multislot/rank", {**RANK, "slots": slots}),
            await asker.post("/personalizer/v1.1-preview.1/multislot/events/x/reward", {"reward": []}),
            await asker.post("/personalizer/v1.1-preview.1/multislot/events/x/activate", {}),
        ]

    for answer in serve(workspace, work):
        assert answer.status == 400
        assert "Send a rank request per slot" in answer.json["error"]["message"]


def test_it_is_off_unless_asked_for(workspace):
    async def work():
        async with opened(workspace) as asker:
            return await asker.post(f"{ROOT}rank", RANK)

    found = asyncio.run(work())
    assert found.status == 404
    assert "there is no endpoint at this path" in found.json["error"]


def test_in_mode_apprentice_the_first_action_is_the_baseline(workspace):
    async def work(asker):
        await asker.post("admin/mode", {"mode": "apprentice"})
        return await asker.post(f"{ROOT}rank", RANK)

    found = serve(workspace, work).json
    assert found["rewardActionId"] == "NewsArticle"
    assert 0 < found["ranking"][0]["probability"] < 1
    (logged,) = decisions(workspace)
    assert (logged["mode"], logged["action"]) == ("apprentice", "NewsArticle")


def test_a_fixed_action_has_probability_1(workspace):
    path = workspace.storage.folder / "potstill.toml"
    path.write_text(f'{path.read_text()}[serve]\nfallback = "NewsArticle"\n')

    async def work(asker):
        await asker.post("admin/mode", {"mode": "log-only"})
        return await asker.post(f"{ROOT}rank", RANK)

    ranking = serve(Workspace(workspace.url), work).json["ranking"]
    assert [(one["id"], one["probability"]) for one in ranking] == [
        ("NewsArticle", 1.0),
        ("SportsArticle", 0.0),
        ("EntertainmentArticle", 0.0),
    ]


# ---- reward and activate


def test_rewards(workspace):
    async def work(asker):
        await asker.post(f"{ROOT}rank", {**RANK, "eventId": "a/b c"})
        good = await asker.post(f"{ROOT}events/a/b c/reward", {"value": 0.5})
        bad = [await asker.post(f"{ROOT}events/x/reward", body) for body in ({"value": 3}, {"value": "1"}, {})]
        return good, bad

    good, bad = serve(workspace, work)
    assert (good.status, good.body) == (204, b"")
    assert "content-length" not in good.headers
    assert [answer.status for answer in bad] == [400, 400, 400]
    rewards = flushed(workspace).scan("rewards").collect()
    assert rewards.select("id", "reward").rows() == [("a/b c", 0.5)]


def test_a_deferred_decision_is_logged_when_it_is_activated(workspace):
    deferred = {**RANK, "deferActivation": True}
    address = f"{ROOT}events/{RANK['eventId']}/activate"

    async def rank(asker):
        first, again = await asker.post(f"{ROOT}rank", deferred), await asker.post(f"{ROOT}rank", deferred)
        other = await asker.post(f"{ROOT}rank", {**deferred, "contextFeatures": []})
        return first, again, other

    first, again, other = serve(workspace, rank)
    assert (first.status, again.json, other.status) == (201, first.json, 409)
    assert decisions(workspace) == []

    async def activate(asker):  # after a restart
        return [await asker.ask("POST", address, b"", {}) for _ in range(2)]

    assert [answer.status for answer in serve(workspace, activate)] == [204, 204]
    (logged,) = decisions(workspace)
    ranking = first.json["ranking"]
    assert (logged["id"], logged["action"]) == (RANK["eventId"], first.json["rewardActionId"])
    assert logged["propensity"] == ranking[0]["probability"]
    assert logged["eligible"] == ["EntertainmentArticle", "NewsArticle"]
    assert {name: logged[f"context_{name}"] for name in CONTEXT} == CONTEXT


@pytest.mark.parametrize(("waited", "counts_from"), [(0.5, "rank"), (2, "activation")])
def test_what_time_an_activated_decision_has(workspace, monkeypatch, waited, counts_from):
    """Within the window of rewards it is that of the request: rewards that came before the activation count."""
    began = now()

    async def work(asker):
        await asker.post(f"{ROOT}rank", {**RANK, "deferActivation": True})
        await asker.post(f"{ROOT}events/{RANK['eventId']}/reward", {"value": 1})
        activated = now() + round(waited * 3_600 * 1e6)
        monkeypatch.setattr("potstill.service.personalizer.endpoints.now", lambda: activated)
        assert (await asker.ask("POST", f"{ROOT}events/{RANK['eventId']}/activate", b"", {})).status == 204
        return activated

    activated = serve(workspace, work)
    (logged,) = decisions(workspace)
    expected = began if counts_from == "rank" else activated
    assert abs(logged["time"].timestamp() * 1e6 - expected) < 30e6


def test_activating_what_is_not_held(workspace):
    async def work(asker):
        await asker.post(f"{ROOT}rank", RANK)
        logged = await asker.ask("POST", f"{ROOT}events/{RANK['eventId']}/activate", b"", {})
        return logged, await asker.ask("POST", f"{ROOT}events/nobody/activate", b"", {})

    logged, unknown = serve(workspace, work)
    assert logged.status == 204
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "ResourceNotFound")
    assert "no deferred decision has this event id here" in unknown.json["error"]["message"]
    assert len(decisions(workspace)) == 1


def test_deferring_what_is_logged_repeats_it(workspace):
    async def work(asker):
        first = await asker.post(f"{ROOT}rank", RANK)
        publish(workspace, seed=9)
        await asker.post("admin/unpin", {})  # the new version serves at once
        return first, await asker.post(f"{ROOT}rank", {**RANK, "deferActivation": True})

    first, again = serve(workspace, work)
    assert (again.status, again.json) == (201, first.json)
    assert len(decisions(workspace)) == 1


def test_held_decisions_are_dropped_after_a_week(tmp_path, monkeypatch):
    held = HeldDecisions(tmp_path / "held.sqlite")
    assert held.find("old") is None
    held.hold("old", b"r", b"d")
    assert held.hold("old", b"other", b"x").decision == b"d"
    later = now() + 8 * 86_400 * 1_000_000
    monkeypatch.setattr("potstill.service.personalizer.held.now", lambda: later)
    fresh = HeldDecisions(tmp_path / "held.sqlite")
    fresh.hold("new", b"r", b"d")
    assert fresh.find("old") is None
    assert fresh.find("new").activated is False
    fresh.mark("new")
    assert fresh.find("new").activated is True


def post(url, path, body, **headers):
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
    sent = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection.request("POST", path, None if body is None else json.dumps(body), sent)
    answer = connection.getresponse()
    text = answer.read()
    told = {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return answer.status, told, text


def test_a_held_decision_survives_the_end_of_the_service(workspace):
    with server(workspace.url, personalizer=True, log_timeout=30.0) as running:
        status, _, body = post(running.url, f"{ROOT}rank", {**RANK, "deferActivation": True})
        os.kill(running.pid, signal.SIGKILL)
    assert status == 201
    with server(workspace.url, personalizer=True, log_timeout=30.0) as running:
        status, told, nothing = post(running.url, f"{ROOT}events/{RANK['eventId']}/activate", None)
        assert (status, nothing, "content-length" in told) == (204, b"", False)
        assert post(running.url, f"{ROOT}events/a%2Fb/reward", {"value": 1})[0] == 204
    (logged,) = decisions(workspace)
    assert logged["action"] == json.loads(body)["rewardActionId"]


# ---- tokens and the description


def test_the_subscription_key_is_a_token(workspace):
    tokens = TokenFile(workspace.storage)
    allowed = {scope: tokens.create(scope, [scope]) for scope in SCOPES}

    async def work(asker):
        nobody = await asker.post(f"{ROOT}rank", RANK)
        paths = {row.path: (row, f"{ROOT}{row.path}") for row in PERSONALIZER_ENDPOINTS}
        for row, path in paths.values():
            for scope, token in allowed.items():
                for headers in ({"ocp_apim_subscription_key": token}, {"authorization": f"Bearer {token}"}):
                    answer = await asker.post(path, RANK, **headers)
                    assert (answer.status == 403) == (scope != row.scope), (path, scope)
        own = await asker.post("decide", {"context": CONTEXT}, ocp_apim_subscription_key=allowed["decide"])
        return nobody, own

    nobody, own = serve(workspace, work, guards={workspace.problem.name: Guard(tokens)})
    assert (nobody.status, nobody.json["error"]["code"]) == (401, "BadRequest")
    assert own.status == 401  # the key is for Personalizer's addresses


def test_every_row_is_dispatched_and_documented(workspace):
    async def work(asker):
        return {path: set(methods) for path, methods in asker.app.personalizer_routes.items()}

    assert serve(workspace, work) == {row.path: {row.method} for row in PERSONALIZER_ENDPOINTS}
    for closed in ((), ("news",)):
        found = document([workspace.problem], closed=closed, personalizer=True)
        OpenAPIV31SpecValidator(found).validate()
        assert {path for path in found["paths"] if path.startswith(ROOT)} == {
            f"{ROOT}{row.path}" for row in PERSONALIZER_ENDPOINTS
        }
    shown = found["paths"][f"{ROOT}rank"]["post"]
    assert {"subscription_key": []} in shown["security"]
    assert shown["responses"]["201"]["content"]["application/json"]["schema"]["$ref"].endswith("/RankReply")
    assert set(found["components"]["schemas"]["RankReply"]["properties"]) == {"ranking", "eventId", "rewardActionId"}
    assert not [path for path in document([workspace.problem])["paths"] if path.startswith(ROOT)]


# ---- the whole way


def test_from_a_log_of_personalizer_to_a_service_that_learns(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    runner, place = CliRunner(env={"COLUMNS": "200"}), str(tmp_path / "bar")
    path = write(tmp_path / "log.json", [*log(300), event(999, 0, 0.0, 0.5, _skipLearn=True)])
    arguments = ["import", "dsjson", path, "--into", place, "--teacher", "linear-ts"]
    imported = runner.invoke(app, arguments)
    assert imported.exit_code == 0, imported.output
    config = tmp_path / "bar" / "potstill.toml"
    text = config.read_text().replace("#min_observations = 100", "min_observations = 10")
    config.write_text(text.replace('#settle = "1m"', 'settle = "0s"'))
    problem = tmp_path / "bar" / "problem.toml"
    problem.write_text(problem.read_text().replace('window = "1h"', 'window = "1s"'))
    workspace = Workspace(place)
    assert workspace.registry.policy().version == 1
    actions = [{"id": name, "features": [{"type": "hot"}]} for name in DRINKS]

    async def work(asker):
        for number in range(40):
            # The request that Personalizer logs as {"FromUrl": [...]}: the features have the same names.
            features = [{"time": "Evening", "user": {"age": 20 + number}}]
            body = {"contextFeatures": features, "actions": actions, "eventId": f"live{number}"}
            ranked = await asker.post(f"{ROOT}rank", body)
            assert ranked.status == 201
            value = float(ranked.json["rewardActionId"] == "Tea")
            assert (await asker.post(f"{ROOT}events/live{number}/reward", {"value": value})).status == 204
        await asyncio.sleep(1.1)

    serve(workspace, work)
    updated = runner.invoke(app, ["update", place])
    assert updated.exit_code == 0, updated.output
    policy = Workspace(place).registry.policy()
    assert (policy.version, policy.metadata.lineage.observations) == (2, 340)
    rows = workspace.lake.scan("observations").collect()
    live = rows.filter(rows["id"].str.starts_with("live"))
    assert len(live) == 40
    assert live["context_user.age"].to_list() == pytest.approx([20 + int(name[4:]) for name in live["id"]])
    assert (live["reward"] == (live["action"] == "Tea")).all()


def test_a_changed_list_of_actions_is_followed(workspace):
    """A decision that is held across the change is logged when it is activated."""

    async def run() -> None:
        async with opened(workspace, personalizer=True) as asker:
            held = await asker.post(f"{ROOT}rank", {**RANK, "eventId": "held", "deferActivation": True})
            weather = {**RANK, "eventId": "new", "actions": [*ACTIONS, {"id": "Weather", "features": []}]}
            assert (await asker.post(f"{ROOT}rank", weather)).status == 400
            changed = await asker.post("/v1/news/admin/actions", {"change": "add", "action": "Weather"})
            assert changed.status == 200
            ranked = await asker.post(f"{ROOT}rank", weather)
            assert (held.status, ranked.status) == (201, 201)
            assert len(ranked.json["ranking"]) == 4
            assert (await asker.post(f"{ROOT}events/held/activate", body=b"")).status == 204

    asyncio.run(run())
    logged = flushed(Workspace(workspace.url)).scan("decisions").collect()
    assert sorted(logged["id"]) == ["held", "new"]
    assert run_audit(Workspace(workspace.url)).clean
