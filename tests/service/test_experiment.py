"""Decisions in an experiment: each request by its arm, in order, logged as what it was."""

import asyncio
from collections import Counter
from datetime import UTC, datetime

import msgspec
import pytest
import worlds
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from service_examples import Asker, experiment, flushed, opened, publish

import potstill as ps
from potstill.events.wal.segment_writer import SegmentWriter
from potstill.experiments.assignment import arm_of
from potstill.experiments.config import ControlConfig, ExperimentConfig
from potstill.experiments.rules import Rules
from potstill.pipeline.audit import run_audit
from potstill.service.decide import Batch, Decider
from potstill.service.experiment import Experiment
from potstill.service.metrics import Metrics
from potstill.service.snapshot import Snapshot
from potstill.service.wire import Requests
from potstill.workspace import Workspace

CONTEXT = {"bandwidth_kbps": 900.0, "connection": "4g"}
RULES = b'default = "1080p"\n[[rule]]\nwhen = { bandwidth_kbps = { below = 1000 } }\naction = "360p"\n'


def made(tmp_path, text: bytes = b"", fallback: bool = False) -> Workspace:
    serve = b'[serve]\nfallback = "1080p"\n' if fallback else b""
    return worlds.made(str(tmp_path / "video"), worlds.CONFIG + serve + text)


def asking(workspace: Workspace, work, **options) -> None:
    async def run() -> None:
        async with opened(workspace, **options) as asker:
            await work(asker)

    asyncio.run(run())


def decisions(workspace: Workspace) -> dict[str, dict[str, object]]:
    frame = flushed(workspace).scan("decisions").collect()
    return {row["id"]: row for row in frame.iter_rows(named=True)}


def requests(n: int, **stated: object) -> list[dict[str, object]]:
    rows = enumerate(worlds.contexts(n))
    return [{"id": f"d{i}", "context": context, "unit": f"user-{i}", **stated} for i, context in rows]


def arms(asked: list[dict[str, object]], name: str = "hd", share: float = 0.5) -> dict[str, str]:
    return {one["id"]: f"{name}:{arm_of(name, one['unit'], share)}" for one in asked}


def test_arms_are_answered_and_logged_by_their_own(tmp_path):
    workspace = made(tmp_path, experiment())
    policy = publish(workspace)
    asked = requests(60)
    told: dict[str, dict[str, object]] = {}

    async def work(asker: Asker) -> None:
        batch = (await asker.post("decide/batch", {"requests": asked[:40]})).json["decisions"]
        assert [one["id"] for one in batch] == [one["id"] for one in asked[:40]]
        single = [(await asker.post("decide", one)).json for one in asked[40:]]
        told.update({one["id"]: one for one in (*batch, *single)})

    asking(workspace, work)
    assert {name: one["arm"] for name, one in told.items()} == arms(asked)
    assert len(set(arms(asked).values())) == 2
    logged = decisions(workspace)
    for one in asked:
        answer, row = told[one["id"]], logged[one["id"]]
        if answer["arm"] == "hd:control":
            assert answer == {**answer, "action": "720p", "propensity": 1.0, "policy": 1, "mode": "control"}
        else:
            decision = policy.decide(one["context"], id=one["id"])
            assert (answer["action"], answer["policy"], answer["mode"]) == (decision.action, 1, "online")
            assert answer["propensity"] == pytest.approx(decision.propensity, abs=1e-6)
        stated = {name: answer[name] for name in ("action", "propensity", "policy", "arm")}
        assert {name: row[name] for name in stated} == stated
        assert row["mode"] == (None if answer["mode"] == "online" else "control")
        assert (row["unit"], row["context_connection"]) == (one["unit"], one["context"]["connection"])
    found = run_audit(workspace)
    assert found.clean
    assert (found.decisions, found.fixed) == (60, Counter(arms(asked).values())["hd:control"])


def test_without_an_experiment_no_answer_and_no_row_has_an_arm(tmp_path):
    workspace = made(tmp_path)

    async def work(asker: Asker) -> None:
        batch = (await asker.post("decide/batch", {"requests": requests(4)})).json["decisions"]
        single = (await asker.post("decide", {"context": CONTEXT, "unit": "u"})).json
        assert all("arm" not in one for one in [*batch, single])

    asking(workspace, work)
    assert {row["arm"] for row in decisions(workspace).values()} == {None}


def test_who_does_not_say_its_unit_is_decided_by_the_policy_without_an_arm_and_counted(tmp_path):
    workspace = made(tmp_path, experiment())
    policy = publish(workspace)
    nameless = [{"id": f"n{i}", "context": CONTEXT} for i in range(5)]
    asked = requests(30)
    counted: dict[str, float] = {}

    async def work(asker: Asker) -> None:
        batch = (await asker.post("decide/batch", {"requests": [*asked, *nameless]})).json["decisions"]
        single = (await asker.post("decide", {"id": "n5", "context": CONTEXT})).json
        for one in [*batch[30:], single]:
            assert "arm" not in one
            assert (one["action"], one["mode"]) == (policy.decide(CONTEXT, id=one["id"]).action, "online")
        text = (await asker.get("/metrics")).body.decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "potstill_experiment_total":
                    counted[sample.labels["arm"]] = sample.value
                if sample.name == "potstill_decisions_total":
                    counted[sample.labels["mode"]] = sample.value

    asking(workspace, work, metrics=Metrics)
    expected = Counter(arm.removeprefix("hd:") for arm in arms(asked).values())
    assert counted == {
        "control": expected["control"],
        "treatment": expected["treatment"],
        "none": 6,
        "online": expected["treatment"] + 6,
    }


def test_asking_again_gives_the_same_answer_also_after_a_restart(tmp_path):
    workspace = made(tmp_path, experiment())
    publish(workspace)
    asked, first = requests(20), []

    async def work(asker: Asker) -> None:
        batch = await asker.post("decide/batch", {"requests": asked})
        first.append(batch.json)
        assert (await asker.post("decide/batch", {"requests": asked})).json == batch.json
        assert (await asker.post("decide", asked[3])).json == batch.json["decisions"][3]

    asking(workspace, work)
    asking(workspace, work)
    assert first[0] == first[1]
    logged = flushed(workspace).scan("decisions").select("id", "action", "propensity", "policy", "arm").collect()
    assert (len(logged), len(logged.unique())) == (20, 20)  # the second start found them in the log


def test_a_control_that_is_not_eligible_gives_way(tmp_path):
    workspace = made(tmp_path, experiment())
    asked = [{**one, "eligible": ["1080p", "360p"]} for one in requests(20)]

    async def work(asker: Asker) -> None:
        batch = (await asker.post("decide/batch", {"requests": asked})).json["decisions"]
        control = [one for one in batch if one["arm"] == "hd:control"]
        assert control
        assert {(one["action"], one["propensity"]) for one in control} == {("1080p", 1.0)}

    asking(workspace, work)
    assert len(decisions(workspace)) == 20
    assert run_audit(workspace).clean


def test_rules_decide_control(tmp_path):
    workspace = made(tmp_path, experiment('{ rules = "rules.toml" }'))
    workspace.storage.create("rules.toml", RULES)
    asked = requests(40)

    async def work(asker: Asker) -> None:
        batch = (await asker.post("decide/batch", {"requests": asked})).json["decisions"]
        for one, answer in zip(asked, batch, strict=True):
            if answer["arm"] == "hd:control":
                expected = "360p" if one["context"]["bandwidth_kbps"] < 1000 else "1080p"
                assert (answer["action"], answer["mode"]) == (expected, "control")

    asking(workspace, work)


def test_an_older_policy_decides_control_as_it_did(tmp_path):
    workspace = made(tmp_path, experiment("{ policy = 1 }"))
    older, newer = publish(workspace), publish(workspace)
    asked = requests(40)

    async def work(asker: Asker) -> None:
        batch = (await asker.post("decide/batch", {"requests": asked})).json["decisions"]
        for one, answer in zip(asked, batch, strict=True):
            policy = older if answer["arm"] == "hd:control" else newer
            decision = policy.decide(one["context"], id=one["id"])
            assert (answer["action"], answer["policy"], answer["mode"]) == (decision.action, policy.version, "online")

    asking(workspace, work)
    assert len(decisions(workspace)) == 40
    found = run_audit(workspace)
    assert found.clean
    assert (found.checked, found.fixed) == (40, 0)


def test_a_feature_may_be_the_unit(tmp_path):
    workspace = made(tmp_path, experiment(unit='"bandwidth_kbps"', share="0.4"))
    asked = [
        {"id": f"d{i}", "context": {**CONTEXT, "bandwidth_kbps": i / 2}, "unit": "all the same"} for i in range(20)
    ]

    async def work(asker: Asker) -> None:
        batch = (await asker.post("decide/batch", {"requests": asked})).json["decisions"]
        units = [f"{i // 2}" if i % 2 == 0 else f"{i / 2}" for i in range(20)]
        assert [one["arm"] for one in batch] == [f"hd:{arm_of('hd', unit, 0.4)}" for unit in units]
        assert len({one["arm"] for one in batch}) == 2

    asking(workspace, work)
    assert {row["unit"] for row in decisions(workspace).values()} == {"all the same"}


@pytest.mark.parametrize("start", ["2999-01-01T00:00:00Z", "1999-01-01T00:00:00+01:00"])
def test_before_its_start_there_is_no_experiment(tmp_path, start):
    workspace = made(tmp_path, experiment(start=start))

    async def work(asker: Asker) -> None:
        answer = (await asker.post("decide", {"context": CONTEXT, "unit": "u"})).json
        assert ("arm" in answer) == start.startswith("1999")

    asking(workspace, work)


def test_other_modes_have_no_experiment(tmp_path):
    workspace = made(tmp_path, experiment(), fallback=True)
    own = [{**one, "action": "360p"} for one in requests(4)]

    async def work(asker: Asker) -> None:
        refused = await asker.post("decide/batch", {"requests": [*requests(3), {**own[0], "id": "own"}]})
        assert refused.status == 422
        assert "at request 3" in refused.json["error"]
        for mode, asked in (("apprentice", own), ("log-only", requests(4))):
            await asker.post("admin/mode", {"mode": mode})
            batch = (
                await asker.post("decide/batch", {"requests": [{**one, "id": one["id"] + mode} for one in asked]})
            ).json
            assert [(one["mode"], "arm" in one) for one in batch["decisions"]] == [(mode, False)] * 4

    asking(workspace, work)


def test_what_falls_back_keeps_its_arm(tmp_path, monkeypatch):
    workspace = made(tmp_path, experiment(), fallback=True)
    asked = requests(20)
    monkeypatch.setattr(ps.Policy, "decide_rows", _undecided)

    async def work(asker: Asker) -> None:
        batch = (await asker.post("decide/batch", {"requests": asked})).json["decisions"]
        assert {one["id"]: one["arm"] for one in batch} == arms(asked)
        modes = {(one["arm"], one["mode"], one["action"]) for one in batch}
        assert modes == {("hd:control", "control", "720p"), ("hd:treatment", "fallback", "1080p")}

    asking(workspace, work)
    assert {name: row["arm"] for name, row in decisions(workspace).items()} == arms(asked)


def _undecided(*_, **__):
    raise ps.InvalidPolicy("its scores are not finite")


def test_a_disk_that_is_full_is_answered_with_the_fallback_of_each_arm(tmp_path, monkeypatch):
    workspace = made(tmp_path, experiment(), fallback=True)
    asked = requests(8)

    async def work(asker: Asker) -> None:
        with monkeypatch.context() as disk:
            disk.setattr(SegmentWriter, "commit", _full)
            batch = (await asker.post("decide/batch", {"requests": asked})).json["decisions"]
            assert {one["mode"] for one in batch} == {"fallback"}
            assert {one["id"]: one["arm"] for one in batch} == arms(asked)

    asking(workspace, work)


def _full(*_):
    raise OSError(28, "No space left on device")


PROBLEM = ps.Problem(
    name="video", context=[ps.Numeric("speed", low=0, high=1)], actions=ps.Discrete(["low", "mid", "high"])
)
POLICY = ps.Policy.uniform(PROBLEM, version=3)
units = st.lists(st.none() | st.sampled_from(["a", "b", "c", "d", "ü"]), min_size=1, max_size=12)


@given(
    units,
    st.sampled_from([Rules(PROBLEM.actions, "mid"), ps.Policy.uniform(PROBLEM, version=1, seed=5)]),
    st.floats(0.01, 0.99),
)
def test_any_mix_of_arms_is_decided_as_one_by_one(stated, control, share):
    config = ExperimentConfig(name="e", control=ControlConfig(action="mid"), share=share)
    served, decider = Experiment(config, PROBLEM, control), Decider(PROBLEM, None)
    read = Requests(PROBLEM).read_batch
    rows = [{"id": f"{i}", "context": {"speed": 0.5}, "unit": unit} for i, unit in enumerate(stated)]
    snapshot = Snapshot(POLICY, 1, "online", datetime.now(UTC))

    def decide(part):
        asked = Batch(read(msgspec.json.encode({"requests": part})).requests)
        return served.decide(snapshot, asked, decider.decide, decider)

    together = decide(rows)
    alone = [decide([row]) for row in rows]
    assert together.replies == [one.replies[0] for one in alone]
    for unit, reply in zip(stated, together.replies, strict=True):
        assert reply.arm == (None if unit is None else f"e:{arm_of('e', unit, share)}")
    logged = [row for block in together.rows for row in (block.rows() if hasattr(block, "rows") else [block])]
    answered = {reply.id: (reply.action, reply.propensity, reply.policy, reply.arm) for reply in together.replies}
    assert {row.id: (row.action, row.propensity, row.policy, row.arm) for row in logged} == answered
    assert {row.id: row.unit for row in logged} == {f"{i}": unit for i, unit in enumerate(stated)}
